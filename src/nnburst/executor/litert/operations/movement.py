"""Lowers operations that move elements to LiteRT: shapes, slices, joins, blocks, resizing."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from nnburst.executor.graph.translation import require
from nnburst.executor.graph.windows import nhwc_extents
from nnburst.executor.litert.graph import Value
from nnburst.executor.litert.lowering import QUANTISED, Lowering, lowers
from nnburst.hal import late_numpy as np
from nnburst.hal.enums import OperationType


@lowers(OperationType.RESHAPE, OperationType.EXPAND_DIMS, OperationType.SQUEEZE)
def reshape(op: Lowering) -> Value:
    """RESHAPE to the extents that the shape rule has found."""
    x = op.value("input")
    return op.reshape(x, op.result().dimensions)


@lowers(OperationType.TRANSPOSE)
def transpose(op: Lowering) -> Value:
    """TRANSPOSE; without a permutation, the axes of a matrix are swapped."""
    x = op.value("input")
    given = op.node.find("perm")
    order = [1, 0] if given is None else op.numbers("perm")
    require(sorted(order) == list(range(len(x.shape))), f"permutation {order}")
    return op.transpose(x, order)


@lowers(OperationType.PAD)
def pad(op: Lowering) -> Value:
    """PAD."""
    x = op.value("input")
    return op.emit("PAD", [x, _paddings(op)], op.result(), "Pad")


def _paddings(op: Lowering) -> Value:
    return op.pairs(op.numbers("paddings"))


@lowers(OperationType.PAD_V2)
def pad_v2(op: Lowering) -> Value:
    """PADV2; for quantised tensors the padding value is already a stored integer."""
    x, value = op.value("input"), op.number("pad_value")
    stored = (
        np.array([value]).astype(np.int64).astype(np.uint8)
        if x.meta.type in QUANTISED
        else (np.array([value], np.float32))
    )
    if x.meta.type in QUANTISED:
        stored = stored.view(op.node.tensor("input").dtype)
    filling = op.constant(stored, x.meta)
    return op.emit("PADV2", [x, _paddings(op), filling], op.result(), "PadV2")


@lowers(OperationType.MIRROR_PAD)
def mirror_pad(op: Lowering) -> Value:
    """MIRROR_PAD; the modes have the same numbers."""
    x, mode = op.value("input"), int(op.number("mode"))
    require(len(x.shape) <= 5, "MIRROR_PAD above rank 5")
    return op.emit("MIRROR_PAD", [x, _paddings(op)], op.result(), "MirrorPad", mode=mode)


@lowers(OperationType.REVERSE)
def reverse(op: Lowering) -> Value:
    """REVERSE_V2."""
    x = op.value("input")
    require(len(x.shape) <= 5, "REVERSE above rank 5")
    return op.emit("REVERSE_V2", [x, op.integers(op.numbers("axis"))], op.result(), "ReverseV2")


@lowers(OperationType.SLICE)
def slice_(op: Lowering) -> Value:
    """SLICE with the extents that the shape rule has found."""
    x = op.value("input")
    require(len(x.shape) <= 5, "SLICE above rank 5")
    begin, size = op.integers(op.numbers("begin")), op.integers(op.result().dimensions)
    return op.emit(
        "SLICE", [x, begin, size], replace(x.meta, dimensions=op.result().dimensions), "Slice"
    )


@lowers(OperationType.STRIDED_SLICE)
def strided_slice(op: Lowering) -> Value:
    """STRIDED_SLICE."""
    x = op.value("input")
    bounds = [op.integers(op.numbers(name)) for name in ("begin", "end", "strides")]
    masks = {
        "beginMask": int(op.number("begin_mask")),
        "endMask": int(op.number("end_mask")),
        "shrinkAxisMask": int(op.number("shrink_axis_mask")),
    }
    shrunk = masks["shrinkAxisMask"].bit_count()
    dimensions = op.result().dimensions if shrunk < len(x.shape) else ()
    meta = replace(x.meta, dimensions=dimensions)
    out = op.emit("STRIDED_SLICE", [x, *bounds], meta, "StridedSlice", **masks)
    return op.reshape(out, op.result().dimensions)


@lowers(OperationType.SPLIT)
def split(op: Lowering) -> list[Value]:
    """SPLIT."""
    x = op.value("input")
    axis = op.axis(len(x.shape))
    count = int(op.number("num_splits"))
    outputs = [op.result(i) for i in range(count)]
    inputs = [op.integers(np.array(axis, np.int32)), x]
    return op.graph.operator("SPLIT", inputs, outputs, "Split", numSplits=count)


@lowers(OperationType.CONCATENATION)
def concatenation(op: Lowering) -> Value:
    """CONCATENATION of inputs that are requantised to the output first."""
    values, result = op.values("input"), op.result()
    if result.type in QUANTISED:
        values = [op.requantize(x, result) for x in values]
    return op.emit("CONCATENATION", values, result, "Concatenation", axis=int(op.number("axis")))


@lowers(OperationType.PACK)
def pack(op: Lowering) -> Value:
    """PACK."""
    values = op.values("input")
    fields = {"axis": int(op.number("axis")), "valuesCount": len(values)}
    return op.emit("PACK", values, op.result(), "Pack", **fields)


@lowers(OperationType.GATHER)
def gather(op: Lowering) -> Value:
    """GATHER; the engine checks the indices."""
    x = op.value("input")
    axis = op.axis(len(x.shape))
    meta = replace(x.meta, dimensions=op.result().dimensions)
    return op.emit("GATHER", [x, op.value("indices")], meta, "Gather", axis=axis)


@lowers(OperationType.TILE)
def tile(op: Lowering) -> Value:
    """TILE."""
    return op.emit(
        "TILE", [op.value("input"), op.integers(op.numbers("multiples"))], op.result(), "Tile"
    )


@lowers(OperationType.CHANNEL_SHUFFLE)
def channel_shuffle(op: Lowering) -> Value:
    """CHANNEL_SHUFFLE: transpose the matrix of groups and their channels, between two RESHAPE."""
    x, groups = op.value("input"), int(op.number("groups"))
    axis = op.axis(len(x.shape))
    before, after = x.shape[:axis], x.shape[axis + 1 :]
    parts = op.reshape(x, (*before, groups, x.shape[axis] // groups, *after))
    order = list(range(len(parts.shape)))
    order[axis], order[axis + 1] = axis + 1, axis
    return op.reshape(op.transpose(parts, order), x.shape)


_BLOCKS: Final = {
    OperationType.DEPTH_TO_SPACE: ("DEPTH_TO_SPACE", "DepthToSpace"),
    OperationType.SPACE_TO_DEPTH: ("SPACE_TO_DEPTH", "SpaceToDepth"),
}


@lowers(*_BLOCKS)
def blocks_of_depth(op: Lowering) -> Value:
    """DEPTH_TO_SPACE, SPACE_TO_DEPTH."""
    name, options = _BLOCKS[op.node.type]
    nchw = bool(op.number("nchw"))
    image = op.to_front(op.value("input"), nchw)
    meta = replace(image.meta, dimensions=nhwc_extents(op.result().dimensions, nchw))
    out = op.emit(name, [image], meta, options, blockSize=int(op.number("block_size")))
    return op.to_back(out, nchw)


@lowers(OperationType.SPACE_TO_BATCH_ND, OperationType.BATCH_TO_SPACE_ND)
def blocks_of_batches(op: Lowering) -> Value:
    """SPACE_TO_BATCH_ND, and BATCH_TO_SPACE_ND without crops."""
    nchw = bool(op.number("nchw"))
    image = op.to_front(op.value("input"), nchw)
    meta = replace(image.meta, dimensions=nhwc_extents(op.result().dimensions, nchw))
    to_batch = op.node.type is OperationType.SPACE_TO_BATCH_ND
    sides = op.numbers("paddings") if to_batch else [0] * 4
    inputs = [
        image,
        op.integers(op.numbers("block_shape")),
        op.pairs(sides),
    ]
    options = "SpaceToBatchND" if to_batch else "BatchToSpaceND"
    return op.to_back(op.emit(op.node.type.name, inputs, meta, options), nchw)


@lowers(OperationType.RESIZE_BILINEAR, OperationType.RESIZE_NEAREST_NEIGHBOR)
def resize(op: Lowering) -> Value:
    """RESIZE_BILINEAR, RESIZE_NEAREST_NEIGHBOR to the extents that the shape rule has found."""
    nchw = bool(op.number("nchw"))
    image = op.to_front(op.value("input"), nchw)
    meta = replace(image.meta, dimensions=nhwc_extents(op.result().dimensions, nchw))
    bilinear = op.node.type is OperationType.RESIZE_BILINEAR
    plain = not (op.number("align_corners") or op.number("half_pixel_centers"))
    if plain and not bilinear and meta.type in QUANTISED:
        for size, target in zip(image.shape[1:3], meta.dimensions[1:3], strict=True):
            require(_same_neighbours(size, target), f"nearest of {size} for {target}")
    out = op.emit(
        op.node.type.name,
        [image, op.integers(meta.dimensions[1:3])],
        meta,
        "ResizeBilinear" if bilinear else "ResizeNearestNeighbor",
        alignCorners=bool(op.number("align_corners")),
        halfPixelCenters=bool(op.number("half_pixel_centers")),
    )
    return op.to_back(out, nchw)


def _same_neighbours(size: int, target: int) -> bool:
    """Whether the engine picks the same elements as NNAPI: its 8-bit kernel uses a 16-bit fraction."""
    at = np.arange(target, dtype=np.int64)
    fraction = (size << 16) // target + 1
    scale = np.float32(size) / np.float32(target)
    exact = np.floor(at.astype(np.float32) * scale).astype(np.int64)
    return bool(
        np.array_equal(np.minimum(at * fraction >> 16, size - 1), np.minimum(exact, size - 1))
    )


@lowers(OperationType.EMBEDDING_LOOKUP)
def embedding_lookup(op: Lowering) -> Value:
    """EMBEDDING_LOOKUP: a GATHER of rows; the engine checks the indices."""
    meta = replace(op.value("values").meta, dimensions=op.result().dimensions)
    return op.emit("GATHER", [op.value("values"), op.value("lookups")], meta, "Gather", axis=0)
