"""Regions of interest of feature maps, as ROI_ALIGN and ROI_POOLING take them.

NNAPI: RoiAlign.cpp, RoiPooling.cpp.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

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
from nnburst.executor.graph.tensor import Array
from nnburst.executor.reference.families.box_geometry import (
    Float32,
    real_values,
    require_batches,
    require_box_operands,
    require_boxes,
)
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


def channels_last(node: Node, array: Array) -> Array:
    """View [n, height, width, channels] of an array in the operation's layout."""
    return array.transpose(0, 2, 3, 1) if node.value("layout") else array


def bind_regions(node: Node, extents: tuple[int, int]) -> Callable[[], Float32]:
    """What reads the regions [n, 4], in cells of feature maps of (height, width) `extents`.

    Returns:
        A function that gives a private copy. It raises OperationFailed if a region is reversed,
        begins before or ends after the map, or a batch index is out of range.
    """
    roi, batches, images = node.tensor("roi"), node.tensor("batches").array, node.tensor("input")
    limits = np.array([*extents[::-1], *extents[::-1]], np.float32)
    strides = [np.float32(node.value(name)) for name in ("width_stride", "height_stride")]
    scale = np.float32(1) / np.array([*strides, *strides], np.float32)

    def read() -> Float32:
        require_batches(node, "batches", batches, images.shape[0])
        boxes = real_values(roi)
        require_boxes(node, "roi", boxes)
        scaled = boxes * scale
        outside = np.flatnonzero(~((boxes >= 0) & (scaled <= limits)).all(axis=1))
        node.require(
            not outside.size,
            f"operand 'roi' has regions outside of the feature map: {outside[:3].tolist()}, …",
        )
        return np.asarray(scaled)

    return read
