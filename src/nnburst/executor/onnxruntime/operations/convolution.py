"""Lowers convolutions, matrix products and pooling to ONNX."""

from __future__ import annotations

import math
from typing import Final

from nnburst.executor.graph.translation import require
from nnburst.executor.graph.windows import Axis, Window, keeps_pixels, read_window
from nnburst.executor.onnxruntime.graph import Order, StoredValue
from nnburst.executor.onnxruntime.lowering import NCHW, OnnxLowering, lowers
from nnburst.executor.operations.convolution import window_of as transposed_window
from nnburst.hal.enums import OperationType

#: The engine's filters are [outputs, inputs, height, width], NNAPI's depthwise [1, height, width, outputs].
_FILTER: Final[Order] = (0, 3, 1, 2)
_DEPTHWISE: Final[Order] = (3, 0, 1, 2)
#: Of a transposed convolution [inputs, outputs, height, width].
_TRANSPOSED: Final[Order] = (3, 0, 1, 2)
#: Steps between the smallest and the largest 8-bit number; and the smallest step, for numbers that are all 0.
_STEPS: Final = 255.0
_SMALLEST_STEP: Final = 2.0**-126


def pads(height: Axis, width: Axis) -> tuple[int, ...]:
    """Paddings in the engine's order: heads of all axes, then tails."""
    return (height.head, width.head, height.tail, width.tail)


def _multiplied(
    op: OnnxLowering, x: StoredValue, weights: str, channels: int | None, kept: int = 1
) -> StoredValue:
    """The numbers that weights multiply, rounded to 8 bits if the weights' kernel does so (see `eight_bits`).

    Each row, or image of a batch, has 256 steps from its smallest number to its largest, 0 among them. The
    engine's own DynamicQuantizeLinear would have one step for all rows, and would need 8-bit kernels, which
    the engine does not have for every convolution.

    Args:
        op: the operation.
        x: the numbers that are multiplied.
        weights: name of the weights.
        channels: see `eight_bits`.
        kept: number of leading dimensions along which each element has steps of its own.
    """
    if op.eight_bits(weights, channels) is None:
        return x
    zero, axes = op.graph.real(0), tuple(sorted(map(x.order.index, range(kept, len(x.shape)))))
    (low,) = op.graph.node("ReduceMin", [x.name], axes=axes, keepdims=1)
    (high,) = op.graph.node("ReduceMax", [x.name], axes=axes, keepdims=1)
    (low,) = op.graph.node("Min", [low, zero])
    (high,) = op.graph.node("Max", [high, zero])
    (step,) = op.graph.node("Sub", [high, low])
    (step,) = op.graph.node("Div", [step, op.graph.real(_STEPS)])
    (step,) = op.graph.node("Max", [step, op.graph.real(_SMALLEST_STEP)])
    whole = op.same("Round", op.same("Div", x, step))
    return op.same("Mul", whole, step)


def _convolution(
    op: OnnxLowering, window: Window, order: Order, groups: int, channels: int
) -> StoredValue:
    op.require_real()
    height, width = window.height, window.width
    image = op.to_front(op.value("input"), window.nchw)
    # LiteRT computes a filter of one pixel as a matrix product, whose rows are the pixels.
    is_product = groups == 1 and keeps_pixels(window)
    image = _multiplied(op, image, "filter", channels, kept=3 if is_product else 1)
    weights = op.value("filter")
    inputs = [op.image(image), op.graph.ordered(weights, order), op.plain(op.value("bias"))]
    out = op.emit(
        "Conv",
        inputs,
        op.front_result(window.nchw),
        NCHW,
        kernel_shape=(height.filter, width.filter),
        strides=(height.stride, width.stride),
        dilations=(height.dilation, width.dilation),
        pads=pads(height, width),
        group=groups,
    )
    return op.to_back(op.activated(out), window.nchw)


