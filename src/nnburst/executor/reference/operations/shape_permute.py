"""TRANSPOSE, REVERSE, CHANNEL_SHUFFLE: the same elements in another order.

NNAPI: Transpose.cpp, Reverse.cpp, ChannelShuffle.cpp.
"""

from __future__ import annotations

import numpy as np

from nnburst.executor.graph.operation import Node, Run, kernel
from nnburst.executor.operations.families.data_movement import (
    resolve_axis,
)
from nnburst.executor.operations.shape_permute import permutation_of, reverse_axis_of
from nnburst.executor.reference.families.data_movement import copies
from nnburst.hal.enums import OperationType


@kernel(OperationType.TRANSPOSE, half=True)
def transpose(node: Node) -> Run:
    """Copy through a permuted view."""
    return copies((node.output().array, node.tensor("input").array.transpose(permutation_of(node))))


@kernel(OperationType.REVERSE, half=True)
def reverse(node: Node) -> Run:
    """Copy through a view that runs backwards."""
    return copies((node.output().array, np.flip(node.tensor("input").array, reverse_axis_of(node))))


@kernel(OperationType.CHANNEL_SHUFFLE, half=True)
def channel_shuffle(node: Node) -> Run:
    """Swap the two dimensions that the axis splits into."""
    x, y = node.tensor("input").array, node.output().array
    axis, groups = resolve_axis(node, "axis", x.ndim), int(node.value("groups"))
    before, after, size = x.shape[:axis], x.shape[axis + 1 :], x.shape[axis] // groups
    source = x.reshape(*before, groups, size, *after).swapaxes(axis, axis + 1)
    return copies((y.reshape(*before, size, groups, *after), source))
