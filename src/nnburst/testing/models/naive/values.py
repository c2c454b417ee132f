"""Between the elements that tensors store and the real numbers that they stand for."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nnburst.hal.enums import OperandType
from nnburst.hal.operand_types import DTYPES, QUANTIZED_RANGES, is_scalar

Array = npt.NDArray[Any]
Index = tuple[int, ...]

_BOOLEAN = (OperandType.BOOL, OperandType.TENSOR_BOOL8)


@dataclass(frozen=True, slots=True)
class Meta:
    """Operand type and quantisation."""

    kind: OperandType
    scale: float = 0.0
    zero_point: int = 0


@dataclass(frozen=True, slots=True)
class Value:
    """Stored elements and what they mean."""

    meta: Meta
    array: Array

    @property
    def dimensions(self) -> tuple[int, ...]:
        """Extents; () for scalars."""
        return self.array.shape


def real(value: Value) -> Any:  # noqa: ANN401 - a number for scalars, an array otherwise
    """What the stored elements stand for.

    Returns:
        None without any: the operand is omitted. A Python number for a scalar. For tensors
        an array of Python objects: bool for booleans, int for integers without a scale, float
        otherwise.
    """
    meta = value.meta
    if not value.array.size:
        return None
    if meta.kind in _BOOLEAN:
        numbers = value.array.astype(bool)
    elif meta.kind in QUANTIZED_RANGES:
        # Reals of quantised elements are float32 numbers; comparisons depend on it.
        numbers = (value.array.astype(np.float32) - meta.zero_point) * np.float32(meta.scale)
    elif meta.kind is OperandType.TENSOR_INT32 and meta.scale > 0:
        numbers = value.array * meta.scale
    else:
        numbers = value.array
    return numbers.item() if is_scalar(meta.kind) else _objects(numbers)


def stored(numbers: Array, meta: Meta) -> Array:
    """The elements that stand for `numbers` (Python objects or scalars), rounded once."""
    dtype = DTYPES[meta.kind]
    if meta.kind in QUANTIZED_RANGES:
        low, high = QUANTIZED_RANGES[meta.kind]
        return each(
            lambda x: min(max(_half_away(x / meta.scale) + meta.zero_point, low), high), numbers
        ).astype(dtype)
    with np.errstate(over="ignore"):
        if dtype.kind == "f":
            # float16 results are computed in float32 and then rounded again.
            return numbers.astype(np.float64).astype(np.float32).astype(dtype)
        return numbers.astype(np.int64).astype(dtype)


def _half_away(x: float) -> int:
    return math.floor(abs(x) + 0.5) * (1 if x > 0 else -1)


def _objects(array: Array) -> Array:
    return build(array.shape, lambda index: array[index].item())


def build(shape: Sequence[int], element: Callable[[Index], Any]) -> Array:
    """The array of Python objects whose element at each index is `element(index)`."""
    result = np.empty(tuple(shape), object)
    for index in np.ndindex(*result.shape):
        result[index] = element(index)
    return result


def each(f: Callable[..., Any], *arrays: Array) -> Array:
    """`f` of corresponding elements, broadcasting."""
    pairs = np.broadcast(*arrays)
    return build_flat([f(*elements) for elements in pairs], pairs.shape)


def build_flat(elements: Sequence[Any], shape: Sequence[int]) -> Array:
    """The array of Python objects with these elements in row-major order."""
    result = np.empty(len(elements), object)
    for position, element in enumerate(elements):
        result[position] = element
    return result.reshape(tuple(shape))


def activated(code: int) -> Callable[[float], float]:
    """The fused activation NONE, RELU, RELU1 or RELU6."""
    low, high = [(-math.inf, math.inf), (0, math.inf), (-1, 1), (0, 6)][code]
    return lambda x: min(max(x, low), high)
