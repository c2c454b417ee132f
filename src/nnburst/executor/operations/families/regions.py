"""Regions of interest of feature maps, as ROI_ALIGN and ROI_POOLING take them.

NNAPI: RoiAlign.cpp, RoiPooling.cpp.
"""

from __future__ import annotations

from typing import Final

from nnburst.executor.graph.operand_dimensions import require_rank
from nnburst.executor.graph.operation import Node
from nnburst.executor.graph.signatures import (
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
    row,
)
from nnburst.executor.operations.families.boxes import require_box_operands
from nnburst.hal.signature import Slot

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
    """Check operands' dimensions, sizes and strides; the dimensions of the output."""
    shape = require_rank(node, "input", 4)
    count = require_box_operands(node, "roi", "batches")
    for name in ("output_height", "output_width", "height_stride", "width_stride"):
        value = node.value(name)
        node.require(value > 0, f"operand '{name}' is {value}, expected more than 0")
    size = node.value("output_height"), node.value("output_width")
    return (count, shape[1], *size) if node.value("layout") else (count, *size, shape[3])
