"""Translates ONNX's reductions, largest elements and normalisations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from nnburst.hal.enums import OperandType, OperationType
from nnburst.importer.onnx.node import Node, operator
from nnburst.importer.onnx.operators.activation import add, div, mul, sub
from nnburst.importer.onnx.operators.elementwise import broadcast, filled, require_plain, unary
from nnburst.importer.onnx.operators.shape import along, seen
from nnburst.importer.onnx.operators.slicing import gathered
from nnburst.importer.onnx.tensor import Tensor, constant, identity, removed
from nnburst.importer.subgraph import MOST_AXES
from nnburst.importer.tensors import TensorType, integers

_O = OperationType
_T = OperandType


def reduced(
    node: Node, kind: OperationType, x: Tensor, axes: Sequence[int], *, keep: bool
) -> Tensor:
    """Append one reduction over some axes, in any order of storage.

    Args:
        node: the node that is translated.
        kind: MEAN or one of REDUCE_…, with axes and whether to keep them.
        x: the tensor.
        axes: the axes, counted from the start.
        keep: whether the axes stay, with extent 1.
    """
    order = identity(x.rank) if x.is_known else x.order
    dims, over = _fewest([(x.shape[axis], axis in axes) for axis in order])
    node.require(
        len(dims) <= MOST_AXES, f"axes {list(axes)} of {list(x.shape)} in {len(dims)} parts"
    )
    value = node.graph.stored(x, order, dims)
    left = tuple(1 if at in over else extent for at, extent in enumerate(dims))
    result = replace(value.type, dimensions=left)
    if over:
        value = node.emit(kind, [value, integers(over), 1 if kind == _O.MEAN else True], result)
    shape = tuple(1 if axis in axes else extent for axis, extent in enumerate(x.shape))
    found = Tensor(shape, x.dtype, value=value, order=order)
    return found if keep else without(found, axes)


def without(x: Tensor, axes: Sequence[int]) -> Tensor:
    """Remove axes of extent 1 from a tensor."""
    shape = tuple(extent for axis, extent in enumerate(x.shape) if axis not in axes)
    return x.seen_as(shape, removed(x.order, axes))


def _fewest(parts: Sequence[tuple[int, bool]]) -> tuple[tuple[int, ...], list[int]]:
    """Merge neighbouring axes that are all reduced or all kept; returns extents and the reduced axes."""
    found: list[tuple[int, bool]] = []
    for extent, is_reduced in parts:
        if found and found[-1][1] == is_reduced and len(parts) > MOST_AXES:
            found[-1] = found[-1][0] * extent, is_reduced
        else:
            found.append((extent, is_reduced))
    found = found or [(1, False)]
    return tuple(extent for extent, _ in found), [at for at, each in enumerate(found) if each[1]]


def chosen_axes(node: Node, rank: int, since: int = 18) -> list[int] | None:
    """The axes of a reduction; without any, all axes, or None if the reduction then does nothing."""
    axes = node.steering("axes", 1, since)
    if axes:
        return node.axes(axes, rank)
    return None if node.integer("noop_with_empty_axes") else list(range(rank))


_REDUCE: Final = {
    "ReduceMax": _O.REDUCE_MAX,
    "ReduceMean": _O.MEAN,
    "ReduceMin": _O.REDUCE_MIN,
    "ReduceProd": _O.REDUCE_PROD,
    "ReduceSum": _O.REDUCE_SUM,
}


@operator(*_REDUCE)
def _reduce(node: Node) -> None:
    x = node.graph.real(node.input())
    axes = chosen_axes(node, x.rank, 13 if node.kind == "ReduceSum" else 18)
    keep = bool(node.integer("keepdims", 1))
    if axes is None:
        node.put(x)
        return
    if x.dtype.kind == "b" and node.kind in ("ReduceMax", "ReduceMin"):
        kind = _O.REDUCE_ANY if node.kind == "ReduceMax" else _O.REDUCE_ALL
        node.put(reduced(node, kind, x, axes, keep=keep))
        return
    node.require_kind(x, "f" if node.kind not in ("ReduceMax", "ReduceMin") else "fu")
    node.put(reduced(node, _REDUCE[node.kind], x, axes, keep=keep))


_BY_PARTS: Final = ("ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp")


@operator(*_BY_PARTS)
def _reduce_by_parts(node: Node) -> None:
    x = node.real()
    axes = chosen_axes(node, x.rank)
    keep = bool(node.integer("keepdims", 1))
    if axes is None:
        axes, keep = [], True
    if node.kind == "ReduceLogSumExp":
        top = reduced(node, _O.REDUCE_MAX, x, axes, keep=True)
        total = reduced(
            node, _O.REDUCE_SUM, unary(node, _O.EXP, sub(node, x, top)), axes, keep=True
        )
        found = add(node, unary(node, _O.LOG, total), top)
        node.put(found if keep else without(found, axes))
        return
    if node.kind == "ReduceL1":
        x = unary(node, _O.ABS, x)
    elif node.kind in ("ReduceL2", "ReduceSumSquare"):
        x = mul(node, x, x)
    found = reduced(node, _O.REDUCE_SUM, x, axes, keep=keep)
    after = {"ReduceL2": _O.SQRT, "ReduceLogSum": _O.LOG}.get(node.kind)
    node.put(found if after is None else unary(node, after, found))


@operator("GlobalAveragePool", "GlobalMaxPool")
def _global_pool(node: Node) -> None:
    """Translate to a reduction over all axes behind the channels."""
    x = node.input()
    node.require_kind(x, "f")
    axes = list(range(2, x.rank))
    mean = node.kind == "GlobalAveragePool"
    into = node.quantization
    # NNAPI's MEAN keeps the step of its input. If the output has another one, that would round twice.
    is_stored = mean and x.is_quantized_real and not x.is_known
    if not is_stored or into is None or not into.matches(x.computed().type):
        x = node.graph.real(x)
    node.put(reduced(node, _O.MEAN if mean else _O.REDUCE_MAX, x, axes, keep=True))


@operator("ArgMax", "ArgMin")
def _arg(node: Node) -> None:
    """ArgMax, ArgMin: the first of equal elements; the last one by reversing the axis."""
    x = node.graph.real(node.input())
    axis = node.axis(node.integer("axis"), x.rank)
    extent = x.shape[axis]
    last = bool(node.integer("select_last_index"))
    if last:
        x = gathered(node, x, node.graph.counted(extent)[::-1], axis)
    form = along(node, x, [axis])
    kept = tuple(e for at, e in enumerate(form.value.type.dimensions) if at != form.axis)
    kind = _O.ARGMAX if node.kind == "ArgMax" else _O.ARGMIN
    value = node.emit(kind, [form.value, form.axis], TensorType(_T.TENSOR_INT32, kept or (1,)))
    shape = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    found = Tensor(shape, np.dtype(np.int64), value=value, order=form.order)
    if last:
        found = broadcast(node, _O.SUB, [constant(np.array(extent - 1, np.int64)), found], 0)
    node.put(found if node.integer("keepdims", 1) else without(found, [axis]))


@operator("TopK")
def _top_k(node: Node) -> None:
    """NNAPI's TOPK_V2 takes the largest along the last axis, and the last of equal ones; ONNX the first."""
    x = node.graph.real(node.input())
    axis = node.axis(node.integer("axis", -1), x.rank)
    count = node.integer("k") if node.version < 10 else node.integers(1, "k")[0]
    node.require(0 < count <= x.shape[axis], f"{count} of {x.shape[axis]}")
    node.require_kind(x, "fi")
    require_plain(node, x)
    largest = bool(node.integer("largest", 1))
    x = x if largest else unary(node, _O.NEG, x)
    x = gathered(node, x, node.graph.counted(x.shape[axis])[::-1], axis)
    rest = [each for each in range(x.rank) if each != axis]
    order = (*rest, axis)
    rows = math.prod(x.shape[each] for each in rest)
    value = node.graph.stored(x, order, (rows, x.shape[axis]))
    dims = (rows, count)
    values, indices = node.graph.emit_several(
        _O.TOPK_V2,
        [value, count],
        [replace(value.type, dimensions=dims), TensorType(_T.TENSOR_INT32, dims)],
    )
    shape = tuple(count if each == axis else e for each, e in enumerate(x.shape))
    top = Tensor(shape, x.dtype, value=values, order=order)
    node.put(top if largest else unary(node, _O.NEG, top))
    if node.is_used(1):
        turned = Tensor(shape, np.dtype(np.int64), value=indices, order=order)
        last = constant(np.array(x.shape[axis] - 1, np.int64))
        node.put(broadcast(node, _O.SUB, [last, turned], 0), 1)


