"""AXIS_ALIGNED_BBOX_TRANSFORM and BOX_WITH_NMS_LIMIT.

NNAPI: GenerateProposals.cpp.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

import numpy as np

from nnburst.executor.graph.operand_dimensions import require_dimensions, require_rank
from nnburst.executor.graph.operation import Node, Run, kernel
from nnburst.executor.graph.tensor import Array, Tensor, TensorType
from nnburst.executor.operations.families.boxes import (
    box_type,
    require_box_scale,
)
from nnburst.executor.reference.families.box_geometry import (
    Float32,
    real_values,
    require_batches,
    require_boxes,
    stored_values,
    transform,
)
from nnburst.executor.reference.families.suppression import Decay, best_first, soft_suppression
from nnburst.hal.enums import OperationType


@kernel(OperationType.AXIS_ALIGNED_BBOX_TRANSFORM)
def axis_aligned_bbox_transform(node: Node) -> Run:
    """Compute in float32, whatever the types."""
    output = node.output()

    def run() -> None:
        boxes = real_values(node.tensor("roi"))
        batches = node.tensor("batches").array
        images = real_values(node.tensor("image_info"))
        require_batches(node, "batches", batches, len(images))
        require_boxes(node, "roi", boxes)
        deltas = real_values(node.tensor("bounding_box_deltas"))
        moved = transform(
            boxes, deltas.reshape(len(boxes), deltas.shape[1] // 4, 4), images[batches]
        )
        output.array[...] = stored_values(moved.reshape(output.shape), output.meta)

    return run


#: Values of operand "soft_nms_kernel"; 0 is the hard one.
_LINEAR: Final = 1
_GAUSSIAN: Final = 2


def _decay(node: Node) -> Decay:
    """What operands 'soft_nms_kernel', 'iou_threshold' and 'sigma' make of an overlap."""
    kernel, threshold = node.value("soft_nms_kernel"), node.value("iou_threshold")
    sigma = np.float32(node.value("sigma"))
    node.require(kernel in (0, 1, 2), f"operand 'soft_nms_kernel' is {kernel}, expected 0 to 2")
    if kernel == _GAUSSIAN:
        return lambda x: np.exp(-x * x / sigma)
    if kernel == _LINEAR:
        return lambda x: np.where(x < threshold, np.float32(1), 1 - x)
    return lambda x: (x < threshold).astype(np.float32)


def _check_limit_operands(node: Node) -> None:
    count, classes = require_rank(node, "scores", 2)
    node.require(classes > 1, f"operand 'scores' has {classes} classes, expected at least 2")
    require_dimensions(node, "roi", (count, 4 * classes))
    require_dimensions(node, "batches", (count,))
    require_box_scale(node, "roi")


@kernel(OperationType.BOX_WITH_NMS_LIMIT)
def box_with_nms_limit(node: Node) -> list[Array | Tensor]:
    """Select within each run of equal batch indexes; class 0, the background, is left out."""
    _check_limit_operands(node)
    decay = _decay(node)
    batches = node.tensor("batches").array
    scores = real_values(node.tensor("scores"))
    stored = node.tensor("roi").array.copy()
    boxes = real_values(Tensor(node.tensor("roi").meta, stored)).reshape(*scores.shape, 4)
    chosen = [np.empty((0, 2), np.intp)]
    for rows in _groups(batches):
        # NNAPI: of a group of k rows, only the first k boxes of its list are checked.
        require_boxes(node, "roi", boxes[rows].reshape(-1, 4)[: rows.stop - rows.start])
        found = _select(node, scores[rows], boxes[rows], decay)
        chosen.append(found + np.array([rows.start, 0]))
    at, classes = np.concatenate(chosen).T
    return [
        _scores(node, scores[at, classes]),
        _boxes(node, stored.reshape(*scores.shape, 4)[at, classes]),
        classes.astype(np.int32),
        batches[at],
    ]


def _groups(batches: Array) -> Iterator[slice]:
    """Rows of each run of equal batch indexes."""
    edges = [0, *(np.flatnonzero(np.diff(batches)) + 1).tolist(), len(batches)]
    for start, stop in pairwise(edges):
        if start < stop:
            yield slice(start, stop)


def _select(node: Node, scores: Float32, boxes: Float32, decay: Decay) -> Array:
    """Pairs (row, class), by class and descending score; lowers scores in place."""
    limit = node.value("max_num_detections")
    threshold = node.value("nms_score_threshold")
    pairs = [np.empty((0, 2), np.intp)]
    for number in range(1, scores.shape[1]):
        rows = np.flatnonzero(scores[:, number] > node.value("score_threshold"))
        lowered = scores[rows, number]
        picks = soft_suppression(lowered, boxes[rows, number], decay, threshold, limit)
        scores[rows, number] = lowered
        pairs.append(np.stack([rows[picks], np.full(len(picks), number)], axis=1))
    found = np.concatenate(pairs)
    best = best_first(scores[found[:, 0], found[:, 1]])
    found = found[best if limit < 0 else best[:limit]]
    return found[np.argsort(found[:, 1], kind="stable")]


def _scores(node: Node, values: Float32) -> Tensor:
    given = node.tensor("scores").meta
    meta = TensorType(given.type, values.shape, given.scale, given.zero_point)
    return Tensor(meta, stored_values(values, meta))


def _boxes(node: Node, stored: Array) -> Tensor:
    return Tensor(box_type(node, stored.shape, 1), stored)
