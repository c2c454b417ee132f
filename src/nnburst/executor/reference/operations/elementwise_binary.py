"""ADD, SUB, MUL, DIV, MAXIMUM, MINIMUM, POW: two tensors, element by element, broadcasting.

NNAPI: Broadcast.cpp, MaximumMinimum.cpp, Pow.cpp.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from nnburst.executor.graph.operation import Node, Run, kernel
from nnburst.executor.graph.signatures import (
    F32,
    I32,
)
from nnburst.executor.graph.tensor import Array
from nnburst.executor.reference.arithmetic.fixed_point import (
    activation_range,
    all_stored_values,
    float_activation_range,
    multiply_by_quantized_multiplier,
    quantize_multiplier_smaller_than_one,
    requantize,
)
from nnburst.executor.reference.arithmetic.lookup import Quantization, look_up_pair
from nnburst.hal.enums import OperationType
from nnburst.hal.operand_types import DTYPES, QUANTIZED_RANGES

#: Bits by which quantised ADD and SUB refine both terms before they are scaled to one step.
_REFINEMENT = 20
PairTable = Callable[[Quantization, Quantization, Quantization, int], Array]


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
    # numpy looks for zeros before it divides: a divisor that changes in between would kill us.
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
    """Bind x ** y; a negative base with a broken exponent gives NaN."""
    x, y, out = _arrays(node)

    def run() -> None:
        np.power(x, y, out=out)

    return run
