"""Kernels on regions of feature maps: ROI_ALIGN, ROI_POOLING and HEATMAP_MAX_KEYPOINT."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Final

import numpy as np
import numpy.typing as npt

from nnburst.executor.graph.declarations import F16
from nnburst.executor.graph.operation import Node, Run, kernel, named
from nnburst.executor.graph.tensor import Array
from nnburst.executor.operations.regions import RATIOS
from nnburst.executor.reference.fixed_point import (
    multiply_by_quantized_multiplier,
    quantize_multiplier_smaller_than_one,
)
from nnburst.executor.reference.operations.detection import (
    Float32,
    real_values,
    require_batches,
    require_boxes,
    stored_values,
)
from nnburst.executor.reference.quantized import round_half_away
from nnburst.hal.enums import OperationType
from nnburst.hal.model import QUANTIZED_RANGES

# -- HEATMAP_MAX_KEYPOINT: the position of each heatmap's maximum, between its cells ---------------
# NNAPI: HeatmapMaxKeypoint.cpp.

Positions = npt.NDArray[np.intp]

#: Magnitude of the determinant below which a maximum is not refined; coarser for float16.
_TOLERANCE: Final = 1e-5
_TOLERANCE_FLOAT16: Final = 1e-3

#: Farthest refinement in cells, along either axis.
_FARTHEST: Final = np.float32(1.5)


@kernel(OperationType.HEATMAP_MAX_KEYPOINT, half=True)
def heatmap_max_keypoint(node: Node) -> Run:
    """Compute in float32, all heatmaps at once."""
    scores, keypoints = node.outputs
    heatmap, given_boxes = node.tensor("heatmap"), node.tensor("boxes")
    tolerance = np.float32(_TOLERANCE_FLOAT16 if scores.type == F16 else _TOLERANCE)
    axes = (0, 1, 2, 3) if node.value("layout") else (0, 3, 1, 2)

    def run() -> None:
        boxes = real_values(given_boxes)
        require_boxes(node, "boxes", boxes)
        maps = real_values(heatmap).transpose(axes)
        score, position = _locate(maps, tolerance)
        size = boxes[:, None, 2:] - boxes[:, None, :2]
        found = position / np.float32(maps.shape[2]) * size + boxes[:, None, :2]
        scores.array[...] = stored_values(score, scores.meta)
        keypoints.array[...] = stored_values(found, keypoints.meta)

    return run


def _locate(maps: Float32, tolerance: np.float32) -> tuple[Float32, Float32]:
    """Scores [n, keypoints] and positions [n, keypoints, 2] (x, y, in cells) of the maxima."""
    side = maps.shape[2]
    flat = maps.reshape(*maps.shape[:2], side * side)
    # NNAPI: the search starts below every finite number, so that NaN is never found.
    lowest = np.finfo(np.float32).min
    searched = np.where(flat > lowest, flat, lowest)
    best = searched.argmax(axis=2)
    y, x = np.divmod(best, side)
    delta, score, refined = _refine(_neighbourhood(maps, y, x), tolerance)
    score = np.where(refined, score, searched.max(axis=2))
    centre = np.stack([x, y], axis=-1).astype(np.float32)
    return score, centre + np.where(refined[..., None], delta, 0) + np.float32(0.5)


def _neighbourhood(maps: Float32, y: Positions, x: Positions) -> Float32:
    """The cells around (y, x) [3, 3, n, keypoints], mirrored at the borders of the maps."""
    side = maps.shape[2]
    offsets = np.array([-1, 0, 1])[:, None, None]
    rows, columns = (np.abs(at + offsets) for at in (y, x))
    rows, columns = (np.where(at < side, at, side - 2) for at in (rows, columns))
    images, keypoints = np.indices(y.shape)
    return np.asarray(maps[images, keypoints, rows[:, None], columns[None]])


def _refine(grid: Float32, tolerance: np.float32) -> tuple[Float32, Float32, npt.NDArray[np.bool_]]:
    """Maximum of the quadratic that approximates a neighbourhood.

    Returns:
        Distance from the centre [n, keypoints, 2] (x, y), value there, and whether the quadratic
        determines them.
    """
    two, four = np.float32(2), np.float32(4)
    centre = grid[1, 1]
    bx, by = -(grid[1, 2] - grid[1, 0]) / two, -(grid[2, 1] - grid[0, 1]) / two
    xx = grid[1, 0] - two * centre + grid[1, 2]
    xy = (grid[2, 2] - grid[2, 0] - grid[0, 2] + grid[0, 0]) / four
    yy = grid[0, 1] - two * centre + grid[2, 1]
    product = xx * yy
    determinant = product - xy * xy
    refined = ~(np.abs(determinant) < tolerance + tolerance * product)
    dx, dy = (yy * bx - xy * by) / determinant, (xx * by - xy * bx) / determinant
    farthest = np.maximum(np.abs(dx), np.abs(dy))
    factor = np.where(farthest > _FARTHEST, _FARTHEST / farthest, np.float32(1))
    dx, dy = dx * factor, dy * factor
    score = centre - bx * dx - by * dy + ((xx * dx + xy * dy) * dx + (xy * dx + yy * dy) * dy) / two
    return np.stack([dx, dy], axis=-1), score, refined


# -- Regions of feature maps, as ROI_ALIGN and ROI_POOLING take them -------------------------------
# NNAPI: RoiAlign.cpp, RoiPooling.cpp.


def channels_last(node: Node, array: Array) -> Array:
    """View [n, height, width, channels] of an array in the operation's layout."""
    return array.transpose(0, 2, 3, 1) if node.value("layout") else array


