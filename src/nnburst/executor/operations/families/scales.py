"""Scales of quantised operands: those of biases, and ratios as integers and shifts.

NNAPI: OperationsExecutionUtils.cpp, QuantUtils.cpp.
"""

from __future__ import annotations

import math

from nnburst.executor.graph.operation import Node, OperationFailed
from nnburst.executor.graph.tensor import float32_products
from nnburst.hal.operand_types import QUANTIZED_RANGES


def quantize_multiplier(real: float) -> tuple[int, int]:
    """The pair (m, shift) with real ≈ m * 2**(shift - 31) and 2**30 ≤ m < 2**31; (0, 0) for 0.

    Args:
        real: a ratio of scales. If NNAPI forms a product of scales in float32, so must the
            caller.

    Raises:
        OperationFailed: it is negative, infinite or NaN.
    """
    if not (math.isfinite(real) and real >= 0):
        raise OperationFailed(
            f"scales give the multiplier {real}, which is not a finite number ≥ 0"
        )
    fraction, shift = math.frexp(real)
    multiplier = math.floor(fraction * (1 << 31) + 0.5)
    if multiplier == 1 << 31:
        multiplier, shift = 1 << 30, shift + 1
    # NNAPI: a ratio below 2**-32 cannot be distinguished from 0 after the shift.
    return (0, 0) if shift < -31 else (multiplier, shift)


def require_bias_scale(node: Node, filter_name: str) -> None:
    """Fail if the scale of a per-tensor quantised bias is not that of the products."""
    source, weights, bias = (node.tensor(n).meta for n in ("input", filter_name, "bias"))
    if source.type not in QUANTIZED_RANGES or weights.extra_params is not None:
        return
    (product,) = float32_products(source.scale, [weights.scale])
    node.require(
        abs(product - bias.scale) <= 1e-6 * min(product, bias.scale),
        f"operand 'bias' has scale {bias.scale}, expected input times filter scale {product}",
    )


def scale_exponent(node: Node, name: str) -> int:
    """The e with which operand `name` has the scale 2**e.

    Raises:
        OperationFailed: the scale is not a power of two (NNAPI: within 0.001 of the exponent).
    """
    scale = node.tensor(name).scale
    exponent = math.log2(scale) if scale > 0 else math.nan
    node.require(
        math.isfinite(exponent) and abs(exponent - round(exponent)) < 1e-3,
        f"operand '{name}' has scale {scale}, expected a power of two",
    )
    return round(exponent)
