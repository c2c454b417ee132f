"""ROI_POOLING: the maximum of each cell of a grid that is laid over a region of a feature map.

NNAPI: RoiPooling.cpp.
"""

from __future__ import annotations

import numpy as np

from nnburst.executor.graph.operation import Node, Run, kernel
from nnburst.executor.graph.tensor import Array
from nnburst.executor.reference.arithmetic.fixed_point import round_half_away
from nnburst.executor.reference.families.regions import bind_regions, channels_last
from nnburst.hal.enums import OperationType


@kernel(OperationType.ROI_POOLING)
def roi_pooling(node: Node) -> Run:
    """Reduce rows, then columns, of one region after the other; integers stay as stored."""
    tensor = node.tensor("input")
    maps = channels_last(node, tensor.array)
    output = channels_last(node, node.output().array)
    height, width, channels = maps.shape[1:]
    # NNAPI: an empty window gives the zero point. Windows are empty only if they begin behind the
    # map: there they find one row and one column more.
    padded = node.scratch((len(maps), height + 1, width + 1, channels), maps.dtype)
    regions, batches = bind_regions(node, (height, width)), node.tensor("batches").array

    def run() -> None:
        padded[:, height] = tensor.zero_point
        padded[:, :, width] = tensor.zero_point
        padded[:, :height, :width] = maps
        for region, batch, out in zip(regions(), batches, output, strict=True):
            rows = _windows(region[1], region[3], out.shape[0], height)
            columns = _windows(region[0], region[2], out.shape[1], width)
            _pool(padded[batch], rows, columns, out)

    return run


def _windows(start: np.float32, end: np.float32, count: int, limit: int) -> list[slice]:
    """The `count` windows of a region along one axis; those behind `limit` are the element there."""
    first, last = round_half_away(np.array([start, end], np.float32))
    step = np.maximum(last - first + 1, 1) / np.float32(count)
    at = np.arange(count + 1, dtype=np.float32) * step + first
    edges = np.stack([np.floor(at[:-1]), np.ceil(at[1:])], axis=1).astype(np.intp)
    return [slice(b, max(e, b + 1)) for b, e in np.minimum(edges, limit).tolist()]


def _pool(array: Array, rows: list[slice], columns: list[slice], out: Array) -> None:
    """Maximum of each window of rows and columns."""
    bands = np.stack([array[window].max(axis=0) for window in rows])
    for at, window in enumerate(columns):
        np.max(bands[:, window], axis=1, out=out[:, at])
