"""Regions of images: aligned, pooled, moved."""

from __future__ import annotations

import itertools
import math

from nnburst.hal.enums import OperationType
from nnburst.testing.models.naive.registry import naive
from nnburst.testing.models.naive.values import Array, Index, build

_T = OperationType


def _half_away(x: float) -> int:
    return math.floor(abs(x) + 0.5) * (1 if x > 0 else -1)


def _bilinear(plane: Array, y: float, x: float, channel: int) -> float:
    total = 0.0
    for row, row_share in _neighbours(y, plane.shape[0]):
        for column, column_share in _neighbours(x, plane.shape[1]):
            total += row_share * column_share * plane[row, column, channel]
    return total


def _neighbours(place: float, extent: int) -> list[tuple[int, float]]:
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
    x = x.transpose(0, 2, 3, 1) if nchw else x

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
    return result.transpose(0, 3, 1, 2) if nchw else result


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
    x = x.transpose(0, 2, 3, 1) if nchw else x

    def cell(start: float, end: float, count: int, k: int, extent: int) -> range:
        first, last = _half_away(start), _half_away(end)
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
    return result.transpose(0, 3, 1, 2) if nchw else result


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
