"""Translates the convolutions, matrix products and poolings of a .tflite file.

Helpers bring weights and biases into the form that NNAPI's convolutions and FULLY_CONNECTED expect.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from nnburst.formats.tflite_reader import names
from nnburst.hal.enums import OperandType, OperationType, PaddingScheme
from nnburst.hal.model import DTYPES, SymmPerChannelQuantParams
from nnburst.importer.subgraph import Argument, Value
from nnburst.importer.tensors import QUANT8, Constant, Refused, TensorType, integers
from nnburst.importer.tflite.operator import FLOAT, INT32, SIGNED, Operator, operator

_POOLS: Final = {
    "AVERAGE_POOL_2D": (OperationType.AVERAGE_POOL_2D, FLOAT | QUANT8),
    "MAX_POOL_2D": (OperationType.MAX_POOL_2D, FLOAT | QUANT8),
    "L2_POOL_2D": (OperationType.L2_POOL_2D, FLOAT),
}


@operator(*_POOLS)
def _pool(op: Operator) -> None:
    kind, types = _POOLS[op.name]
    op.require_type(op.input(), types, "input")
    options = op.options("Pool2DOptions")
    window = [
        op.padding(options),
        options.StrideW(),
        options.StrideH(),
        options.FilterWidth(),
        options.FilterHeight(),
    ]
    op.emit(kind, [op.input(), *window, op.activation(options)])


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
    """The bias in the form that NNAPI requires: never omitted, and with the scale of the products.

    Args:
        op: the operator.
        position: position of its bias input, which may be omitted.
        x: the input that is multiplied with the weights.
        weights: weights, quantised as NNAPI requires if `x` is.
        channels: number of elements of the bias.
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


