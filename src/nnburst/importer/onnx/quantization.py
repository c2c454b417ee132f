"""How ONNX expresses which integers stand for which real numbers."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from nnburst.hal.enums import OperandType
from nnburst.hal.model import SymmPerChannelQuantParams
from nnburst.importer.onnx.graph import OnnxGraph
from nnburst.importer.onnx.node import Node, Quantization
from nnburst.importer.onnx.tensor import Array, QuantizedConstant, Tensor, operand_type
from nnburst.importer.refused import Refused
from nnburst.importer.subgraph import Value
from nnburst.importer.tensor_type import TensorType

_T = OperandType


def parameters(node: Node, scale: int, zero_point: int, dtype: Any = np.uint8) -> Quantization:  # noqa: ANN401
    """The one step and zero point of a tensor, from two inputs of a node.

    Raises:
        Refused: they are computed, several, or of no type of NNAPI's.
    """
    steps = node.array(scale, "scale")
    zeros = np.zeros(1, dtype)
    if node.optional(zero_point) is not None:
        zeros = node.array(zero_point, "zero point")
    if steps.size != 1 or zeros.size != 1:
        raise Refused(f"{steps.size} scales: NNAPI quantises activations by one")
    kind = operand_type(zeros.dtype)
    step = float(steps.reshape(-1)[0])
    if kind not in (_T.TENSOR_QUANT8_ASYMM, _T.TENSOR_QUANT8_ASYMM_SIGNED):
        raise Refused(f"integers of {zeros.dtype}")
    if not (math.isfinite(step) and step > 0):
        raise Refused(f"scale {step}, expected a positive number")
    return Quantization(kind, step, int(zeros.reshape(-1)[0]))


def quantized_type(into: Quantization, dims: tuple[int, ...]) -> TensorType:
    """The operand of a quantised tensor."""
    return TensorType(into.type, dims, into.scale, into.zero_point)


def dequantized(tensor: Tensor, by: Quantization) -> Tensor | None:
    """Stored integers as the real numbers that they stand for; nothing is computed for it.

    None if the operand stands for others.
    """
    if tensor.is_known:
        stored = tensor.array()
        made = QuantizedConstant(
            stored, np.array([by.scale], np.float32), np.array([by.zero_point], stored.dtype), 0
        )
        return Tensor(tensor.shape, np.dtype(np.float32), quantized=made)
    if not by.matches(tensor.computed().type):
        return None
    return replace(tensor, dtype=np.dtype(np.float32))


def stored_integers(tensor: Tensor, dtype: np.dtype[Any]) -> Tensor:
    """Quantised real numbers as the integers that stand for them."""
    return replace(tensor, dtype=dtype)


def weights(
    graph: OnnxGraph, found: QuantizedConstant, order: tuple[int, ...], channels: int
) -> tuple[Value, Array]:
    """Quantised weights as a constant operand, and the scale of each channel.

    NNAPI: per channel weights are int8 with zero points of 0; of one scale they have the type of what
    they are multiplied with.

    Args:
        graph: that they belong to.
        found: the integers.
        order: of the operand's axes.
        channels: the axis, in the file's order, that outputs come from.
    """
    stored, scale = found.stored, found.scale.reshape(-1).astype(np.float32)
    dims = tuple(stored.shape[axis] for axis in order)
    if scale.size == 1:
        zero = int(found.zero_point.reshape(-1)[0]) if found.zero_point.size else 0
        like = TensorType(_T.TENSOR_QUANT8_ASYMM, (), float(scale[0]), zero)
        return graph.literal(stored.transpose(order), dims, like), scale
    if stored.dtype == np.uint8:  # the same numbers by signed integers, if 128 stands for 0
        if not np.all(found.zero_point == 128):
            raise Refused("unsigned weights with a scale for each channel")
        graph.budget.spend(2 * stored.size)
        stored = (stored.astype(np.int16) - 128).astype(np.int8)
    elif np.any(found.zero_point):
        raise Refused("zero points for each channel, expected 0")
    if found.axis != channels or scale.size != stored.shape[channels]:
        raise Refused(f"{scale.size} scales for axis {found.axis} of {list(stored.shape)}")
    value = graph.literal(stored.transpose(order), dims)
    constant = value.constant
    assert constant is not None
    kind = TensorType(
        _T.TENSOR_QUANT8_SYMM_PER_CHANNEL,
        dims,
        extra_params=SymmPerChannelQuantParams(
            tuple(float(each) for each in scale), order.index(channels)
        ),
    )
    return Value(kind, None, constant.retyped(kind)), scale
