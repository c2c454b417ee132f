"""Kernels of the operations that detect objects: they transform, suppress, decode and propose boxes.

Boxes [x1, y1, x2, y2] are float32 arrays [n, 4], private copies of operands: another process cannot
change them after they are checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from nnburst.executor.graph.declarations import Q8, Q8S, require_dimensions, require_rank
from nnburst.executor.graph.operation import Node, Run, kernel
from nnburst.executor.graph.tensor import Array, Tensor, TensorType
from nnburst.executor.operations.detection import BOX_SCALE, SCALES, box_type, require_box_scale
from nnburst.executor.reference.quantized import dequantize, round_half_away
from nnburst.hal.enums import OperationType
from nnburst.hal.model import DTYPES, QUANTIZED_RANGES

Float32 = npt.NDArray[np.float32]


# -- Boxes: reading, writing, checking, moving, comparing ------------------------------------------
# NNAPI: GenerateProposals.cpp, CpuOperationUtils.h.


def real_values(tensor: Tensor) -> Float32:
    """Private float32 copy of a tensor's real values."""
    if tensor.type in QUANTIZED_RANGES:
        return dequantize(tensor.array, tensor.scale, tensor.zero_point)
    return tensor.array.astype(np.float32)


def stored_values(x: Float32, meta: TensorType) -> Array:
    """Real numbers as elements of a tensor like `meta`, which may be quantised.

    NNAPI: the zero point is added before rounding, unlike in QUANTIZE. NaN becomes the lowest.
    """
    if meta.type not in QUANTIZED_RANGES:
        return x
    low, high = QUANTIZED_RANGES[meta.type]
    with np.errstate(all="ignore"):
        stored = round_half_away(x / np.float32(meta.scale) + np.float32(meta.zero_point))
    limited = np.fmin(np.fmax(stored, np.float32(low)), np.float32(high))
    return np.asarray(limited.astype(DTYPES[meta.type]))


def require_boxes(node: Node, name: str, boxes: Float32) -> None:
    """Refuse boxes whose end lies before their beginning, or that have NaN."""
    reversed_boxes = np.flatnonzero(~((boxes[:, :2] <= boxes[:, 2:]).all(axis=1)))
    node.require(
        not reversed_boxes.size,
        f"operand '{name}' has boxes with x1 > x2 or y1 > y2: {reversed_boxes[:3].tolist()}, …",
    )


def require_batches(node: Node, batches: Array, count: int) -> None:
    """Refuse batch indexes outside [0, count)."""
    node.require(
        bool(((batches >= 0) & (batches < count)).all()),
        f"operand 'batches' has an index outside [0, {count})",
    )


def transform(boxes: Float32, deltas: Float32, images: Float32) -> Float32:
    """Move and stretch boxes, and clip them to their images.

    Args:
        boxes: [n, 4].
        deltas: [n, classes, 4]: shift of the centre in widths and heights, logarithms of the
            factors of width and height.
        images: [n, 2], height and width of each box's image.

    Returns:
        Boxes [n, classes, 4].
    """
    start, end = boxes[:, None, :2], boxes[:, None, 2:]
    size = end - start
    centre = (start + end) / 2
    centre = centre + deltas[..., :2] * size
    half = np.exp(deltas[..., 2:]) * size / 2
    limit = images[:, None, ::-1]
    corners = [np.minimum(np.maximum(c, 0), limit) for c in (centre - half, centre + half)]
    return np.concatenate(corners, axis=-1)


def overlap(boxes: Float32, box: Float32) -> Float32:
    """Intersection over union of each of `boxes` and `box`; NaN if both are empty."""
    start = np.maximum(boxes[:, :2], box[:2])
    end = np.minimum(boxes[:, 2:], box[2:])
    shared = np.prod(np.maximum(end - start, 0), axis=1)
    areas = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
    area = (box[2] - box[0]) * (box[3] - box[1])
    with np.errstate(all="ignore"):
        return np.asarray(shared / (areas + area - shared))


# -- Non-maximum suppression: of boxes that overlap, only the one with the best score stays --------
# Pure functions over float32 scores [n] and boxes [n, 4]; results are positions in these arrays.
# NNAPI: GenerateProposals.cpp. Order matters on ties: among equal scores, the box wins that comes first in #
# a list in which picks are swapped to the front and dropped boxes are replaced from the end.


