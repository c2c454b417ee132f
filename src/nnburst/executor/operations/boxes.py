"""AXIS_ALIGNED_BBOX_TRANSFORM and BOX_WITH_NMS_LIMIT: signatures and shape rules.

NNAPI: GenerateProposals.cpp.
"""

from __future__ import annotations

from nnburst.executor.graph.operand_dimensions import require_dimensions, require_rank
from nnburst.executor.graph.operation import Node, declare
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
from nnburst.executor.graph.tensor import TensorType
from nnburst.executor.operations.families.boxes import (
    box_type,
    require_box_operands,
    require_box_scale,
)
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
