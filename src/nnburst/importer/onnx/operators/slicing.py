"""Translates ONNX's operators that join, cut, pick and pad."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from nnburst.hal.enums import OperandType, OperationType
from nnburst.importer.onnx.folding import charge, slices, split_sizes
from nnburst.importer.onnx.node import Node, operator, quantized_type
from nnburst.importer.onnx.operators.elementwise import alike, broadcast, filled
from nnburst.importer.onnx.operators.shape import along, seen
from nnburst.importer.onnx.tensor import Array, Order, Tensor, constant, identity, permuted
from nnburst.importer.subgraph import MOST_AXES, Scalar, Value
from nnburst.importer.tensors import Refused, integers

_O = OperationType
_T = OperandType

#: Types that CONCATENATION, PAD and TRANSPOSE do not support.
_BY_PLACE: Final = frozenset({_T.TENSOR_INT32})


@operator("Concat")
def _concat(node: Node) -> None:
    tensors = [tensor for tensor in node.inputs() if tensor.elements]
    axis = node.axis(node.integer("axis"), tensors[0].rank)
    node.put(concatenated(node, tensors, axis))


def concatenated(node: Node, tensors: Sequence[Tensor], axis: int) -> Tensor:
    """Join tensors along an axis; quantised ones stay quantised if the result is."""
    into = node.quantization
    if into is None or not all(t.is_quantized_real and not t.is_known for t in tensors):
        tensors = [node.graph.real(tensor) for tensor in tensors]
    if len(tensors) == 1:
        return tensors[0]
    leading = max((t for t in tensors if not t.is_known), key=lambda t: t.elements)
    order, rank = leading.order, leading.rank
    shape = list(leading.shape)
    shape[axis] = sum(tensor.shape[axis] for tensor in tensors)
    at = order.index(axis)
    whole = permuted(shape, order)
    outer, inner = math.prod(whole[:at]), math.prod(whole[at + 1 :])
    values, place = [], at
    for tensor in tensors:
        dims = permuted(tensor.shape, order)
        if rank > MOST_AXES:
            dims, place = (outer, tensor.shape[axis], inner), 1
        values.append(node.graph.stored(tensor, order, dims))
    values = alike(tensors, values)
    dims = whole if rank <= MOST_AXES else (outer, shape[axis], inner)
    kind = replace(values[0].type, dimensions=dims)
    if into is not None and leading.is_quantized_real:
        kind = quantized_type(into, dims)
    value = _joined(node, values, place, kind.dimensions)
    if value is None:
        value = node.emit(_O.CONCATENATION, [*values, place], kind)
    return Tensor(tuple(shape), leading.dtype, value=value, order=order)


def _joined(node: Node, values: list[Value], axis: int, dims: tuple[int, ...]) -> Value | None:
    """Join values of types that CONCATENATION does not support: place each one, then select between them."""
    kind = values[0].type.type
    if kind == _T.TENSOR_BOOL8:
        numbers = [node.graph.as_numbers(value) for value in values]
        joined = replace(numbers[0].type, dimensions=dims)
        return node.graph.truth(node.emit(_O.CONCATENATION, [*numbers, axis], joined))
    if kind not in _BY_PLACE:
        return None
    total: Value | None = None
    start = 0
    for value in values:
        node.graph.budget.spend(8 * math.prod(dims))
        own = np.full(dims, -1, np.int32)
        window = [slice(None)] * len(dims)
        extent = value.type.dimensions[axis]
        window[axis] = slice(start, start + extent)
        own[tuple(window)] = np.arange(value.type.elements).reshape(value.type.dimensions)
        start += extent
        total = _chosen(node, value, own, total)
    return total


def _chosen(node: Node, value: Value, places: Array, otherwise: Value | None) -> Value:
    """Pick elements by position; those at -1 come from another operand of the result's shape."""
    found = node.graph.picked(value, np.maximum(places, 0))
    if otherwise is None:
        return found
    kind = replace(value.type, dimensions=places.shape)
    mask = node.graph.literal(places >= 0, places.shape)
    return node.emit(_O.SELECT, [mask, found, otherwise], kind)


@operator("Split")
def _split(node: Node) -> None:
    x = node.input()
    axis = node.axis(node.integer("axis"), x.rank)
    start = 0
    for position, size in enumerate(split_sizes(node, x.shape[axis])):
        window = [slice(0, extent, 1) for extent in x.shape]
        window[axis] = slice(start, start + size, 1)
        start += size
        if node.is_used(position):
            node.put(sliced(node, x, window), position)


@operator("Slice")
def _slice(node: Node) -> None:
    node.put(sliced(node, node.input(), slices(node, node.input().shape)))


