"""Computes convolutions, pools, matrix products and regions of images naively."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from nnburst.hal.enums import OperationType
from nnburst.testing.models.naive.registry import (
    Array,
    Index,
    activated,
    back,
    build,
    half_away,
    naive,
    nhwc,
)

_T = OperationType


class NaiveAxis(NamedTuple):
    """The positions of a window along one axis: the first position, the step, and their number."""

    head: int
    stride: int
    dilation: int
    positions: int


def _axis(extent: int, size: int, stride: int, dilation: int, pads: tuple[int, int]) -> NaiveAxis:
    reach = (size - 1) * dilation + 1
    return NaiveAxis(pads[0], stride, dilation, (extent - reach + sum(pads)) // stride + 1)


def _same(extent: int, size: int, stride: int, dilation: int, scheme: int) -> tuple[int, int]:
    if scheme != 1:
        return 0, 0
    positions = -(-extent // stride)
    total = max(0, (positions - 1) * stride + (size - 1) * dilation + 1 - extent)
    return total // 2, total - total // 2


class NaiveWindow(NamedTuple):
    """A window over height and width of NHWC data."""

    rows: NaiveAxis
    columns: NaiveAxis


def _window(
    x: Array, size: tuple[int, int], geometry: Sequence[int], dilation: tuple[int, int]
) -> NaiveWindow:
    """A window of geometry (left, right, top, bottom, stride_w, stride_h) or (scheme, stride_w, stride_h)."""
    *padding, stride_w, stride_h = geometry
    (dw, dh), (h, w) = dilation, size
    if len(padding) == 1:
        rows = _same(x.shape[1], h, stride_h, dh, padding[0])
        columns = _same(x.shape[2], w, stride_w, dw, padding[0])
    else:
        rows, columns = (padding[2], padding[3]), (padding[0], padding[1])
    return NaiveWindow(
        _axis(x.shape[1], h, stride_h, dh, rows), _axis(x.shape[2], w, stride_w, dw, columns)
    )


def _cells(
    x: Array, window: NaiveWindow, size: tuple[int, int], at: Index
) -> list[tuple[int, int, int, int]]:
    """(row in filter, column in filter, row, column) of the cells that lie inside `x`."""
    rows, columns = window
    found = []
    for i in range(size[0]):
        for j in range(size[1]):
            r = at[1] * rows.stride - rows.head + i * rows.dilation
            c = at[2] * columns.stride - columns.head + j * columns.dilation
            if 0 <= r < x.shape[1] and 0 <= c < x.shape[2]:
                found.append((i, j, r, c))
    return found


def _layout(x: Array, nchw: bool) -> Array:
    """Images with channels last; there may be no image, but each image has pixels and channels.

    Raises:
        ValueError: an extent other than the number of images is 0.
    """
    if 0 in x.shape[1:]:
        raise ValueError(f"images of shape {list(x.shape[1:])}")
    return nhwc(x, nchw)


@naive(_T.CONV_2D)
def conv_2d(x: Array, weights: Array, bias: Array, *arguments: int) -> Array:
    """Sums of products over windows and channels."""
    geometry, (activation, *options) = _conv_parts(arguments, 1)
    nchw, dilation = _options(options)
    settings = (geometry, dilation, activation, nchw)
    return _convolve(x, weights, bias, settings, lambda _: (0, weights.shape[3]))


def _options(options: Sequence[int]) -> tuple[bool, tuple[int, int]]:
    nchw = bool(options[0]) if options else False
    return nchw, (options[1], options[2]) if len(options) > 1 else (1, 1)


def _conv_parts(arguments: Sequence[int], fixed: int) -> tuple[list[int], list[int]]:
    """Split arguments by form, which the position of the layout flag (a bool) or their number shows."""
    flag = next((i for i, a in enumerate(arguments) if isinstance(a, bool)), len(arguments))
    count = flag - fixed
    numbers = [int(a) for a in arguments]
    return numbers[:count], numbers[count:]


Settings = tuple[Sequence[int], tuple[int, int], int, bool]


def _convolve(
    x: Array,
    weights: Array,
    bias: Array,
    settings: Settings,
    channels: Callable[[int], tuple[int, int]],
) -> Array:
    """Convolve; `channels(k)` gives the first input channel of output channel k, and the number of them."""
    geometry, dilation, activation, nchw = settings
    x = _layout(x, nchw)
    size = (weights.shape[1], weights.shape[2])
    window = _window(x, size, geometry, dilation)
    limit = activated(activation)

    def element(at: Index) -> float:
        k = at[3]
        first, depth = channels(k)
        terms = [
            x[at[0], r, c, first + d] * weights[k, i, j, d]
            for i, j, r, c in _cells(x, window, size, at)
            for d in range(depth)
        ]
        return limit(math.fsum(terms) + bias[k])

    shape = (x.shape[0], window.rows.positions, window.columns.positions, weights.shape[0])
    return back(build(shape, element), nchw)


@naive(_T.GROUPED_CONV_2D)
def grouped_conv_2d(x: Array, weights: Array, bias: Array, *arguments: int) -> Array:
    """A convolution of each group of channels."""
    geometry, (groups, activation, nchw) = _conv_parts(arguments, 2)
    depth, per_group = weights.shape[3], weights.shape[0] // groups
    settings = (geometry, (1, 1), activation, bool(nchw))
    return _convolve(x, weights, bias, settings, lambda k: (k // per_group * depth, depth))


@naive(_T.DEPTHWISE_CONV_2D)
def depthwise_conv_2d(x: Array, weights: Array, bias: Array, *arguments: int) -> Array:
    """A convolution of each input channel with its own filters."""
    geometry, (multiplier, activation, *options) = _conv_parts(arguments, 2)
    nchw, dilation = _options(options)
    settings = (geometry, dilation, activation, nchw)
    filters = weights.transpose(3, 1, 2, 0)
    return _convolve(x, filters, bias, settings, lambda k: (k // multiplier, 1))


@naive(_T.TRANSPOSE_CONV_2D)
def transpose_conv_2d(x: Array, weights: Array, bias: Array, *arguments: Any) -> Array:  # noqa: ANN401
    """A sum of the filter at every input pixel, scaled by the pixel."""
    if isinstance(arguments[0], np.ndarray):
        shape, scheme, stride_w, stride_h, activation, nchw = arguments
        extents = [int(n) for n in (shape[2:] if nchw else shape[1:3])]
        top, bottom = _cut(scheme, extents[0], stride_h, weights.shape[1])
        left, right = _cut(scheme, extents[1], stride_w, weights.shape[2])
    else:
        geometry, (activation, nchw) = _conv_parts(arguments, 1)
        left, right, top, bottom, stride_w, stride_h = geometry
    x = _layout(x, bool(nchw))
    limit = activated(activation)
    height = (x.shape[1] - 1) * stride_h + weights.shape[1] - top - bottom
    width = (x.shape[2] - 1) * stride_w + weights.shape[2] - left - right

    def element(at: Index) -> float:
        n, r, c, k = at
        terms = [
            x[n, h, w, d] * weights[k, row, column, d]
            for h, row in _scattered(r + top, stride_h, x.shape[1], weights.shape[1])
            for w, column in _scattered(c + left, stride_w, x.shape[2], weights.shape[2])
            for d in range(x.shape[3])
        ]
        return limit(math.fsum(terms) + bias[k])

    return back(build((x.shape[0], height, width, weights.shape[0]), element), bool(nchw))


def _cut(scheme: int, extent: int, stride: int, size: int) -> tuple[int, int]:
    """The elements to cut off each end of an axis; none unless the padding scheme is 1 (SAME)."""
    if scheme != 1:
        return 0, 0
    whole = (math.ceil(extent / stride) - 1) * stride + size
    head = max(0, whole - extent) // 2
    return head, whole - extent - head


def _scattered(at: int, stride: int, extent: int, size: int) -> list[tuple[int, int]]:
    """Inputs that contribute to position `at` of one axis, each with the position in the filter."""
    return [(i, at - i * stride) for i in range(extent) if at - size < i * stride <= at]


def _pool(f: Callable[[list[float]], float]) -> Callable[..., Array]:
    def compute(x: Array, *arguments: int) -> Array:
        geometry, (width, height, activation, *options) = _conv_parts(arguments, 3)
        nchw = bool(options and options[0])
        x = _layout(x, nchw)
        window = _window(x, (height, width), geometry, (1, 1))
        limit = activated(activation)

        def element(at: Index) -> float:
            cells = _cells(x, window, (height, width), at)
            return limit(f([x[at[0], r, c, at[3]] for _, _, r, c in cells]))

        shape = (x.shape[0], window.rows.positions, window.columns.positions, x.shape[3])
        return back(build(shape, element), nchw)

    return compute


naive(_T.MAX_POOL_2D)(_pool(max))
naive(_T.AVERAGE_POOL_2D)(_pool(lambda cells: math.fsum(cells) / len(cells)))
naive(_T.L2_POOL_2D)(_pool(lambda cells: math.sqrt(math.fsum(v * v for v in cells) / len(cells))))


@naive(_T.FULLY_CONNECTED)
def fully_connected(x: Array, weights: Array, bias: Array, activation: int) -> Array:
    """Rows of the flattened input times rows of the weights."""
    rows = x.reshape(-1, weights.shape[1])
    limit = activated(activation)
    return build(
        (rows.shape[0], weights.shape[0]),
        lambda at: limit(
            math.fsum(a * b for a, b in zip(rows[at[0]], weights[at[1]], strict=True)) + bias[at[1]]
        ),
    )


@naive(_T.BATCH_MATMUL)
def batch_matmul(x: Array, y: Array, transposed_x: bool, transposed_y: bool) -> Array:
    """Matrix products, batch by batch."""
    x = x.swapaxes(-1, -2) if transposed_x else x
    y = y.swapaxes(-1, -2) if transposed_y else y
    return build(
        (*x.shape[:-1], y.shape[-1]),
        lambda at: sum(x[(*at[:-1], k)] * y[(*at[:-2], k, at[-1])] for k in range(x.shape[-1])),
    )


@naive(_T.RESIZE_NEAREST_NEIGHBOR)
def resize_nearest_neighbor(x: Array, width: float, height: float, nchw: bool) -> Array:
    """The nearest pixel towards the origin (corners not aligned, no half pixels)."""
    x = _layout(x, nchw)
    rows, columns = x.shape[1], x.shape[2]
    width, height = _resized(columns, width), _resized(rows, height)
    return back(
        build(
            (x.shape[0], height, width, x.shape[3]),
            lambda at: x[at[0], _floor(at[1], rows, height), _floor(at[2], columns, width), at[3]],
        ),
        nchw,
    )


def _resized(extent: int, size: float) -> int:
    """The given size, or an extent times a scale."""
    return size if isinstance(size, int) else math.floor(extent * size)


def _floor(place: int, extent: int, resized: int) -> int:
    # If the exact product would be an integer, the float32 one decides.
    return min(int(np.float32(place) * (np.float32(extent) / np.float32(resized))), extent - 1)


@naive(_T.RESIZE_BILINEAR)
def resize_bilinear(x: Array, width: float, height: float, nchw: bool = False) -> Array:
    """The four nearest pixels, weighted (corners not aligned, no half pixels)."""
    x = _layout(x, nchw)
    width, height = _resized(x.shape[2], width), _resized(x.shape[1], height)

    def element(at: Index) -> float:
        r, c = at[1] * x.shape[1] / height, at[2] * x.shape[2] / width
        total = 0.0
        for i, wi in _pixel_neighbours(r, x.shape[1]):
            for j, wj in _pixel_neighbours(c, x.shape[2]):
                total += wi * wj * x[at[0], i, j, at[3]]
        return total

    return back(build((x.shape[0], height, width, x.shape[3]), element), nchw)


def _pixel_neighbours(place: float, extent: int) -> list[tuple[int, float]]:
    low = math.floor(place)
    return [(low, 1 - (place - low)), (min(low + 1, extent - 1), place - low)]


# -- Regions of images -----------------------------------------------------------------------------


def _bilinear(plane: Array, y: float, x: float, channel: int) -> float:
    total = 0.0
    for row, row_share in _region_neighbours(y, plane.shape[0]):
        for column, column_share in _region_neighbours(x, plane.shape[1]):
            total += row_share * column_share * plane[row, column, channel]
    return total


def _region_neighbours(place: float, extent: int) -> list[tuple[int, float]]:
    low = math.floor(place)
    if low >= extent - 1:
        return [(extent - 1, 1.0)]
    return [(low, 1 - (place - low)), (low + 1, place - low)]


@naive(_T.ROI_ALIGN)
def roi_align(
    x: Array,
    regions: Array,
    batches: Array,
    height: int,
    width: int,
    stride_y: float,
    stride_x: float,
    samples_y: int,
    samples_x: int,
    nchw: bool,
) -> Array:
    """Averages of evenly spaced samples of each cell of each region."""
    x = nhwc(x, nchw)

    def places(start: float, end: float, cells: int, cell: int, samples: int) -> list[float]:
        size = max(end - start, 1.0) / cells
        count = samples or math.ceil(size)
        return [start + cell * size + (k + 0.5) * size / count for k in range(count)]

    def element(at: Index) -> float:
        n, i, j, channel = at
        x1, y1, x2, y2 = regions[n]
        rows = places(y1 / stride_y, y2 / stride_y, height, i, samples_y)
        columns = places(x1 / stride_x, x2 / stride_x, width, j, samples_x)
        plane = x[batches[n]]
        values = [_bilinear(plane, r, c, channel) for r, c in itertools.product(rows, columns)]
        return math.fsum(values) / len(values)

    result = build((regions.shape[0], height, width, x.shape[3]), element)
    return back(result, nchw)


@naive(_T.ROI_POOLING)
def roi_pooling(
    x: Array,
    regions: Array,
    batches: Array,
    height: int,
    width: int,
    stride_y: float,
    stride_x: float,
    nchw: bool,
) -> Array:
    """The largest element of each cell of each region; 0 for a cell outside the image."""
    x = nhwc(x, nchw)

    def cell(start: float, end: float, count: int, k: int, extent: int) -> range:
        first, last = half_away(start), half_away(end)
        step = max(last - first + 1, 1) / count
        low, high = math.floor(step * k + first), math.ceil(step * (k + 1) + first)
        return range(min(low, extent), min(high, extent))

    def element(at: Index) -> float:
        n, i, j, channel = at
        x1, y1, x2, y2 = regions[n]
        rows = cell(y1 / stride_y, y2 / stride_y, height, i, x.shape[1])
        columns = cell(x1 / stride_x, x2 / stride_x, width, j, x.shape[2])
        plane = x[batches[n]]
        return max((plane[r, c, channel] for r in rows for c in columns), default=0.0)

    result = build((regions.shape[0], height, width, x.shape[3]), element)
    return back(result, nchw)


@naive(_T.AXIS_ALIGNED_BBOX_TRANSFORM)
def axis_aligned_bbox_transform(
    regions: Array, deltas: Array, batches: Array, images: Array
) -> Array:
    """Boxes moved and resized by deltas, one set per class, and cut at the image's edge."""

    def element(at: Index) -> float:
        n, (group, side) = at[0], divmod(at[1], 4)
        x1, y1, x2, y2 = regions[n]
        axis, far = side % 2, side >= 2
        start, end = ((x1, x2), (y1, y2))[axis]
        shift, grow = deltas[n, 4 * group + axis], deltas[n, 4 * group + 2 + axis]
        centre = (start + end) / 2 + shift * (end - start)
        half = math.exp(grow) * (end - start) / 2
        limit = float(images[batches[n], 1 - axis])
        return float(min(max(centre + half if far else centre - half, 0.0), limit))

    return build(deltas.shape, element)
