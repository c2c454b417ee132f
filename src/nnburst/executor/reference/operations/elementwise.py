"""Kernels that compute each element by itself: arithmetic, comparisons, logic and casts."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from nnburst.executor.graph.declarations import F32, I32, QPC
from nnburst.executor.graph.operation import Node, Run, kernel
from nnburst.executor.graph.tensor import Array, Tensor
from nnburst.executor.reference.fixed_point import (
    multiply_by_quantized_multiplier,
    quantize_multiplier_smaller_than_one,
)
from nnburst.executor.reference.quantized import (
    Quantization,
    activation_range,
    all_stored_values,
    dequantize,
    float_activation_range,
    look_up,
    look_up_pair,
    quantize,
    requantize,
)
from nnburst.hal.enums import OperationType
from nnburst.hal.limits import INT32_MAX
from nnburst.hal.model import DTYPES, QUANTIZED_RANGES, SymmPerChannelQuantParams

#: Bits by which quantised ADD and SUB refine both terms before they are scaled to one step.
_REFINEMENT = 20
PairTable = Callable[[Quantization, Quantization, Quantization, int], Array]


# -- ADD, SUB, MUL, DIV, MAXIMUM, MINIMUM, POW: two tensors, broadcast -----------------------------
# NNAPI: Broadcast.cpp, MaximumMinimum.cpp, Pow.cpp.


@lru_cache(maxsize=64)
def _sum_table(
    sign: int, x: Quantization, y: Quantization, out: Quantization, activation: int
) -> Array:
    """Stored x + sign * y for every pair of bytes.

    Both terms are brought to the step of twice the larger scale, refined by 20 bits.
    """
    step = 2 * max(x.scale, y.scale)
    x_multiplier, x_shift = quantize_multiplier_smaller_than_one(x.scale / step)
    y_multiplier, y_shift = quantize_multiplier_smaller_than_one(y.scale / step)
    multiplier, shift = quantize_multiplier_smaller_than_one(
        step / ((1 << _REFINEMENT) * out.scale)
    )
    a = multiply_by_quantized_multiplier(x.centred() << _REFINEMENT, x_multiplier, x_shift)
    # The multiplier is negated, not the product: ties of negative products round the other way.
    b = multiply_by_quantized_multiplier(y.centred() << _REFINEMENT, sign * y_multiplier, y_shift)
    total = a[:, np.newaxis] + b[np.newaxis, :]
    return _stored(multiply_by_quantized_multiplier(total, multiplier, shift), out, activation)


@lru_cache(maxsize=64)
def _product_table(x: Quantization, y: Quantization, out: Quantization, activation: int) -> Array:
    """Stored x * y for every pair of bytes."""
    with np.errstate(all="ignore"):
        product = float(np.float32(x.scale) * np.float32(y.scale))
    multiplier, shift = quantize_multiplier_smaller_than_one(product / out.scale)
    products = x.centred()[:, np.newaxis] * y.centred()[np.newaxis, :]
    return _stored(multiply_by_quantized_multiplier(products, multiplier, shift), out, activation)


def _stored(values: Array, out: Quantization, activation: int) -> Array:
    low, high = activation_range(activation, out.type, out.scale, out.zero_point)
    table: Array = np.clip(values + out.zero_point, low, high).astype(DTYPES[out.type])
    return table


def _bind_quantized(node: Node, table: PairTable, activation: int = 0) -> Run:
    x, y, out = node.tensor("input0"), node.tensor("input1"), node.output()
    results = table(Quantization.of(x), Quantization.of(y), Quantization.of(out), activation)
    return look_up_pair(node, results, x.array, y.array, out.array)


def _bind_arithmetic(node: Node, ufunc: np.ufunc, table: PairTable) -> Run:
    if node.output().type in QUANTIZED_RANGES:
        return _bind_quantized(node, table, node.value("activation"))
    if node.output().type == I32:
        _require_no_activation(node)
        x, y, out = _arrays(node)
        return lambda: ufunc(x, y, out=out)
    return _bind_float(node, ufunc)


def _bind_float(node: Node, ufunc: np.ufunc) -> Run:
    x, y, out = _arrays(node)
    low, high = float_activation_range(node.value("activation"))

    def run() -> None:
        ufunc(x, y, out=out)
        np.clip(out, low, high, out=out)

    return run


def _require_no_activation(node: Node) -> None:
    code = node.value("activation")
    node.require(code == 0, f"operand 'activation' is {code}, expected 0 (NONE) for TENSOR_INT32")


def _arrays(node: Node) -> tuple[Array, Array, Array]:
    x, y = node.inputs[:2]
    if x is None or y is None:
        raise node.failure("an input tensor is omitted")
    return x.array, y.array, node.output().array


@kernel(OperationType.ADD)
def add(node: Node) -> Run:
    """Bind x + y; int32 wraps."""
    return _bind_arithmetic(node, np.add, lambda *key: _sum_table(1, *key))


@kernel(OperationType.SUB)
def sub(node: Node) -> Run:
    """Bind x - y; int32 wraps."""
    return _bind_arithmetic(node, np.subtract, lambda *key: _sum_table(-1, *key))


@kernel(OperationType.MUL)
def mul(node: Node) -> Run:
    """Bind x * y; int32 wraps."""
    return _bind_arithmetic(node, np.multiply, _product_table)


@kernel(OperationType.DIV)
def div(node: Node) -> Run:
    """Bind x / y; an int32 divisor of 0 gives 0."""
    if node.output().type == F32:
        return _bind_float(node, np.divide)
    _require_no_activation(node)
    x, y, out = _arrays(node)
    # numpy checks for zeros before it divides: a divisor that changes in between would end the process.
    divisor = node.scratch(y.shape, np.int32)

    def run() -> None:
        np.copyto(divisor, y)
        np.floor_divide(x, divisor, out=out)

    return run


@lru_cache(maxsize=64)
def _extremum_table(
    ufunc: np.ufunc, x: Quantization, y: Quantization, out: Quantization, _: int
) -> Array:
    """The larger or smaller of both inputs, each requantised to the output, for every pair."""
    columns = [
        requantize(
            all_stored_values(side.type),
            side.zero_point,
            side.scale,
            out.scale,
            out.zero_point,
            out.type,
        )
        for side in (x, y)
    ]
    table: Array = ufunc.outer(*columns)
    return table


def _bind_extremum(node: Node, integer: np.ufunc, better: np.ufunc) -> Run:
    """Bind `y if better(y, x) else x`: with NaN, the first operand stays."""
    x, y, out = _arrays(node)
    if node.output().type in QUANTIZED_RANGES:
        return _bind_quantized(node, lambda *key: _extremum_table(integer, *key))
    if node.output().type == I32:
        return lambda: integer(x, y, out=out)
    second = node.scratch(out.shape, np.bool_)

    def run() -> None:
        better(y, x, out=second)
        np.copyto(out, x)
        np.copyto(out, y, where=second)

    return run


@kernel(OperationType.MAXIMUM)
def maximum(node: Node) -> Run:
    """Bind the larger of x and y."""
    return _bind_extremum(node, np.maximum, np.greater)


@kernel(OperationType.MINIMUM)
def minimum(node: Node) -> Run:
    """Bind the smaller of x and y."""
    return _bind_extremum(node, np.minimum, np.less)


@kernel(OperationType.POW)
def power(node: Node) -> Run:
    """Bind x ** y; a negative base with a fractional exponent gives NaN."""
    x, y, out = _arrays(node)

    def run() -> None:
        np.power(x, y, out=out)

    return run


# -- ABS, NEG, EXP, LOG, SIN, SQRT, RSQRT, FLOOR: one tensor ---------------------------------------
# NNAPI: Elementwise.cpp, Neg.cpp, Floor.cpp.


def _bind(node: Node, ufunc: np.ufunc) -> Run:
    x, out = node.tensor("input").array, node.output().array
    return lambda: ufunc(x, out=out)


@kernel(OperationType.ABS)
def absolute(node: Node) -> Run:
    """Bind |x|; the smallest int32 stays itself."""
    return _bind(node, np.absolute)


@kernel(OperationType.NEG)
def negate(node: Node) -> Run:
    """Bind -x; the smallest int32 stays itself."""
    return _bind(node, np.negative)


@kernel(OperationType.EXP)
def exponential(node: Node) -> Run:
    """Bind e ** x."""
    return _bind(node, np.exp)


@kernel(OperationType.LOG)
def logarithm(node: Node) -> Run:
    """Bind ln x: -inf for 0, NaN below."""
    return _bind(node, np.log)


@kernel(OperationType.SIN)
def sine(node: Node) -> Run:
    """Bind sin x."""
    return _bind(node, np.sin)


@kernel(OperationType.SQRT)
def square_root(node: Node) -> Run:
    """Bind the square root: NaN below 0."""
    return _bind(node, np.sqrt)


@kernel(OperationType.RSQRT)
def reciprocal_square_root(node: Node) -> Run:
    """Bind 1 / sqrt(x); quantised, 0 and below give the largest stored value."""
    x, out = node.tensor("input"), node.output()
    if x.type in QUANTIZED_RANGES:
        real = dequantize(all_stored_values(x.type), x.scale, x.zero_point)
        with np.errstate(all="ignore"):
            roots = np.float32(1) / np.sqrt(real)
        table = quantize(roots, out.scale, out.zero_point, out.type)
        return look_up(node, table, x.array, out.array)

    def run() -> None:
        np.sqrt(x.array, out=out.array)
        np.reciprocal(out.array, out=out.array)

    return run


@kernel(OperationType.FLOOR)
def floor(node: Node) -> Run:
    """Bind floor x; NaN and infinities stay."""
    return _bind(node, np.floor)


# -- Comparisons, LOGICAL_AND, LOGICAL_OR, LOGICAL_NOT, SELECT -------------------------------------
# NNAPI: Comparisons.cpp, LogicalAndOr.cpp, LogicalNot.cpp, Select.cpp.


@lru_cache(maxsize=64)
def _comparison_table(ufunc: np.ufunc, x: Quantization, y: Quantization) -> Array:
    """Whether the comparison holds, for the real numbers of every pair of bytes."""
    first, second = (
        dequantize(all_stored_values(side.type), side.scale, side.zero_point) for side in (x, y)
    )
    table: Array = ufunc.outer(first, second).astype(np.uint8)
    return table


def _bind_comparison(node: Node, ufunc: np.ufunc) -> Run:
    x, y, out = node.tensor("input0"), node.tensor("input1"), node.output().array
    if x.type in QUANTIZED_RANGES:
        table = _comparison_table(ufunc, Quantization.of(x), Quantization.of(y))
        return look_up_pair(node, table, x.array, y.array, out)
    return lambda: ufunc(x.array, y.array, out=out)


@kernel(OperationType.EQUAL)
def equal(node: Node) -> Run:
    """Bind x = y of the real numbers; NaN equals nothing."""
    return _bind_comparison(node, np.equal)


@kernel(OperationType.NOT_EQUAL)
def not_equal(node: Node) -> Run:
    """Bind x ≠ y of the real numbers; true for NaN."""
    return _bind_comparison(node, np.not_equal)


@kernel(OperationType.LESS)
def less(node: Node) -> Run:
    """Bind x < y of the real numbers."""
    return _bind_comparison(node, np.less)


@kernel(OperationType.LESS_EQUAL)
def less_equal(node: Node) -> Run:
    """Bind x ≤ y of the real numbers."""
    return _bind_comparison(node, np.less_equal)


@kernel(OperationType.GREATER)
def greater(node: Node) -> Run:
    """Bind x > y of the real numbers."""
    return _bind_comparison(node, np.greater)


@kernel(OperationType.GREATER_EQUAL)
def greater_equal(node: Node) -> Run:
    """Bind x ≥ y of the real numbers."""
    return _bind_comparison(node, np.greater_equal)


# Logic of booleans: any byte but 0 is true, results are 0 and 1.


def _bind_logical(node: Node, ufunc: np.ufunc) -> Run:
    x, y, out = node.tensor("input0").array, node.tensor("input1").array, node.output().array
    return lambda: ufunc(x, y, out=out)


@kernel(OperationType.LOGICAL_AND)
def logical_and(node: Node) -> Run:
    """Bind x and y."""
    return _bind_logical(node, np.logical_and)


@kernel(OperationType.LOGICAL_OR)
def logical_or(node: Node) -> Run:
    """Bind x or y."""
    return _bind_logical(node, np.logical_or)


@kernel(OperationType.LOGICAL_NOT)
def logical_not(node: Node) -> Run:
    """Bind not x."""
    x, out = node.tensor("input").array, node.output().array

    def run() -> None:
        np.logical_not(x, out=out)

    return run


def _bind_requantized(node: Node, source: Tensor, result: Array) -> Run:
    """Bind `result = source` with the output's scale and zero point."""
    out = node.output()
    table = requantize(
        all_stored_values(source.type),
        source.zero_point,
        source.scale,
        out.scale,
        out.zero_point,
        out.type,
    )
    return look_up(node, table, source.array, result)


