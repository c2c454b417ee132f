"""Translates ONNX's operators that keep all elements and change their shape or order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from nnburst.hal.enums import OperandType
from nnburst.importer.onnx.folding import target_shape, target_type
from nnburst.importer.onnx.node import Node, operator
from nnburst.importer.onnx.tensor import (
    Order,
    Shape,
    Tensor,
    constant,
    identity,
    operand_type,
    removed,
    reshaped,
)
from nnburst.importer.subgraph import MOST_AXES, Value
from nnburst.importer.tensors import QUANT8

_T = OperandType


def seen(node: Node, tensor: Tensor, shape: Sequence[int]) -> Tensor:
    """Reshape a tensor: the same elements, in the file's order."""
    shape = tuple(shape)
    if tensor.is_known:
        return constant(tensor.array().reshape(shape))
    needed, order = reshaped(tensor.shape, tensor.order, shape)
    if needed == tensor.order:
        return tensor.seen_as(shape, order)
    value = node.graph.ordered(tensor, needed)
    return Tensor(shape, tensor.dtype, value=value, order=order)


def transposed(tensor: Tensor, perm: Sequence[int]) -> Tensor:
    """Permute the axes of a tensor; no element moves in memory."""
    if tensor.is_known:
        return constant(tensor.array().transpose(perm))
    places = {axis: at for at, axis in enumerate(perm)}
    shape = tuple(tensor.shape[axis] for axis in perm)
    return tensor.seen_as(shape, tuple(places[axis] for axis in tensor.order))


@operator("Reshape")
def _reshape(node: Node) -> None:
    wanted = np.array(node.integers(1, "shape"), np.int64)
    node.put(seen(node, node.input(), target_shape(node, node.input().shape, wanted)))


@operator("Flatten")
def _flatten(node: Node) -> None:
    x = node.input()
    axis = node.integer("axis", 1)
    axis = axis + x.rank if axis < 0 else axis
    node.require(0 <= axis <= x.rank, f"axis {axis} of {x.rank} dimensions")
    node.put(seen(node, x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))))


@operator("Squeeze")
def _squeeze(node: Node) -> None:
    x = node.input()
    axes = node.steering("axes", 1, 13)
    gone = node.axes(axes, x.rank) if axes else [at for at, e in enumerate(x.shape) if e == 1]
    node.require(all(x.shape[axis] == 1 for axis in gone), f"axes {gone} of {list(x.shape)}")
    shape = tuple(extent for axis, extent in enumerate(x.shape) if axis not in gone)
    node.put(x.seen_as(shape, removed(x.order, gone)))


@operator("Unsqueeze")
def _unsqueeze(node: Node) -> None:
    x = node.input()
    new = node.steering("axes", 1, 13) or []
    places = node.axes(new, x.rank + len(new))
    rest = iter(x.shape)
    shape = tuple(1 if at in places else next(rest) for at in range(x.rank + len(new)))
    node.put(seen(node, x, shape))


@operator("Identity")
def _identity(node: Node) -> None:
    node.put(node.input())


@operator("Dropout")
def _dropout(node: Node) -> None:
    """Pass the input on: nothing is dropped, except in training with a ratio other than 0."""
    x = node.input()
    if node.optional(2) is not None:
        known = [t for t in (node.optional(1), node.optional(2)) if t is not None and t.is_known]
        node.require(any(not t.array().any() for t in known), "it is in training mode")
    node.put(x)
    if node.is_used(1):
        node.graph.budget.spend(x.elements)
        node.put_known(np.full(x.shape, node.version >= 12), 1)  # onnxruntime's before: zeros


@operator("Transpose")
def _transpose(node: Node) -> None:
    x = node.input()
    perm = node.integer_list("perm", list(reversed(range(x.rank)))) or []
    node.require(
        sorted(perm) == list(range(x.rank)), f"{perm} is not a permutation of {x.rank} axes"
    )
    node.put(transposed(x, perm))


@operator("Shape")
def _shape(node: Node) -> None:
    start, end = node.integer("start"), node.integer("end", 2**31)
    node.put_known(np.array(node.input().shape[start:end], np.int64))


@operator("Size")
def _size(node: Node) -> None:
    node.put_known(np.array(node.input().elements, np.int64))