@lowers(OperationType.CONV_2D, OperationType.GROUPED_CONV_2D)
def conv_2d(op: OnnxLowering) -> StoredValue:
    """CONV_2D, GROUPED_CONV_2D: an image with more channels than the filter has groups."""
    _, height, width, depth = op.node.tensor("filter").shape
    window = read_window(op.node, height, width)
    return _convolution(op, window, _FILTER, window.channels // depth, 0)


@lowers(OperationType.DEPTHWISE_CONV_2D)
def depthwise_conv_2d(op: OnnxLowering) -> StoredValue:
    """DEPTHWISE_CONV_2D: each channel is a group."""
    _, height, width, _ = op.node.tensor("filter").shape
    window = read_window(op.node, height, width)
    return _convolution(op, window, _DEPTHWISE, window.channels, 3)


@lowers(OperationType.TRANSPOSE_CONV_2D)
def transpose_conv_2d(op: OnnxLowering) -> StoredValue:
    """TRANSPOSE_CONV_2D; a negative tail makes cells that the filter does not reach."""
    op.require_real()
    window = transposed_window(op.node)
    axes = (window.height, window.width)
    spare = tuple(max(0, -axis.tail) for axis in axes)
    require(
        all(n < axis.stride for n, axis in zip(spare, axes, strict=True)),
        "TRANSPOSE_CONV_2D padded so much",
    )
    heads, tails = (axis.head for axis in axes), (max(0, axis.tail) for axis in axes)
    image = _multiplied(op, op.to_front(op.value("input"), window.nchw), "filter", 0)
    weights = op.graph.ordered(op.value("filter"), _TRANSPOSED)
    out = op.emit(
        "ConvTranspose",
        [op.image(image), weights, op.plain(op.value("bias"))],
        op.front_result(window.nchw),
        NCHW,
        kernel_shape=tuple(axis.filter for axis in axes),
        strides=tuple(axis.stride for axis in axes),
        pads=(*heads, *tails),
        output_padding=spare,
    )
    return op.to_back(op.activated(out), window.nchw)


@lowers(OperationType.FULLY_CONNECTED)
def fully_connected(op: OnnxLowering) -> StoredValue:
    """FULLY_CONNECTED on a matrix."""
    op.require_real()
    _, width = op.node.tensor("weights").shape
    x = op.value("input")
    matrix = op.graph.reshaped(x, (math.prod(x.shape) // width, width))
    matrix = _multiplied(op, matrix, "weights", 0)
    weights, bias = op.plain(op.value("weights")), op.plain(op.value("bias"))
    out = op.emit("Gemm", [op.plain(matrix), weights, bias], op.result(), transB=1)
    return op.activated(out)


@lowers(OperationType.BATCH_MATMUL)
def batch_matmul(op: OnnxLowering) -> StoredValue:
    """BATCH_MATMUL."""
    op.require_real()
    names = []
    for name, flag in (("input0", "adj_x"), ("input1", "adj_y")):
        x = op.value(name)
        rank = len(x.shape)
        if op.number(flag):
            x = op.transposed(x, (*range(rank - 2), rank - 1, rank - 2))
        if name == "input0":
            x = _multiplied(op, x, "input1", None, kept=rank - 1)
        names.append(op.plain(x))
    return op.emit("MatMul", names, op.result())


def _window(op: OnnxLowering) -> Window:
    op.require_real()
    return read_window(op.node, int(op.number("filter_height")), int(op.number("filter_width")))


def _pool(op: OnnxLowering, kind: str, image: str, window: Window) -> StoredValue:
    height, width = window.height, window.width
    return op.emit(
        kind,
        [image],
        op.front_result(window.nchw),
        NCHW,
        kernel_shape=(height.filter, width.filter),
        strides=(height.stride, width.stride),
        pads=pads(height, width),
    )


def _image(op: OnnxLowering, window: Window) -> StoredValue:
    return op.to_front(op.value("input"), window.nchw)


@lowers(OperationType.MAX_POOL_2D, OperationType.AVERAGE_POOL_2D)
def pool_2d(op: OnnxLowering) -> StoredValue:
    """MAX_POOL_2D, AVERAGE_POOL_2D."""
    window = _window(op)
    kind = "MaxPool" if op.node.type is OperationType.MAX_POOL_2D else "AveragePool"
    out = _pool(op, kind, op.image(_image(op, window)), window)
    return op.to_back(op.activated(out), window.nchw)


@lowers(OperationType.L2_POOL_2D)
def l2_pool_2d(op: OnnxLowering) -> StoredValue:
    """L2_POOL_2D: the root of the average of squares."""
    window = _window(op)
    image = op.image(_image(op, window))
    (squares,) = op.graph.node("Mul", [image, image])
    root = op.same("Sqrt", _pool(op, "AveragePool", squares, window))
    return op.to_back(op.activated(root), window.nchw)
