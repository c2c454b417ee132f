"""Evaluates an operation naively, one element at a time, in real numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.model import DTYPES, QUANTIZED_RANGES, is_scalar

Array = npt.NDArray[Any]
Index = tuple[int, ...]

_BOOLEAN = (OperandType.BOOL, OperandType.TENSOR_BOOL8)


@dataclass(frozen=True, slots=True)
class Meta:
    """Operand type and quantisation.

    Attributes:
        kind: operand type.
        scale: scale of all elements; 0 without one.
        zero_point: the stored value of 0.
        scales: instead of `scale`, one for each index of an axis; also for the bias of such weights.
        channel: that axis.
    """

    kind: OperandType
    scale: float = 0.0
    zero_point: int = 0
    scales: tuple[float, ...] = ()
    channel: int = 0


@dataclass(frozen=True, slots=True)
class Value:
    """Stored elements with their type and quantisation.

    Attributes:
        meta: the type.
        array: the elements; a tensor may have no elements.
        is_omitted: whether the operand has no value.
    """

    meta: Meta
    array: Array
    is_omitted: bool = False

    @property
    def dimensions(self) -> tuple[int, ...]:
        """Extents; () for scalars."""
        return self.array.shape


def real(value: Value) -> Any:  # noqa: ANN401 - a number for scalars, an array otherwise
    """The real values of the stored elements.

    Returns:
        None if the operand is omitted. A Python number for a scalar. For tensors an array of Python
        objects: bool for booleans, int for integers without a scale, float otherwise.
    """
    meta = value.meta
    if value.is_omitted:
        return None
    if meta.kind in _BOOLEAN:
        numbers = value.array.astype(bool)
    elif meta.kind in QUANTIZED_RANGES:
        # Real values of quantised elements are float32 numbers, on which comparisons depend.
        numbers = (value.array.astype(np.float32) - meta.zero_point) * _steps(value, np.float32)
    elif meta.kind is OperandType.TENSOR_INT32 and (meta.scale > 0 or meta.scales):
        numbers = value.array * _steps(value, np.float64)
    else:
        numbers = value.array
    return numbers.item() if is_scalar(meta.kind) else _objects(numbers)


def _steps(value: Value, dtype: type[np.floating[Any]]) -> Array:
    """The scale of each element."""
    meta = value.meta
    if not meta.scales:
        return np.asarray(meta.scale, dtype)
    shape = [-1 if axis == meta.channel else 1 for axis in range(value.array.ndim)]
    return np.array(meta.scales, dtype).reshape(shape)


def elements(value: Value) -> Any:  # noqa: ANN401 - as `real`
    """The stored elements without regard to their quantisation; otherwise like `real`."""
    if value.is_omitted:
        return None
    return value.array.item() if is_scalar(value.meta.kind) else _objects(value.array)


def stored(numbers: Array, meta: Meta) -> Array:
    """The stored elements for real `numbers` (Python objects or scalars), rounded once."""
    dtype = DTYPES[meta.kind]
    if meta.kind in QUANTIZED_RANGES:
        low, high = QUANTIZED_RANGES[meta.kind]
        least, most = low - meta.zero_point, high - meta.zero_point
        return each(
            lambda x: half_away(min(max(x / meta.scale, least), most)) + meta.zero_point, numbers
        ).astype(dtype)
    with np.errstate(over="ignore"):
        if dtype.kind == "f":
            # float16 results are computed in float32 and then rounded again.
            return numbers.astype(np.float64).astype(np.float32).astype(dtype)
        return numbers.astype(np.int64).astype(dtype)


def kept(numbers: Array, meta: Meta) -> Array:
    """Store `numbers` without regard to quantisation: truncated, and limited to the type's range."""
    if meta.kind not in QUANTIZED_RANGES:
        return stored(numbers, meta)
    low, high = QUANTIZED_RANGES[meta.kind]
    return each(lambda x: int(min(max(x, low), high)), numbers).astype(DTYPES[meta.kind])


def half_away(x: float) -> int:
    """The nearest integer; halves go away from zero."""
    return math.floor(abs(x) + 0.5) * (1 if x > 0 else -1)


def nhwc(x: Array, nchw: bool) -> Array:
    """Images of either layout as NHWC."""
    return x.transpose(0, 2, 3, 1) if nchw else x


def back(x: Array, nchw: bool) -> Array:
    """NHWC images in the layout that they came in."""
    return x.transpose(0, 3, 1, 2) if nchw else x


def _objects(array: Array) -> Array:
    return array.astype(object)


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


#: A naive function, which gets real numbers (see `real`) and returns arrays of Python objects.
NaiveOperation = Callable[..., "Array | list[Array]"]

NAIVE: Final[dict[OperationType, NaiveOperation]] = {}
#: Functions that take and return stored elements, without regard to quantisation.
_OF_ELEMENTS: Final[set[OperationType]] = set()
#: Functions that take values with their types and bytes, and return real numbers.
_OF_VALUES: Final[set[OperationType]] = set()


def naive(
    *kinds: OperationType, of_elements: bool = False, of_values: bool = False
) -> Callable[[NaiveOperation], NaiveOperation]:
    """Register a function for the operations that it computes, by default on real numbers."""

    def register(function: NaiveOperation) -> NaiveOperation:
        for kind in kinds:
            NAIVE[kind] = function
            if of_elements:
                _OF_ELEMENTS.add(kind)
            if of_values:
                _OF_VALUES.add(kind)
        return function

    return register


def evaluate(kind: OperationType, inputs: Sequence[Value], outputs: Sequence[Meta]) -> list[Value]:
    """Evaluate one operation.

    Args:
        kind: an operation that is in NAIVE.
        inputs: all of its inputs in order; trailing optional ones may be omitted.
        outputs: types and quantisation of the results.

    Raises:
        ArithmeticError, ValueError: the operation is not defined for these values.
    """
    read, write = (elements, kept) if kind in _OF_ELEMENTS else (real, stored)
    arguments: list[Any] = list(inputs) if kind in _OF_VALUES else [read(v) for v in inputs]
    results = NAIVE[kind](*arguments)
    arrays = results if isinstance(results, list) else [results]
    return [Value(m, write(a, m)) for m, a in zip(outputs, arrays, strict=True)]
