"""Regions of interest of feature maps, as ROI_ALIGN and ROI_POOLING take them.

NNAPI: RoiAlign.cpp, RoiPooling.cpp.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nnburst.executor.graph.operation import Node
from nnburst.executor.graph.tensor import Array
from nnburst.executor.reference.families.box_geometry import (
    Float32,
    real_values,
    require_batches,
    require_boxes,
)


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
