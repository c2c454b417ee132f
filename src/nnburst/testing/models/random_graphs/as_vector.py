"""A random graph, or a part of it, as a conformance vector."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from nnburst.hal.enums import OperandType
from nnburst.testing.conformance.vectors import (
    ChannelQuant,
    Tolerance,
    Vector,
    VectorGraph,
    VectorOperand,
    VectorOperation,
)
from nnburst.testing.models.random_graphs.builder import RandomGraph, RandomOperand, RandomOperation

_NO_INPUT: Final = ("constant", "no_value")


class Part(NamedTuple):
    """Some operations of a graph and the operands around them, by index."""

    operations: list[RandomOperation]
    used: list[int]
    written: set[int]
    inputs: list[int]
    outputs: list[int]


def cut(graph: RandomGraph, keep: Sequence[int]) -> Part:
    """The part of a graph with these operations (numbers, ascending).

    What the others computed is an input, and what is not read any more an output.
    """
    operations = [graph.operations[i] for i in keep]
    written = {i for o in operations for i in o.outputs}
    read = {i for o in operations for i in o.inputs}
    used = sorted(written | read)
    inputs = [i for i in used if i not in written and graph.operands[i].source not in _NO_INPUT]
    outputs = [i for i in used if i in written and (i in graph.outputs or i not in read)]
    return Part(operations, used, written, inputs, outputs)


def as_vector(
    graph: RandomGraph, keep: Sequence[int] | None = None, tolerance: Tolerance | None = None
) -> Vector:
    """The vector of a graph, with the naively computed values as expected results.

    Args:
        graph: the graph.
        keep: numbers of the operations to keep (see `cut`); all unless given.
        tolerance: how the vector has results compared (by default as other vectors do).
    """
    part = cut(graph, range(len(graph.operations)) if keep is None else keep)
    place = {old: new for new, old in enumerate(part.used)}
    buffers: list[bytes] = []
    operands = []
    for index in part.used:
        lifetime = _lifetime(graph, index, part)
        data = None
        if lifetime not in ("TEMPORARY_VARIABLE", "NO_VALUE"):
            data = len(buffers)
            buffers.append(graph.operands[index].value.array.tobytes())
        consumers = sum(o.inputs.count(index) for o in part.operations)
        operands.append(_operand(index, graph.operands[index], lifetime, consumers, data))
    return Vector(
        name=graph.name,
        spec=graph.name,
        folder="random",
        main=VectorGraph(
            tuple(operands),
            tuple(_operation(o, place) for o in part.operations),
            tuple(place[i] for i in part.inputs),
            tuple(place[i] for i in part.outputs),
        ),
        tolerance=tolerance or Tolerance(),
        buffers=tuple(buffers),
    )


def _lifetime(graph: RandomGraph, index: int, part: Part) -> str:
    if index in part.inputs:
        return "SUBGRAPH_INPUT"
    if index in part.outputs:
        return "SUBGRAPH_OUTPUT"
    if graph.operands[index].source == "no_value":
        return "NO_VALUE"
    return "TEMPORARY_VARIABLE" if index in part.written else "CONSTANT_COPY"


def _operand(
    index: int, operand: RandomOperand, lifetime: str, consumers: int, data: int | None
) -> VectorOperand:
    # Results are compared with the dimensions of outputs, and requests pass those of inputs.
    is_open = lifetime == "TEMPORARY_VARIABLE" or not operand.value.array.size
    meta = operand.value.meta
    by_channel = operand.kind is OperandType.TENSOR_QUANT8_SYMM_PER_CHANNEL
    return VectorOperand(
        name=f"op{index}",
        type=operand.kind.name,
        dimensions=operand.declared if is_open else operand.value.dimensions,
        scale=meta.scale,
        zero_point=meta.zero_point,
        lifetime=lifetime,
        number_of_consumers=consumers,
        channel_quant=ChannelQuant(meta.scales, meta.channel) if by_channel else None,
        data=data,
    )


def _operation(operation: RandomOperation, place: dict[int, int]) -> VectorOperation:
    return VectorOperation(
        operation.kind.name,
        tuple(place[i] for i in operation.inputs),
        tuple(place[i] for i in operation.outputs),
    )
