"""Regions of interest of feature maps, as ROI_ALIGN and ROI_POOLING take them.

NNAPI: RoiAlign.cpp, RoiPooling.cpp.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from nnburst.executor.reference.box_geometry import (
    Float32,
    check_batches,
    check_box_operands,
    check_boxes,
    real_values,
)
from nnburst.executor.reference.operation import Node
from nnburst.executor.reference.recurrence import check_rank
from nnburst.executor.reference.signatures import (
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
from nnburst.executor.reference.tensor import Array
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


def check_regions(node: Node) -> tuple[int, ...]:
    """Check operands' dimensions, sizes and strides; the dimensions of the output."""
    shape = check_rank(node, "input", 4)
    count = check_box_operands(node, "roi", "batches")
    for name in ("output_height", "output_width", "height_stride", "width_stride"):
        value = node.value(name)
        node.require(value > 0, f"operand '{name}' is {value}, expected more than 0")
    size = node.value("output_height"), node.value("output_width")
    return (count, shape[1], *size) if node.value("layout") else (count, *size, shape[3])


def channels_last(node: Node, array: Array) -> Array:
    """View [n, height, width, channels] of an array in the operation's layout."""
    return array.transpose(0, 2, 3, 1) if node.value("layout") else array


def scaled_regions(node: Node, extents: tuple[int, int]) -> Float32:
    """Private copy of the regions [n, 4] in cells of feature maps of (height, width) `extents`.

    Raises:
        OperationFailed: a region is reversed, begins before or ends after the map, or a batch
            index is out of range.
    """
    check_batches(node, "batches", node.tensor("batches").array, node.tensor("input").shape[0])
    boxes = real_values(node.tensor("roi"))
    check_boxes(node, "roi", boxes)
    strides = [np.float32(node.value(name)) for name in ("width_stride", "height_stride")]
    scale = np.float32(1) / np.array(strides * 2, np.float32)
    scaled = boxes * scale
    inside = (boxes >= 0) & (scaled <= np.array([*extents[::-1], *extents[::-1]], np.float32))
    outside = np.flatnonzero(~inside.all(axis=1))
    node.require(
        not outside.size,
        f"operand 'roi' has regions outside of the feature map: {outside[:3].tolist()}, …",
    )
    return np.asarray(scaled)
