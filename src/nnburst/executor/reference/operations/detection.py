"""DETECTION_POSTPROCESSING: from raw predictions of anchors to detections.

NNAPI: GenerateProposals.cpp.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from nnburst.executor.graph.operand_dimensions import require_dimensions, require_rank
from nnburst.executor.graph.operation import Node, Run, operation
from nnburst.executor.graph.signatures import (
    BOOL,
    F16,
    F32,
    FLOAT16,
    FLOAT32,
    I32,
    V1_2,
    control,
    data,
    row,
    signature,
)
from nnburst.executor.graph.tensor import TensorType
from nnburst.executor.reference.families.box_geometry import Float32, real_values
from nnburst.executor.reference.families.suppression import best_first, hard_suppression
from nnburst.hal.enums import OperationType

_SCALES: Final = ("scale_y", "scale_x", "scale_h", "scale_w")


class _Detections(NamedTuple):
    """Anchors and classes that were detected, in the order of the outputs."""

    anchors: npt.NDArray[np.intp]
    classes: npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class _Settings:
    """Values of the scalar operands.

    Attributes:
        scales: of y, x, height and width.
        score_threshold: detections score more.
        iou_threshold: boxes that overlap by as much suppress each other.
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
        """Those of an operation."""
        return cls(
            np.array([node.value(name) for name in _SCALES], np.float32),
            node.value("score_threshold"),
            node.value("iou_threshold"),
            node.value("max_num_detections"),
            node.value("max_classes_per_detection"),
            node.value("max_detections_per_class"),
        )


def _shape(node: Node) -> list[TensorType]:
    batches, anchors, classes = require_rank(node, "scores", 3)
    node.require(classes > 1, f"operand 'scores' has {classes} classes, expected at least 2")
    width = require_rank(node, "bounding_box_deltas", 3)[2]
    node.require(
        width >= 4, f"operand 'bounding_box_deltas' has {width} columns, expected 4 or more"
    )
    require_dimensions(node, "bounding_box_deltas", (batches, anchors, width))
    require_dimensions(node, "anchors", (anchors, 4))
    for name in _SCALES:
        node.require(node.value(name) > 0, f"operand '{name}' is not above 0")
    for name in ("score_threshold", "iou_threshold"):
        node.require(node.value(name) >= 0, f"operand '{name}' is below 0")
    regular = node.value("use_regular_nms")
    limit = "max_detections_per_class" if regular else "max_classes_per_detection"
    for name in ("max_num_detections", limit):
        node.require(node.value(name) > 0, f"operand '{name}' is not above 0")
    slots = node.value("max_num_detections") * (1 if regular else node.value(limit))
    dimensions = ((batches, slots), (batches, slots, 4), (batches, slots), (batches,))
    return [node.like_declared(d, at) for at, d in enumerate(dimensions)]


@operation(
    signature(
        OperationType.DETECTION_POSTPROCESSING,
        V1_2,
        "Decodes boxes from corrections of anchors and selects the best ones of each image.",
        inputs=[
            data("scores"),
            data("bounding_box_deltas"),
            data("anchors"),
            *(control(name, "F") for name in _SCALES),
            control("use_regular_nms", BOOL),
            control("max_num_detections"),
            control("max_classes_per_detection"),
            control("max_detections_per_class"),
            control("score_threshold", "F"),
            control("iou_threshold", "F"),
            control("is_background_in_label", BOOL),
        ],
        outputs=[
            data("output_scores"),
            data("output_boxes"),
            data("output_classes", I32),
            data("output_counts", I32),
        ],
        rows=[row(V1_2, T=F32, F=FLOAT32), row(V1_2, T=F16, F=FLOAT16)],
    ),
    shape=_shape,
)
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
    """Suppress by each anchor's best score, then report the best classes of what is left."""
    labelled = scores[:, 1:]
    best = labelled.max(axis=1)
    at = np.flatnonzero(best > settings.score_threshold)
    picks = hard_suppression(best[at], boxes[at], settings.iou_threshold, settings.most)
    anchors = at[picks]
    each = min(labelled.shape[1], settings.most_classes)
    classes = np.argsort(-labelled[anchors], axis=1, kind="stable")[:, :each] + 1
    return _Detections(np.repeat(anchors, each), classes.reshape(-1))
