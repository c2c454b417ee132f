"""Lowers to ONNX the operations that move elements about, and the resizing of images."""

from __future__ import annotations

from typing import Final

import numpy as np

from nnburst.executor.graph.tensor import TensorType
from nnburst.executor.graph.translation import require
from nnburst.executor.onnxruntime.graph import ELEMENTS, Order, StoredValue
from nnburst.executor.onnxruntime.lowering import NCHW, OnnxLowering, lowers
from nnburst.executor.operations.shape import (
    block_paddings_of,
    block_shape_of,
    block_size_of,
    extents_of,
    permutation_of,
)
from nnburst.executor.operations.slicing import paddings_of, slice_ranges_of, strides_of
from nnburst.hal.enums import OperandType, OperationType

_T = OperandType
#: An index beyond any extent, which the engine refuses.
_OUTSIDE: Final = np.iinfo(np.int32).max
#: The end of a slice that the engine reads as before the first element.
_BEFORE: Final = -(2**62)
_REFLECT: Final = 0


@lowers(OperationType.RESHAPE, OperationType.EXPAND_DIMS, OperationType.SQUEEZE)
def reshape(op: OnnxLowering) -> StoredValue:
    """RESHAPE to the extents that the shape rule has found."""
    return op.graph.reshaped(op.value("input"), op.result().dimensions)


@lowers(OperationType.TRANSPOSE)
def transpose(op: OnnxLowering) -> StoredValue:
    """TRANSPOSE: nothing moves before an operation wants another order."""
    return op.transposed(op.value("input"), permutation_of(op.node))


def _pads(x: StoredValue, pairs: list[tuple[int, int]]) -> list[int]:
    heads, tails = ([pairs[axis][side] for axis in x.order] for side in (0, 1))
    return [*heads, *tails]


def _padded(op: OnnxLowering, more: list[str], mode: str) -> StoredValue:
    op.require_real()
    x = op.value("input")
    places = op.graph.longs(_pads(x, paddings_of(op.node)))
    return op.emit("Pad", [x.name, places, *more], op.result(), x.order, mode=mode)


@lowers(OperationType.PAD)
def pad(op: OnnxLowering) -> StoredValue:
    """PAD."""
    return _padded(op, [op.graph.real(0.0)], "constant")


@lowers(OperationType.PAD_V2)
def pad_v2(op: OnnxLowering) -> StoredValue:
    """PAD_V2."""
    return _padded(op, [op.graph.real(float(op.number("pad_value")))], "constant")


@lowers(OperationType.MIRROR_PAD)
def mirror_pad(op: OnnxLowering) -> StoredValue:
    """MIRROR_PAD that leaves out the edge."""
    require(int(op.number("mode")) == _REFLECT, "MIRROR_PAD that repeats the edge")
    return _padded(op, [], "reflect")


def _sliced(
    op: OnnxLowering, x: StoredValue, parts: list[slice], extents: tuple[int, ...]
) -> StoredValue:
    """Cut a part from each axis of the operand; axes that stay whole are left out."""
    cut = [axis for axis, part in enumerate(parts) if part != slice(0, x.shape[axis], 1)]
    if not cut:
        return x
    columns = [
        [parts[axis].start for axis in cut],
        [_BEFORE if parts[axis].stop is None else parts[axis].stop for axis in cut],
        [x.order.index(axis) for axis in cut],
        [parts[axis].step for axis in cut],
    ]
    names = [op.graph.longs(column) for column in columns]
    return op.emit("Slice", [x.name, *names], TensorType(x.meta.type, extents), x.order)


@lowers(OperationType.SLICE)
def slice_(op: OnnxLowering) -> StoredValue:
    """SLICE."""
    x = op.value("input")
    parts = [slice(begin, begin + size, 1) for begin, size in slice_ranges_of(op.node)]
    return _sliced(op, x, parts, op.result().dimensions)


@lowers(OperationType.STRIDED_SLICE)
def strided_slice(op: OnnxLowering) -> StoredValue:
    """STRIDED_SLICE."""
    x, found = op.value("input"), strides_of(op.node)
    require(all(part.extent for part in found), "STRIDED_SLICE of nothing")
    extents = tuple(part.extent for part in found)
    out = _sliced(op, x, [part.part for part in found], extents)
    return op.graph.reshaped(out, op.result().dimensions)


def _reversed(op: OnnxLowering, x: StoredValue, axis: int) -> StoredValue:
    """The elements along an axis from the last to the first."""
    parts = [
        slice(extent - 1, None, -1) if at == axis else slice(0, extent, 1)
        for at, extent in enumerate(x.shape)
    ]
    return _sliced(op, x, parts, x.shape)