@operator("LpNormalization")
def _lp_normalization(node: Node) -> None:
    x = node.real()
    axis = node.axis(node.integer("axis", -1), x.rank)
    if node.integer("p", 2) == 1:
        size = reduced(node, _O.REDUCE_SUM, unary(node, _O.ABS, x), [axis], keep=True)
    else:
        size = unary(
            node, _O.SQRT, reduced(node, _O.REDUCE_SUM, mul(node, x, x), [axis], keep=True)
        )
    tiny = 1e-37 if x.dtype == np.float32 else 6e-8  # a slice of zeros stays zero
    node.put(div(node, x, broadcast(node, _O.MAXIMUM, [size, filled(tiny, size)])))


@operator("CumSum")
def _cum_sum(node: Node) -> None:
    """Translate to a product with a triangular matrix of ones."""
    x = node.real()
    axis = node.axis(int(node.array(1, "axis").reshape(-1)[0]), x.rank)
    extent = x.shape[axis]
    node.require(extent <= 4096, f"an axis of {extent}")
    node.graph.budget.spend(16 * extent * extent)
    ones = np.tri(extent, k=-1 if node.integer("exclusive") else 0, dtype=x.dtype)
    ones = ones.T if node.integer("reverse") else ones
    rest = [each for each in range(x.rank) if each != axis]
    rows = math.prod(x.shape[each] for each in rest)
    value = node.graph.stored(x, (*rest, axis), (rows, extent))
    triangle = node.graph.literal(np.ascontiguousarray(ones), (extent, extent))
    bias = node.graph.literal(np.zeros(extent, x.dtype), (extent,))
    made = node.emit(_O.FULLY_CONNECTED, [value, triangle, bias, 0], value.type)
    node.result(made, x.shape, x.dtype, (*rest, axis))


