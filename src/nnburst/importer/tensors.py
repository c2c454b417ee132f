"""Describes operands of any file's network and collects their constants into pools."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nnburst.formats.budget import Budget
from nnburst.hal.enums import OperandLifeTime, OperandType
from nnburst.hal.errors import InvalidArgument, flag
from nnburst.hal.model import DTYPES, DataLocation, ExtraParams, SymmPerChannelQuantParams

_T = OperandType

QUANT8: Final = frozenset({_T.TENSOR_QUANT8_ASYMM, _T.TENSOR_QUANT8_ASYMM_SIGNED})


@dataclass(frozen=True, slots=True)
class TensorType:
    """Type, dimensions and quantisation of an operand, without its value.

    Attributes:
        type: operand type.
        dimensions: extents, all known; a scalar of the file is a tensor of one element.
        scale: quantisation step.
        zero_point: stored value of 0.
        extra_params: per-channel scales.
    """

    type: OperandType
    dimensions: tuple[int, ...]
    scale: float = 0.0
    zero_point: int = 0
    extra_params: ExtraParams = field(default=None, hash=False)  # often thousands of scales

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.dimensions)

    @property
    def is_float(self) -> bool:
        """Whether the stored elements are real numbers themselves."""
        return self.type in (_T.TENSOR_FLOAT32, _T.TENSOR_FLOAT16)

    @property
    def is_quantized(self) -> bool:
        """Whether the stored elements are integers that stand for real numbers."""
        return self.type in QUANT8 or self.type == _T.TENSOR_QUANT8_SYMM_PER_CHANNEL

    def reshaped(self, *dimensions: int) -> TensorType:
        """The same elements in another shape."""
        return replace(self, dimensions=dimensions)

    def same_quantization(self, other: TensorType) -> bool:
        """Whether equal stored values stand for equal numbers."""
        return (self.scale, self.zero_point, self.extra_params) == (
            other.scale,
            other.zero_point,
            other.extra_params,
        )


Array = npt.NDArray[Any]

#: NNAPI: ANEURALNETWORKS_MAX_SIZE_OF_IMMEDIATELY_COPIED_VALUES; larger constants go into the pool.
_LARGEST_COPY: Final = 128
#: The alignment of constants that engines require.
_ALIGNMENT: Final = 64


# -- Constants: read late, converted one at a time, large ones into one pool -----------------------
# A constant remains a description of bytes in the file until an operation uses it. So dropped constants cost
# no folding, and at most one converted copy is in memory beside the pool.


@dataclass(frozen=True, slots=True)
class Constant:
    """A value that the file holds.

    Attributes:
        type: type of the operand that it becomes.
        read: makes the array, of the operand's element type and shape; it may be a view of the file.
        cost: the most bytes that `read` allocates.
        key: equal for constants with equal bytes; None for ones that are not shared.
        name: the tensor's name, for messages.
    """

    type: TensorType
    read: Callable[[], Array]
    cost: int
    key: Hashable = None
    name: str = ""

    @property
    def size(self) -> int:
        """Bytes of the value."""
        return self.type.elements * DTYPES[self.type.type].itemsize

    def retyped(self, kind: TensorType) -> Constant:
        """The same bytes as an operand of another type with elements of the same size."""
        return replace(self, type=kind, read=lambda: self.read().reshape(kind.dimensions))


def constant_of(kind: TensorType, values: npt.ArrayLike) -> Constant:
    """A small constant that the importer adds."""
    array = np.asarray(values, DTYPES[kind.type]).reshape(kind.dimensions)
    return Constant(kind, lambda: array, 0)


def integers(values: npt.ArrayLike) -> Constant:
    """A TENSOR_INT32 constant of one dimension."""
    array = np.asarray(values, np.int32).reshape(-1)
    return constant_of(TensorType(OperandType.TENSOR_INT32, array.shape), array)


def dequantized(constant: Constant) -> Constant:
    """The real numbers of a quantised or float16 constant, as float32."""
    kind = constant.type
    real = TensorType(OperandType.TENSOR_FLOAT32, kind.dimensions)

    def read() -> Array:
        stored = constant.read()
        if kind.is_float:
            return stored.astype(np.float32)
        scales: Array | np.float32 = np.float32(kind.scale)
        if isinstance(kind.extra_params, SymmPerChannelQuantParams):
            shape = [1] * len(kind.dimensions)
            shape[kind.extra_params.channel_dim] = -1
            scales = np.array(kind.extra_params.scales, np.float32).reshape(shape)
        values = stored.astype(np.float32)
        values -= np.float32(kind.zero_point)
        values *= scales
        return values

    key = None if constant.key is None else ("float32", constant.key, kind)
    return Constant(real, read, constant.cost + 4 * kind.elements, key, constant.name)


class ConstantPool:
    """Stores the constants of a model: small ones in `operand_values`, large ones in a pool.

    Attributes:
        values: the model's operand_values.
    """

    def __init__(self, budget: Budget) -> None:
        """Start without constants; each one is charged to `budget`."""
        self.values = bytearray()
        self._budget = budget
        self._large: list[tuple[int, Constant]] = []
        self._size = 0
        self._places: dict[Hashable, DataLocation] = {}

    def place(self, constant: Constant) -> tuple[OperandLifeTime, DataLocation]:
        """Find room for a constant."""
        if constant.size <= _LARGEST_COPY:
            return OperandLifeTime.CONSTANT_COPY, self.copy(self.read(constant).tobytes())
        if constant.key is not None and constant.key in self._places:
            return OperandLifeTime.CONSTANT_REFERENCE, self._places[constant.key]
        offset = self._size + -self._size % _ALIGNMENT
        self._budget.spend(offset + constant.size - self._size)
        self._size = offset + constant.size
        self._large.append((offset, constant))
        location = DataLocation(0, offset, constant.size)
        if constant.key is not None:
            self._places[constant.key] = location
        return OperandLifeTime.CONSTANT_REFERENCE, location

    def copy(self, data: bytes) -> DataLocation:
        """Append a small value to `values`."""
        self.values.extend(b"\0" * (-len(self.values) % 16))
        self.values.extend(data)
        return DataLocation(0, len(self.values) - len(data), len(data))

    def charge(self, size: int) -> None:
        """Charge the budget for `size` bytes that are kept elsewhere."""
        self._budget.spend(size)

    def read(self, constant: Constant) -> Array:
        """The value of a constant, which the pool does not keep."""
        self._budget.spend(constant.cost)
        try:
            with np.errstate(all="ignore"):  # a hostile file's numbers may overflow
                array = constant.read()
        except InvalidArgument as error:
            raise InvalidArgument(f"{constant.name}: {error}") from None
        self._budget.release(constant.cost)
        return array

    def fill(self) -> tuple[npt.NDArray[np.uint8], ...]:
        """The bytes of the model's pools, read-only: one, or none if nothing is large."""
        if not self._size:
            return ()
        pool = np.zeros(self._size, np.uint8)
        for offset, constant in self._large:
            part = pool[offset : offset + constant.size].view(DTYPES[constant.type.type])
            part.reshape(constant.type.dimensions)[...] = self.read(constant)
        pool.flags.writeable = False
        return (pool,)


class Refused(InvalidArgument):
    """NNAPI cannot express an operator; the caller adds the operator to the message."""


def as_graph_hint() -> str:
    """The advice to import a refused file as a whole graph instead."""
    return f"{flag('nnburst.load', 'as_graph')} runs the whole graph as one operation"
