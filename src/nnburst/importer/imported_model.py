"""Defines imported models, with their names, states and signatures.

`Extensions` finds the vendor extension that translates a custom operator of the file.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from nnburst.hal.errors import DeviceUnavailable, InvalidArgument
from nnburst.hal.extensions import GROUP, ClaimsOperators, CustomOperator, extension_code
from nnburst.hal.model import ExtensionNameAndPrefix, Model, described


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """A variable of the network, which became an input and an output of the model.

    The first execution gets `initial`, each later one the output of the execution before.

    Attributes:
        name: name of the variable.
        input_index: position among the model's inputs.
        output_index: position among the model's outputs.
        initial: value before the first execution; the input's shape and dtype, read-only.
    """

    name: str
    input_index: int
    output_index: int
    initial: npt.NDArray[np.generic]


@dataclass(frozen=True, slots=True)
class SignatureDef:
    """Names that a file gives to the inputs and outputs of its main subgraph.

    In a model from `nnburst.load`, the values are positions among the model's inputs and outputs.
    """

    key: str
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]


@dataclass(frozen=True, slots=True, eq=False)
class ImportedModel:
    """A network that was read from a file. Immutable; `Device.prepare` accepts it.

    Attributes:
        model: its inputs are the network's, then one per state; its outputs likewise.
        pools: bytes of the model's pools, read-only uint8 arrays, in the model's order.
        input_names: names of all inputs, states included.
        output_names: names of all outputs, states included.
        states: the variables.
        signatures: names that the file gives to inputs and outputs.
        metadata: other contents of the file, by name.
        description: the file's description.
        operators: for each operation of the main subgraph, the operator that it comes from
            ("3 CONV_2D").
        output_shapes: for each output the shape that the file declares, where `model` has none; 0 is an open
            extent, and all is open without a shape. A file may be wrong about outputs whose extents depend
            on data, so no result is compared with it. Empty if `model` says it all.
        row_dimension: the file's name for the first dimension of all inputs and outputs; empty if they have
            no common name.
        refusal: why the file is one operation without `as_graph=True`; empty for any other model.
    """

    model: Model
    pools: tuple[npt.NDArray[np.uint8], ...] = ()
    input_names: tuple[str, ...] = ()
    output_names: tuple[str, ...] = ()
    states: tuple[State, ...] = ()
    signatures: tuple[SignatureDef, ...] = ()
    metadata: Mapping[str, bytes] = field(default_factory=dict)
    description: str = ""
    operators: tuple[str, ...] = ()
    output_shapes: tuple[tuple[int, ...], ...] = ()
    row_dimension: str = ""
    refusal: str = ""

    def __repr__(self) -> str:
        size = sum(pool.nbytes for pool in self.pools)
        return f"<nnburst.ImportedModel: {described(self.model)}, {len(self.states)} states, {size} bytes>"


def unused_name(wanted: str, taken: Collection[str]) -> str:
    """`wanted`, with as many underscores behind it as it needs to differ from each of `taken`."""
    while wanted in taken:
        wanted += "_"
    return wanted


class Extensions:
    """The extensions of one translation: first the given ones, then those of entry points. For one thread."""

    def __init__(self, given: Sequence[ClaimsOperators | str]) -> None:
        """Start without extensions in use.

        Args:
            given: extensions, or `module:attribute` strings that name them.

        Raises:
            DeviceUnavailable: one cannot be imported, or is not an extension.
        """
        self._given = [
            _imported(each) if isinstance(each, str) else _checked(each) for each in given
        ]
        self._prefixes: dict[str, int] = {}

    def find(self, name: str) -> tuple[ClaimsOperators, CustomOperator] | None:
        """Find the extension that claims the custom operator `name`, and its translation; None without one.

        Raises:
            InvalidArgument: two extensions claim it.
        """
        for extensions in (self._given, self._installed):
            claiming = [each for each in extensions if name in each.custom_operators]
            if len(claiming) > 1:
                names = " and ".join(each.name for each in claiming)
                raise InvalidArgument(f"custom operator {name!r} is claimed by {names}")
            if claiming:
                return claiming[0], claiming[0].custom_operators[name]
        return None

    @cached_property
    def _installed(self) -> list[ClaimsOperators]:
        from importlib.metadata import entry_points  # takes 10 ms, which few files need

        return [_imported(point.value) for point in entry_points(group=GROUP)]

    def code(self, extension: ClaimsOperators, number: int) -> int:
        """The code in the model of an extension's type or operation; marks the extension as used."""
        prefix = self._prefixes.setdefault(extension.name, len(self._prefixes) + 1)
        return extension_code(prefix, number)

    @property
    def used(self) -> tuple[ExtensionNameAndPrefix, ...]:
        """The extensions that the model uses."""
        return tuple(
            ExtensionNameAndPrefix(name, prefix) for name, prefix in self._prefixes.items()
        )


def _imported(target: str) -> ClaimsOperators:
    module, _, attribute = target.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise DeviceUnavailable(f"extension {target!r} cannot be imported: {error}") from error
    return _checked(found)


def _checked(found: object) -> ClaimsOperators:
    if not isinstance(found, ClaimsOperators):
        raise DeviceUnavailable(
            f"extension {found!r} is a {type(found).__name__}, expected a VendorExtension"
        )
    return found
