"""Kernels that pool windows of an image or resize it."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from nnburst.executor.graph.memory import Workspace, in_order
from nnburst.executor.graph.operation import Node, Run, kernel
from nnburst.executor.graph.tensor import Array
from nnburst.executor.graph.windows import (
    Axis,
    Window,
    cells_in_reach,
    image_views,
    meetings,
    seen_by_windows,
)
from nnburst.executor.operations.pooling import axes_of, window_of
from nnburst.executor.reference.quantized import (
    activation_range,
    float_activation_range,
    round_half_away,
)
from nnburst.executor.reference.sums import largest_magnitude
from nnburst.hal.enums import OperationType
from nnburst.hal.model import QUANTIZED_RANGES

# -- AVERAGE_POOL_2D, MAX_POOL_2D, L2_POOL_2D: one number out of every window ----------------------
# Windows are reduced along the width first and along the height then: a filter of h x w cells takes
# h + w steps over whole images. Enormous filters, whose cells may be padding in all windows but one, take a
# step for each window instead. Padding cells are left out of sums, counts and maxima.
#
# NNAPI: Pooling.cpp.

#: The most cells of a filter that always take one step each. A filter is two numbers of the request, so a
#: larger one must not take more steps than there are windows, whose results the client has memory for.
_CELLS_AT_LEAST: Final = 4096


@kernel(OperationType.AVERAGE_POOL_2D)
def average_pool_2d(node: Node) -> Run:
    """Bind sums and their division: by float numbers, or rounding to the nearest integer."""
    image, out = image_views(node)
    kind, window, workspace = node.tensor("input").type, window_of(node), Workspace(node)
    count = _cells(window)
    if kind not in QUANTIZED_RANGES:
        sums, steps = _reduce(np.add, image, window, np.dtype(np.float32), 0, workspace)

        def mean() -> None:
            np.divide(sums, count, out=sums, casting="same_kind")

        return in_order([*steps, mean, _clamp(node, sums, out)])
    largest = largest_magnitude(kind) * window.height.filter * window.width.filter
    dtype = np.dtype(np.int32 if largest < 2**30 else np.int64)
    sums, steps = _reduce(np.add, image, window, dtype, 0, workspace)
    return in_order([*steps, _rounded_mean(sums, count, workspace), _clamp(node, sums, out)])


@kernel(OperationType.MAX_POOL_2D)
def max_pool_2d(node: Node) -> Run:
    """Bind maxima of the stored numbers."""
    image, out = image_views(node)
    lowest = _stored_range(node)[0]
    largest, steps = _reduce(
        np.maximum, image, window_of(node), image.dtype, lowest, Workspace(node)
    )
    return in_order([*steps, _clamp(node, largest, out)])


@kernel(OperationType.L2_POOL_2D)
def l2_pool_2d(node: Node) -> Run:
    """Bind sums of squares, their mean, its root."""
    image, out = image_views(node)
    window, workspace = window_of(node), Workspace(node)
    squares = workspace.array("squares", image.shape, np.float32)
    count = _cells(window)
    sums, steps = _reduce(np.add, squares, window, squares.dtype, 0, workspace)

    def square() -> None:
        np.multiply(image, image, out=squares)

    def root() -> None:
        np.divide(sums, count, out=sums, casting="same_kind")
        np.sqrt(sums, out=sums)

    return in_order([square, *steps, root, _clamp(node, sums, out)])


def _reduce(
    reduction: np.ufunc,
    image: Array,
    window: Window,
    dtype: np.dtype[Any],
    start: float,
    workspace: Workspace,
) -> tuple[Array, list[Run]]:
    """Scratch memory for the reduced NHWC image, and the steps that compute the image."""
    height, width = window.height, window.width
    batches, rows_, _, channels = image.shape
    wide = workspace.array("rows", (batches, rows_, width.output, channels), dtype)
    small = workspace.array("windows", (batches, height.output, width.output, channels), dtype)
    along_width = _reduce_axis(reduction, image, wide, width, 2, start)
    return small, [along_width, _reduce_axis(reduction, wide, small, height, 1, start)]


def _reduce_axis(
    reduction: np.ufunc,
    source: Array,
    target: Array,
    axis: Axis,
    dimension: int,
    start: float,
) -> Run:
    pairs = []
    before = (slice(None),) * dimension
    if len(cells_in_reach(axis)) > max(_CELLS_AT_LEAST, axis.output):
        pairs = [
            (part, source[(*before, seen)])
            for part, seen in zip(
                np.moveaxis(target, dimension, 0), seen_by_windows(axis), strict=True
            )
        ]

        def run_by_windows() -> None:
            for part, cells in pairs:
                reduction.reduce(cells, dimension, target.dtype, part, initial=start)

        return run_by_windows
    for _, seen, windows in meetings(axis):
        pairs.append((target[(*before, windows)], source[(*before, seen)]))

    def run() -> None:
        target.fill(start)
        for part, cells in pairs:
            reduction(part, cells, out=part)

    return run


def _cells(window: Window) -> Any:  # noqa: ANN401 - a plain number divides faster than an array
    """Number of input cells in each window: an int, or int32 [output height, output width, 1]."""
    by_row, by_column = (_cells_along(axis) for axis in (window.height, window.width))
    counts = by_row[:, None, None] * by_column[:, None]
    smallest = int(counts.min())
    return smallest if smallest == counts.max() else counts


def _cells_along(axis: Axis) -> Array:
    first = np.arange(axis.output, dtype=np.int64) * axis.stride - axis.head
    return np.minimum(first + axis.filter, axis.size) - np.maximum(first, 0)


def _rounded_mean(sums: Array, count: Any, workspace: Workspace) -> Run:  # noqa: ANN401
    """Division in place, to the nearest integer, ties away from zero."""
    divisor = count if isinstance(count, int) else count.astype(sums.dtype)
    half = divisor // 2
    sign = workspace.array("sign", sums.shape, sums.dtype)

    def run() -> None:
        np.sign(sums, out=sign)
        np.abs(sums, out=sums)
        np.add(sums, half, out=sums)
        np.floor_divide(sums, divisor, out=sums)
        np.multiply(sums, sign, out=sums)

    return run


def _stored_range(node: Node) -> tuple[float, float]:
    meta = node.output().meta
    activation = int(node.value("activation"))
    if meta.type in QUANTIZED_RANGES:
        return activation_range(activation, meta.type, meta.scale, meta.zero_point)
    return float_activation_range(activation)


def _clamp(node: Node, values: Array, out: Array) -> Run:
    low, high = _stored_range(node)

    def run() -> None:
        np.clip(values, low, high, out=values)
        np.copyto(out, values, casting="unsafe")

    return run


# -- RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR ---------------------------------------------------
# NNAPI: ResizeImageOps.cpp. All coordinates are float32, as there.


def _coordinates(node: Node, axis: int, shift: float) -> Array:
    """The input coordinate of each output element: `(k + 0.5) * s - shift`, or `k * s`."""
    have, wanted = node.tensor("input").shape[axis], node.output().shape[axis]
    align = node.value("align_corners") and wanted > 1
    scale = np.float32(have - align) / np.float32(wanted - align)
    k = np.arange(wanted, dtype=np.float32)
    if node.value("half_pixel_centers"):
        return np.asarray((k + np.float32(0.5)) * scale - np.float32(shift))
    return np.asarray(k * scale)


def _columns_first(node: Node) -> bool:
    """Whether to resize columns before rows: if images get higher and narrower.

    Otherwise the image in between would be larger than the input and the output.
    """
    rows, columns = axes_of(node)
    before, after = node.tensor("input").shape, node.output().shape
    return after[rows] > before[rows] and after[columns] < before[columns]


def _half_way(node: Node, axis: int) -> tuple[int, ...]:
    """Shape of the input after one axis has been resized."""
    shape = list(node.tensor("input").shape)
    shape[axis] = node.output().shape[axis]
    return tuple(shape)


def _neighbours(node: Node, axis: int) -> tuple[Array, Array, Array, Array]:
    """Indices of both neighbours along `axis`, and their weights shaped to broadcast over it."""
    last = node.tensor("input").shape[axis] - 1
    at = _coordinates(node, axis, 0.5)
    low = np.clip(np.floor(at), 0, last)
    high = np.clip(np.ceil(at), 0, last)
    shape = [1, 1, 1, 1]
    shape[axis] = -1
    to_high = (at - low).reshape(shape)
    return low.astype(np.intp), high.astype(np.intp), np.float32(1) - to_high, to_high


@kernel(OperationType.RESIZE_BILINEAR)
def resize_bilinear(node: Node) -> Run:
    """Weight rows first, then columns: each of the four products is the same as pixel by pixel.

    The order of the weights decides how the products are rounded, that of the axes taken does not.

    Quantised: on stored values, rounded by floor(v + 0.5). NNAPI: the signed kernel of the original
    may truncate instead, which differs for negative values; published results follow the floor.
    """
    x, y = node.tensor("input").array, node.output().array
    rows_axis, columns_axis = axes_of(node)
    upper, lower, to_upper, to_lower = _neighbours(node, rows_axis)
    left, right, to_left, to_right = _neighbours(node, columns_axis)
    columns_first = _columns_first(node)
    wide = x if x.dtype == np.float32 else node.scratch(x.shape, np.float32)
    first_axis = columns_axis if columns_first else rows_axis
    band = node.scratch(_half_way(node, first_axis), np.float32)
    product = node.scratch(y.shape, np.float32)
    total = y if y.dtype == np.float32 else node.scratch(y.shape, np.float32)
    # The order of the sum is the original's: down the left column, then down the right one.
    corners = [
        (row_at, row_weight, column_at, column_weight)
        for column_at, column_weight in ((left, to_left), (right, to_right))
        for row_at, row_weight in ((upper, to_upper), (lower, to_lower))
    ]

    def run() -> None:
        if wide is not x:
            np.copyto(wide, x)
        total.fill(0)
        for row_at, row_weight, column_at, column_weight in corners:
            if columns_first:
                np.take(wide, column_at, axis=columns_axis, out=band, mode="clip")
                np.take(band, row_at, axis=rows_axis, out=product, mode="clip")
                np.multiply(product, row_weight, out=product)
            else:
                np.take(wide, row_at, axis=rows_axis, out=band, mode="clip")
                np.multiply(band, row_weight, out=band)
                np.take(band, column_at, axis=columns_axis, out=product, mode="clip")
            np.multiply(product, column_weight, out=product)
            np.add(total, product, out=total)
        if total is not y:
            np.add(total, np.float32(0.5), out=total)
            np.copyto(y, np.floor(total, out=total), casting="unsafe")

    return run


def _nearest(node: Node, axis: int) -> Array:
    at = _coordinates(node, axis, 0)
    whole = round_half_away(at) if node.value("align_corners") else np.floor(at)
    return np.clip(whole, 0, node.tensor("input").shape[axis] - 1).astype(np.intp)


@kernel(OperationType.RESIZE_NEAREST_NEIGHBOR, half=True)
def resize_nearest_neighbor(node: Node) -> Run:
    """Take rows, then columns, or the other way round."""
    x, y = node.tensor("input").array, node.output().array
    rows_axis, columns_axis = axes_of(node)
    first, second = (
        (rows_axis, _nearest(node, rows_axis)),
        (columns_axis, _nearest(node, columns_axis)),
    )
    if _columns_first(node):
        first, second = second, first
    (first_axis, first_at), (second_axis, second_at) = first, second
    band = node.scratch(_half_way(node, first_axis), x.dtype)

    def run() -> None:
        np.take(x, first_at, axis=first_axis, out=band, mode="clip")
        np.take(band, second_at, axis=second_axis, out=y, mode="clip")

    return run