def bind_regions(node: Node, extents: tuple[int, int]) -> Callable[[], Float32]:
    """Bind the reading of regions [n, 4], in cells of feature maps of (height, width) `extents`.

    Returns:
        A function that returns a private copy. It raises OperationFailed if a region is reversed,
        begins before or ends after the map, or a batch index is out of range.
    """
    roi, batches, images = node.tensor("roi"), node.tensor("batches").array, node.tensor("input")
    limits = np.array([*extents[::-1], *extents[::-1]], np.float32)
    strides = [np.float32(node.value(name)) for name in ("width_stride", "height_stride")]
    scale = np.float32(1) / np.array([*strides, *strides], np.float32)

    def read() -> Float32:
        require_batches(node, batches, images.shape[0])
        boxes = real_values(roi)
        require_boxes(node, "roi", boxes)
        scaled = boxes * scale
        outside = np.flatnonzero(~((boxes >= 0) & (scaled <= limits)).all(axis=1))
        node.require(
            not outside.size,
            f"operand 'roi' has regions outside of the feature map: {outside[:3].tolist()}, …",
        )
        return np.asarray(scaled)

    return read


# -- ROI_ALIGN: the average of points sampled between the cells of a region ------------------------
# NNAPI: RoiAlign.cpp.

#: The step of a quantised model's weights, 1/255.
_WEIGHT_SCALE: Final = np.float32(1) / np.float32(255)

#: Interpolates: the cells around samples [4, samples, channels] and their weights [4, samples, 1] give the #:
#: values at the samples.
_Weigh = Callable[[Array, Float32], Array]

#: Averages: the sums of the samples of grid cells [columns, channels] and their number give the elements.
_Finish = Callable[[Array, int], Array]


@kernel(OperationType.ROI_ALIGN)
def roi_align(node: Node) -> Run:
    """Align one region after the other, row by row of samples."""
    maps = channels_last(node, node.tensor("input").array)
    output = channels_last(node, node.output().array)
    height, width = maps.shape[1:3]
    weigh, finish = _arithmetic(node)
    ratios = [node.value(name) for name in RATIOS]
    regions, batches = bind_regions(node, (height, width)), node.tensor("batches").array

    def run() -> None:
        for region, batch, out in zip(regions(), batches, output, strict=True):
            rows = _sample(region[1], region[3], out.shape[0], ratios[0], height)
            columns = _sample(region[0], region[2], out.shape[1], ratios[1], width)
            samples = rows.ratio * columns.ratio
            lines = rows.lines()
            for cell in range(out.shape[0]):
                own = lines[cell * rows.ratio : (cell + 1) * rows.ratio]
                values = (weigh(*_surroundings(maps[batch], line, columns)) for line in own)
                sums = reduce(np.add, values).reshape(out.shape[1], columns.ratio, -1)
                out[cell] = finish(sums.sum(axis=1), samples)

    return run


@dataclass(frozen=True, slots=True)
class _Samples:
    """The positions at which a region is sampled along one axis of the map.

    Attributes:
        ratio: samples in each cell of the grid.
        before: cell of the map before each sample, for one grid cell after the other.
        after: cell of the map after each sample.
        distance: distance of each sample from the cell before it, 0 to 1.
    """

    ratio: int
    before: npt.NDArray[np.intp]
    after: npt.NDArray[np.intp]
    distance: Float32

    def lines(self) -> list[tuple[int, int, np.float32]]:
        """Each sample's cell before, cell after and distance."""
        return list(zip(self.before.tolist(), self.after.tolist(), self.distance, strict=True))


