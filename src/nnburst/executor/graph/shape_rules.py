"""Shape rules that many operations share.

Each takes a node and gives the types of its outputs, or raises OperationFailed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from nnburst.executor.graph.operation import Node
from nnburst.executor.graph.tensor import Tensor, TensorType


def require_rank_up_to_4(node: Node, *names: str) -> None:
    """Check at execution what validation could not if a rank was unknown."""
    for name in names:
        rank = len(node.tensor(name).shape)
        node.require(rank <= 4, f"operand '{name}' has rank {rank}, expected 1 to 4")


def same_shape(node: Node) -> list[TensorType]:
    """One output with the extents of the first input, quantised as declared."""
    return [node.like_declared(_first(node).shape)]


def same_shape_up_to_rank_4(node: Node) -> list[TensorType]:
    """`same_shape` for operations that take at most four dimensions."""
    require_rank_up_to_4(node, node.match.inputs[0].name)
    return same_shape(node)


def same_type(node: Node, dimensions: Sequence[int]) -> TensorType:
    """The first input's type and quantisation with other extents: a forced quantisation."""
    meta = _first(node).meta
    return TensorType(meta.type, tuple(dimensions), meta.scale, meta.zero_point)


def broadcast_dimensions(node: Node, first: str, second: str) -> tuple[int, ...]:
    """Extents of two inputs aligned at the right; an extent of 1 stretches to the other's.

    NNAPI: IndexedShapeWrapper.cpp, calculateBroadcastedShape; 1 against 0 gives 0.
    """
    a, b = node.tensor(first).shape, node.tensor(second).shape
    reversed_result = []
    for x, y in zip_longest(reversed(a), reversed(b), fillvalue=1):
        node.require(
            x == y or 1 in (x, y),
            f"operands '{first}' {list(a)} and '{second}' {list(b)} do not broadcast",
        )
        reversed_result.append(y if x == 1 else x)
    return tuple(reversed(reversed_result))


def broadcast_shape(node: Node) -> list[TensorType]:
    """One output with the broadcast extents of the first two inputs, quantised as declared."""
    first, second = (slot.name for slot in node.match.inputs[:2])
    return [node.like_declared(broadcast_dimensions(node, first, second))]


def _first(node: Node) -> Tensor:
    return node.tensor(node.match.inputs[0].name)