@kernel(OperationType.SELECT)
def select(node: Node) -> Run:
    """Bind `input0 if condition else input1` by element; quantised inputs are requantised."""
    condition = node.tensor("condition").array
    x, y, out = node.tensor("input0"), node.tensor("input1"), node.output().array
    chosen = node.scratch(out.shape, np.bool_)

    def run() -> None:
        np.not_equal(condition, 0, out=chosen)
        np.copyto(out, y.array)
        np.copyto(out, x.array, where=chosen)

    if x.type not in QUANTIZED_RANGES:
        return run
    first = node.scratch(out.shape, out.dtype)
    requantize_first = _bind_requantized(node, x, first)
    requantize_second = _bind_requantized(node, y, out)

    def run_quantized() -> None:
        requantize_first()
        requantize_second()
        np.not_equal(condition, 0, out=chosen)
        np.copyto(out, first, where=chosen)

    return run_quantized


# -- QUANTIZE, DEQUANTIZE, CAST: from one element type to another ----------------------------------
# NNAPI: Quantize.cpp, Dequantize.cpp, Cast.cpp.


@kernel(OperationType.QUANTIZE)
def quantize_tensor(node: Node) -> Run:
    """Bind the nearest stored value, ties away from zero; NaN and +inf give the largest."""
    x, out = node.tensor("input").array, node.output()
    stored, whole = node.scratch(x.shape, np.float32), node.scratch(x.shape, np.float32)
    low, high = QUANTIZED_RANGES[out.type]
    scale, zero_point = np.float32(out.scale), np.float32(out.zero_point)
    least, most = np.float32(low - out.zero_point - 1), np.float32(high - out.zero_point + 1)

    def run() -> None:
        # `quantize` step by step, in memory that exists already; limited first, so that all is finite.
        np.divide(x, scale, out=stored)
        np.fmin(stored, most, out=stored)  # NaN, too: NNAPI maps it to the largest value
        np.maximum(stored, least, out=stored)
        np.trunc(stored, out=whole)
        np.subtract(stored, whole, out=stored)
        np.multiply(stored, np.float32(2), out=stored)
        np.trunc(stored, out=stored)  # 1 away from zero if the fraction is a half or more
        np.add(stored, whole, out=stored)
        np.add(stored, zero_point, out=stored)
        np.clip(stored, low, high, out=stored)
        np.copyto(out.array, stored, casting="unsafe")

    return run


