"""Parses values of command-line options, and refuses invalid ones before any work is done."""

from __future__ import annotations

import argparse
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias, TypedDict

from nnburst.hal.errors import InvalidArgument
from nnburst.hal.regular_file import read_regular_file

#: Where a command adds its parser (argparse gives the type no public name).
Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def at_least_one(text: str) -> int:
    """A count from 1 on."""
    try:
        count = int(text)
    except ValueError:
        count = 0
    if count < 1:
        raise argparse.ArgumentTypeError(f"{text!r}, expected a number of 1 or more")
    return count


def zero_or_more(text: str) -> int:
    """A number that may be 0, such as a seed."""
    try:
        number = int(text)
    except ValueError:
        number = -1
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text!r}, expected a number of 0 or more")
    return number


def above_zero(text: str) -> float:
    """A finite number above 0: a duration, in the unit that the help names."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r}, expected a number above 0")
    return number


def not_negative(text: str) -> float:
    """A finite number that may be 0: a duration, in the unit that the help names."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r}, expected a number of 0 or more")
    return number


def pattern(text: str) -> str:
    """A regular expression."""
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a regular expression: {error}") from None
    return text


def cores(text: str) -> str:
    """Cores that this process may run on, comma-separated."""
    allowed = sorted(os.sched_getaffinity(0))
    try:
        wanted = {int(core) for core in text.split(",")}
    except ValueError:
        wanted = set()
    if not wanted or not wanted <= set(allowed):
        raise argparse.ArgumentTypeError(f"{text!r}, expected some of {allowed}, comma-separated")
    return ",".join(map(str, sorted(wanted)))


class LoadOptions(TypedDict):
    """Arguments of `nnburst.load` other than the file."""

    shapes: dict[str, tuple[int, ...]]
    constants: dict[str, float]
    states: dict[str, str]
    as_graph: bool | None
    exact: bool | None
    extensions: list[str]


def add_network_options(parser: argparse.ArgumentParser) -> None:
    """Add --shape, --constant, --state, --as-graph, --exact and --extension."""
    parser.add_argument(
        "--shape",
        type=_shape,
        action="append",
        default=[],
        metavar="INPUT=1,3,…",
        help="dimensions of an input that the file leaves open; may be repeated",
    )
    parser.add_argument(
        "--constant",
        type=_constant,
        action="append",
        default=[],
        metavar="INPUT=NUMBER",
        help="an input of an .onnx file that is the same in every execution; may be repeated",
    )
    parser.add_argument(
        "--state",
        type=_pair,
        action="append",
        default=[],
        metavar="INPUT=OUTPUT",
        help="an input of an .onnx file that takes what an output gave before; may be repeated",
    )
    parser.add_argument(
        "--as-graph",
        action=argparse.BooleanOptionalAction,
        help="run the file as one operation on its own engine, or by operations of NNAPI only (default: by"
        " operations if all of it can be)",
    )
    parser.add_argument(
        "--exact",
        action=argparse.BooleanOptionalAction,
        help="multiply real numbers with 8-bit weights in float32, or let the engine round the numbers to 8"
        " bits (default: as the file's own engine does)",
    )
    parser.add_argument(
        "--extension",
        action="append",
        default=[],
        metavar="MODULE:ATTRIBUTE",
        help="vendor extension beside those of entry points, which may claim operators of a .tflite file; a"
        " driver that is launched has it, too; may be repeated",
    )


def load_options(args: argparse.Namespace) -> LoadOptions:
    """The options as keyword arguments of `nnburst.load`.

    Raises:
        InvalidArgument: two outputs are for one state.
    """
    from nnburst.importer.named_sources import named_states  # here, because few commands need it

    return {
        "shapes": dict(args.shape),
        "constants": dict(args.constant),
        "states": named_states(args.state),
        "as_graph": args.as_graph,
        "exact": args.exact,
        "extensions": args.extension,
    }


def options_for(path: Path, args: argparse.Namespace) -> dict[str, Any]:
    """The part of `load_options` that a file takes: all for .onnx, fewer for .tflite.

    Raises:
        OSError: the file cannot be read.
    """
    from nnburst.importer.load import is_onnx

    given: dict[str, Any] = dict(load_options(args))
    if not is_onnx(read_regular_file(path)):
        given = {name: given[name] for name in ("as_graph", "exact", "extensions")}
    return given


def refuse_options(given: Mapping[str, bool], rule: str) -> None:
    """Refuse options that the command would ignore as it was called.

    Args:
        given: whether an option was given, by its name.
        rule: the end of the message, such as "given with --layers, expected only without".

    Raises:
        InvalidArgument: one of them was given.
    """
    for option, is_given in given.items():
        if is_given:
            raise InvalidArgument(f"{option}: {rule}")


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.rpartition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"{text!r}, expected a name, = and a value")
    return name, value


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    from nnburst.importer.named_sources import named_shape  # here, because few commands need it

    try:
        return named_shape(text)
    except InvalidArgument as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix("--shape: ")) from None


def _constant(text: str) -> tuple[str, float]:
    name, value = _pair(text)
    try:
        return name, float(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{value!r}, expected a number") from None
