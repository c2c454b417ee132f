"""ROI_POOLING: the maximum of each cell of a grid that is laid over a region of a feature map.

NNAPI: RoiPooling.cpp.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nnburst.executor.reference.fixed_point import round_half_away
from nnburst.executor.reference.operation import Node, Run, operation
from nnburst.executor.reference.regions import (
    LAYOUT,
    ROWS,
    bind_regions,
    channels_last,
    region_slots,
    require_regions,
)
from nnburst.executor.reference.shape_rules import same_type
from nnburst.executor.reference.signatures import V1_2, data, signature
from nnburst.executor.reference.tensor import Array, TensorType
from nnburst.hal.enums import OperationType


def _shape(node: Node) -> list[TensorType]:
    return [same_type(node, require_regions(node))]


@operation(
    signature(
        OperationType.ROI_POOLING,
        V1_2,
        "Divides regions of feature maps into grids and takes the maximum of each cell.",
        inputs=[*region_slots(), LAYOUT],
        outputs=[data("output")],
        rows=ROWS,
    ),
    shape=_shape,
)
def roi_pooling(node: Node) -> Run:
    """Reduce rows, then columns, of one region after the other; integers stay as stored."""
    tensor = node.tensor("input")
    maps = channels_last(node, tensor.array)
    output = channels_last(node, node.output().array)
    height, width, channels = maps.shape[1:]
    # NNAPI: an empty window gives the zero point. Windows are empty only where they begin behind the
    # map: there is one row and one column more to read.
    padded = node.scratch((height + 1, width + 1, channels), maps.dtype)
    regions, batches = bind_regions(node, (height, width)), node.tensor("batches").array

    def run() -> None:
        padded.fill(tensor.zero_point)
        for region, batch, out in zip(regions(), batches, output, strict=True):
            padded[:height, :width] = maps[batch]
            rows = _windows(region[1], region[3], out.shape[0], height)
            columns = _windows(region[0], region[2], out.shape[1], width)
            out[...] = _reduce(_reduce(padded, rows, 0), columns, 1)

    return run


def _windows(start: np.float32, end: np.float32, count: int, limit: int) -> npt.NDArray[np.intp]:
    """Begin and end of each of `count` windows of a region, in turn; never behind `limit`."""
    first, last = round_half_away(np.array([start, end], np.float32))
    step = np.maximum(last - first + 1, 1) / np.float32(count)
    at = np.arange(count + 1, dtype=np.float32) * step + first
    windows = np.stack([np.floor(at[:-1]), np.ceil(at[1:])], axis=1).astype(np.intp)
    return np.minimum(windows.reshape(-1), limit)


def _reduce(array: Array, windows: npt.NDArray[np.intp], axis: int) -> Array:
    """Maximum within each window; the first element behind it for an empty one."""
    pairs = np.maximum.reduceat(array, windows, axis=axis)
    return np.asarray(pairs[::2] if axis == 0 else pairs[:, ::2])
