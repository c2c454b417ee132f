"""PAD, PAD_V2, MIRROR_PAD: a tensor with borders around it.

NNAPI: CpuExecutor.cpp, OperationsExecutionUtils.cpp (padPrepare), MirrorPad.cpp.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nnburst.executor.graph.operation import Node, Run, kernel
from nnburst.executor.graph.tensor import Array
from nnburst.executor.operations.shape_pad import paddings_of
from nnburst.executor.reference.families.data_movement import copies
from nnburst.hal.enums import OperationType


def _middle(padded: Array, node: Node) -> Array:
    dimensions, pairs = node.tensor("input").shape, paddings_of(node)
    inner = [slice(b, b + d) for d, (b, _) in zip(dimensions, pairs, strict=True)]
    return padded[tuple(inner)]


def _pad(node: Node, fill: Callable[[Array], None]) -> Run:
    y = node.output().array
    copy = copies((_middle(y, node), node.tensor("input").array))

    def run() -> None:
        fill(y)
        copy()

    return run


@kernel(OperationType.PAD, half=True)
def pad(node: Node) -> Run:
    """Fill, then copy into the middle."""
    zero_point = node.tensor("input").zero_point
    return _pad(node, lambda y: y.fill(zero_point))


@kernel(OperationType.PAD_V2, half=True)
def pad_v2(node: Node) -> Run:
    """Fill, then copy into the middle. NNAPI: of an INT32 value the low byte is taken."""
    value, dtype = node.value("pad_value"), node.output().dtype
    if dtype.itemsize == 1:
        value = np.uint8(value & 0xFF).view(dtype)
    return _pad(node, lambda y: y.fill(value))


@kernel(OperationType.MIRROR_PAD, half=True)
def mirror_pad(node: Node) -> Run:
    """Copy the middle, then reflect dimension by dimension inside the output.

    What a border gets from the still unwritten borders of later dimensions is overwritten when
    their turn comes, so the order of the copies is what makes the corners right.
    """
    x, y, edge = node.tensor("input").array, node.output().array, 1 - int(node.value("mode"))
    pairs = [(_middle(y, node), x)]
    for axis, (before, after) in enumerate(paddings_of(node)):
        along, end = np.moveaxis(y, axis, 0), before + x.shape[axis]
        first, last = before + edge, end - edge
        pairs.append((along[:before], along[first : first + before][::-1]))
        pairs.append((along[end:], along[last - after : last][::-1]))
    return copies(*pairs)
