"""RELU, RELU1, RELU6, ELU, PRELU: linear above 0.

NNAPI: Activation.cpp, Elu.cpp, PRelu.cpp.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from nnburst.executor.graph.operation import Node, Run, kernel
from nnburst.executor.graph.tensor import Array
from nnburst.executor.operations.families.scales import quantize_multiplier
from nnburst.executor.reference.arithmetic.fixed_point import (
    activation_range,
    float_activation_range,
    multiply_by_quantized_multiplier,
)
from nnburst.executor.reference.arithmetic.lookup import Quantization, look_up_pair
from nnburst.hal.enums import OperationType
from nnburst.hal.operand_types import QUANTIZED_RANGES


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