@operator("DepthToSpace", "SpaceToDepth")
def _blocks(node: Node) -> None:
    """Reshape, so that blocks are axes of their own, and transpose."""
    x, size = node.input(), node.integer("blocksize")
    node.require(x.rank == 4 and size > 0, f"blocks of {size} in {list(x.shape)}")
    n, c, h, w = x.shape
    if node.kind == "SpaceToDepth":
        node.require(h % size == w % size == 0, f"blocks of {size} in {list(x.shape)}")
        cut = seen(node, x, (n, c, h // size, size, w // size, size))
        deep_first = node.string("mode", "DCR") == "DCR"
        order = (0, 3, 5, 1, 2, 4) if deep_first else (0, 1, 3, 5, 2, 4)
        node.put(
            seen(
                node,
                transposed(cut, order),
                (n, c * size * size, h // size, w // size),
            )
        )
        return
    node.require(c % (size * size) == 0, f"blocks of {size} in {list(x.shape)}")
    deep = c // (size * size)
    if node.string("mode", "DCR") == "DCR":
        cut = transposed(seen(node, x, (n, size, size, deep, h, w)), (0, 3, 4, 1, 5, 2))
    else:
        cut = transposed(seen(node, x, (n, deep, size, size, h, w)), (0, 1, 4, 2, 5, 3))
    node.put(seen(node, cut, (n, deep, h * size, w * size)))


@operator("Cast")
def _cast(node: Node) -> None:
    node.put(converted(node, node.input(), target_type(node)))


@operator("CastLike")
def _cast_like(node: Node) -> None:
    node.put(converted(node, node.input(), node.input(1).dtype))


def converted(node: Node, x: Tensor, dtype: np.dtype[Any]) -> Tensor:
    """Convert numbers to another type.

    In ONNX, real numbers that do not fit are undefined, and integers wrap, which NNAPI's conversion does
    not do.
    """
    x = node.graph.real(x)
    if dtype == np.float64:
        dtype = np.dtype(np.float32)  # DEVIATES: NNAPI has no numbers of 64 bits
    kind = operand_type(dtype)
    have = operand_type(x.dtype)
    if kind == have:
        return replace(x, dtype=dtype)
    node.require(
        kind not in QUANT8 or have == _T.TENSOR_BOOL8 or x.dtype.kind == "f",
        f"{x.dtype} cut to {dtype}",
    )
    node.require(
        _T.TENSOR_QUANT8_ASYMM_SIGNED not in (kind, have),
        f"{x.dtype} as {dtype}: NNAPI has no such CAST",
    )
    return Tensor(x.shape, dtype, value=node.graph.cast(x.computed(), kind), order=x.order)


def one_more(tensor: Tensor, axis: int) -> Tensor:
    """Insert an axis of extent 1."""
    shape: Shape = (*tensor.shape[:axis], 1, *tensor.shape[axis:])
    if tensor.is_known:
        return constant(tensor.array().reshape(shape))
    order = (axis, *(each + (each >= axis) for each in tensor.order))
    return tensor.seen_as(shape, order)


@dataclass(frozen=True, slots=True)
class Along:
    """A tensor in a form in which some of its axes are one axis of the operand.

    Attributes:
        value: the operand.
        axis: axis of the operand that they form.
        tensor: the original tensor.
        order: order in which the tensor's axes are stored.
    """

    value: Value
    axis: int
    tensor: Tensor
    order: Order

    def restored(self, value: Value) -> Tensor:
        """Give a result of this form the shape of the original tensor."""
        return Tensor(self.tensor.shape, self.tensor.dtype, value=value, order=self.order)


def with_neighbours(order: Order, axes: Sequence[int]) -> Order:
    """An order in which `axes` are neighbours, the outer one first, with as few moves as possible."""
    wanted = list(axes)
    at = [order.index(axis) for axis in wanted]
    if all(b == a + 1 for a, b in pairwise(at)):
        return order
    rest = [axis for axis in order if axis not in wanted]
    before = sum(order.index(axis) < min(at) for axis in rest)
    return (*rest[:before], *wanted, *rest[before:])


def along(node: Node, tensor: Tensor, axes: Sequence[int], *, keep: bool = True) -> Along:
    """Bring a tensor into a form for an operation along some axes.

    Args:
        node: the node that is translated.
        tensor: a tensor of any form.
        axes: the axes, ascending and neighbours in the file's order.
        keep: whether to keep the operand's own axes if there are few enough and `axes` has only one.
    """
    have = identity(tensor.rank) if tensor.is_known else tensor.order
    order = with_neighbours(have, axes)
    stored = [tensor.shape[axis] for axis in order]
    at = order.index(axes[0]) if axes else 0
    if keep and len(axes) == 1 and 0 < tensor.rank <= MOST_AXES:
        return Along(node.graph.stored(tensor, order, tuple(stored)), at, tensor, order)
    middle = math.prod(stored[at : at + len(axes)])
    dims: Shape = (math.prod(stored[:at]), middle, math.prod(stored[at + len(axes) :]))
    return Along(node.graph.stored(tensor, order, dims), 1, tensor, order)