Positions = npt.NDArray[np.intp]
#: Returns the factor for a box's score from its overlap with a picked box.
Decay = Callable[[Float32], Float32]
#: Takes the overlaps with a pick and the positions of the boxes; returns which boxes stay.
_Keep = Callable[[Float32, Positions], npt.NDArray[np.bool_]]


def hard_suppression(scores: Float32, boxes: Float32, threshold: float, limit: int) -> Positions:
    """Pick boxes by descending score, dropping those that overlap with a pick.

    Args:
        scores: score of each box.
        boxes: [n, 4].
        threshold: least overlap (intersection over union) of boxes to drop.
        limit: most picks; negative for any number.
    """
    return _pick(scores, boxes, limit, lambda overlaps, _: ~(overlaps >= threshold))


def soft_suppression(
    scores: Float32, boxes: Float32, decay: Decay, threshold: float, limit: int
) -> Positions:
    """Pick boxes by descending score, lowering the scores of those that overlap with a pick.

    Args:
        scores: score of each box; changed in place.
        boxes: [n, 4].
        decay: factor of the scores, by overlap.
        threshold: boxes whose score falls below it are dropped.
        limit: most picks; negative for any number.
    """

    def keep(overlaps: Float32, at: Positions) -> npt.NDArray[np.bool_]:
        scores[at] *= decay(overlaps)
        return ~(scores[at] < threshold)

    return _pick(scores, boxes, limit, keep)


def best_first(scores: Float32) -> Positions:
    """Positions by descending score; equal scores stay in order (NNAPI leaves it open)."""
    return np.argsort(-scores, kind="stable")


def _pick(scores: Float32, boxes: Float32, limit: int, keep: _Keep) -> Positions:
    order = np.arange(len(scores))
    end = len(order)
    picks = 0
    while picks < end and picks != limit:
        best = picks + int(np.argmax(scores[order[picks:end]]))
        order[[picks, best]] = order[[best, picks]]
        rest = order[picks + 1 : end]
        stays = keep(overlap(boxes[rest], boxes[order[picks]]), rest)
        picks += 1
        end = picks + _compact(rest, stays)
    return order[:picks]


def _compact(rest: Positions, stays: npt.NDArray[np.bool_]) -> int:
    """Move the boxes that stay to the front, filling gaps from the end; returns their number."""
    count = int(np.count_nonzero(stays))
    gaps = np.flatnonzero(~stays[:count])
    spare = count + np.flatnonzero(stays[count:])
    rest[gaps] = rest[spare[::-1]]
    return count


# -- AXIS_ALIGNED_BBOX_TRANSFORM and BOX_WITH_NMS_LIMIT --------------------------------------------
# NNAPI: GenerateProposals.cpp.


