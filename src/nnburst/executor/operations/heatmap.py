"""HEATMAP_MAX_KEYPOINT: signatures and shape rules.

NNAPI: HeatmapMaxKeypoint.cpp.
"""

from __future__ import annotations

from nnburst.executor.graph.operand_dimensions import require_dimensions, require_rank
from nnburst.executor.graph.operation import Node, declare
from nnburst.executor.graph.signatures import (
    BOOL,
    F16,
    F32,
    Q8,
    Q8S,
    Q16A,
    V1_2,
    V1_3,
    control,
    data,
    row,
    signature,
)
from nnburst.executor.graph.tensor import TensorType
from nnburst.executor.operations.families.boxes import box_type, require_box_scale
from nnburst.hal.enums import OperationType


def _shape(node: Node) -> list[TensorType]:
    shape = require_rank(node, "heatmap", 4)
    count, keypoints = shape[0], shape[1] if node.value("layout") else shape[3]
    rows, columns = shape[2:] if node.value("layout") else shape[1:3]
    node.require(
        rows == columns and rows >= 2,
        f"operand 'heatmap' has maps of {rows} x {columns}, expected squares of 2 x 2 or more",
    )
    require_dimensions(node, "boxes", (count, 4))
    require_box_scale(node, "boxes")
    return [node.like_declared((count, keypoints)), box_type(node, (count, keypoints, 2), 1)]


declare(
    signature(
        OperationType.HEATMAP_MAX_KEYPOINT,
        V1_2,
        "Locates the maximum of each heatmap, refined between its cells, in the box of its image.",
        inputs=[data("heatmap"), data("boxes", "B"), control("layout", BOOL)],
        outputs=[data("output_scores"), data("output_keypoints", "B")],
        rows=[
            row(V1_2, T=F32, B=F32),
            row(V1_2, T=F16, B=F16),
            row(V1_2, T=Q8, B=Q16A),
            row(V1_3, T=Q8S, B=Q16A),
        ],
    ),
    shape=_shape,
    # the type decides about the tolerance; the arithmetic is float32 all the same
)