def sliced(node: Node, x: Tensor, windows: Sequence[slice]) -> Tensor:
    """Slice a tensor: by SLICE in steps of 1, otherwise by index."""
    if x.is_known:
        return constant(x.array()[tuple(windows)])
    picked = [range(extent)[window] for extent, window in zip(x.shape, windows, strict=True)]
    shape = tuple(len(each) for each in picked)
    if 0 in shape:
        raise Refused(f"a slice of shape {list(shape)}: NNAPI has no extents of 0")
    for axis, each in enumerate(picked):
        if each.step != 1 and len(each) > 1:
            x = gathered(node, x, node.graph.counted(x.shape[axis])[windows[axis]], axis)
            picked[axis] = range(len(each))
    return _cut(node, x, [each.start for each in picked], shape)


def _cut(node: Node, x: Tensor, starts: Sequence[int], shape: tuple[int, ...]) -> Tensor:
    if shape == x.shape:
        return x
    value, begin, size = x.computed(), permuted(starts, x.order), permuted(shape, x.order)
    dims = permuted(x.shape, x.order)
    if x.rank > MOST_AXES:
        begin, size, dims = _fewer(begin, size, dims)
        node.require(len(dims) <= MOST_AXES, f"a slice of {len(dims)} axes")
    value = node.graph.stored(x, x.order, dims)
    is_truth = value.type.type == _T.TENSOR_BOOL8
    if is_truth:
        value = node.graph.as_numbers(value)
    kind = replace(value.type, dimensions=size)
    made = node.emit(_O.SLICE, [value, integers(begin), integers(size)], kind)
    return Tensor(shape, x.dtype, value=node.graph.truth(made) if is_truth else made, order=x.order)


