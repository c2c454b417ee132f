"""Kernels of the activation functions, from RELU to HARD_SWISH.

On stored bytes the smooth functions are looked up in tables.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from nnburst.executor.graph.declarations import quantize_multiplier
from nnburst.executor.graph.operation import Node, Run, kernel
from nnburst.executor.graph.tensor import Array
from nnburst.executor.reference.fixed_point import (
    input_radius,
    logistic,
    multiply_by_quantized_multiplier,
    quantize_multiplier_greater_than_one,
    rounding_divide_by_pot,
    saturating_multiply_by_pot,
    srdhm,
    srdhm16,
    tanh,
)
from nnburst.executor.reference.operations.recurrence import sigmoid
from nnburst.executor.reference.quantized import (
    Quantization,
    activation_range,
    float_activation_range,
    look_up,
    look_up_pair,
)
from nnburst.hal.enums import OperationType
from nnburst.hal.model import QUANTIZED_RANGES

# -- RELU, RELU1, RELU6, ELU, PRELU: linear above 0 ------------------------------------------------
# NNAPI: Activation.cpp, Elu.cpp, PRelu.cpp.


def _bind_clamp(node: Node, code: int) -> Run:
    x, out = node.tensor("input"), node.output()
    if x.type in QUANTIZED_RANGES:
        smallest, largest = activation_range(code, x.type, x.scale, x.zero_point)

        def run_quantized() -> None:
            np.clip(x.array, smallest, largest, out=out.array)

        return run_quantized
    low, high = float_activation_range(code)

    def run() -> None:
        # NNAPI: min(max(low, x), high) of a NaN is `low`; fmax ignores NaN the same way.
        np.fmax(x.array, low, out=out.array)
        np.minimum(out.array, high, out=out.array)

    return run


@kernel(OperationType.RELU)
def relu(node: Node) -> Run:
    """Bind max(0, x)."""
    return _bind_clamp(node, 1)


@kernel(OperationType.RELU1)
def relu1(node: Node) -> Run:
    """Bind min(1, max(-1, x))."""
    return _bind_clamp(node, 2)


@kernel(OperationType.RELU6)
def relu6(node: Node) -> Run:
    """Bind min(6, max(0, x))."""
    return _bind_clamp(node, 3)


@kernel(OperationType.ELU)
def elu(node: Node) -> Run:
    """Bind max(0, x) + min(0, alpha * (exp(x) - 1)); NaN becomes 0."""
    x, out = node.tensor("input").array, node.output().array
    alpha = np.float32(node.value("alpha"))
    negative = node.scratch(x.shape, np.float32)

    def run() -> None:
        np.exp(x, out=negative)
        np.subtract(negative, 1, out=negative)
        np.multiply(negative, alpha, out=negative)
        # NNAPI: max(0, x) and min(0, x) of a NaN are 0; fmax and fmin ignore NaN the same way.
        np.fmin(negative, 0, out=negative)
        np.fmax(x, 0, out=out)
        np.add(out, negative, out=out)

    return run


@lru_cache(maxsize=64)
def _prelu_table(x: Quantization, alpha: Quantization, out: Quantization) -> Array:
    """Stored x, or x * alpha where x < 0, for every pair of bytes."""
    with np.errstate(all="ignore"):
        product = float(np.float32(x.scale) * np.float32(alpha.scale))
    centred = x.centred()[:, np.newaxis]
    positive = multiply_by_quantized_multiplier(centred, *quantize_multiplier(x.scale / out.scale))
    negative = multiply_by_quantized_multiplier(
        centred * alpha.centred(), *quantize_multiplier(product / out.scale)
    )
    return out.saturate(np.where(centred >= 0, positive, negative) + out.zero_point)


@kernel(OperationType.PRELU)
def prelu(node: Node) -> Run:
    """Bind x where x >= 0, and x * alpha elsewhere (NaN included), broadcasting."""
    x, alpha, out = node.tensor("input"), node.tensor("alpha"), node.output()
    if x.type in QUANTIZED_RANGES:
        table = _prelu_table(*(Quantization.of(t) for t in (x, alpha, out)))
        return look_up_pair(node, table, x.array, alpha.array, out.array)
    positive = node.scratch(x.shape, np.bool_)

    def run() -> None:
        np.greater_equal(x.array, 0, out=positive)
        np.multiply(x.array, alpha.array, out=out.array)
        np.copyto(out.array, x.array, where=positive)

    return run


#: Integer bits of the fixed-point argument of LOGISTIC and TANH.
_INTEGER_BITS = 4


# -- LOGISTIC, TANH, HARD_SWISH --------------------------------------------------------------------
# NNAPI: Activation.cpp.


def _bind_table(node: Node, table: Callable[[Quantization, Quantization], Array]) -> Run:
    x, out = node.tensor("input"), node.output()
    results = table(Quantization.of(x), Quantization.of(out))
    return look_up(node, results, x.array, out.array)


def _sigmoid_of_bytes(
    x: Quantization, function: Callable[[Array, int], Array], fraction_bits: int
) -> Array:
    """The function of every stored value, with `fraction_bits` bits after the point.

    Arguments beyond the radius that four integer bits can hold give the limits (-1 or 0, and 1).
    """
    multiplier, left_shift = quantize_multiplier_greater_than_one(
        x.scale * (1 << (31 - _INTEGER_BITS))
    )
    radius = input_radius(_INTEGER_BITS, left_shift)
    centred = x.centred()
    within = np.clip(centred, -radius, radius)
    values = function(srdhm(within << min(left_shift, 31), multiplier), _INTEGER_BITS)
    result = rounding_divide_by_pot(values, 31 - fraction_bits)
    one = 1 << fraction_bits
    low = -one if function is tanh else 0
    return np.select([centred <= -radius, centred >= radius], [low, one], result)


@lru_cache(maxsize=64)
def _logistic_table(x: Quantization, out: Quantization) -> Array:
    return out.saturate(_sigmoid_of_bytes(x, logistic, 8) + out.zero_point)


@lru_cache(maxsize=64)
def _tanh_table(x: Quantization, out: Quantization) -> Array:
    return out.saturate(_sigmoid_of_bytes(x, tanh, 7) + out.zero_point)


@kernel(OperationType.LOGISTIC)
def logistic_sigmoid(node: Node) -> Run:
    """Bind 1 / (1 + exp(-x))."""
    x, out = node.tensor("input"), node.output().array
    if x.type in QUANTIZED_RANGES:
        return _bind_table(node, _logistic_table)

    def run() -> None:
        sigmoid(x.array, out)

    return run


@kernel(OperationType.TANH)
def hyperbolic_tangent(node: Node) -> Run:
    """Bind tanh(x)."""
    x, out = node.tensor("input"), node.output().array
    if x.type in QUANTIZED_RANGES:
        return _bind_table(node, _tanh_table)

    def run() -> None:
        np.tanh(x.array, out=out)

    return run


def _to_int16(multiplier: int) -> int:
    return min((multiplier + (1 << 15)) >> 16, 32767)


@lru_cache(maxsize=64)
def _hard_swish_table(x: Quantization, out: Quantization) -> Array:
    """Stored x * clamp(x + 3, 0, 6) / 6 of every byte, in 16-bit arithmetic.

    The ratios of scales are float32 quotients, unlike everywhere else.
    """
    with np.errstate(all="ignore"):
        fine_scale = np.float32(1 / 128) * np.float32(x.scale)
        out_multiplier, out_shift = quantize_multiplier(float(fine_scale / np.float32(out.scale)))
        relu_multiplier, relu_shift = quantize_multiplier(float(fine_scale / np.float32(3 / 32768)))
    fine = x.centred() << 7
    unscaled = srdhm16(fine, _to_int16(out_multiplier))
    gate = fine
    if relu_shift > 0:
        gate = saturating_multiply_by_pot(gate, relu_shift - 1, bits=16)
    gate = srdhm16(gate, _to_int16(relu_multiplier))
    if relu_shift > 0:
        gate = saturating_multiply_by_pot(gate, 1, bits=16)
    elif relu_shift < 0:
        gate = rounding_divide_by_pot(gate, -relu_shift)
    product = ((gate + 32768) >> 1) * unscaled
    truncated = (product + ((product >> 63) & 32767)) >> 15
    return out.saturate(rounding_divide_by_pot(truncated, max(-out_shift, 0)) + out.zero_point)


@kernel(OperationType.HARD_SWISH)
def hard_swish(node: Node) -> Run:
    """Bind x * clamp(x + 3, 0, 6) / 6."""
    x, out = node.tensor("input"), node.output().array
    if x.type in QUANTIZED_RANGES:
        return _bind_table(node, _hard_swish_table)

    def run() -> None:
        np.add(x.array, 3, out=out)
        np.clip(out, 0, 6, out=out)
        np.multiply(out, x.array, out=out)
        np.divide(out, 6, out=out)

    return run
