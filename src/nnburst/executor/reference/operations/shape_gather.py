"""GATHER, TILE, FILL, RANK: tensors made by picking, repeating, filling and counting.

NNAPI: Gather.cpp, Tile.cpp, Fill.cpp, Rank.cpp.
"""

from __future__ import annotations

import numpy as np

from nnburst.executor.graph.operation import Node, Run, kernel
from nnburst.executor.operations.families.data_movement import resolve_axis
from nnburst.executor.reference.families.data_movement import copies, require_in_range
from nnburst.hal.enums import OperationType


@kernel(OperationType.GATHER, half=True)
def gather(node: Node) -> Run:
    """Take after checking: no index wraps and none is clamped."""
    x, y, indices = node.tensor("input").array, node.output().array, node.tensor("indices").array
    axis = resolve_axis(node, "axis", x.ndim)

    def run() -> None:
        require_in_range(node, "indices", indices, x.shape[axis])
        np.take(x, indices, axis=axis, out=y, mode="clip")

    return run


@kernel(OperationType.TILE, half=True)
def tile(node: Node) -> Run:
    """Broadcast over one extra dimension in front of each."""
    x, y = node.tensor("input").array, node.output().array
    pairs = [(have // extent, extent) for have, extent in zip(y.shape, x.shape, strict=True)]
    source = x.reshape([n for extent in x.shape for n in (1, extent)])
    return copies((y.reshape([n for pair in pairs for n in pair]), source))


@kernel(OperationType.FILL, half=True)
def fill(node: Node) -> Run:
    """Fill."""
    y, value = node.output().array, node.value("value")
    return lambda: y.fill(value)


@kernel(OperationType.RANK, half=True)
def rank(node: Node) -> Run:
    """Write the number."""
    y, dimensions = node.output().array, len(node.tensor("input").shape)
    return lambda: y.fill(dimensions)
