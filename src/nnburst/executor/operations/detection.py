"""Declares the operations that detect objects: they transform, suppress, decode and propose boxes.

A box is axis-aligned and given by its corners [x1, y1, x2, y2]. The rules on the types, extents and
scales of boxes are between the operations that decode anchors and those that take boxes.
"""

from __future__ import annotations

from typing import Final

from nnburst.executor.graph.declarations import (
    BOOL,
    F16,
    F32,
    FLOAT16,
    FLOAT32,
    I32,
    Q8,
    Q8S,
    Q16A,
    Q16S,
    V1_2,
    V1_3,
    control,
    data,
    index,
    require_dimensions,
    require_rank,
    row,
    signature,
)
from nnburst.executor.graph.operation import Node, declare
from nnburst.executor.graph.tensor import TensorType
from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.model import QUANTIZED_RANGES

# -- DETECTION_POSTPROCESSING and GENERATE_PROPOSALS -----------------------------------------------
# NNAPI: GenerateProposals.cpp.

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


declare(
    signature(
        OperationType.GENERATE_PROPOSALS,
        V1_2,
        "Turns scores and corrections of anchors into the best regions of each image.",
        inputs=[
            data("scores"),
            data("bounding_box_deltas"),
            data("anchors", "A"),
            data("image_info", "B"),
            control("height_stride", "F"),
            control("width_stride", "F"),
            control("pre_nms_max"),
            control("post_nms_max"),
            control("iou_threshold", "F"),
            control("min_size", "F"),
            control("layout", BOOL),
        ],
        outputs=[data("output_scores"), data("output_roi", "B"), data("output_batches", I32)],
        rows=[
            row(V1_2, T=F32, A=F32, B=F32, F=FLOAT32),
            row(V1_2, T=F16, A=F16, B=F16, F=FLOAT16),
            row(V1_2, T=Q8, A=Q16S, B=Q16A, F=FLOAT32),
            row(V1_3, T=Q8S, A=Q16S, B=Q16A, F=FLOAT32),
        ],
    ),
    shape=None,
)


# -- Operands that hold boxes ----------------------------------------------------------------------
# NNAPI: GenerateProposals.cpp, CpuOperationUtils.h.

#: NNAPI: the only scale of quantised boxes; their zero point is 0.
BOX_SCALE: Final = 0.125


def box_type(node: Node, dimensions: tuple[int, ...], index: int = 0) -> TensorType:
    """Type of an output of boxes; quantised ones are forced to scale 0.125, zero point 0."""
    kind = node.declared(index).type
    if kind == OperandType.TENSOR_QUANT16_ASYMM:
        return TensorType(kind, dimensions, BOX_SCALE, 0)
    return node.like_declared(dimensions, index)


def require_box_scale(node: Node, name: str) -> None:
    """Refuse quantised boxes with another scale than 0.125 or another zero point than 0."""
    tensor = node.tensor(name)
    node.require(
        tensor.type not in QUANTIZED_RANGES
        or (tensor.scale == BOX_SCALE and tensor.zero_point == 0),
        f"operand '{name}' has scale {tensor.scale} and zero point {tensor.zero_point},"
        f" expected {BOX_SCALE} and 0",
    )


def require_box_operands(node: Node) -> int:
    """Check dimensions and scale of the boxes [n, 4] and their batch indexes [n]; returns n."""
    shape = node.tensor("roi").shape
    count = shape[0] if shape else 0
    require_dimensions(node, "roi", (count, 4))
    require_dimensions(node, "batches", (count,))
    require_box_scale(node, "roi")
    return count


# -- AXIS_ALIGNED_BBOX_TRANSFORM and BOX_WITH_NMS_LIMIT --------------------------------------------
# NNAPI: GenerateProposals.cpp.


def _transform_shape(node: Node) -> list[TensorType]:
    count = require_box_operands(node)
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


declare(
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


declare(
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
