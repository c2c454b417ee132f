"""DETECTION_POSTPROCESSING: from raw predictions of anchors to detections.

NNAPI: GenerateProposals.cpp.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nnburst.executor.graph.operation import Node, Run, kernel
from nnburst.executor.operations.detection import SCALES
from nnburst.executor.reference.families.box_geometry import Float32, real_values
from nnburst.executor.reference.families.suppression import best_first, hard_suppression
from nnburst.hal.enums import OperationType


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
    """Suppress by each anchor's best score, then report the best classes of what is left."""
    labelled = scores[:, 1:]
    best = labelled.max(axis=1)
    at = np.flatnonzero(best > settings.score_threshold)
    picks = hard_suppression(best[at], boxes[at], settings.iou_threshold, settings.most)
    anchors = at[picks]
    each = min(labelled.shape[1], settings.most_classes)
    classes = np.argsort(-labelled[anchors], axis=1, kind="stable")[:, :each] + 1
    return _Detections(np.repeat(anchors, each), classes.reshape(-1))
