"""Describes the operands of a model that is being built, with their values."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec.structs import replace

from nnburst.hal.enums import FeatureLevel, OperandLifeTime
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.limits import UINT32_MAX
from nnburst.hal.model import (
    SCALARS,
    ExtraParams,
    Model,
    Operand,
    is_extension,
    refuse_masked,
    size_bytes,
)
from nnburst.hal.validation.operation import Surroundings, validate_operand_type
from nnburst.hal.validation.values import Broken
from nnburst.runtime.extensions import TypeRegistry
from nnburst.runtime.objects.memory import Memory

#: An empty context for checks of type, dimensions and quantisation, which need no values.
_AROUND = Surroundings(0, (), 0, frozenset(), FeatureLevel.AIDL_V4)


@dataclass(frozen=True, slots=True)
class OperandDescription:
    """Type, extents and quantisation of an operand (NNAPI: ANeuralNetworksOperandType).

    Attributes:
        type: an `OperandType`, or the code of an extension's type.
        dimensions: row-major extents; 0 is unknown, empty is a scalar or a tensor of unknown rank. None is
            a null pointer with a count from the C interface, which is refused.
        scale: quantisation step.
        zero_point: stored value that stands for 0.
    """

    type: int
    dimensions: Sequence[int] | None = ()
    scale: float = 0.0
    zero_point: int = 0

    def checked(self, what: str, types: TypeRegistry) -> Operand:
        """Check the description, and make an operand without a value.

        Args:
            what: name of the operand, for messages.
            types: the extensions' types.

        Raises:
            InvalidArgument: RT:M3: the type is unknown, or dimensions or quantisation do not fit it.
        """
        if self.dimensions is None:
            raise InvalidArgument(f"{what}: dimensions are null although their count is not 0")
        try:
            operand = Operand(
                type=operator.index(self.type),
                dimensions=tuple(map(operator.index, self.dimensions)),
                scale=float(self.scale),
                zero_point=operator.index(self.zero_point),
            )
        except (TypeError, ValueError) as error:
            raise InvalidArgument(f"{what}: {error}") from None
        try:
            if is_extension(operand.type):
                _check_extension_operand(operand, types)
            else:
                kind = validate_operand_type(operand, _AROUND)
                if kind is not None and size_bytes(kind, operand.dimensions) > UINT32_MAX:
                    raise Broken("O5", f"{list(operand.dimensions)} needs more than 2^32 bytes")  # noqa: TRY301
        except Broken as broken:
            raise broken.at(what) from None
        return operand


def _check_extension_operand(operand: Operand, types: TypeRegistry) -> None:
    known = types.find_operand_type(operand.type)
    if known is None:
        raise Broken("M9", f"type {operand.type:#x} belongs to no extension that a device has")
    validate_operand_type(operand, _AROUND._replace(prefixes=types.prefixes))
    if not known.is_tensor and operand.dimensions:
        raise Broken(
            "O2", f"a scalar of type {operand.type:#x} has {len(operand.dimensions)} dimensions"
        )
    if types.size_bytes(operand) > UINT32_MAX:
        raise Broken("O5", f"{list(operand.dimensions)} needs more than 2^32 bytes")


def is_fully_specified(operand: Operand, types: TypeRegistry) -> bool:
    """Whether all dimensions of an operand are known (scalars have none)."""
    if is_scalar_operand(operand, types):
        return True
    return bool(operand.dimensions) and 0 not in operand.dimensions


def is_scalar_operand(operand: Operand, types: TypeRegistry) -> bool:
    """Whether an operand is a scalar, of NNAPI or of an extension."""
    if is_extension(operand.type):
        known = types.find_operand_type(operand.type)
        return known is not None and not known.is_tensor
    return operand.type in SCALARS


#: NNAPI: ANEURALNETWORKS_MAX_SIZE_OF_IMMEDIATELY_COPIED_VALUES.
MAX_IMMEDIATELY_COPIED: Final = 128


@dataclass(frozen=True, slots=True)
class MemoryRange:
    """A constant that lies in a memory."""

    memory: Memory
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class BuiltModel:
    """A finished model in the form for models that refer to it.

    Attributes:
        model: the model with the client's numbers and order.
        relaxed: for the main and each referenced model, whether float32 may be computed as float16.
        memories: memories of the pools.
    """

    model: Model
    relaxed: tuple[bool, ...]
    memories: tuple[Memory, ...]


@dataclass(slots=True)
class ModelOperand:
    """An operand and the source of its value.

    Attributes:
        description: type, dimensions and quantisation.
        lifetime: set by the calls that give values, and that list inputs and outputs.
        extra_params: per-channel scales or an extension's bytes.
        value: a small constant's bytes, a view of a large one, a range of a memory, or a model.
    """

    description: Operand
    lifetime: OperandLifeTime = OperandLifeTime.TEMPORARY_VARIABLE
    extra_params: ExtraParams = None
    value: bytes | memoryview | MemoryRange | BuiltModel | None = field(default=None, repr=False)

    def as_operand(self) -> Operand:
        """The operand without its value."""
        return replace(self.description, extra_params=self.extra_params)

    def give(
        self, lifetime: OperandLifeTime, value: bytes | memoryview | MemoryRange | BuiltModel | None
    ) -> None:
        """Set lifetime and value; the last call counts."""
        self.lifetime, self.value = lifetime, value


#: Anything with a contiguous buffer: bytes, arrays, cffi buffers.
Readable = Any


def byte_view(name: str, value: Readable, *, writable: bool = False) -> memoryview:
    """The bytes of a buffer, in place.

    Args:
        name: name of the argument, for messages.
        value: anything with a contiguous buffer.
        writable: whether the buffer must be writable.

    Raises:
        InvalidArgument: the value has no such buffer, or is a masked array.
    """
    refuse_masked(name, value)
    try:
        view = memoryview(value)
        view = view.cast("B") if view.nbytes else memoryview(b"")
    except TypeError as error:
        raise InvalidArgument(f"{name}: {error}, expected a contiguous buffer") from None
    if writable and view.nbytes and view.readonly:
        raise InvalidArgument(f"{name}: it is read-only")
    return view
