"""HEATMAP_MAX_KEYPOINT: where the maximum of each heatmap lies, between its cells.

NNAPI: HeatmapMaxKeypoint.cpp.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from nnburst.executor.graph.operation import Node, Run, kernel
from nnburst.executor.graph.signatures import (
    F16,
)
from nnburst.executor.reference.families.box_geometry import (
    Float32,
    real_values,
    require_boxes,
    stored_values,
)
from nnburst.hal.enums import OperationType

Positions = npt.NDArray[np.intp]

#: How close to zero the determinant may be before a maximum is not refined; coarser for float16.
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
