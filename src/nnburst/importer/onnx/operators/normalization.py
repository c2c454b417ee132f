"""Normalisation: by numbers that are known, or by those of the tensor itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnburst.hal.enums import OperationType
from nnburst.importer.onnx.node import Node, operator
from nnburst.importer.onnx.operators.activation import add, div, mul, sub
from nnburst.importer.onnx.operators.elementwise import unary
from nnburst.importer.onnx.operators.reduction import reduced
from nnburst.importer.onnx.operators.shape import seen
from nnburst.importer.onnx.tensor import Tensor, constant

_O = OperationType


@operator("BatchNormalization")
def _batch_normalization(node: Node) -> None:
    """One factor and one summand for each channel."""
    x = node.real()
    node.require(
        not node.integer("training_mode") and not node.is_used(1), "it is in training mode"
    )
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
    """A tensor with mean 0 and variance 1 along axes; the mean; one over the standard deviation."""
    mean = reduced(node, _O.MEAN, x, axes, keep=True)
    centred = sub(node, x, mean)
    variance = reduced(node, _O.MEAN, mul(node, centred, centred), axes, keep=True)
    root = unary(node, _O.SQRT, add(node, variance, epsilon) if epsilon else variance)
    return div(node, centred, root), mean, root


def by_channel(node: Node, x: Tensor, position: int, rank: int) -> Tensor:
    """A factor or summand for each channel, to be broadcast."""
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
    """Groups of channels as one axis."""
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
