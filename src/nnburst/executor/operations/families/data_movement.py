"""What operations that only move elements accept: ranks, axes, extents, equal quantisation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from nnburst.executor.graph.operation import Node
from nnburst.executor.graph.tensor import TensorType
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.model import Operand
from nnburst.hal.signature import Match

UP_TO_4: Final = (1, 2, 3, 4)


def moved(node: Node, dimensions: Sequence[int], index: int = 0) -> TensorType:
    """Output `index` with the quantisation of operand 'input' forced on it."""
    meta = node.tensor("input").meta
    kind = node.declared(index).type
    return TensorType(kind, tuple(dimensions), meta.scale, meta.zero_point, meta.extra_params)


def control_values(
    node: Node, name: str, length: int | None = None, most: int | None = None
) -> list[int]:
    """Values of a CONTROL tensor, which must be one-dimensional.

    Args:
        node: the operation.
        name: the operand.
        length: how many elements it must have.
        most: how many elements it may have.
    """
    found = node.tensor(name)
    node.require(len(found.shape) == 1, f"operand '{name}' has shape {found.shape}, not rank 1")
    (size,) = found.shape
    node.require(
        length is None or size == length, f"operand '{name}' has {size} elements, expected {length}"
    )
    node.require(
        most is None or size <= most, f"operand '{name}' has {size} elements, at most {most} fit"
    )
    return [int(v) for v in found.numbers]


def resolve_axis(node: Node, name: str, rank: int) -> int:
    """Value of the axis scalar `name` in [0, rank); the operand may count from the end."""
    axis = int(node.value(name))
    node.require(
        -rank <= axis < rank, f"operand '{name}' is {axis}, expected [{-rank}, {rank - 1}]"
    )
    return axis % rank


def require_ranks(node: Node) -> None:
    """Fail if a shape known only at execution breaks the rank that its slot accepts."""
    for slot, tensor in zip(node.match.inputs, node.inputs, strict=True):
        if slot.rank and tensor is not None:
            node.require(
                len(tensor.shape) in slot.rank,
                f"operand '{slot.name}' has rank {len(tensor.shape)},"
                f" expected {' or '.join(map(str, slot.rank))}",
            )


def check_same_quantization(
    match: Match, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> None:
    """validation:P4: every operand 'input' has the scale and zero point of the output."""
    wanted = outputs[0].scale, outputs[0].zero_point
    for slot, operand in zip(match.inputs, inputs, strict=True):
        if slot.name == "input" and (operand.scale, operand.zero_point) != wanted:
            raise InvalidArgument(
                f"validation:P4: operand 'input' has scale {operand.scale} and zero point"
                f" {operand.zero_point}, the output {wanted[0]} and {wanted[1]}"
            )


def check_output_rank(
    match: Match, inputs: Sequence[Operand], outputs: Sequence[Operand], added: int = 0
) -> None:
    """validation:P4: the output has the rank of every operand 'input' plus `added`, if ranks are known."""
    wanted = len(outputs[0].dimensions)
    for slot, operand in zip(match.inputs, inputs, strict=True):
        rank = len(operand.dimensions)
        if slot.name == "input" and rank and wanted and rank + added != wanted:
            raise InvalidArgument(
                f"validation:P4: operand 'output' has rank {wanted}, expected {rank + added}"
            )
