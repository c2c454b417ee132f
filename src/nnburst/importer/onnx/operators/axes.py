"""Operations along some axes: the axes as one, the others before and behind it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from nnburst.importer.onnx.graph import MOST_AXES
from nnburst.importer.onnx.layout import Order, Shape, identity
from nnburst.importer.onnx.node import Node
from nnburst.importer.onnx.tensor import Tensor
from nnburst.importer.subgraph import Value


@dataclass(frozen=True, slots=True)
class Along:
    """A tensor in a form in which some axes are one.

    Attributes:
        value: the operand.
        axis: which of its axes they are.
        tensor: what it was.
        order: in which it is stored.
    """

    value: Value
    axis: int
    tensor: Tensor
    order: Order

    def restored(self, value: Value) -> Tensor:
        """A result of the same form as the tensor that it was made from."""
        return Tensor(self.tensor.shape, self.tensor.dtype, value=value, order=self.order)


def with_neighbours(order: Order, axes: Sequence[int]) -> Order:
    """An order in which axes lie side by side, the outer one first, with the least that moves."""
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
        node: is translated.
        tensor: of any form.
        axes: ascending, neighbours in the file's order.
        keep: whether to keep the operand's own axes if there are few enough, and only one is wanted.
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