def _sample(start: np.float32, end: np.float32, count: int, ratio: int, limit: int) -> _Samples:
    """Samples of a grid of `count` cells between `start` and `end`, on a map of `limit` cells."""
    step = np.maximum(end - start, np.float32(1)) / np.float32(count)
    # NNAPI: a ratio of 0 stands for the number of map cells in a grid cell, rounded up.
    ratio = ratio or math.ceil(step)
    size = step / np.float32(ratio)
    first = step * np.arange(count, dtype=np.float32) + start
    at = (first[:, None] + size / 2 + size * np.arange(ratio, dtype=np.float32)).reshape(-1)
    before = np.floor(at).astype(np.intp)
    last = before >= limit - 1
    before = np.where(last, limit - 1, before)
    distance = np.where(last, np.float32(0), at - before.astype(np.float32))
    return _Samples(ratio, before, np.where(last, before, before + 1), distance)


def _surroundings(
    array: Array, line: tuple[int, int, np.float32], columns: _Samples
) -> tuple[Array, Float32]:
    """The four cells around each sample of a line of them, and their weights."""
    above, below, y = line
    left, right, x = columns.before, columns.after, columns.distance
    one = np.float32(1)
    cells = [array[above, left], array[above, right], array[below, left], array[below, right]]
    weights = [(one - x) * (one - y), x * (one - y), (one - x) * y, x * y]
    return np.stack(cells), np.stack(weights)[..., None]


def _arithmetic(node: Node) -> tuple[_Weigh, _Finish]:
    tensor, output = node.tensor("input"), node.output()
    if tensor.type not in QUANTIZED_RANGES:
        return _weigh_float, lambda sums, samples: sums / np.float32(samples)
    zero_point = tensor.zero_point
    low, high = QUANTIZED_RANGES[output.type]
    scales = np.float32(tensor.scale) * _WEIGHT_SCALE / np.float32(output.scale)

    def weigh(cells: Array, weights: Float32) -> Array:
        steps = round_half_away(weights / _WEIGHT_SCALE).astype(np.int64)
        return np.asarray((steps * (cells.astype(np.int64) - zero_point)).sum(axis=0))

    def finish(sums: Array, samples: int) -> Array:
        with named(node.type):
            multiplier = quantize_multiplier_smaller_than_one(float(scales / np.float32(samples)))
        stored = multiply_by_quantized_multiplier(sums, *multiplier) + output.zero_point
        return np.clip(stored, low, high)

    return weigh, finish


def _weigh_float(cells: Array, weights: Float32) -> Array:
    return np.asarray((cells * weights).sum(axis=0))


# -- ROI_POOLING: the maximum of each cell of a grid that is laid over a region --------------------
# NNAPI: RoiPooling.cpp.


@kernel(OperationType.ROI_POOLING)
def roi_pooling(node: Node) -> Run:
    """Reduce rows, then columns, of one region after the other; integers stay as stored."""
    tensor = node.tensor("input")
    maps = channels_last(node, tensor.array)
    output = channels_last(node, node.output().array)
    height, width, channels = maps.shape[1:]
    # NNAPI: an empty window gives the zero point. Windows are empty only if they begin behind the
    # map: there they find one row and one column more.
    padded = node.scratch((len(maps), height + 1, width + 1, channels), maps.dtype)
    regions, batches = bind_regions(node, (height, width)), node.tensor("batches").array

    def run() -> None:
        padded[:, height] = tensor.zero_point
        padded[:, :, width] = tensor.zero_point
        padded[:, :height, :width] = maps
        for region, batch, out in zip(regions(), batches, output, strict=True):
            rows = _windows(region[1], region[3], out.shape[0], height)
            columns = _windows(region[0], region[2], out.shape[1], width)
            _pool(padded[batch], rows, columns, out)

    return run


def _windows(start: np.float32, end: np.float32, count: int, limit: int) -> list[slice]:
    """The `count` windows of a region along one axis; one behind `limit` is moved to the last element."""
    first, last = round_half_away(np.array([start, end], np.float32))
    step = np.maximum(last - first + 1, 1) / np.float32(count)
    at = np.arange(count + 1, dtype=np.float32) * step + first
    edges = np.stack([np.floor(at[:-1]), np.ceil(at[1:])], axis=1).astype(np.intp)
    return [slice(b, max(e, b + 1)) for b, e in np.minimum(edges, limit).tolist()]


def _pool(array: Array, rows: list[slice], columns: list[slice], out: Array) -> None:
    """Maximum of each window of rows and columns."""
    bands = np.stack([array[window].max(axis=0) for window in rows])
    for at, window in enumerate(columns):
        np.max(bands[:, window], axis=1, out=out[:, at])
