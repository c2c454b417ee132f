"""DETECTION_POSTPROCESSING: signatures and shape rules.

NNAPI: GenerateProposals.cpp.
"""

from __future__ import annotations

from typing import Final

from nnburst.executor.graph.operand_dimensions import require_dimensions, require_rank
from nnburst.executor.graph.operation import Node, declare
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
from nnburst.hal.enums import OperationType

SCALES: Final = ("scale_y", "scale_x", "scale_h", "scale_w")


def _shape(node: Node) -> list[TensorType]:
    batches, anchors, classes = require_rank(node, "scores", 3)
    node.require(classes > 1, f"operand 'scores' has {classes} classes, expected at least 2")
    width = require_rank(node, "bounding_box_deltas", 3)[2]
    node.require(
        width >= 4, f"operand 'bounding_box_deltas' has {width} columns, expected 4 or more"
    )
    require_dimensions(node, "bounding_box_deltas", (batches, anchors, width))
    require_dimensions(node, "anchors", (anchors, 4))
    for name in SCALES:
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


declare(
    signature(
        OperationType.DETECTION_POSTPROCESSING,
        V1_2,
        "Decodes boxes from corrections of anchors and selects the best ones of each image.",
        inputs=[
            data("scores"),
            data("bounding_box_deltas"),
            data("anchors"),
            *(control(name, "F") for name in SCALES),
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
