"""RESHAPE, EXPAND_DIMS, SQUEEZE: the same elements in the same order under other extents.

NNAPI: Reshape.cpp, ExpandDims.cpp, Squeeze.cpp.
"""

from __future__ import annotations

from nnburst.executor.graph.operation import Node, Run, kernel
from nnburst.executor.reference.families.data_movement import copies
from nnburst.hal.enums import OperationType


@kernel(OperationType.RESHAPE, half=True)
def reshape(node: Node) -> Run:
    """Copy in memory order."""
    x, y = node.tensor("input").array, node.output().array
    return copies((y, x.reshape(y.shape)))


@kernel(OperationType.EXPAND_DIMS, half=True)
def expand_dims(node: Node) -> Run:
    """Copy in memory order."""
    return reshape(node)


@kernel(OperationType.SQUEEZE, half=True)
def squeeze(node: Node) -> Run:
    """Copy in memory order."""
    return reshape(node)
