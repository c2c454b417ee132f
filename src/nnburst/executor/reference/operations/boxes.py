"""AXIS_ALIGNED_BBOX_TRANSFORM and BOX_WITH_NMS_LIMIT.

NNAPI: GenerateProposals.cpp.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

import numpy as np

from nnburst.executor.graph.operand_dimensions import require_dimensions, require_rank
from nnburst.executor.graph.operation import Node, Run, operation
from nnburst.executor.graph.signatures import (
    F16,
    F32,
    FLOAT16,
    FLOAT32,
    I32,
    Q8,
    Q8S,
    Q16A,
    V1_2,
    V1_3,
    control,
    data,
    index,
    row,
    signature,
)
from nnburst.executor.graph.tensor import Array, Tensor, TensorType
from nnburst.executor.reference.families.box_geometry import (
    Float32,
    box_type,
    real_values,
    require_batches,
    require_box_operands,
    require_box_scale,
    require_boxes,
    stored_values,
    transform,
)
from nnburst.executor.reference.families.suppression import Decay, best_first, soft_suppression
from nnburst.hal.enums import OperationType


def _transform_shape(node: Node) -> list[TensorType]:
    count = require_box_operands(node, "roi", "batches")
    width = require_rank(node, "bounding_box_deltas", 2)[1]
    node.require(
        width > 0 and width % 4 == 0,
        f"operand 'bounding_box_deltas' has {width} columns, expected 4 for each class",
    )
    require_dimensions(node, "bounding_box_deltas", (count, width))
    images = require_rank(node, "image_info", 2)[0]
    node.require(images > 0, "operand 'image_info' has no rows")
    require_dimensions(node, "image_info", (images, 2))
    require_box_scale(node, "image_info")
    return [box_type(node, (count, width))]


@operation(
    signature(
        OperationType.AXIS_ALIGNED_BBOX_TRANSFORM,
        V1_2,
        "Moves and stretches boxes by predicted corrections and clips them to their images.",
        inputs=[
            data("roi"),
            data("bounding_box_deltas", "D"),
            index("batches"),
            data("image_info"),
        ],
        outputs=[data("output")],
        rows=[
            row(V1_2, T=F32, D=F32),
            row(V1_2, T=F16, D=F16),
            row(V1_2, T=Q16A, D=Q8),
            row(V1_3, T=Q16A, D=Q8S),
        ],
    ),
    shape=_transform_shape,
    zero_sized=True,
)
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


@operation(
    signature(
        OperationType.BOX_WITH_NMS_LIMIT,
        V1_2,
        "Greedily selects boxes by descending score, class by class, lowering the scores of boxes"
        " that overlap with a selected one.",
        inputs=[
            data("scores", "S"),
            data("roi", "B"),
            index("batches"),
            control("score_threshold", "F"),
            control("max_num_detections"),
            control("soft_nms_kernel"),
            control("iou_threshold", "F"),
            control("sigma", "F"),
            control("nms_score_threshold", "F"),
        ],
        outputs=[
            data("output_scores", "S"),
            data("output_roi", "B"),
            data("output_classes", I32),
            data("output_batches", I32),
        ],
        rows=[
            row(V1_2, S=F32, B=F32, F=FLOAT32),
            row(V1_2, S=F16, B=F16, F=FLOAT16),
            row(V1_2, S=Q8, B=Q16A, F=FLOAT32),
            row(V1_3, S=Q8S, B=Q16A, F=FLOAT32),
        ],
    ),
    shape=None,
    zero_sized=True,
)
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