# -- Normalisations --------------------------------------------------------------------------------


@operator("BatchNormalization")
def _batch_normalization(node: Node) -> None:
    """Translate to one factor and one summand for each channel."""
    x = node.real()
    node.require(
        not node.integer("training_mode") and not node.is_used(1), "it is in training mode"
    )
    node.require(node.integer("spatial", 1) == 1, "spatial is 0, expected one factor for a channel")
    scale, bias, mean, variance = (node.input(at) for at in range(1, 5))
    epsilon = node.real_number("epsilon", 1e-5)
    shape = (x.shape[1], *(1,) * (x.rank - 2)) if x.rank > 1 else (1,)
    if all(tensor.is_known for tensor in (scale, bias, mean, variance)):
        root = np.sqrt(variance.array().astype(np.float64) + epsilon)
        factor = scale.array() / root
        summand = bias.array() - mean.array() * factor
        parts = [constant(part.astype(x.dtype).reshape(shape)) for part in (factor, summand)]
        node.put(add(node, mul(node, x, parts[0]), parts[1]))
        return
    each = [seen(node, node.graph.real(tensor), shape) for tensor in (scale, bias, mean, variance)]
    if each[3].is_known:
        known = np.sqrt(each[3].array() + np.asarray(epsilon, x.dtype))
        deviation = constant(known.astype(x.dtype))
    else:
        deviation = unary(node, _O.SQRT, add(node, each[3], epsilon))
    centred = div(node, sub(node, x, each[2]), deviation)
    node.put(add(node, mul(node, centred, each[0]), each[1]))


