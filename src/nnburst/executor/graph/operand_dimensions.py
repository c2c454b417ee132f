"""Requirements on the dimensions of operands, for shape rules; they name the operand that breaks them."""

from __future__ import annotations

from collections.abc import Sequence

from nnburst.executor.graph.operation import Node


def require_dimensions(node: Node, name: str, expected: Sequence[int]) -> None:
    """Refuse operand `name`, unless omitted, with other dimensions than `expected`."""
    tensor = node.find(name)
    if tensor is not None:
        node.require(
            tensor.shape == tuple(expected),
            f"operand '{name}' has dimensions {list(tensor.shape)}, expected {list(expected)}",
        )


def require_rank(node: Node, name: str, rank: int) -> tuple[int, ...]:
    """Dimensions of operand `name`, which must have `rank` of them."""
    shape = node.tensor(name).shape
    node.require(len(shape) == rank, f"operand '{name}' has rank {len(shape)}, expected {rank}")
    return shape
