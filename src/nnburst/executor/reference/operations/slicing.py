"""Kernels that cut, pad, join, pick and repeat elements."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nnburst.executor.graph.operation import Node, Run, kernel
from nnburst.executor.graph.tensor import Array, Tensor, TensorType
from nnburst.executor.operations.shape import resolve_axis
from nnburst.executor.operations.slicing import paddings_of, slice_ranges_of, strides_of
from nnburst.executor.reference.operations.shape import copies, require_in_range
from nnburst.executor.reference.quantized import all_stored_values, round_half_away
from nnburst.hal.enums import OperationType
from nnburst.hal.model import QUANTIZED_RANGES

# -- SLICE, STRIDED_SLICE, SPLIT: parts of a tensor ------------------------------------------------
# NNAPI: Slice.cpp, StridedSlice.cpp, Split.cpp.


@kernel(OperationType.SLICE, half=True)
def slice_(node: Node) -> Run:
    """Copy through a view. NNAPI: stored values stay, whatever the output's quantisation."""
    box = tuple(slice(begin, begin + size) for begin, size in slice_ranges_of(node))
    return copies((node.output().array, node.tensor("input").array[box]))


@kernel(OperationType.STRIDED_SLICE, half=True)
def strided_slice(node: Node) -> Run:
    """Copy through a view."""
    strides, y = strides_of(node), node.output().array
    view = node.tensor("input").array[tuple(s.part for s in strides)]
    return copies((y.reshape([s.extent for s in strides]), view))


@kernel(OperationType.SPLIT, half=True)
def split(node: Node) -> Run:
    """Copy each part."""
    x = node.tensor("input").array
    axis, size = resolve_axis(node, x.ndim), node.output().shape
    before = (slice(None),) * axis
    return copies(
        *(
            (part.array, x[(*before, slice(i * size[axis], (i + 1) * size[axis]))])
            for i, part in enumerate(node.outputs)
        )
    )


# -- PAD, PAD_V2, MIRROR_PAD: a tensor with borders around it --------------------------------------
# NNAPI: CpuExecutor.cpp, OperationsExecutionUtils.cpp (padPrepare), MirrorPad.cpp.


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
    """Fill the output with the padding, then copy the input into the middle."""
    zero_point = node.tensor("input").zero_point
    return _pad(node, lambda y: y.fill(zero_point))


@kernel(OperationType.PAD_V2, half=True)
def pad_v2(node: Node) -> Run:
    """Fill the output, then copy the input into the middle. NNAPI: an INT32 value is cut to its low byte."""
    value, dtype = node.value("pad_value"), node.output().dtype
    if dtype.itemsize == 1:
        value = np.uint8(value & 0xFF).view(dtype)
    return _pad(node, lambda y: y.fill(value))


@kernel(OperationType.MIRROR_PAD, half=True)
def mirror_pad(node: Node) -> Run:
    """Copy the middle, then reflect dimension by dimension inside the output.

    A border first copies garbage from the still unwritten borders of later dimensions; their own copies
    overwrite it. The corners are right because of this order of copies.
    """
    x, y, edge = node.tensor("input").array, node.output().array, 1 - int(node.value("mode"))
    pairs = [(_middle(y, node), x)]
    for axis, (before, after) in enumerate(paddings_of(node)):
        along, end = np.moveaxis(y, axis, 0), before + x.shape[axis]
        first, last = before + edge, end - edge
        pairs.append((along[:before], along[first : first + before][::-1]))
        pairs.append((along[end:], along[last - after : last][::-1]))
    return copies(*pairs)


# -- CONCATENATION and PACK: several tensors become one --------------------------------------------
# NNAPI: Concatenation.cpp, Pack.cpp.


def _rescaled(source: TensorType, target: TensorType) -> Array:
    """Stored values of the target for the 256 bytes of the source.

    NNAPI: `round(q * k - zero_point * k) + new_zero_point` in float32 on unsigned values; the
    signed type is shifted by 128 on the way in and out.
    """
    low, high = QUANTIZED_RANGES[source.type]
    shift = -low
    with np.errstate(all="ignore"):
        factor = np.float32(source.scale) * (np.float32(1) / np.float32(target.scale))
        q = (all_stored_values(source.type).astype(np.int32) + shift).astype(np.float32)
        real = q * factor - np.float32(source.zero_point + shift) * factor
        stored = round_half_away(real).astype(np.float64) + target.zero_point
        return np.clip(stored, low, high).astype(np.int8 if shift else np.uint8)


def _part(source: Tensor, target: TensorType, destination: Array) -> Run:
    same = (source.scale, source.zero_point) == (target.scale, target.zero_point)
    if same or source.type not in QUANTIZED_RANGES:
        return copies((destination, source.array))
    table, codes = _rescaled(source.meta, target), source.array.view(np.uint8)

    def run() -> None:
        np.take(table, codes, out=destination, mode="clip")

    return run


@kernel(OperationType.CONCATENATION, half=True)
def concatenation(node: Node) -> Run:
    """Copy or rescale each input to its place."""
    axis, output = int(node.value("axis")), node.output()
    along, parts, at = np.moveaxis(output.array, axis, 0), [], 0
    for source in node.tensors("input"):
        size = source.shape[axis]
        destination = np.moveaxis(along[at : at + size], 0, axis)
        parts.append(_part(source, output.meta, destination))
        at += size

    def run() -> None:
        for part in parts:
            part()

    return run


@kernel(OperationType.PACK, half=True)
def pack(node: Node) -> Run:
    """Copy each input to its place."""
    along = np.moveaxis(node.output().array, int(node.value("axis")), 0)
    return copies(*zip(along, (t.array for t in node.tensors("input")), strict=True))


# -- GATHER, TILE, FILL, RANK: picking, repeating, filling and counting ----------------------------
# NNAPI: Gather.cpp, Tile.cpp, Fill.cpp, Rank.cpp.


@kernel(OperationType.GATHER, half=True)
def gather(node: Node) -> Run:
    """Check the indices, then take: no index wraps or is clamped."""
    x, y, indices = node.tensor("input").array, node.output().array, node.tensor("indices").array
    axis = resolve_axis(node, x.ndim)

    def run() -> None:
        require_in_range(node, "indices", indices, x.shape[axis])
        np.take(x, indices, axis=axis, out=y, mode="clip")

    return run


@kernel(OperationType.TILE, half=True)
def tile(node: Node) -> Run:
    """Copy by broadcasting over one extra dimension in front of each."""
    x, y = node.tensor("input").array, node.output().array
    pairs = [(have // extent, extent) for have, extent in zip(y.shape, x.shape, strict=True)]
    source = x.reshape([n for extent in x.shape for n in (1, extent)])
    return copies((y.reshape([n for pair in pairs for n in pair]), source))


@kernel(OperationType.FILL, half=True)
def fill(node: Node) -> Run:
    """Write the value to every element."""
    y, value = node.output().array, node.value("value")
    return lambda: y.fill(value)


@kernel(OperationType.RANK, half=True)
def rank(node: Node) -> Run:
    """Write the input's rank."""
    y, dimensions = node.output().array, len(node.tensor("input").shape)
    return lambda: y.fill(dimensions)
