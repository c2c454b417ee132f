"""Kernels that keep all elements and change only their shape or order.

Kernels of such operations bind pairs of views of equal shape, destination and source; running
copies them. All arrays of a `Node` are C-contiguous, so `reshape` on them is a view.
"""

from __future__ import annotations

import numpy as np

from nnburst.executor.graph.operation import Node, Run, kernel
from nnburst.executor.graph.tensor import Array
from nnburst.executor.operations.shape import (
    block_paddings_of,
    block_shape_of,
    block_size_of,
    extents_of,
    permutation_of,
    resolve_axis,
    reverse_axis_of,
)
from nnburst.hal.enums import OperationType


def copies(*pairs: tuple[Array, Array]) -> Run:
    """A run that copies each (destination, source), in order."""
    if len(pairs) == 1:
        destination, source = pairs[0]
        return lambda: np.copyto(destination, source)

    def run() -> None:
        for destination, source in pairs:
            np.copyto(destination, source)

    return run


def require_in_range(node: Node, name: str, indices: Array, extent: int) -> None:
    """Fail unless all of `indices`, the private copy of operand `name`, are in [0, extent).

    There is at least one: no operation that takes indices accepts empty tensors.
    """
    low, high = int(indices.min()), int(indices.max())
    if low < 0 or high >= extent:
        raise node.failure(
            f"operand '{name}' has values from {low} to {high}, expected [0, {extent - 1}]"
        )


# -- RESHAPE, EXPAND_DIMS, SQUEEZE: the same elements in the same order ----------------------------
# NNAPI: Reshape.cpp, ExpandDims.cpp, Squeeze.cpp.


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


# -- TRANSPOSE, REVERSE, CHANNEL_SHUFFLE: the same elements in another order -----------------------
# NNAPI: Transpose.cpp, Reverse.cpp, ChannelShuffle.cpp.


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
    axis, groups = resolve_axis(node, x.ndim), int(node.value("groups"))
    before, after, size = x.shape[:axis], x.shape[axis + 1 :], x.shape[axis] // groups
    source = x.reshape(*before, groups, size, *after).swapaxes(axis, axis + 1)
    return copies((y.reshape(*before, size, groups, *after), source))


# -- DEPTH_TO_SPACE, SPACE_TO_DEPTH, BATCH_TO_SPACE_ND, SPACE_TO_BATCH_ND --------------------------
# Each pair of operations moves blocks of pixels through one pair of views of equal shape: of the tensor
# with many channels or batches, and of the wide one. NNAPI: CpuExecutor.cpp, OperationsExecutionUtils.cpp.


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
    block, (top, bottom, left, right) = block_shape_of(node), block_paddings_of(node)
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
