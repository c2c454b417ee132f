"""Weights and biases as NNAPI's convolutions and FULLY_CONNECTED want them."""

from __future__ import annotations

import numpy as np

from nnburst.hal.enums import OperandType
from nnburst.hal.model import SymmPerChannelQuantParams
from nnburst.hal.operand_types import DTYPES
from nnburst.importer.constants import Constant
from nnburst.importer.subgraph import Argument, Value
from nnburst.importer.tensor_type import TensorType
from nnburst.importer.tflite.operator import Operator

_T = OperandType


def weights_input(op: Operator, x: Value) -> Value:
    """Input 1, the weights that input `x` is multiplied with."""
    weights = op.real_input(1, x)
    accepted = {x.type.type}
    if x.type.is_quantized:
        accepted.add(_T.TENSOR_QUANT8_SYMM_PER_CHANNEL)
    op.require_type(weights, frozenset(accepted), "input 1 (weights)")
    return weights


def bias_input(op: Operator, position: int, x: Value, weights: Value, channels: int) -> Argument:
    """The bias as NNAPI wants it: there, and with the scale that its products have.

    Args:
        op: the operator.
        position: of its bias, which may be left out.
        x: what the weights are multiplied with.
        weights: quantised like NNAPI's if `x` is.
        channels: elements that a bias has.
    """
    kind = TensorType(x.type.type, (channels,))
    if x.type.is_quantized:
        kind = TensorType(_T.TENSOR_INT32, (channels,), _bias_scale(x, weights))
    if op.optional(position) is None:
        return Constant(kind, lambda: np.zeros(channels, DTYPES[kind.type]), 8 * channels)
    bias = op.real_input(position, x)
    op.require_type(bias, frozenset({kind.type}), f"input {position} (bias)")
    op.require(bias.type.elements == channels, f"{bias.type.elements} biases, expected {channels}")
    if bias.constant is not None:
        return bias.constant.retyped(kind)
    op.require(not x.type.is_quantized, "the bias is computed, its scale would not be known")
    return bias


def _bias_scale(x: Value, weights: Value) -> float:
    """NNAPI: "bias_scale == input_scale * filter_scale", 0 if the filter has a scale per channel."""
    if isinstance(weights.type.extra_params, SymmPerChannelQuantParams):
        return 0.0
    return float(np.float32(x.type.scale) * np.float32(weights.type.scale))