@kernel(OperationType.DEQUANTIZE)
def dequantize_tensor(node: Node) -> Run:
    """Bind scale * (q - zero_point), with one scale per channel if there are several."""
    x, out = node.tensor("input"), node.output().array
    if x.type != QPC:
        table = dequantize(all_stored_values(x.type), x.scale, x.zero_point)
        return look_up(node, table, x.array, out)
    scales = _channel_scales(node, x)

    def run() -> None:
        np.multiply(x.array, scales, out=out)

    return run


def _channel_scales(node: Node, x: Tensor) -> Array:
    """The scales with extents that broadcast against the tensor."""
    channels = x.meta.extra_params
    if not isinstance(channels, SymmPerChannelQuantParams):
        raise node.failure("operand 'input' has no scales per channel")
    axis = channels.channel_dim
    node.require(
        axis < len(x.shape) and x.shape[axis] == len(channels.scales),
        f"operand 'input' {list(x.shape)} has {len(channels.scales)} scales for dimension {axis}",
    )
    along_axis = [1] * len(x.shape)
    along_axis[axis] = len(channels.scales)
    return np.array(channels.scales, np.float32).reshape(along_axis)


@kernel(OperationType.CAST)
def cast(node: Node) -> Run:
    """Bind the conversion: towards zero, and saturated to uint8 and int32.

    NaN becomes 0 as an integer. NNAPI leaves NaN and values beyond int32 unspecified.
    """
    x, out = node.tensor("input").array, node.output().array
    limits = {np.dtype(np.uint8): (0, 255), np.dtype(np.int32): (-INT32_MAX - 1, INT32_MAX)}
    if x.dtype == out.dtype or out.dtype not in limits:
        return lambda: np.copyto(out, x, casting="unsafe")
    low, high = limits[out.dtype]
    number = node.scratch(x.shape, np.float64)  # holds every int32 and float32 exactly

    def run() -> None:
        np.clip(x, low, high, out=number, dtype=np.float64)
        np.copyto(number, 0, where=np.isnan(number))
        np.copyto(out, number, casting="unsafe")

    return run
