"""Which values flow between the steps of a plan, for tables and graphs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from nnburst.hal.enums import OperandType
from nnburst.hal.model import Operand
from nnburst.hal.operand_types import is_extension, size_bytes
from nnburst.runtime.planning.models.finished_model import FinishedModel
from nnburst.runtime.planning.plan import (
    CompoundPlan,
    ExecutionStep,
    IfStep,
    Plan,
    SimplePlan,
    SourceOperand,
    Step,
    WhileStep,
)

INPUT = "in"
OUTPUT = "out"
STEP = "step"


class Node(NamedTuple):
    """A main input, a main output or a step, by number."""

    kind: str
    number: int


class Edge(NamedTuple):
    """Values that flow from one node to another.

    Attributes:
        writer: where they come from.
        reader: where they go.
        values: how many.
        bytes: of those whose size is known.
        exact: whether all sizes are known.
        is_result: they are what a branch or a loop gives back to its IF or WHILE.
    """

    writer: Node
    reader: Node
    values: int
    bytes: int
    exact: bool
    is_result: bool = False


class Amount(NamedTuple):
    """Bytes of several operands, and whether all sizes are known."""

    bytes: int
    exact: bool

    def __str__(self) -> str:
        """With thousands apart; "+ ?" for what is not known."""
        return f"{self.bytes:,}" + ("" if self.exact else " + ?")


def amount(operands: Sequence[Operand]) -> Amount:
    """The bytes of operands together; an extension's type has no size that is known here."""
    sizes = [
        0 if is_extension(o.type) else size_bytes(OperandType(o.type), o.dimensions)
        for o in operands
    ]
    return Amount(sum(sizes), all(sizes))


def operand_of(operand: SourceOperand, plan: CompoundPlan, source: FinishedModel) -> Operand:
    """A source operand's description."""
    return source.subgraph(plan.source_models[operand.source_model]).operands[operand.operand]


def flow(plan: Plan, source: FinishedModel) -> list[Edge]:
    """All edges, one for each pair of nodes (and kind), in the order of the plan."""
    if isinstance(plan, SimplePlan):
        main = source.model.main
        step = Node(STEP, 0)
        ends = [(Node(INPUT, n), step, i) for n, i in enumerate(main.input_indexes)]
        ends += [(step, Node(OUTPUT, n), i) for n, i in enumerate(main.output_indexes)]
        return [Edge(a, b, 1, *amount([main.operands[i]])) for a, b, i in ends]
    collected: defaultdict[tuple[Node, Node, bool], list[Operand]] = defaultdict(list)
    for writer, reader, operand, is_result in _Flow(plan, source).edges:
        collected[writer, reader, is_result].append(operand_of(operand, plan, source))
    return [
        Edge(writer, reader, len(operands), *amount(operands), is_result)
        for (writer, reader, is_result), operands in collected.items()
    ]


class _Flow:
    """Collects single values.

    Attributes:
        edges: writer, reader, the value, whether it is a result.
    """

    def __init__(self, plan: CompoundPlan, source: FinishedModel) -> None:
        self.edges: list[tuple[Node, Node, SourceOperand, bool]] = []
        self._writers: dict[SourceOperand, Node] = {}
        main = source.model.main
        for position, index in enumerate(main.input_indexes):
            self._writers[SourceOperand(0, index)] = Node(INPUT, position)
        for step in plan.steps:
            self._note_writes(step)
        for step in plan.steps:
            self._add_reads(step)
        for position, index in enumerate(main.output_indexes):
            self._read(0, [index], Node(OUTPUT, position))

    def _note_writes(self, step: Step) -> None:
        if isinstance(step, ExecutionStep):
            self._write(step.source_model, [pair.source for pair in step.outputs], step.index)
        elif isinstance(step, IfStep):
            self._write(step.source_model, step.outer_outputs, step.index)
            self._write(step.then_model, step.then_inputs, step.index)
            self._write(step.else_model, step.else_inputs, step.index)
        elif isinstance(step, WhileStep):
            self._write(step.source_model, step.outer_outputs, step.index)
            self._write(step.cond_model, step.cond_inputs, step.index)
            self._write(step.body_model, step.body_inputs, step.index)

    def _add_reads(self, step: Step) -> None:
        node = Node(STEP, step.index)
        if isinstance(step, ExecutionStep):
            self._read(step.source_model, [pair.source for pair in step.inputs], node)
        elif isinstance(step, IfStep):
            self._read(step.source_model, [step.condition, *step.outer_inputs], node)
            self._read(step.then_model, step.then_outputs, node, is_result=True)
            self._read(step.else_model, step.else_outputs, node, is_result=True)
        elif isinstance(step, WhileStep):
            self._read(step.source_model, step.outer_inputs, node)
            self._read(step.cond_model, [step.cond_output], node, is_result=True)
            self._read(step.body_model, step.body_outputs, node, is_result=True)

    def _write(self, model: int, operands: Sequence[int], step: int) -> None:
        for index in operands:
            self._writers[SourceOperand(model, index)] = Node(STEP, step)

    def _read(
        self, model: int, operands: Sequence[int], reader: Node, *, is_result: bool = False
    ) -> None:
        for index in operands:
            operand = SourceOperand(model, index)
            if operand in self._writers:  # constants have no writer
                self.edges.append((self._writers[operand], reader, operand, is_result))