def normalized(
    node: Node, x: Tensor, axes: Sequence[int], epsilon: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalise to mean 0 and variance 1 along axes; also returns the mean and 1 / standard deviation."""
    mean = reduced(node, _O.MEAN, x, axes, keep=True)
    centred = sub(node, x, mean)
    variance = reduced(node, _O.MEAN, mul(node, centred, centred), axes, keep=True)
    root = unary(node, _O.SQRT, add(node, variance, epsilon) if epsilon else variance)
    return div(node, centred, root), mean, root


def by_channel(node: Node, x: Tensor, position: int, rank: int) -> Tensor:
    """Reshape a factor or summand for each channel, so that it broadcasts."""
    return seen(node, node.graph.real(node.input(position)), (x.shape[1], *(1,) * (rank - 2)))


@operator("InstanceNormalization")
def _instance_normalization(node: Node) -> None:
    x = node.real()
    node.require(x.rank > 2, f"the input has {x.rank} axes, expected 3 or more")
    found, _, _ = normalized(node, x, list(range(2, x.rank)), node.real_number("epsilon", 1e-5))
    scaled = mul(node, found, by_channel(node, x, 1, x.rank))
    node.put(add(node, scaled, by_channel(node, x, 2, x.rank)))


@operator("GroupNormalization")
def _group_normalization(node: Node) -> None:
    """Normalise groups of channels, which are one axis each."""
    x, count = node.real(), node.integer("num_groups")
    node.require(
        x.rank > 2 and count > 0 and x.shape[1] % count == 0,
        f"num_groups is {count}, expected a divisor of the channels",
    )
    grouped = seen(node, x, (x.shape[0], count, x.elements // (x.shape[0] * count)))
    found, _, _ = normalized(node, grouped, [2], node.real_number("epsilon", 1e-5))
    if node.version < 21:  # one factor for each group
        scale = seen(node, node.graph.real(node.input(1)), (count, 1))
        bias = seen(node, node.graph.real(node.input(2)), (count, 1))
        node.put(seen(node, add(node, mul(node, found, scale), bias), x.shape))
        return
    whole = seen(node, found, x.shape)
    scaled = mul(node, whole, by_channel(node, x, 1, x.rank))
    node.put(add(node, scaled, by_channel(node, x, 2, x.rank)))


@operator("LayerNormalization")
def _layer_normalization(node: Node) -> None:
    x = node.real()
    axis = node.axis(node.integer("axis", -1), x.rank)
    axes = list(range(axis, x.rank))
    found, mean, root = normalized(node, x, axes, node.real_number("epsilon", 1e-5))
    found = mul(node, found, node.real(1))
    if node.optional(2) is not None:
        found = add(node, found, node.real(2))
    node.put(found)
    if node.is_used(1):
        node.put(mean, 1)
    if node.is_used(2):
        node.put(div(node, 1.0, root), 2)


@operator("RMSNormalization")
def _rms_normalization(node: Node) -> None:
    x = node.real()
    axes = list(range(node.axis(node.integer("axis", -1), x.rank), x.rank))
    squares = reduced(node, _O.MEAN, mul(node, x, x), axes, keep=True)
    root = unary(node, _O.SQRT, add(node, squares, node.real_number("epsilon", 1e-5)))
    node.put(mul(node, div(node, x, root), node.real(1)))


@operator("MeanVarianceNormalization")
def _mean_variance_normalization(node: Node) -> None:
    x = node.real()
    axes = node.axes(node.integer_list("axes", [0, 2, 3]) or [], x.rank)
    node.put(normalized(node, x, axes, 1e-9)[0])
