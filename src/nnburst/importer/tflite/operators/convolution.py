"""CONV_2D, DEPTHWISE_CONV_2D and TRANSPOSE_CONV."""

from __future__ import annotations

from typing import Any

from nnburst.hal.enums import OperationType
from nnburst.importer.subgraph import Value
from nnburst.importer.tflite.operator import FLOAT, INT32, QUANT8, Operator, operator
from nnburst.importer.tflite.operators.weights import bias_input, weights_input


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
    """The last operands, which came with 1.2: only if they add something."""
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
    op.emit(OperationType.TRANSPOSE_CONV_2D, [x, weights, bias, shape, *window, False])


def _require_images(op: Operator, x: Value, weights: Value) -> None:
    ranks = len(x.type.dimensions), len(weights.type.dimensions)
    op.require(ranks == (4, 4), f"input and filter have ranks {ranks}, expected 4 and 4")
