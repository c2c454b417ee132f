"""DEPTH_TO_SPACE, SPACE_TO_DEPTH, BATCH_TO_SPACE_ND, SPACE_TO_BATCH_ND: blocks of pixels moved.

Each pair of operations shares one pair of views of equal shape: of the tensor with many channels
or batches, and of the wide one. NNAPI: CpuExecutor.cpp, OperationsExecutionUtils.cpp.
"""

from __future__ import annotations

from nnburst.executor.graph.operation import Node, Run, kernel
from nnburst.executor.graph.tensor import Array
from nnburst.executor.operations.shape_blocks import (
    block_shape_of,
    block_size_of,
    extents_of,
    paddings_of,
)
from nnburst.executor.reference.families.data_movement import copies
from nnburst.hal.enums import OperationType


def _depth_views(deep: Array, wide: Array, block: int, nchw: bool) -> tuple[Array, Array]:
    if nchw:
        n, c, h, w = deep.shape
        depth = c // block**2
        split = deep.reshape(n, block, block, depth, h, w)
        return split.transpose(0, 3, 4, 1, 5, 2), wide.reshape(n, depth, h, block, w, block)
    n, h, w, c = deep.shape
    depth = c // block**2
    split = deep.reshape(n, h, w, block, block, depth)
    return split.transpose(0, 1, 3, 2, 4, 5), wide.reshape(n, h, block, w, block, depth)


@kernel(OperationType.DEPTH_TO_SPACE, half=True)
def depth_to_space(node: Node) -> Run:
    """Copy from the deep view to the wide one."""
    x, y = node.tensor("input").array, node.output().array
    deep, wide = _depth_views(x, y, block_size_of(node), node.value("nchw"))
    return copies((wide, deep))


@kernel(OperationType.SPACE_TO_DEPTH, half=True)
def space_to_depth(node: Node) -> Run:
    """Copy from the wide view to the deep one."""
    x, y = node.tensor("input").array, node.output().array
    deep, wide = _depth_views(y, x, block_size_of(node), node.value("nchw"))
    return copies((deep, wide))


def _batch_views(
    many: Array, wide: Array, block: tuple[int, int], nchw: bool
) -> tuple[Array, Array]:
    bh, bw = block
    if nchw:
        total, c, h, w = many.shape
        n = total // (bh * bw)
        split = many.reshape(bh, bw, n, c, h, w)
        return split.transpose(2, 3, 4, 0, 5, 1), wide.reshape(n, c, h, bh, w, bw)
    total, h, w, c = many.shape
    n = total // (bh * bw)
    split = many.reshape(bh, bw, n, h, w, c)
    return split.transpose(2, 3, 0, 4, 1, 5), wide.reshape(n, h, bh, w, bw, c)


@kernel(OperationType.BATCH_TO_SPACE_ND, half=True)
def batch_to_space_nd(node: Node) -> Run:
    """Copy from the view with many batches to the wide one."""
    x, y = node.tensor("input").array, node.output().array
    many, wide = _batch_views(x, y, block_shape_of(node), node.value("nchw"))
    return copies((wide, many))


@kernel(OperationType.SPACE_TO_BATCH_ND, half=True)
def space_to_batch_nd(node: Node) -> Run:
    """Copy from the wide view of the padded input to the one with many batches."""
    x, y, nchw = node.tensor("input"), node.output().array, bool(node.value("nchw"))
    block, (top, bottom, left, right) = block_shape_of(node), paddings_of(node)
    n, h, w, c = extents_of(node)
    height, width = h + top + bottom, w + left + right
    if (height, width) == (h, w):
        many, wide = _batch_views(y, x.array, block, nchw)
        return copies((many, wide))
    padded = node.scratch((n, c, height, width) if nchw else (n, height, width, c), x.dtype)
    inner = (slice(top, top + h), slice(left, left + w))
    middle = padded[(..., *inner)] if nchw else padded[(slice(None), *inner)]
    many, wide = _batch_views(y, padded, block, nchw)
    copy = copies((middle, x.array), (many, wide))
    zero_point = x.zero_point

    def run() -> None:
        padded.fill(zero_point)
        copy()

    return run
