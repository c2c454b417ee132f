"""Blocks of pixels: DEPTH_TO_SPACE, SPACE_TO_DEPTH, BATCH_TO_SPACE_ND, SPACE_TO_BATCH_ND, CHANNEL_SHUFFLE."""

from __future__ import annotations

from nnburst.executor.graph.tensor import TensorType
from nnburst.executor.onnxruntime.graph import StoredValue
from nnburst.executor.onnxruntime.lowering import NCHW, OnnxLowering, lowers
from nnburst.executor.operations.shape_blocks import (
    block_shape_of,
    block_size_of,
    extents_of,
    paddings_of,
)
from nnburst.hal.enums import OperationType


@lowers(OperationType.DEPTH_TO_SPACE)
def depth_to_space(op: OnnxLowering) -> StoredValue:
    """DEPTH_TO_SPACE: the place in the block comes before the channel."""
    nchw, block = bool(op.number("nchw")), block_size_of(op.node)
    image = op.image(op.to_front(op.value("input"), nchw))
    result = op.front_result(nchw)
    out = op.emit("DepthToSpace", [image], result, NCHW, blocksize=block, mode="DCR")
    return op.to_back(out, nchw)


@lowers(OperationType.SPACE_TO_DEPTH)
def space_to_depth(op: OnnxLowering) -> StoredValue:
    """SPACE_TO_DEPTH."""
    nchw, block = bool(op.number("nchw")), block_size_of(op.node)
    image = op.image(op.to_front(op.value("input"), nchw))
    out = op.emit("SpaceToDepth", [image], op.front_result(nchw), NCHW, blocksize=block)
    return op.to_back(out, nchw)


@lowers(OperationType.BATCH_TO_SPACE_ND)
def batch_to_space(op: OnnxLowering) -> StoredValue:
    """BATCH_TO_SPACE_ND: blocks come first among the batches."""
    nchw = bool(op.number("nchw"))
    n, h, w, c = extents_of(op.node)
    bh, bw = block_shape_of(op.node)
    image = op.to_front(op.value("input"), nchw)
    parts = op.graph.reshaped(image, (bh, bw, n // (bh * bw), h, w, c))
    apart = op.transposed(parts, (2, 3, 0, 4, 1, 5))
    out = op.graph.reshaped(apart, op.front_result(nchw).dimensions)
    return op.to_back(out, nchw)


@lowers(OperationType.SPACE_TO_BATCH_ND)
def space_to_batch(op: OnnxLowering) -> StoredValue:
    """SPACE_TO_BATCH_ND."""
    op.require_real()
    nchw = bool(op.number("nchw"))
    n, h, w, c = extents_of(op.node)
    bh, bw = block_shape_of(op.node)
    top, bottom, left, right = paddings_of(op.node)
    image = op.to_front(op.value("input"), nchw)
    if top or bottom or left or right:
        h, w = h + top + bottom, w + left + right
        heads, tails = (0, top, left, 0), (0, bottom, right, 0)
        sides = [side[axis] for side in (heads, tails) for axis in image.order]
        padded = TensorType(image.meta.type, (n, h, w, c))
        names = [image.name, op.graph.longs(sides), op.graph.real(0.0)]
        image = op.emit("Pad", names, padded, image.order, mode="constant")
    parts = op.graph.reshaped(image, (n, h // bh, bh, w // bw, bw, c))
    apart = op.transposed(parts, (2, 4, 0, 1, 3, 5))
    out = op.graph.reshaped(apart, op.front_result(nchw).dimensions)
    return op.to_back(out, nchw)


@lowers(OperationType.CHANNEL_SHUFFLE)
def channel_shuffle(op: OnnxLowering) -> StoredValue:
    """A transposed matrix of groups and their channels."""
    x, groups = op.value("input"), int(op.number("groups"))
    axis = op.axis(len(x.shape))
    before, after = x.shape[:axis], x.shape[axis + 1 :]
    parts = op.graph.reshaped(x, (*before, groups, x.shape[axis] // groups, *after))
    order = list(range(len(parts.shape)))
    order[axis], order[axis + 1] = axis + 1, axis
    return op.graph.reshaped(op.transposed(parts, order), x.shape)
