"""LOGISTIC, TANH, HARD_SWISH: smooth steps; on stored bytes they are tables.

NNAPI: Activation.cpp.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from nnburst.executor.graph.operation import Node, Run, kernel
from nnburst.executor.graph.tensor import Array
from nnburst.executor.operations.families.scales import quantize_multiplier
from nnburst.executor.reference.arithmetic.fixed_point import (
    input_radius,
    logistic,
    quantize_multiplier_greater_than_one,
    rounding_divide_by_pot,
    saturating_multiply_by_pot,
    srdhm,
    srdhm16,
    tanh,
)
from nnburst.executor.reference.arithmetic.lookup import Quantization, look_up
from nnburst.hal.enums import OperationType
from nnburst.hal.operand_types import QUANTIZED_RANGES

#: Integer bits of the fixed-point argument of LOGISTIC and TANH.
_INTEGER_BITS = 4


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
        np.negative(x.array, out=out)
        np.exp(out, out=out)
        np.add(out, 1, out=out)
        np.reciprocal(out, out=out)

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
