"""Which steps of a model can be bound once for given input shapes, and where their results lie."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from nnburst.executor.graph.arena import Block, plan
from nnburst.executor.graph.binding import infer
from nnburst.executor.graph.plan import Graph, Step
from nnburst.executor.graph.tensor import Tensor, TensorType


class Layout(msgspec.Struct, frozen=True):
    """The static part of a graph for one set of input shapes. Immutable; bindings share it.

    Attributes:
        steps: numbers of the steps whose operands' shapes and CONTROL values are all known.
        types: type of each operand that they write.
        offsets: place in the arena of each temporary that they write.
        arena_bytes: size of the arena.
    """

    steps: frozenset[int]
    types: Mapping[int, TensorType]
    offsets: Mapping[int, int]
    arena_bytes: int


def lay_out(
    graph: Graph,
    inputs: Mapping[int, TensorType | None],
    outputs: Mapping[int, TensorType],
) -> Layout:
    """Infer shapes as far as they do not depend on run-time values, and plan the arena.

    Args:
        graph: the main graph.
        inputs: type of each of its inputs by operand index; None if it is omitted.
        outputs: each of its outputs as declared by model and request together.

    Raises:
        OperationFailed: an operation cannot compute these shapes.
    """
    known: dict[int, Tensor | TensorType | None] = {**graph.constants, **inputs}
    known.update(dict.fromkeys(_without_value(graph, known)))
    types: dict[int, TensorType] = {}
    steps = []
    for number, step in enumerate(graph.steps):
        if not _is_static(step, known):
            continue
        declared = [outputs.get(i, graph.declared[i]) for i in step.outputs]
        exact = [i in outputs for i in step.outputs]
        found = infer(step, [known[i] for i in step.inputs], declared, exact)
        steps.append(number)
        types.update(zip(step.outputs, found, strict=True))
        known.update(zip(step.outputs, found, strict=True))
    offsets, total = _place(graph, steps, types, outputs)
    return Layout(frozenset(steps), types, offsets, total)


def _without_value(graph: Graph, known: Mapping[int, object]) -> list[int]:
    written = {i for step in graph.steps for i in step.outputs}
    return [i for i in graph.last_read if i not in known and i not in written]


def _is_static(step: Step, known: Mapping[int, object]) -> bool:
    if step.definition.shape is None or not all(i in known for i in step.inputs):
        return False
    return all(at in step.constants or known[step.inputs[at]] is None for at in step.controls)


def _place(
    graph: Graph,
    steps: list[int],
    types: Mapping[int, TensorType],
    outputs: Mapping[int, TensorType],
) -> tuple[dict[int, int], int]:
    indexes = []
    blocks = []
    for number in steps:
        for index in graph.steps[number].outputs:
            if index not in outputs:
                meta = types[index]
                size = meta.byte_size
                indexes.append(index)
                blocks.append(Block(size, number, graph.last_read.get(index, number)))
    offsets, total = plan(blocks)
    return dict(zip(indexes, offsets, strict=True)), total