@operator("CONV_2D")
def _conv_2d(op: Operator) -> None:
    x = op.input(0)
    op.require_type(x, FLOAT | QUANT8, "input")
    weights = weights_input(op, x)
    _require_images(op, x, weights)
    options = op.options("Conv2DOptions")
    window = [op.padding(options), options.StrideW(), options.StrideH()]
    dilation = [options.DilationWFactor(), options.DilationHFactor()]
    bias = bias_input(op, 2, x, weights, weights.type.dimensions[0])
    activation = op.activation(options)
    depth, taken = x.type.dimensions[3], weights.type.dimensions[3]
    if depth == taken:
        op.emit(
            OperationType.CONV_2D,
            [x, weights, bias, *window, activation, *_dilated(dilation)],
        )
        return
    op.require(depth % taken == 0, f"{depth} channels, {taken} in the filter")
    op.require(dilation == [1, 1], "a grouped convolution is dilated, expected dilations of 1")
    op.emit(
        OperationType.GROUPED_CONV_2D,
        [x, weights, bias, *window, depth // taken, activation, False],
    )


@operator("DEPTHWISE_CONV_2D")
def _depthwise_conv_2d(op: Operator) -> None:
    x = op.input(0)
    op.require_type(x, FLOAT | QUANT8, "input")
    weights = weights_input(op, x)
    _require_images(op, x, weights)
    options = op.options("DepthwiseConv2DOptions")
    channels, depth = weights.type.dimensions[3], x.type.dimensions[3]
    op.require(channels % depth == 0, f"{channels} filters for {depth} channels")
    window = [op.padding(options), options.StrideW(), options.StrideH(), channels // depth]
    dilation = _dilated([options.DilationWFactor(), options.DilationHFactor()])
    bias = bias_input(op, 2, x, weights, channels)
    op.emit(
        OperationType.DEPTHWISE_CONV_2D,
        [x, weights, bias, *window, op.activation(options), *dilation],
    )


def _dilated(dilation: list[int]) -> list[Any]:
    """The dilation operands, which exist since 1.2; none if the dilation is 1."""
    return [] if dilation == [1, 1] else [False, *dilation]


@operator("TRANSPOSE_CONV")
def _transpose_conv(op: Operator) -> None:
    shape, x = op.input(0), op.input(2)
    op.require_type(shape, INT32, "output shape")
    op.require_type(x, FLOAT | QUANT8, "input")
    weights = weights_input(op, x)
    _require_images(op, x, weights)
    options = op.options("TransposeConvOptions")
    bias = bias_input(op, 3, x, weights, weights.type.dimensions[0])
    window = [op.padding(options), options.StrideW(), options.StrideH(), op.activation(options)]
    if window[0] == PaddingScheme.VALID:
        strides = options.StrideH(), options.StrideW()
        for axis, stride in enumerate(strides, start=1):
            computed = (x.type.dimensions[axis] - 1) * stride + weights.type.dimensions[axis]
            wanted = op.output_type().dimensions[axis]
            op.require(wanted == computed, f"an extent of {wanted}, expected {computed}")
    op.emit(OperationType.TRANSPOSE_CONV_2D, [x, weights, bias, shape, *window, False])


def _require_images(op: Operator, x: Value, weights: Value) -> None:
    ranks = len(x.type.dimensions), len(weights.type.dimensions)
    op.require(ranks == (4, 4), f"input and filter have ranks {ranks}, expected 4 and 4")


@operator("FULLY_CONNECTED")
def _fully_connected(op: Operator) -> None:
    x = op.input(0)
    op.require_type(x, FLOAT | QUANT8, "input")
    options = op.options("FullyConnectedOptions")
    layout = names("FullyConnectedOptionsWeightsFormat").get(options.WeightsFormat())
    op.require(layout == "DEFAULT", f"weights are in format {layout}")
    weights = weights_input(op, x)
    op.require(len(weights.type.dimensions) == 2, "weights do not have two dimensions")
    units, size = weights.type.dimensions
    op.require(x.type.elements % size == 0, f"{x.type.elements} elements in rows of {size}")
    batch = x.type.elements // size
    bias = bias_input(op, 2, x, weights, units)
    if weights.type.type == _T.TENSOR_QUANT8_SYMM_PER_CHANNEL:
        _as_convolution(op, x, weights, bias, op.activation(options))
        return
    if len(x.type.dimensions) == 1:
        row = op.temporary(x.type.reshaped(batch, size))
        op.emit(OperationType.RESHAPE, [x, integers(row.type.dimensions)], [row])
        x = row
    operands = [x, weights, bias]
    kind = op.output_type()
    flat = kind.reshaped(batch, units)
    activation = op.activation(options)
    if kind.dimensions == flat.dimensions:
        op.emit(OperationType.FULLY_CONNECTED, [*operands, activation])
        return
    op.require(kind.elements == flat.elements, f"output shape {kind.dimensions}")
    rows = op.temporary(flat)
    op.emit(OperationType.FULLY_CONNECTED, [*operands, activation], [rows])
    op.emit(OperationType.RESHAPE, [rows, integers(kind.dimensions)])


def _as_convolution(
    op: Operator, x: Value, weights: Value, bias: Argument, activation: int
) -> None:
    """FULLY_CONNECTED with per-channel weights, as a convolution of single pixels: only that allows them."""
    units, size = weights.type.dimensions
    batch = x.type.elements // size
    params = weights.type.extra_params
    assert isinstance(params, SymmPerChannelQuantParams)
    op.require(params.channel_dim == 0, f"scales along dimension {params.channel_dim}, expected 0")
    if weights.constant is None:
        raise Refused("weights with a scale per unit are computed")
    kind = op.output_type()
    op.require(kind.elements == batch * units, f"output shape {kind.dimensions}")
    pixels = op.temporary(x.type.reshaped(batch, 1, 1, size))
    op.emit(OperationType.RESHAPE, [x, integers(pixels.type.dimensions)], [pixels])
    image = weights.type.reshaped(units, 1, 1, size)
    window = [int(PaddingScheme.VALID), 1, 1, activation]
    results = op.temporary(kind.reshaped(batch, 1, 1, units))
    op.emit(
        OperationType.CONV_2D,
        [pixels, weights.constant.retyped(image), bias, *window],
        [results],
    )
    op.emit(OperationType.RESHAPE, [results, integers(kind.dimensions)])


@operator("BATCH_MATMUL")
def _batch_matmul(op: Operator) -> None:
    x = op.input(0)
    op.require_type(x, FLOAT | INT32 | SIGNED, "input 0")
    y = op.real_input(1, x)
    op.require_type(y, frozenset({x.type.type}), "input 1")
    ranks = len(x.type.dimensions), len(y.type.dimensions)
    op.require(ranks[0] == ranks[1], f"ranks {ranks} differ")
    batches = x.type.dimensions[:-2], y.type.dimensions[:-2]
    op.require(batches[0] == batches[1], f"batches {batches} differ")
    options = op.options("BatchMatMulOptions")
    op.emit(OperationType.BATCH_MATMUL, [x, y, bool(options.AdjX()), bool(options.AdjY())])