@lowers(OperationType.REVERSE)
def reverse(op: OnnxLowering) -> StoredValue:
    """REVERSE along one axis."""
    x = op.value("input")
    (axis,) = (int(n) % len(x.shape) for n in op.node.tensor("axis").array.reshape(-1))
    return _reversed(op, x, axis)


@lowers(OperationType.SPLIT)
def split(op: OnnxLowering) -> list[StoredValue]:
    """SPLIT."""
    x = op.value("input")
    axis = x.order.index(op.axis(len(x.shape)))
    names = op.graph.node("Split", [x.name], op.result_count, axis=axis)
    return [StoredValue(name, op.result(at), x.order) for at, name in enumerate(names)]


@lowers(OperationType.CONCATENATION)
def concatenation(op: OnnxLowering) -> StoredValue:
    """CONCATENATION."""
    names, order = op.together(*op.values("input"))
    axis = order.index(op.axis(len(order)))
    return op.emit("Concat", names, op.result(), order, axis=axis)


@lowers(OperationType.PACK)
def pack(op: OnnxLowering) -> StoredValue:
    """PACK."""
    result = op.result()
    axis = op.axis(len(result.dimensions))
    each = tuple(1 if at == axis else n for at, n in enumerate(result.dimensions))
    values = [op.graph.reshaped(x, each) for x in op.values("input")]
    names, order = op.together(*values)
    return op.emit("Concat", names, result, order, axis=order.index(axis))


def _checked(op: OnnxLowering, name: str) -> StoredValue:
    """Indices with negative ones made invalid, which the engine would count from the end."""
    x = op.value(name)
    outside = op.plain(op.constant(np.array([_OUTSIDE], np.int32)))
    zero = op.plain(op.constant(np.zeros(1, np.int32)))
    (negative,) = op.graph.node("Less", [x.name, zero])
    return op.emit("Where", [negative, outside, x.name], x.meta, x.order)


def _progression(op: OnnxLowering, extent: int) -> slice | None:
    """Constant indices at equal distances; the engine slices faster than it gathers."""
    if not op.node.is_constant("indices"):
        return None
    indices = op.node.tensor("indices").array
    if indices.ndim != 1 or indices.size < 2 or indices.min() < 0 or indices.max() >= extent:
        return None
    steps = np.diff(indices)
    if not steps[0] or (steps != steps[0]).any():
        return None
    step, last = int(steps[0]), int(indices[-1])
    stop = last + 1 if step > 0 else last - 1
    return slice(int(indices[0]), stop if stop >= 0 else None, step)


@lowers(OperationType.GATHER)
def gather(op: OnnxLowering) -> StoredValue:
    """GATHER; the engine refuses indices out of bounds."""
    x = op.value("input")
    axis = op.axis(len(x.shape))
    taken = _progression(op, x.shape[axis])
    if taken is not None:
        parts = [taken if at == axis else slice(0, n, 1) for at, n in enumerate(x.shape)]
        return _sliced(op, x, parts, op.result().dimensions)
    indices = _checked(op, "indices")
    names = [x.name, op.plain(indices)]
    if len(indices.shape) == 1:
        return op.emit("Gather", names, op.result(), x.order, axis=x.order.index(axis))
    return op.emit("Gather", [op.plain(x), names[1]], op.result(), axis=axis)


@lowers(OperationType.EMBEDDING_LOOKUP)
def embedding_lookup(op: OnnxLowering) -> StoredValue:
    """EMBEDDING_LOOKUP: a GATHER of rows."""
    op.require_real()
    names = [op.plain(op.value("values")), op.plain(_checked(op, "lookups"))]
    return op.emit("Gather", names, op.result(), axis=0)


@lowers(OperationType.TILE)
def tile(op: OnnxLowering) -> StoredValue:
    """TILE."""
    x = op.value("input")
    counts = op.node.tensor("multiples").array.reshape(-1)
    repeats = op.graph.longs([int(counts[axis]) for axis in x.order])
    return op.emit("Tile", [x.name, repeats], op.result(), x.order)


@lowers(OperationType.TOPK_V2)
def topk(op: OnnxLowering) -> list[StoredValue]:
    """TOPK_V2 along the last axis; of equal elements NNAPI puts the last one first, the engine the first."""
    given = op.value("input")
    last = len(given.shape) - 1
    x = _reversed(op, given, last)
    count, axis = op.graph.longs([int(op.number("k"))]), x.order.index(last)
    values, places = op.graph.node("TopK", [x.name, count], 2, axis=axis, largest=1, sorted=1)
    (places,) = op.graph.node("Sub", [op.graph.longs([x.shape[last] - 1]), places])
    indices = op.emit("Cast", [places], op.result(1), x.order, to=ELEMENTS[_T.TENSOR_INT32])
    return [StoredValue(values, op.result(0), x.order), indices]


