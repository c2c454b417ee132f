"""Axis-aligned boxes [x1, y1, x2, y2]: reading, writing, checking, moving, comparing.

Boxes are float32 arrays [n, 4], private copies of operands: another process cannot change them
after they are checked.

NNAPI: GenerateProposals.cpp, CpuOperationUtils.h.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nnburst.executor.graph.operation import Node
from nnburst.executor.graph.tensor import Array, Tensor, TensorType
from nnburst.executor.reference.arithmetic.fixed_point import dequantize, round_half_away
from nnburst.hal.operand_types import DTYPES, QUANTIZED_RANGES

Float32 = npt.NDArray[np.float32]


def real_values(tensor: Tensor) -> Float32:
    """Private float32 copy of a tensor's real values."""
    if tensor.type in QUANTIZED_RANGES:
        return dequantize(tensor.array, tensor.scale, tensor.zero_point)
    return tensor.array.astype(np.float32)


def stored_values(x: Float32, meta: TensorType) -> Array:
    """Real numbers as elements of a tensor like `meta`, which may be quantised.

    NNAPI: the zero point is added before rounding, unlike in QUANTIZE. NaN becomes the lowest.
    """
    if meta.type not in QUANTIZED_RANGES:
        return x
    low, high = QUANTIZED_RANGES[meta.type]
    with np.errstate(all="ignore"):
        stored = round_half_away(x / np.float32(meta.scale) + np.float32(meta.zero_point))
    limited = np.fmin(np.fmax(stored, np.float32(low)), np.float32(high))
    return np.asarray(limited.astype(DTYPES[meta.type]))


def require_boxes(node: Node, name: str, boxes: Float32) -> None:
    """Refuse boxes that end before they begin (or are NaN)."""
    reversed_boxes = np.flatnonzero(~((boxes[:, :2] <= boxes[:, 2:]).all(axis=1)))
    node.require(
        not reversed_boxes.size,
        f"operand '{name}' has boxes with x1 > x2 or y1 > y2: {reversed_boxes[:3].tolist()}, …",
    )


def require_batches(node: Node, name: str, batches: Array, count: int) -> None:
    """Refuse batch indexes outside [0, count)."""
    node.require(
        bool(((batches >= 0) & (batches < count)).all()),
        f"operand '{name}' has an index outside [0, {count})",
    )


def transform(boxes: Float32, deltas: Float32, images: Float32) -> Float32:
    """Move and stretch boxes, and clip them to their images.

    Args:
        boxes: [n, 4].
        deltas: [n, classes, 4]: shift of the centre in widths and heights, logarithms of the
            factors of width and height.
        images: [n, 2], height and width of each box's image.

    Returns:
        Boxes [n, classes, 4].
    """
    start, end = boxes[:, None, :2], boxes[:, None, 2:]
    size = end - start
    centre = (start + end) / 2
    centre = centre + deltas[..., :2] * size
    half = np.exp(deltas[..., 2:]) * size / 2
    limit = images[:, None, ::-1]
    corners = [np.minimum(np.maximum(c, 0), limit) for c in (centre - half, centre + half)]
    return np.concatenate(corners, axis=-1)


def overlap(boxes: Float32, box: Float32) -> Float32:
    """Intersection over union of each of `boxes` and `box`; NaN if both are empty."""
    start = np.maximum(boxes[:, :2], box[:2])
    end = np.minimum(boxes[:, 2:], box[2:])
    shared = np.prod(np.maximum(end - start, 0), axis=1)
    areas = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
    area = (box[2] - box[0]) * (box[3] - box[1])
    with np.errstate(all="ignore"):
        return np.asarray(shared / (areas + area - shared))
