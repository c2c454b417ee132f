"""Declares the operations on regions of feature maps: ROI_ALIGN, ROI_POOLING, HEATMAP_MAX_KEYPOINT."""

from __future__ import annotations

from typing import Final

from nnburst.executor.graph.declarations import (
    BOOL,
    F16,
    F32,
    FLOAT16,
    FLOAT32,
    INT32,
    Q8,
    Q8S,
    Q16A,
    V1_2,
    V1_3,
    control,
    data,
    index,
    require_dimensions,
    require_rank,
    row,
    same_type,
    signature,
)
from nnburst.executor.graph.operation import Node, declare
from nnburst.executor.graph.tensor import TensorType
from nnburst.executor.operations.detection import box_type, require_box_operands, require_box_scale
from nnburst.hal.enums import OperationType
from nnburst.hal.signature import Slot

# -- HEATMAP_MAX_KEYPOINT --------------------------------------------------------------------------
# NNAPI: HeatmapMaxKeypoint.cpp.


def _heatmap_shape(node: Node) -> list[TensorType]:
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
    shape=_heatmap_shape,
    # the type sets the tolerance; the arithmetic is float32 in any case
)


# -- Operands that ROI_ALIGN and ROI_POOLING share -------------------------------------------------
# NNAPI: RoiAlign.cpp, RoiPooling.cpp.

#: Accepted types of feature maps (T), regions (B) and strides (F).
ROWS: Final = (
    row(V1_2, T=F32, B=F32, F=FLOAT32),
    row(V1_2, T=F16, B=F16, F=FLOAT16),
    row(V1_2, T=Q8, B=Q16A, F=FLOAT32),
    row(V1_3, T=Q8S, B=Q16A, F=FLOAT32),
)

LAYOUT: Final = control("layout", BOOL)


def region_slots() -> list[Slot]:
    """The operands that both operations begin with."""
    return [
        data("input"),
        data("roi", "B"),
        index("batches"),
        control("output_height", INT32),
        control("output_width", INT32),
        control("height_stride", "F"),
        control("width_stride", "F"),
    ]


def require_regions(node: Node) -> tuple[int, ...]:
    """Check dimensions, sizes and strides of the operands; return the dimensions of the output."""
    shape = require_rank(node, "input", 4)
    count = require_box_operands(node)
    for name in ("output_height", "output_width", "height_stride", "width_stride"):
        value = node.value(name)
        node.require(value > 0, f"operand '{name}' is {value}, expected more than 0")
    size = node.value("output_height"), node.value("output_width")
    return (count, shape[1], *size) if node.value("layout") else (count, *size, shape[3])


# -- ROI_ALIGN -------------------------------------------------------------------------------------
# NNAPI: RoiAlign.cpp.

#: DEVIATES: NNAPI allows any number of samples along an axis; a limit here bounds the memory.
_MOST_SAMPLES: Final = 65536
RATIOS: Final = ("height_ratio", "width_ratio")


def _roi_align_shape(node: Node) -> list[TensorType]:
    dimensions = require_regions(node)
    map_dimensions = node.tensor("input").shape
    node.require(0 not in map_dimensions, f"operand 'input' is empty: {list(map_dimensions)}")
    for name, extent in zip(RATIOS, ("output_height", "output_width"), strict=True):
        ratio, count = node.value(name), node.value(extent)
        node.require(
            0 <= ratio <= _MOST_SAMPLES / count,
            f"operand '{name}' is {ratio}, expected 0 to {_MOST_SAMPLES // count} (times {count}"
            f" in '{extent}' it must not exceed {_MOST_SAMPLES})",
        )
    return [node.like_declared(dimensions)]


declare(
    signature(
        OperationType.ROI_ALIGN,
        V1_2,
        "Divides regions of feature maps into grids and averages points sampled in each cell by"
        " bilinear interpolation.",
        inputs=[*region_slots(), *(control(name, INT32) for name in RATIOS), LAYOUT],
        outputs=[data("output")],
        rows=ROWS,
    ),
    shape=_roi_align_shape,
    zero_sized=True,
)


# -- ROI_POOLING -----------------------------------------------------------------------------------
# NNAPI: RoiPooling.cpp.


def _roi_pooling_shape(node: Node) -> list[TensorType]:
    return [same_type(node, require_regions(node))]


declare(
    signature(
        OperationType.ROI_POOLING,
        V1_2,
        "Divides regions of feature maps into grids and takes the maximum of each cell.",
        inputs=[*region_slots(), LAYOUT],
        outputs=[data("output")],
        rows=ROWS,
    ),
    shape=_roi_pooling_shape,
)