def _fewer(
    begin: Sequence[int], size: Sequence[int], dims: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Merge the axes that a slice keeps whole with the axis before them."""
    found: list[tuple[int, int, int]] = []
    for b, s, d in zip(begin, size, dims, strict=True):
        if found and s == d:
            last = found.pop()
            found.append((last[0] * d, last[1] * d, last[2] * d))
        else:
            found.append((b, s, d))
    return tuple(f[0] for f in found), tuple(f[1] for f in found), tuple(f[2] for f in found)


@operator("Gather")
def _gather(node: Node) -> None:
    x = node.input(0)
    node.put(taken(node, x, node.input(1), node.axis(node.integer("axis"), x.rank)))


def taken(node: Node, x: Tensor, index: Tensor, axis: int) -> Tensor:
    """Gather along an axis by indices, known or computed, which may count from the end."""
    extent = x.shape[axis]
    if index.is_known:
        places = index.array().astype(np.int64)
        node.require(
            bool(np.all((places >= -extent) & (places < extent))),
            "a constant index lies outside of its axis",
        )
        return gathered(node, x, np.where(places < 0, places + extent, places), axis)
    stored = node.graph.stored(from_start(node, index, extent))
    return _gathered(node, x, stored, index.shape, axis)


def from_start(node: Node, index: Tensor, extent: int) -> Tensor:
    """Make indices count from the start: (i + n) mod n, written without a remainder."""
    below = broadcast(node, _O.LESS, [index, filled(0, index)], dtype=np.dtype(np.bool_))
    more = broadcast(node, _O.ADD, [index, filled(extent, index)], 0)
    dims = index.computed().type.dimensions
    values = [node.graph.stored(tensor, index.order, dims) for tensor in (below, more, index)]
    made = node.emit(_O.SELECT, values, values[1].type)
    return replace(index, value=made)


def gathered(node: Node, x: Tensor, places: Array, axis: int) -> Tensor:
    """Gather along an axis by known indices, none of which is below 0."""
    if x.is_known:
        rest = math.prod(extent for at, extent in enumerate(x.shape) if at != axis)
        charge(node, (places.size, rest), x.dtype.itemsize)
        return constant(np.take(x.array(), places, axis))
    if places.size == 1:  # a slice moves fewer elements
        start = [0] * x.rank
        start[axis] = int(places.reshape(-1)[0])
        shape = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
        cut = _cut(node, x, start, shape)
        return seen(node, cut, (*x.shape[:axis], *places.shape, *x.shape[axis + 1 :]))
    flat = node.graph.literal(places.reshape(-1).astype(np.int32), (places.size,))
    return _gathered(node, x, flat, places.shape, axis)


def _gathered(
    node: Node, x: Tensor, index: Value, index_shape: tuple[int, ...], axis: int
) -> Tensor:
    form = along(node, x, [axis], keep=False)
    outer, _, inner = form.value.type.dimensions
    count = math.prod(index_shape)
    index = index if index.type.dimensions == (count,) else node.graph.reshaped(index, (count,))
    value = form.value
    is_truth = value.type.type == _T.TENSOR_BOOL8
    if is_truth:
        value = node.graph.as_numbers(value)
    kind = replace(value.type, dimensions=(outer, count, inner))
    made = node.emit(_O.GATHER, [value, 1, index], kind)
    made = node.graph.truth(made) if is_truth else made
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    flat = Tensor(shape, x.dtype, value=made, order=form.order)
    return seen(node, flat, (*x.shape[:axis], *index_shape, *x.shape[axis + 1 :]))


@operator("GatherElements")
def _gather_elements(node: Node) -> None:
    """Pick each element by its position in the flattened tensor."""
    x, index = node.input(0), node.array(1, "indices").astype(np.int64)
    axis = node.axis(node.integer("axis"), x.rank)
    extent = x.shape[axis]
    node.require(
        bool(np.all((index >= -extent) & (index < extent))),
        "a constant index lies outside of its axis",
    )
    node.graph.budget.spend(16 * (x.elements + index.size))
    places = np.arange(x.elements, dtype=np.int64).reshape(x.shape)
    window = tuple(slice(0, e) for at, e in enumerate(index.shape))
    picked = np.take_along_axis(
        places[tuple(w if at != axis else slice(None) for at, w in enumerate(window))],
        np.where(index < 0, index + extent, index),
        axis,
    )
    value = node.graph.stored(x)
    found = node.graph.picked(value, picked.astype(np.int32))
    node.result(found, index.shape, x.dtype)


@operator("Pad")
def _pad(node: Node) -> None:
    x = node.input()
    if node.version < 11:
        pads, number = node.integer_list("pads") or [], node.real_number("value", 0.0)
    else:
        pads = node.integers(1, "pads")
        given = node.optional(2)
        number = 0.0 if given is None else float(node.array(2, "value").reshape(-1)[0])
    axes = node.axes(node.integers(3, "axes"), x.rank) if node.optional(3) else range(x.rank)
    node.require(len(pads) == 2 * len(axes), f"{len(pads)} paddings of {x.rank} axes")
    sides = [(0, 0)] * x.rank
    for at, axis in enumerate(axes):
        sides[axis] = (pads[at], pads[at + len(axes)])
    mode = node.string("mode", "constant")
    if mode != "constant":
        node.put(_padded_by_index(node, x, sides, mode))
        return
    x = node.graph.real(x)
    windows = [
        slice(max(-a, 0), e - max(-b, 0), 1) for e, (a, b) in zip(x.shape, sides, strict=True)
    ]
    x = sliced(node, x, windows)
    node.put(padded(node, x, [(max(a, 0), max(b, 0)) for a, b in sides], number))


def _padded_by_index(node: Node, x: Tensor, sides: Sequence[tuple[int, int]], mode: str) -> Tensor:
    """Pad with elements copied from within the tensor."""
    modes = {"reflect": "reflect", "edge": "edge", "wrap": "wrap"}
    node.require(mode in modes, f"mode is {mode}, expected one of {', '.join(sorted(modes))}")
    for axis, (before, behind) in enumerate(sides):
        if before or behind:
            node.require(
                before >= 0 and behind >= 0, "pads cut off and pad at once, expected one of the two"
            )
            node.graph.budget.spend(8 * (before + behind + x.shape[axis]))
            places = np.arange(x.shape[axis])
            x = gathered(node, x, np.pad(places, (before, behind), modes[mode]), axis)  # type: ignore[call-overload]
    return x


def padded(node: Node, x: Tensor, sides: Sequence[tuple[int, int]], number: float) -> Tensor:
    """Pad a tensor with one number."""
    if not any(a or b for a, b in sides):
        return x
    shape = tuple(e + a + b for e, (a, b) in zip(x.shape, sides, strict=True))
    if x.is_known:
        charge(node, shape, x.dtype.itemsize)
        return constant(np.pad(x.array(), list(sides), constant_values=number))
    node.require(x.rank <= MOST_AXES, f"{x.rank} axes are padded")
    order: Order = x.order
    value = node.graph.stored(x, order)
    dims = permuted(shape, order)
    stored = [sides[axis] for axis in order]
    if value.type.type in (_T.TENSOR_INT32, _T.TENSOR_BOOL8):
        raise Refused(f"padding of {x.dtype}")
    like = value.type
    pad = Scalar(int(number), _T.INT32) if like.is_quantized else node.graph.number(number, like)
    paddings = node.graph.literal(np.array(stored, np.int32), (len(dims), 2))
    made = node.emit(_O.PAD_V2, [value, paddings, pad], replace(like, dimensions=dims))
    return Tensor(shape, x.dtype, value=made, order=order)


@operator("Tile")
def _tile(node: Node) -> None:
    x, times = node.input(), node.integers(1, "repeats")
    node.require(
        len(times) == x.rank and min(times, default=1) > 0,
        f"repeats are {times}, expected 1 or more for each axis",
    )
    if all(count == 1 for count in times):
        node.put(x)
        return
    node.require(x.rank <= MOST_AXES and x.dtype.kind != "b", f"{x.rank} axes of {x.dtype}")
    order = identity(x.rank) if x.is_known else x.order
    value = node.graph.stored(x, order)
    shape = tuple(e * count for e, count in zip(x.shape, times, strict=True))
    kind = replace(value.type, dimensions=permuted(shape, order))
    made = node.emit(_O.TILE, [value, integers(permuted(times, order))], kind)
    node.result(made, shape, x.dtype, order)
