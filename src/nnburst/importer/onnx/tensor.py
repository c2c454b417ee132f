"""A tensor of an ONNX graph while it is translated: what is known of it, and where its elements are."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nnburst.hal.enums import OperandType
from nnburst.importer.onnx.layout import Order, Shape
from nnburst.importer.refused import Refused
from nnburst.importer.subgraph import Value

Array = npt.NDArray[Any]
_T = OperandType

#: Operand types of ONNX's element types. Integers of 64 bits are 32 in NNAPI, checked if they are known.
OPERAND_TYPES: Final[dict[np.dtype[Any], OperandType]] = {
    np.dtype(np.float32): _T.TENSOR_FLOAT32,
    np.dtype(np.float16): _T.TENSOR_FLOAT16,
    np.dtype(np.int32): _T.TENSOR_INT32,
    np.dtype(np.int64): _T.TENSOR_INT32,
    np.dtype(np.bool_): _T.TENSOR_BOOL8,
    np.dtype(np.uint8): _T.TENSOR_QUANT8_ASYMM,
    np.dtype(np.int8): _T.TENSOR_QUANT8_ASYMM_SIGNED,
}


@dataclass(frozen=True, slots=True)
class QuantizedConstant:
    """Stored integers that stand for real numbers: (stored - zero_point) * scale, along an axis.

    Attributes:
        stored: the integers.
        scale: one, or one for each index of `axis`.
        zero_point: likewise.
        axis: which; of no matter for one scale.
    """

    stored: Array
    scale: Array
    zero_point: Array
    axis: int

    def real(self) -> Array:
        """The numbers."""
        shape = [1] * self.stored.ndim
        if self.scale.size > 1:
            shape[self.axis] = -1
        difference = self.stored.astype(np.int32) - self.zero_point.reshape(shape).astype(np.int32)
        numbers: Array = difference.astype(np.float32) * self.scale.reshape(shape)
        return numbers.astype(self.scale.dtype, copy=False)


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor: constant, or computed into an operand.

    Real numbers whose operand is quantised are what a DequantizeLinear gives: an operation that can
    compute on the integers takes them, any other one has them made real.

    Attributes:
        shape: its extents as the file sees them.
        dtype: its element type there.
        constant: its value, if it is known.
        quantized: its value as integers, if it is known so.
        value: the operand with its elements, in any factoring of its extents, otherwise.
        order: which axis of `shape` each stored axis is.
    """

    shape: Shape
    dtype: np.dtype[Any]
    constant: Array | None = None
    quantized: QuantizedConstant | None = None
    value: Value | None = None
    order: Order = ()

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def is_known(self) -> bool:
        """Whether its value is."""
        return self.value is None

    @property
    def is_quantized_real(self) -> bool:
        """Whether it stands for real numbers as integers."""
        if self.quantized is not None:
            return True
        return self.value is not None and self.dtype.kind == "f" and self.value.type.is_quantized

    def array(self) -> Array:
        """Its value, which is known."""
        if self.constant is not None:
            return self.constant
        assert self.quantized is not None
        return self.quantized.real()

    def computed(self) -> Value:
        """Its operand; it is not known."""
        assert self.value is not None
        return self.value

    def seen_as(self, shape: Shape, order: Order) -> Tensor:
        """The same elements in another shape, stored as they are."""
        return replace(self, shape=shape, order=order)


def constant(array: Array) -> Tensor:
    """A tensor whose value is known."""
    return Tensor(tuple(array.shape), array.dtype, constant=array)


def operand_type(dtype: np.dtype[Any]) -> OperandType:
    """Operand type of an element type.

    Raises:
        Refused: NNAPI has no such type.
    """
    if dtype not in OPERAND_TYPES:
        raise Refused(f"type {dtype} is not one of NNAPI's")
    return OPERAND_TYPES[dtype]
