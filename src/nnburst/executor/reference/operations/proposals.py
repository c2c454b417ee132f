"""GENERATE_PROPOSALS: from scores and corrections of anchors to regions worth looking at.

NNAPI: GenerateProposals.cpp.
"""

from __future__ import annotations

import numpy as np

from nnburst.executor.graph.operand_dimensions import require_dimensions, require_rank
from nnburst.executor.graph.operation import Node, kernel
from nnburst.executor.graph.signatures import (
    Q8,
    Q8S,
)
from nnburst.executor.graph.tensor import Array, Tensor
from nnburst.executor.operations.families.boxes import BOX_SCALE, box_type, require_box_scale
from nnburst.executor.reference.families.box_geometry import (
    Float32,
    real_values,
    require_boxes,
    stored_values,
    transform,
)
from nnburst.executor.reference.families.suppression import Positions, best_first, hard_suppression
from nnburst.hal.enums import OperationType


def _check(node: Node) -> None:
    nchw = node.value("layout")
    shape = require_rank(node, "scores", 4)
    anchors = shape[1] if nchw else shape[3]
    height_width = shape[2:] if nchw else shape[1:3]
    deltas = (4 * anchors, *height_width) if nchw else (*height_width, 4 * anchors)
    require_dimensions(node, "bounding_box_deltas", (shape[0], *deltas))
    require_dimensions(node, "anchors", (anchors, 4))
    require_dimensions(node, "image_info", (shape[0], 2))
    # NNAPI: signed models choose the scales of anchors and boxes themselves.
    if node.tensor("scores").type == Q8:
        require_box_scale(node, "image_info")
        scale = node.tensor("anchors").scale
        node.require(
            scale == BOX_SCALE, f"operand 'anchors' has scale {scale}, expected {BOX_SCALE}"
        )


@kernel(OperationType.GENERATE_PROPOSALS)
def generate_proposals(node: Node) -> list[Array | Tensor]:
    """Compute in float32, whatever the types; images in order, regions as they were picked."""
    _check(node)
    scores, deltas = (
        _by_cell(real_values(node.tensor(name)), nchw=node.value("layout"))
        for name in ("scores", "bounding_box_deltas")
    )
    images = real_values(node.tensor("image_info"))
    anchors = _anchors_of_cells(node, *scores.shape[1:3])
    require_boxes(node, "anchors", anchors)
    found_scores, found_boxes, found_batches = [], [], []
    for batch, image in enumerate(images):
        moved = transform(anchors, deltas[batch].reshape(-1, 1, 4), image[None])[:, 0]
        flat = scores[batch].reshape(-1)
        picks = _propose(node, flat, moved, image)
        found_scores.append(flat[picks])
        found_boxes.append(moved[picks])
        found_batches.append(np.full(len(picks), batch, np.int32))
    return [
        _score_tensor(node, np.concatenate(found_scores)),
        _box_tensor(node, np.concatenate(found_boxes)),
        np.concatenate(found_batches),
    ]


def _by_cell(values: Float32, *, nchw: bool) -> Float32:
    """Values [batch, height, width, …] of a map in either layout."""
    return np.ascontiguousarray(values.transpose(0, 2, 3, 1)) if nchw else values


def _anchors_of_cells(node: Node, height: int, width: int) -> Float32:
    """Boxes [height · width · anchors, 4]: the anchors moved to every cell."""
    y = np.arange(height, dtype=np.float32) * np.float32(node.value("height_stride"))
    x = np.arange(width, dtype=np.float32) * np.float32(node.value("width_stride"))
    shift = np.empty((height, width, 1, 4), np.float32)
    shift[..., 0::2] = x[None, :, None, None]
    shift[..., 1::2] = y[:, None, None, None]
    return np.asarray((real_values(node.tensor("anchors")) + shift).reshape(-1, 4))


def _propose(node: Node, scores: Float32, boxes: Float32, image: Float32) -> Positions:
    """Positions of the regions of one image, in the order of picking."""
    before, after = node.value("pre_nms_max"), node.value("post_nms_max")
    candidates: Positions = np.arange(len(scores))
    if 0 < before < len(scores):
        candidates = best_first(scores)[:before]
    candidates = candidates[_large_enough(boxes[candidates], node.value("min_size"), image)]
    picks = hard_suppression(
        scores[candidates],
        boxes[candidates],
        node.value("iou_threshold"),
        # DEVIATES: NNAPI's CPU implementation keeps nothing at 0; by its documentation only
        # a positive number limits.
        after if after > 0 else -1,
    )
    return candidates[picks]


def _large_enough(boxes: Float32, least: float, image: Float32) -> Array:
    """Which boxes are larger than `least` both ways, with their centres inside the image."""
    size = boxes[:, 2:] - boxes[:, :2]
    centre = boxes[:, :2] + size / 2
    return np.asarray(((size > least) & (centre < image[::-1])).all(axis=1))


def _score_tensor(node: Node, values: Float32) -> Tensor:
    meta = node.like_declared(values.shape, 0)
    return Tensor(meta, stored_values(values, meta))


def _box_tensor(node: Node, values: Float32) -> Tensor:
    signed = node.tensor("scores").type == Q8S
    meta = node.like_declared(values.shape, 1) if signed else box_type(node, values.shape, 1)
    return Tensor(meta, stored_values(values, meta))
