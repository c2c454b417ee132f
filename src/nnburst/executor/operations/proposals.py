"""GENERATE_PROPOSALS: signatures and shape rules.

NNAPI: GenerateProposals.cpp.
"""

from __future__ import annotations

from nnburst.executor.graph.operation import declare
from nnburst.executor.graph.signatures import (
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
    row,
    signature,
)
from nnburst.hal.enums import OperationType

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
