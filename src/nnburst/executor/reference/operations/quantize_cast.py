"""QUANTIZE, DEQUANTIZE, CAST: from one element type to another.

NNAPI: Quantize.cpp, Dequantize.cpp, Cast.cpp.
"""

from __future__ import annotations

import numpy as np

from nnburst.executor.graph.operation import Node, Run, kernel
from nnburst.executor.graph.signatures import (
    QPC,
)
from nnburst.executor.graph.tensor import Array, Tensor
from nnburst.executor.reference.arithmetic.fixed_point import all_stored_values, dequantize
from nnburst.executor.reference.arithmetic.lookup import look_up
from nnburst.hal.enums import OperationType
from nnburst.hal.limits import INT32_MAX
from nnburst.hal.model import SymmPerChannelQuantParams
from nnburst.hal.operand_types import QUANTIZED_RANGES


@kernel(OperationType.QUANTIZE)
def quantize_tensor(node: Node) -> Run:
    """Bind the nearest stored value, ties away from zero; NaN and +inf give the largest."""
    x, out = node.tensor("input").array, node.output()
    stored, whole = node.scratch(x.shape, np.float32), node.scratch(x.shape, np.float32)
    low, high = QUANTIZED_RANGES[out.type]
    scale, zero_point = np.float32(out.scale), np.float32(out.zero_point)
    least, most = np.float32(low - out.zero_point - 1), np.float32(high - out.zero_point + 1)

    def run() -> None:
        # `quantize` step by step, in memory that is there already; limited first, so that all is finite.
        np.divide(x, scale, out=stored)
        np.fmin(stored, most, out=stored)  # of a NaN too: NNAPI gives it the largest value
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

    NaN becomes 0 as an integer. NNAPI leaves NaN and what exceeds int32 unspecified.
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
