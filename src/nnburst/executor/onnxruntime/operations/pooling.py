"""AVERAGE_POOL_2D, MAX_POOL_2D, L2_POOL_2D: padding cells count in none of them."""

from __future__ import annotations

from nnburst.executor.graph.sliding_window import Window, read_window
from nnburst.executor.onnxruntime.graph import StoredValue
from nnburst.executor.onnxruntime.lowering import NCHW, OnnxLowering, lowers
from nnburst.executor.onnxruntime.operations.convolution import pads
from nnburst.hal.enums import OperationType


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


@lowers(OperationType.MAX_POOL_2D)
def max_pool_2d(op: OnnxLowering) -> StoredValue:
    """MAX_POOL_2D."""
    window = _window(op)
    out = _pool(op, "MaxPool", op.image(_image(op, window)), window)
    return op.to_back(op.activated(out), window.nchw)


@lowers(OperationType.AVERAGE_POOL_2D)
def average_pool_2d(op: OnnxLowering) -> StoredValue:
    """AVERAGE_POOL_2D."""
    window = _window(op)
    out = _pool(op, "AveragePool", op.image(_image(op, window)), window)
    return op.to_back(op.activated(out), window.nchw)


@lowers(OperationType.L2_POOL_2D)
def l2_pool_2d(op: OnnxLowering) -> StoredValue:
    """The root of the average of squares."""
    window = _window(op)
    image = op.image(_image(op, window))
    (squares,) = op.graph.node("Mul", [image, image])
    root = op.same("Sqrt", _pool(op, "AveragePool", squares, window))
    return op.to_back(op.activated(root), window.nchw)