# -- blocks ----------------------------------------------------------------------------------------


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
    top, bottom, left, right = block_paddings_of(op.node)
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
    """CHANNEL_SHUFFLE: transpose the matrix of groups and their channels."""
    x, groups = op.value("input"), int(op.number("groups"))
    axis = op.axis(len(x.shape))
    before, after = x.shape[:axis], x.shape[axis + 1 :]
    parts = op.graph.reshaped(x, (*before, groups, x.shape[axis] // groups, *after))
    order = list(range(len(parts.shape)))
    order[axis], order[axis + 1] = axis + 1, axis
    return op.graph.reshaped(op.transposed(parts, order), x.shape)


# -- resizing --------------------------------------------------------------------------------------


_PLAIN: Final = "asymmetric"
#: Order of an NHWC image's axes if it stays NHWC.
NHWC: Final[Order] = (0, 1, 2, 3)


def _mode(op: OnnxLowering) -> str:
    """The engine's name for the rule that finds the place of an output element in the input."""
    if op.number("half_pixel_centers"):
        return "half_pixel"
    return "align_corners" if op.number("align_corners") else _PLAIN


@lowers(OperationType.RESIZE_BILINEAR)
def resize_bilinear(op: OnnxLowering) -> StoredValue:
    """RESIZE_BILINEAR to the extents that the shape rule has found."""
    op.require_real()
    nchw = bool(op.number("nchw"))
    image = op.to_front(op.value("input"), nchw)
    return op.to_back(_resized(op, image, nchw, _mode(op), mode="linear"), nchw)


def _resized(
    op: OnnxLowering, image: StoredValue, nchw: bool, place: str, **fields: str
) -> StoredValue:
    result = op.front_result(nchw)
    order = NHWC if _lies_well(op, image, fields["mode"]) else NCHW
    (height, width), (rows, columns) = image.shape[1:3], result.dimensions[1:3]
    names = [op.graph.ordered(image, order), ""]
    if rows % height == 0 and columns % width == 0:
        factors = np.array([1, rows // height, columns // width, 1], np.float32)
        names.append(op.plain(op.constant(factors[list(order)])))
    else:
        names += ["", op.graph.longs([result.dimensions[axis] for axis in order])]
    fields["coordinate_transformation_mode"] = place
    return op.emit("Resize", names, result, order, **fields)


def _lies_well(op: OnnxLowering, image: StoredValue, mode: str) -> bool:
    """Whether a resize is fastest if the image stays NHWC, which only the CPU's linear kernel reads.

    This kernel computes all channels of an element at once: from 8 channels on, that is faster than moving
    elements to another layout.
    """
    return op.graph.by_cpu and mode == "linear" and image.order == NHWC and image.shape[3] >= 8


@lowers(OperationType.RESIZE_NEAREST_NEIGHBOR)
def resize_nearest_neighbor(op: OnnxLowering) -> StoredValue:
    """RESIZE_NEAREST_NEIGHBOR: a Resize for whole factors, otherwise a Gather of rows and of columns."""
    op.require_real()
    nchw = bool(op.number("nchw"))
    image = op.to_front(op.value("input"), nchw)
    result = op.front_result(nchw).dimensions
    taken = [_nearest(op, image.shape[axis], result[axis]) for axis in (1, 2)]
    repeated = all(
        result[axis] % image.shape[axis] == 0
        and np.array_equal(
            rows, np.repeat(np.arange(image.shape[axis]), result[axis] // image.shape[axis])
        )
        for axis, rows in zip((1, 2), taken, strict=True)
    )
    if repeated:
        out = _resized(op, image, nchw, _PLAIN, mode="nearest", nearest_mode="floor")
        return op.to_back(out, nchw)
    for axis, rows in zip((1, 2), taken, strict=True):
        extents = tuple(rows.size if at == axis else n for at, n in enumerate(image.shape))
        meta = TensorType(image.meta.type, extents)
        names = [image.name, op.plain(op.constant(rows))]
        image = op.emit("Gather", names, meta, image.order, axis=image.order.index(axis))
    return op.to_back(image, nchw)


def _nearest(
    op: OnnxLowering, size: int, target: int
) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """The input element that each output element takes. NNAPI: all coordinates are float32."""
    align = bool(op.number("align_corners")) and target > 1
    scale = np.float32(size - align) / np.float32(target - align)
    at = np.arange(target, dtype=np.float32)
    if op.number("half_pixel_centers"):
        at = at + np.float32(0.5)
    at = at * scale
    whole = np.floor(at + np.float32(0.5)) if op.number("align_corners") else np.floor(at)
    return np.clip(whole, 0, size - 1).astype(np.int32)
