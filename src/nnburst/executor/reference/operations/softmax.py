"""SOFTMAX and LOG_SOFTMAX.

NNAPI: Softmax.cpp, LogSoftmax.cpp.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from nnburst.executor.graph.operation import Node, Run, kernel
from nnburst.executor.graph.tensor import Array
from nnburst.executor.operations.families.data_movement import resolve_axis
from nnburst.executor.reference.arithmetic.fixed_point import (
    exp_on_negative,
    input_radius,
    one_over_one_plus,
    quantize_multiplier_greater_than_one,
    rounding_divide_by_pot,
    srdhm,
)
from nnburst.hal.enums import OperationType
from nnburst.hal.operand_types import QUANTIZED_RANGES

#: Integer bits of scaled differences, and of the sum of exponentials.
_DIFFERENCE_BITS: Final = 5
_SUM_BITS: Final = 12

#: Up to so many sums are worked off one by one.
_FEW: Final = 8


@kernel(OperationType.SOFTMAX)
def softmax(node: Node) -> Run:
    """Bind exp((x - max) * beta) / sum, in float32 or in fixed point."""
    source, out = _slices(node)
    if source.size == 0:
        return lambda: None
    if node.tensor("input").type in QUANTIZED_RANGES:
        return _quantised_softmax(node, source, out)
    return _float_softmax(node, source, out)


def _slices(node: Node) -> tuple[Array, Array]:
    """Input and output as views whose last axis is the one to normalise."""
    source, out = node.tensor("input").array, node.output().array
    axis = resolve_axis(node, "axis", source.ndim)
    return np.moveaxis(source, axis, -1), np.moveaxis(out, axis, -1)


def _float_softmax(node: Node, source: Array, out: Array) -> Run:
    beta = np.float32(node.value("beta"))
    powers = node.scratch(source.shape, np.float32)
    edge = node.scratch((*source.shape[:-1], 1), np.float32)

    def run() -> None:
        np.amax(source, axis=-1, keepdims=True, out=edge)
        np.subtract(source, edge, out=powers)
        np.multiply(powers, beta, out=powers)
        np.exp(powers, out=powers)
        np.sum(powers, axis=-1, keepdims=True, out=edge)
        np.divide(powers, edge, out=out)

    return run


def _quantised_softmax(node: Node, source: Array, out: Array) -> Run:
    low, high = QUANTIZED_RANGES[node.output().meta.type]
    table = _exponentials(float(node.value("beta")), node.tensor("input").scale)
    addends = rounding_divide_by_pot(table, _SUM_BITS)
    # The table is looked up in a private copy: the input may change at any time.
    below = node.scratch(source.shape, np.intp)
    powers = node.scratch(source.shape, np.int64)

    def run() -> None:
        np.copyto(below, source)
        np.subtract(below.max(axis=-1, keepdims=True), below, out=below)
        np.take(addends, below, out=powers, mode="clip")
        factor, half, shift = _scaling(powers.sum(axis=-1, keepdims=True))
        np.take(table, below, out=powers, mode="clip")
        np.multiply(powers, factor, out=powers)
        np.add(powers, half, out=powers)
        np.right_shift(powers, shift, out=powers)
        np.add(powers, low, out=powers)
        np.minimum(powers, high, out=powers)
        np.copyto(out, powers, casting="unsafe")

    return run


def _exponentials(beta: float, scale: float) -> Array:
    """exp(-d * scale * beta) in F0 of d = 0 to 255 steps below the maximum.

    Raises:
        OperationFailed: a step is too small for the fixed-point format.
    """
    real = min(beta * scale * (1 << (31 - _DIFFERENCE_BITS)), 2.0**31 - 1)
    multiplier, shift = quantize_multiplier_greater_than_one(real)
    steps = np.arange(256, dtype=np.int64)
    near = steps <= input_radius(_DIFFERENCE_BITS, shift)
    scaled = srdhm(-np.where(near, steps, 0) << shift, multiplier)
    return np.asarray(np.where(near, exp_on_negative(scaled, _DIFFERENCE_BITS), 0))


def _scaling(totals: Array) -> tuple[Array, Array, Array]:
    """(factor, half, shift) of each sum in F12, so that (power * factor + half) >> shift is rounded.

    RDivPOT(SRDHM(factor, power), n) rounds twice. Nothing is negative here, so both roundings are
    one floor: floor((floor((p + 2**30) / 2**31) + 2**(n-1)) / 2**n), p = factor * power.
    """
    if totals.size <= _FEW:
        pairs = np.array([_reciprocal_of(t) for t in totals.ravel().tolist()], np.int64)
        factor, n = pairs.T.reshape(2, *totals.shape)
    else:
        factor, n = _reciprocals(totals)
    # Below 2**(n-1) everything becomes 0, and 62 bits cannot be shifted further.
    vanishes = n > 31
    factor, n = np.where(vanishes, 0, factor), np.where(vanishes, 31, n)
    return factor, (1 << 30) + (np.int64(1) << (n + 30)), n + 31


def _reciprocals(totals: Array) -> tuple[Array, Array]:
    """1 / total as (m, n): m / 2**n with m in F0, of sums in F12.

    DEVIATES: for sums of 2**9 and more n exceeds 31, and from 2**12 on the sum exceeds 32 bits, which
    the original leaves undefined; here both simply go on.
    """
    leading = 32 - np.frexp(totals.astype(np.float64))[1].astype(np.int64)
    normal = np.where(
        leading >= 0, totals << np.maximum(leading, 0), totals >> np.maximum(-leading, 0)
    )
    return one_over_one_plus(normal - (1 << 31)), _SUM_BITS - leading + 23


def _reciprocal_of(total: int) -> tuple[int, int]:
    """`_reciprocals` of one sum: Python integers are far faster than arrays of one element."""
    leading = 32 - total.bit_length()
    half = (total << leading if leading >= 0 else total >> -leading) >> 1
    x = 1515870810 + _product(half, -1010580540)  # 48/17 - 32/17 * half in F2
    for _ in range(3):
        x += _product(x, (1 << 29) - _product(half, x)) << 2
    return min(x << 1, (1 << 31) - 1), _SUM_BITS - leading + 23


def _product(a: int, b: int) -> int:
    """SRDHM of Python integers."""
    return (a * b + (1 << 30)) >> 31


@kernel(OperationType.LOG_SOFTMAX)
def log_softmax(node: Node) -> Run:
    """Bind d - log(sum(exp(d))) with d = (x - max) * beta."""
    source, out = _slices(node)
    beta = float(node.value("beta"))
    scaled = node.scratch(source.shape, np.float64)
    powers = node.scratch(source.shape, np.float64)

    def run() -> None:
        np.subtract(source, source.max(axis=-1, keepdims=True), out=scaled)
        np.multiply(scaled, beta, out=scaled)
        np.exp(scaled, out=powers)
        np.subtract(
            scaled, np.log(powers.sum(axis=-1, keepdims=True)), out=out, casting="same_kind"
        )

    return run