@kernel(OperationType.AXIS_ALIGNED_BBOX_TRANSFORM)
def axis_aligned_bbox_transform(node: Node) -> Run:
    """Compute in float32, whatever the types."""
    output = node.output()

    def run() -> None:
        boxes = real_values(node.tensor("roi"))
        batches = node.tensor("batches").array
        images = real_values(node.tensor("image_info"))
        require_batches(node, batches, len(images))
        require_boxes(node, "roi", boxes)
        deltas = real_values(node.tensor("bounding_box_deltas"))
        moved = transform(
            boxes, deltas.reshape(len(boxes), deltas.shape[1] // 4, 4), images[batches]
        )
        output.array[...] = stored_values(moved.reshape(output.shape), output.meta)

    return run


#: Values of operand "soft_nms_kernel"; 0 is hard suppression.
_LINEAR: Final = 1
_GAUSSIAN: Final = 2


def _decay(node: Node) -> Decay:
    """The factor of a score by overlap, from operands 'soft_nms_kernel', 'iou_threshold' and 'sigma'."""
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


# -- DETECTION_POSTPROCESSING: from raw predictions of anchors to detections -----------------------
# NNAPI: GenerateProposals.cpp.


class _Detections(NamedTuple):
    """Anchors and classes that were detected, in the order of the outputs."""

    anchors: npt.NDArray[np.intp]
    classes: npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class _Settings:
    """Values of the scalar operands.

    Attributes:
        scales: scales of y, x, height and width.
        score_threshold: only higher scores are detections.
        iou_threshold: boxes that overlap by this much or more suppress each other.
        most: most detections of an image.
        most_classes: most classes reported for an anchor.
        most_per_class: most detections of a class.
    """

    scales: Float32
    score_threshold: float
    iou_threshold: float
    most: int
    most_classes: int
    most_per_class: int

    @classmethod
    def of(cls, node: Node) -> _Settings:
        """Read the settings of an operation."""
        return cls(
            np.array([node.value(name) for name in SCALES], np.float32),
            node.value("score_threshold"),
            node.value("iou_threshold"),
            node.value("max_num_detections"),
            node.value("max_classes_per_detection"),
            node.value("max_detections_per_class"),
        )


@kernel(OperationType.DETECTION_POSTPROCESSING)
def detection_postprocessing(node: Node) -> Run:
    """Detect image by image; boxes are [y1, x1, y2, x2] and slots without detection stay zero."""
    settings = _Settings.of(node)
    detect = _detect_by_class if node.value("use_regular_nms") else _detect_by_anchor
    first_class = 0 if node.value("is_background_in_label") else 1
    given = [node.tensor(name) for name in ("scores", "bounding_box_deltas", "anchors")]
    out_scores, out_boxes, out_classes, counts = (tensor.array for tensor in node.outputs)

    def run() -> None:
        scores, deltas, anchors = (real_values(tensor) for tensor in given)
        for output in (out_scores, out_boxes, out_classes):
            output.fill(0)
        for batch, boxes in enumerate(_decode(anchors, deltas, settings.scales)):
            found = detect(settings, scores[batch], boxes)
            count = len(found.anchors)
            out_scores[batch, :count] = scores[batch, found.anchors, found.classes]
            out_boxes[batch, :count] = boxes[found.anchors]
            out_classes[batch, :count] = found.classes - first_class
            counts[batch] = count

    return run


def _decode(anchors: Float32, deltas: Float32, scale: Float32) -> Float32:
    """Boxes [batches, anchors, 4] from anchors [anchors, 4]: y, x of the centre, height, width."""
    size = anchors[:, 2:]
    centre = anchors[:, :2] + size * deltas[..., :2] / scale[:2]
    half = size * np.exp(deltas[..., 2:4] / scale[2:]) * np.float32(0.5)
    return np.concatenate([centre - half, centre + half], axis=-1)


def _detect_by_class(settings: _Settings, scores: Float32, boxes: Float32) -> _Detections:
    """Suppress within each class, then keep the best of all classes."""
    anchors, classes = [], []
    for number in range(1, scores.shape[1]):
        at = np.flatnonzero(scores[:, number] > settings.score_threshold)
        picks = hard_suppression(
            scores[at, number],
            boxes[at],
            settings.iou_threshold,
            settings.most_per_class,
        )
        anchors.append(at[picks])
        classes.append(np.full(len(picks), number))
    found = _Detections(np.concatenate(anchors), np.concatenate(classes))
    best = best_first(scores[found.anchors, found.classes])[: settings.most]
    return _Detections(found.anchors[best], found.classes[best])


def _detect_by_anchor(settings: _Settings, scores: Float32, boxes: Float32) -> _Detections:
    """Suppress by each anchor's best score, then report the best classes of the remaining anchors."""
    labelled = scores[:, 1:]
    best = labelled.max(axis=1)
    at = np.flatnonzero(best > settings.score_threshold)
    picks = hard_suppression(best[at], boxes[at], settings.iou_threshold, settings.most)
    anchors = at[picks]
    each = min(labelled.shape[1], settings.most_classes)
    classes = np.argsort(-labelled[anchors], axis=1, kind="stable")[:, :each] + 1
    return _Detections(np.repeat(anchors, each), classes.reshape(-1))


# -- GENERATE_PROPOSALS: from scores and corrections of anchors to candidate regions ---------------
# NNAPI: GenerateProposals.cpp.


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
    """Find the boxes that are larger than `least` in both directions and have their centres in the image."""
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
