"""Parses the `--model` options that name networks to serve, without what reads them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from nnburst.hal.errors import InvalidArgument, as_options, spelt

#: Options that apply to the last `--model` option before them.
OF_MODEL: Final = ("--shape", "--state", "--largest")


class NamedSource(NamedTuple):
    """A network that a `--model NAME[@VERSION]=FILE` option or a folder of a repository names.

    Attributes:
        name: name under which it is served.
        version: version under which it is served; 1 by default.
        source: a file, or `module:attribute`.
        shapes: dimensions of inputs that the file leaves open, by name, from the `--shape` options behind
            `--model`.
        states: outputs that stay in the driver as inputs of the next request, by names of these inputs.
        largest: outputs that are replaced with the index of the largest element.
        in_config: whether shapes and states come from the model's config.pbtxt, not from options.
    """

    name: str
    version: int
    source: str
    shapes: Mapping[str, tuple[int, ...]] = {}
    states: Mapping[str, str] = {}
    largest: tuple[str, ...] = ()
    in_config: bool = False

    def words(self) -> list[str]:
        """The command-line options that name it."""
        found = ["--model", f"{self.name}@{self.version}={self.source}"]
        for name, shape in self.shapes.items():
            found += ["--shape", f"{name}={','.join(map(str, shape))}"]
        for before, after in self.states.items():
            found += ["--state", f"{before}={after}"]
        for name in self.largest:
            found += ["--largest", name]
        return found


_WORD: Final = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,127})(?:@([1-9][0-9]{0,8}))?=(.+)")


def named_shape(word: str) -> tuple[str, tuple[int, ...]]:
    """Parse INPUT=1,3,…, the value of a `--shape` option, into name and extents.

    Raises:
        InvalidArgument: the value does not have this form.
    """
    name, equals, value = word.rpartition("=")
    extents = value.split(",")
    if not (name and equals):
        raise InvalidArgument(f"--shape: {word!r}, expected a name, = and extents")
    if not all(extent.isascii() and extent.isdigit() and int(extent) for extent in extents):
        raise InvalidArgument(f"--shape: {value!r}, expected extents above 0, comma-separated")
    return name, tuple(map(int, extents))


def named_sources(options: Iterable[tuple[str, str]]) -> tuple[NamedSource, ...]:
    """Parse `--model` options into networks, each with the options of `OF_MODEL` that follow it.

    Args:
        options: all options with their values, in order.

    Raises:
        InvalidArgument: an option does not have its form, a name and version come twice, or no network
            precedes an option.
    """
    found: dict[tuple[str, int], NamedSource] = {}
    last: tuple[str, int] | None = None
    for option, word in options:
        if option in OF_MODEL:
            if last is None:
                raise InvalidArgument(
                    f"{option}: {word!r}, expected behind the --model that it is for"
                )
            found[last] = _with_option(found[last], option, word)
            continue
        parts = _WORD.fullmatch(word)
        if parts is None:
            raise InvalidArgument(
                f"--model: {word!r}, expected NAME=FILE or NAME@VERSION=FILE; a name has letters, digits,"
                " '.', '_' and '-', a version is a number from 1 on"
            )
        source = NamedSource(parts[1], int(parts[2] or 1), parts[3])
        if source[:2] in found:
            raise InvalidArgument(f"--model: {source.name}@{source.version} comes twice")
        last = source[:2]
        found[last] = source
    return tuple(found.values())


def named_states(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Make a mapping of pairs of a state's input and output.

    Raises:
        InvalidArgument: two outputs are for one input.
    """
    found: dict[str, str] = {}
    for before, after in pairs:
        if before in found:
            raise InvalidArgument(
                f"{spelt('states', before)}: from {found[before]!r} and from {after!r}, expected one output"
            )
        found[before] = after
    return found


def _with_option(source: NamedSource, option: str, word: str) -> NamedSource:
    if option == "--shape":
        return source._replace(shapes={**source.shapes, **dict([named_shape(word)])})
    if option == "--largest":
        return source._replace(largest=(*source.largest, word))
    before, equals, after = word.rpartition("=")
    if not (before and equals and after):
        raise InvalidArgument(f"--state: {word!r}, expected names of an input, = and an output")
    with as_options():
        return source._replace(states=named_states([*source.states.items(), (before, after)]))
