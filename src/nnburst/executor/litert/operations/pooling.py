"""AVERAGE_POOL_2D, MAX_POOL_2D, L2_POOL_2D."""

from __future__ import annotations

from msgspec.structs import replace

from nnburst.executor.graph.geometry import Axis
from nnburst.executor.graph.sliding_window import Window, read_window
from nnburst.executor.litert.graph import Value
from nnburst.executor.litert.lowering import QUANTISED, Lowering, lowers
from nnburst.executor.litert.operations.windows import (
    VALID,
    nhwc_result,
    pad,
    scheme_of,
    strides,
)
from nnburst.hal.enums import OperationType
from nnburst.hal.imports import late_numpy as np
from nnburst.hal.operand_types import QUANTIZED_RANGES


def _window(op: Lowering) -> Window:
    return read_window(op.node, int(op.number("filter_height")), int(op.number("filter_width")))


def _pool(op: Lowering, name: str, image: Value, window: Window, scheme: int) -> Value:
    return op.emit(
        name,
        [image],
        replace(image.meta, dimensions=nhwc_result(op, window)),
        "Pool2D",
        padding=scheme,
        filterWidth=window.width.filter,
        filterHeight=window.height.filter,
        fusedActivationFunction=0 if image.meta.type != op.result().type else op.activation(),
        **strides(window),
    )


@lowers(OperationType.MAX_POOL_2D)
def max_pool_2d(op: Lowering) -> Value:
    """MAX_POOL_2D; padding cells of explicit padding are as low as numbers get."""
    window = _window(op)
    image = op.to_front(op.value("input"), window.nchw)
    scheme = scheme_of(window)
    if scheme is None:
        quantised = QUANTIZED_RANGES.get(image.meta.type)
        lowest = quantised[0] if quantised else np.finfo(np.float32).min
        filling = op.constant(np.array([lowest]), image.meta)
        image, scheme = pad(op, image, window, filling), VALID
    return op.to_back(_pool(op, "MAX_POOL_2D", image, window, scheme), window.nchw)


@lowers(OperationType.AVERAGE_POOL_2D)
def average_pool_2d(op: Lowering) -> Value:
    """AVERAGE_POOL_2D; with explicit padding the mean of padded windows, without the padding's share."""
    window = _window(op)
    image = op.to_front(op.value("input"), window.nchw)
    scheme = scheme_of(window)
    if scheme is not None:
        return op.to_back(_pool(op, "AVERAGE_POOL_2D", image, window, scheme), window.nchw)
    if image.meta.type in QUANTISED:
        return _quantised_average(op, image, window)
    mean = _pool_without_padding(op, image, window)
    return op.to_back(_activated(op, mean), window.nchw)


def _quantised_average(op: Lowering, image: Value, window: Window) -> Value:
    mean = _pool_without_padding(op, op.floats(image), window)
    mean = _activated(op, mean)
    return op.to_back(op.requantize(mean, op.result()), window.nchw)


def _pool_without_padding(op: Lowering, image: Value, window: Window) -> Value:
    out = replace(image.meta, dimensions=nhwc_result(op, window))
    mean = op.emit(
        "AVERAGE_POOL_2D",
        [pad(op, image, window)],
        out,
        "Pool2D",
        padding=VALID,
        filterWidth=window.width.filter,
        filterHeight=window.height.filter,
        **strides(window),
    )
    area = window.height.filter * window.width.filter
    cells = np.outer(_counts(window.height), _counts(window.width))
    share = op.constant((area / cells)[None, :, :, None].astype(np.float32), image.meta)
    return op.binary("MUL", mean, share)


def _counts(axis: Axis) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """How many real cells each window has along an axis."""
    starts = np.arange(axis.output) * axis.stride - axis.head
    ends = np.minimum(starts + axis.filter, axis.size)
    return ends - np.maximum(starts, 0)


def _activated(op: Lowering, x: Value) -> Value:
    name = {1: "RELU", 2: "RELU_N1_TO_1", 3: "RELU6"}.get(op.activation())
    return op.emit(name, [x], x.meta) if name else x


@lowers(OperationType.L2_POOL_2D)
def l2_pool_2d(op: Lowering) -> Value:
    """The root of the average of squares: the engine's own operator takes no explicit padding."""
    window = _window(op)
    image = op.to_front(op.value("input"), window.nchw)
    squares = op.binary("MUL", image, image)
    scheme = scheme_of(window)
    if scheme is None:
        mean = _pool_without_padding(op, squares, window)
    else:
        mean = op.emit(
            "AVERAGE_POOL_2D",
            [squares],
            replace(image.meta, dimensions=nhwc_result(op, window)),
            "Pool2D",
            padding=scheme,
            filterWidth=window.width.filter,
            filterHeight=window.height.filter,
            **strides(window),
        )
    root = op.emit("SQRT", [mean], mean.meta)
    return op.to_back(_activated(op, root), window.nchw)
