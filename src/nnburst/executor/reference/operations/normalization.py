"""Kernels of the normalisations: L2, local response, instance, and the two softmaxes."""

from __future__ import annotations

from typing import Final

import numpy as np

from nnburst.executor.graph.operation import Node, Run, kernel
from nnburst.executor.graph.tensor import Array
from nnburst.executor.graph.windows import image_views
from nnburst.executor.operations.shape import resolve_axis
from nnburst.executor.reference.fixed_point import (
    exp_on_negative,
    input_radius,
    inv_sqrt_quantized_multiplier,
    multiply_by_quantized_multiplier,
    one_over_one_plus,
    quantize_multiplier_greater_than_one,
    rounding_divide_by_pot,
    srdhm,
)
from nnburst.hal.enums import OperationType
from nnburst.hal.model import QUANTIZED_RANGES

# -- L2_NORMALIZATION, LOCAL_RESPONSE_NORMALIZATION, INSTANCE_NORMALIZATION ------------------------
# NNAPI: L2Normalization.cpp, LocalResponseNormalization.cpp, InstanceNormalization.cpp.

_SMALLEST_NORM: Final = np.float32(1e-6)


def _slices(node: Node) -> tuple[Array, Array]:
    """Input and output as views whose last axis is the one to normalise."""
    source, out = node.tensor("input").array, node.output().array
    axis = resolve_axis(node, source.ndim)
    return np.moveaxis(source, axis, -1), np.moveaxis(out, axis, -1)


@kernel(OperationType.L2_NORMALIZATION)
def l2_normalization(node: Node) -> Run:
    """Bind x / max(norm, 1e-6), or its integer counterpart."""
    source, out = _slices(node)
    if node.tensor("input").type in QUANTIZED_RANGES:
        return _quantised_l2(node, source, out)
    squares = node.scratch(source.shape, np.float32)
    norm = node.scratch((*source.shape[:-1], 1), np.float32)

    def run() -> None:
        np.multiply(source, source, out=squares)
        np.sum(squares, axis=-1, keepdims=True, out=norm)
        np.sqrt(norm, out=norm)
        np.maximum(norm, _SMALLEST_NORM, out=norm)
        np.divide(source, norm, out=out)

    return run


def _quantised_l2(node: Node, source: Array, out: Array) -> Run:
    zero_point = node.tensor("input").zero_point
    meta = node.output().meta
    low, high = QUANTIZED_RANGES[meta.type]
    centred = node.scratch(source.shape, np.int64)

    def run() -> None:
        np.copyto(centred, source)
        np.subtract(centred, zero_point, out=centred)
        energy = np.multiply(centred, centred).sum(axis=-1, keepdims=True)
        multiplier, shift = inv_sqrt_quantized_multiplier(energy)
        stored = multiply_by_quantized_multiplier(128 * centred, multiplier, shift)
        np.add(stored, meta.zero_point, out=stored)
        np.clip(stored, low, high, out=stored)
        np.copyto(out, stored, casting="unsafe")

    return run


@kernel(OperationType.LOCAL_RESPONSE_NORMALIZATION)
def local_response_normalization(node: Node) -> Run:
    """Bind x * (bias + alpha * sum of squares) ** -beta."""
    source, out = _slices(node)
    extent = source.shape[-1]
    radius = min(int(node.value("radius")), extent)
    bias, alpha, beta = (np.float32(node.value(name)) for name in ("bias", "alpha", "beta"))
    squares = node.scratch((*source.shape[:-1], extent + 2 * radius), np.float32)
    energy = node.scratch(source.shape, np.float32)
    middle = slice(radius, radius + extent)
    neighbours = [squares[..., d : d + extent] for d in range(2 * radius + 1)]

    def run() -> None:
        squares.fill(0)
        np.multiply(source, source, out=squares[..., middle])
        np.copyto(energy, neighbours[0])
        for neighbour in neighbours[1:]:
            np.add(energy, neighbour, out=energy)
        np.multiply(energy, alpha, out=energy)
        np.add(energy, bias, out=energy)
        np.power(energy, -beta, out=energy)
        np.multiply(source, energy, out=out)

    return run


@kernel(OperationType.INSTANCE_NORMALIZATION)
def instance_normalization(node: Node) -> Run:
    """Bind (x - mean) * gamma / sqrt(variance + epsilon) + beta."""
    source, out = image_views(node)
    gamma, beta, epsilon = (np.float32(node.value(n)) for n in ("gamma", "beta", "epsilon"))
    centred = node.scratch(source.shape, np.float32)
    squares = node.scratch(source.shape, np.float32)
    pixels = (1, 2)

    def run() -> None:
        np.subtract(source, source.mean(axis=pixels, keepdims=True), out=centred)
        np.multiply(centred, centred, out=squares)
        deviation = np.sqrt(squares.mean(axis=pixels, keepdims=True) + epsilon)
        np.multiply(centred, gamma / deviation, out=centred)
        np.add(centred, beta, out=out)

    return run


# -- SOFTMAX and LOG_SOFTMAX -----------------------------------------------------------------------
# NNAPI: Softmax.cpp, LogSoftmax.cpp.

#: Integer bits of scaled differences, and of the sum of exponentials.
_DIFFERENCE_BITS: Final = 5
_SUM_BITS: Final = 12

#: The most sums that are computed one by one.
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
