"""RESIZE_BILINEAR, RESIZE_NEAREST_NEIGHBOR."""

from __future__ import annotations

from typing import Final

import numpy as np

from nnburst.executor.graph.tensor import TensorType
from nnburst.executor.onnxruntime.graph import StoredValue
from nnburst.executor.onnxruntime.lowering import NCHW, OnnxLowering, lowers
from nnburst.hal.enums import OperationType

_PLAIN: Final = "asymmetric"


def _mode(op: OnnxLowering) -> str:
    """How the engine calls the place of an output element in the input."""
    if op.number("half_pixel_centers"):
        return "half_pixel"
    return "align_corners" if op.number("align_corners") else _PLAIN


@lowers(OperationType.RESIZE_BILINEAR)
def resize_bilinear(op: OnnxLowering) -> StoredValue:
    """RESIZE_BILINEAR to the extents that the shape rule has found."""
    op.require_real()
    nchw = bool(op.number("nchw"))
    image = op.to_front(op.value("input"), nchw)
    return op.to_back(_resized(op, image, nchw, _mode(op), mode="linear"), nchw)


def _resized(
    op: OnnxLowering, image: StoredValue, nchw: bool, place: str, **fields: str
) -> StoredValue:
    result = op.front_result(nchw)
    (height, width), (rows, columns) = image.shape[1:3], result.dimensions[1:3]
    names = [op.image(image), ""]
    if rows % height == 0 and columns % width == 0:
        factors = np.array([1, 1, rows // height, columns // width], np.float32)
        names.append(op.plain(op.constant(factors)))
    else:
        batches, channels = image.shape[0], image.shape[3]
        names += ["", op.graph.longs((batches, channels, rows, columns))]
    fields["coordinate_transformation_mode"] = place
    return op.emit("Resize", names, result, NCHW, **fields)


@lowers(OperationType.RESIZE_NEAREST_NEIGHBOR)
def resize_nearest_neighbor(op: OnnxLowering) -> StoredValue:
    """RESIZE_NEAREST_NEIGHBOR: enlarged by whole numbers, else rows and columns picked by number."""
    op.require_real()
    nchw = bool(op.number("nchw"))
    image = op.to_front(op.value("input"), nchw)
    result = op.front_result(nchw).dimensions
    taken = [_nearest(op, image.shape[axis], result[axis]) for axis in (1, 2)]
    repeated = all(
        result[axis] % image.shape[axis] == 0
        and np.array_equal(
            rows, np.repeat(np.arange(image.shape[axis]), result[axis] // image.shape[axis])
        )
        for axis, rows in zip((1, 2), taken, strict=True)
    )
    if repeated:
        out = _resized(op, image, nchw, _PLAIN, mode="nearest", nearest_mode="floor")
        return op.to_back(out, nchw)
    for axis, rows in zip((1, 2), taken, strict=True):
        extents = tuple(rows.size if at == axis else n for at, n in enumerate(image.shape))
        meta = TensorType(image.meta.type, extents)
        names = [image.name, op.plain(op.constant(rows))]
        image = op.emit("Gather", names, meta, image.order, axis=image.order.index(axis))
    return op.to_back(image, nchw)


def _nearest(
    op: OnnxLowering, size: int, target: int
) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """The input element that each output element takes. NNAPI: all coordinates are float32."""
    align = bool(op.number("align_corners")) and target > 1
    scale = np.float32(size - align) / np.float32(target - align)
    at = np.arange(target, dtype=np.float32)
    if op.number("half_pixel_centers"):
        at = at + np.float32(0.5)
    at = at * scale
    whole = np.floor(at + np.float32(0.5)) if op.number("align_corners") else np.floor(at)
    return np.clip(whole, 0, size - 1).astype(np.int32)
