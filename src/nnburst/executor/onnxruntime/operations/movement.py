"""Elements moved about: shapes, slices, joins, padding, picking."""

from __future__ import annotations

from typing import Final

import numpy as np

from nnburst.executor.graph.tensor import TensorType
from nnburst.executor.graph.translation import require
from nnburst.executor.onnxruntime.graph import ELEMENTS, StoredValue
from nnburst.executor.onnxruntime.lowering import OnnxLowering, lowers
from nnburst.executor.operations.shape_pad import paddings_of
from nnburst.executor.operations.shape_permute import permutation_of
from nnburst.executor.operations.shape_slice import slice_ranges_of, strides_of
from nnburst.hal.enums import OperandType, OperationType

_T = OperandType
#: Behind every index: the engine refuses it.
_OUTSIDE: Final = np.iinfo(np.int32).max
#: What the engine takes for the place before the first element.
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
    """Of each axis of the operand a part, whose start and step are given; only what is cut is named."""
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
    """Indices of which negative ones are outside: the engine would count them from the end."""
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
    """GATHER; the engine refuses indices outside."""
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
    """GATHER of rows."""
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
    """TOPK_V2 along the last axis: of equal ones the last comes first, the engine's first does."""
    given = op.value("input")
    last = len(given.shape) - 1
    x = _reversed(op, given, last)
    count, axis = op.graph.longs([int(op.number("k"))]), x.order.index(last)
    values, places = op.graph.node("TopK", [x.name, count], 2, axis=axis, largest=1, sorted=1)
    (places,) = op.graph.node("Sub", [op.graph.longs([x.shape[last] - 1]), places])
    indices = op.emit("Cast", [places], op.result(1), x.order, to=ELEMENTS[_T.TENSOR_INT32])
    return [StoredValue(values, op.result(0), x.order), indices]
