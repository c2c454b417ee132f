"""Describes a node's operands for shape rules and kernels: a type, and an array with the elements."""

from __future__ import annotations

import math
from array import array as packed
from collections.abc import Sequence
from struct import unpack
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import msgspec

from nnburst.hal import late_numpy as np
from nnburst.hal import model
from nnburst.hal.enums import OperandType
from nnburst.hal.extensions import ExtensionOperandType
from nnburst.hal.model import ELEMENT_BYTES, ELEMENT_CODES, SCALARS, ExtraParams

if TYPE_CHECKING:
    import numpy.typing as npt

Array: TypeAlias = "npt.NDArray[Any]"


class TensorType(msgspec.Struct, frozen=True):
    """Type, shape and quantisation, which a shape rule computes.

    Attributes:
        type: core operand type, or an extension's, which has a name and a value like a member.
        dimensions: extents, all known; () for scalars. A 0 is a truly empty extent here.
        scale: quantisation step (a float32 value held as a Python float).
        zero_point: stored value of 0.
        extra_params: per-channel scales, or an extension's bytes.
    """

    type: OperandType
    dimensions: tuple[int, ...]
    scale: float = 0.0
    zero_point: int = 0
    extra_params: ExtraParams = None

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements."""
        kind: object = self.type
        return kind.dtype if isinstance(kind, ExtensionOperandType) else model.DTYPES[self.type]

    @property
    def element_bytes(self) -> int:
        """Bytes of an element."""
        kind: object = self.type
        if isinstance(kind, ExtensionOperandType):
            return kind.dtype.itemsize
        return ELEMENT_BYTES[self.type]

    @property
    def byte_size(self) -> int:
        """Bytes of all elements, side by side."""
        return math.prod(self.dimensions) * self.element_bytes

    @property
    def is_scalar(self) -> bool:
        """Whether the type is a scalar's, which never has dimensions."""
        kind: object = self.type
        return not kind.is_tensor if isinstance(kind, ExtensionOperandType) else kind in SCALARS


class Tensor:
    """A typed array. If its elements are given in another form, the array is made when it is first read.

    Attributes:
        meta: type, shape and quantisation; `meta.dimensions == array.shape`.
    """

    __slots__ = ("_array", "_stored", "meta")

    def __init__(self, meta: TensorType, array: Array) -> None:
        """A tensor whose elements are an array."""
        self.meta = meta
        self._array: Array | None = array
        self._stored: memoryview | None = None

    @classmethod
    def of_stored(cls, meta: TensorType, stored: bytes | memoryview) -> Self:
        """A tensor of stored elements: bytes that do not change, as many as the type takes."""
        made = cls.of_unknown(meta)
        made._stored = memoryview(stored)
        return made

    @classmethod
    def of_unknown(cls, meta: TensorType) -> Self:
        """A tensor of which only the type is known: its array has zeros, which take no memory."""
        made = cls.__new__(cls)
        made.meta, made._array, made._stored = meta, None, None
        return made

    @classmethod
    def of_numbers(cls, meta: TensorType, numbers: Sequence[float]) -> Self:
        """A tensor of a core type, with its elements in the order in which they lie in memory."""
        return cls.of_stored(meta, packed(ELEMENT_CODES[meta.type], numbers).tobytes())

    def of_type(self, meta: TensorType) -> Tensor:
        """The same elements as another type of equal size: with other scales, for example."""
        if self._stored is None:
            return Tensor(meta, self.array)
        return Tensor.of_stored(meta, self._stored)

    @property
    def array(self) -> Array:
        """The elements; inputs are read-only, outputs are written in place (`out=`, `[...] =`)."""
        if self._array is None:
            self._array = self._made()
        return self._array

    def _made(self) -> Array:
        dtype = self.meta.dtype
        if self._stored is None:
            return np.broadcast_to(np.zeros((), dtype), self.meta.dimensions)
        found = np.frombuffer(self._stored, np.uint8)
        if found.ctypes.data % dtype.itemsize:
            found = found.copy()
        return read_only(found.view(dtype).reshape(self.meta.dimensions))

    @property
    def stored(self) -> memoryview | None:
        """The bytes of the elements in order, if the tensor was made of bytes; else None."""
        return self._stored

    @property
    def numbers(self) -> list[Any]:
        """The elements in order, as Python's numbers."""
        code = ELEMENT_CODES.get(self.meta.type)
        if self._stored is None or code is None:
            found: list[Any] = self.array.reshape(-1).tolist()
            return found
        return list(unpack(f"<{math.prod(self.meta.dimensions)}{code}", self._stored))

    @property
    def type(self) -> OperandType:
        """Operand type."""
        return self.meta.type

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents."""
        return self.meta.dimensions

    @property
    def scale(self) -> float:
        """Quantisation step."""
        return self.meta.scale

    @property
    def zero_point(self) -> int:
        """Stored value of 0."""
        return self.meta.zero_point

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type of `array`."""
        return self.array.dtype


def float32(number: float) -> float:
    """A number rounded to float32; too large ones become infinite."""
    return packed("f", [number])[0]


def float32_products(x: float, others: Sequence[float]) -> list[float]:
    """The products of `x` with each of `others`, rounded to float32."""
    rounded = float32(x)  # products are exact before they are rounded: two factors of 24 bits
    return packed("f", [rounded * other for other in packed("f", others)]).tolist()


def read_only(array: Array) -> Array:
    """A view of `array` that cannot be written to."""
    view = array.view()
    view.flags.writeable = False
    return view
