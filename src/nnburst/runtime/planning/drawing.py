"""Shows a plan as a table or as a graph."""

from __future__ import annotations

import itertools
import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from nnburst.hal.enums import OperandType, operation_name
from nnburst.hal.model import Operand, is_extension, size_bytes
from nnburst.runtime.planning.finished_model import FinishedModel
from nnburst.runtime.planning.plan import (
    CompoundPlan,
    ExecutionStep,
    GotoStep,
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


class DrawnNode(NamedTuple):
    """A node of the drawing: a main input, a main output or a step, by number."""

    kind: str
    number: int


class DrawnEdge(NamedTuple):
    """Values that flow from one node to another.

    Attributes:
        writer: the node that writes the values.
        reader: the node that reads the values.
        values: number of values.
        bytes: bytes of the values whose size is known.
        exact: whether all sizes are known.
        is_result: whether the values are the result of a branch or a loop for its IF or WHILE.
    """

    writer: DrawnNode
    reader: DrawnNode
    values: int
    bytes: int
    exact: bool
    is_result: bool = False


class Amount(NamedTuple):
    """Bytes of several operands, and whether all sizes are known."""

    bytes: int
    exact: bool

    def __str__(self) -> str:
        """The bytes with separated thousands; "+ ?" stands for unknown sizes."""
        return f"{self.bytes:,}" + ("" if self.exact else " + ?")


def amount(operands: Sequence[Operand]) -> Amount:
    """The bytes of operands together; sizes of extension types are not known here."""
    sizes = [
        0 if is_extension(o.type) else size_bytes(OperandType(o.type), o.dimensions)
        for o in operands
    ]
    return Amount(sum(sizes), all(sizes))


def operand_of(operand: SourceOperand, plan: CompoundPlan, source: FinishedModel) -> Operand:
    """The description of a source operand."""
    return source.subgraph(plan.source_models[operand.source_model]).operands[operand.operand]


def flow(plan: Plan, source: FinishedModel) -> list[DrawnEdge]:
    """All edges, one for each pair of nodes (and kind), in the order of the plan."""
    if isinstance(plan, SimplePlan):
        main = source.model.main
        step = DrawnNode(STEP, 0)
        ends = [(DrawnNode(INPUT, n), step, i) for n, i in enumerate(main.input_indexes)]
        ends += [(step, DrawnNode(OUTPUT, n), i) for n, i in enumerate(main.output_indexes)]
        return [DrawnEdge(a, b, 1, *amount([main.operands[i]])) for a, b, i in ends]
    collected: defaultdict[tuple[DrawnNode, DrawnNode, bool], list[Operand]] = defaultdict(list)
    for writer, reader, operand, is_result in _Flow(plan, source).edges:
        collected[writer, reader, is_result].append(operand_of(operand, plan, source))
    return [
        DrawnEdge(writer, reader, len(operands), *amount(operands), is_result)
        for (writer, reader, is_result), operands in collected.items()
    ]


class _Flow:
    """Collects the edges of single values.

    Attributes:
        edges: tuples of writer, reader, value, and whether the value is a result.
    """

    def __init__(self, plan: CompoundPlan, source: FinishedModel) -> None:
        self.edges: list[tuple[DrawnNode, DrawnNode, SourceOperand, bool]] = []
        self._writers: dict[SourceOperand, DrawnNode] = {}
        main = source.model.main
        for position, index in enumerate(main.input_indexes):
            self._writers[SourceOperand(0, index)] = DrawnNode(INPUT, position)
        for step in plan.steps:
            self._note_writes(step)
        for step in plan.steps:
            self._add_reads(step)
        for position, index in enumerate(main.output_indexes):
            self._read(0, [index], DrawnNode(OUTPUT, position))

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
        node = DrawnNode(STEP, step.index)
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
            self._writers[SourceOperand(model, index)] = DrawnNode(STEP, step)

    def _read(
        self, model: int, operands: Sequence[int], reader: DrawnNode, *, is_result: bool = False
    ) -> None:
        for index in operands:
            operand = SourceOperand(model, index)
            if operand in self._writers:  # constants have no writer
                self.edges.append((self._writers[operand], reader, operand, is_result))


# -- rows ------------------------------------------------------------------------------------------


#: Greatest number of kinds of operations that a row names; the rest are only counted.
_NAMED_AT_MOST: Final = 4
#: The device in rows of control flow.
INTERPRETER: Final = "interpreter"


class StepRow(NamedTuple):
    """One step as a row of the table.

    Attributes:
        step: index of the step.
        device: name of the device, or "interpreter".
        operations: kinds of operations with counts; for control flow, the targets.
        inputs: number of values that the step reads.
        outputs: number of values that the step writes.
        temporaries: number of temporaries among both.
        bytes_across: bytes of the values that other steps write or read.
    """

    step: int
    device: str
    operations: str
    inputs: int = 0
    outputs: int = 0
    temporaries: int = 0
    bytes_across: Amount = Amount(0, True)


def plan_rows(plan: Plan, source: FinishedModel) -> list[StepRow]:
    """Make a row for each step; one row for a simple plan."""
    if isinstance(plan, SimplePlan):
        main = source.model.main
        named = kinds(operation.type for operation in main.operations)
        counts = len(main.input_indexes), len(main.output_indexes)
        return [StepRow(0, plan.devices[plan.device], named, *counts)]
    return [_row(step, plan, source) for step in plan.steps]


def kinds(operations: Iterable[int]) -> str:
    """Kinds of operations, the most frequent first."""
    counted = Counter(map(operation_name, operations)).most_common()
    named = [f"{name} ×{count}" if count > 1 else name for name, count in counted]
    further = sum(count for _, count in counted[_NAMED_AT_MOST:])
    return ", ".join(named[:_NAMED_AT_MOST]) + (f" and {further} more" if further else "")


def _row(step: Step, plan: CompoundPlan, source: FinishedModel) -> StepRow:
    if isinstance(step, ExecutionStep):
        return _execution_row(step, plan, source)
    if isinstance(step, GotoStep):
        return StepRow(step.index, INTERPRETER, f"go to {step.target}")
    inputs, outputs = len(step.outer_inputs), len(step.outer_outputs)
    if isinstance(step, IfStep):
        where = f"IF: then {step.then_step}, else {step.else_step}"
        return StepRow(step.index, INTERPRETER, where, inputs + 1, outputs)
    where = f"WHILE: condition {step.cond_step}, body {step.body_step}, exit {step.exit_step}"
    return StepRow(step.index, INTERPRETER, where, inputs, outputs)


def _execution_row(step: ExecutionStep, plan: CompoundPlan, source: FinishedModel) -> StepRow:
    downstream = [step.model_outputs[position] for position in step.downstream_outputs]
    across = [*step.temps_in, *step.outputs_in, *step.temps_out, *downstream]
    operands = [
        operand_of(SourceOperand(step.source_model, pair.source), plan, source) for pair in across
    ]
    return StepRow(
        step.index,
        plan.devices[step.device],
        kinds(operation.type for operation in step.model.main.operations),
        len(step.inputs),
        len(step.outputs),
        len(step.temps_in) + len(step.temps_out),
        amount(operands),
    )


def text_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format a table whose columns are as wide as their widest entry, two spaces apart."""
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    lines = [headings, ["-" * width for width in widths], *rows]
    return "\n".join(
        "  ".join(entry.ljust(width) for entry, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


# -- table -----------------------------------------------------------------------------------------


_HEADINGS: Final = ("step", "device", "inputs", "outputs", "temporaries", "bytes across")
_NO_TIMES: Final[Mapping[int, float]] = {}
#: The space before a step's operations, and the width of their lines within 80 columns.
_INDENT: Final = "      "
_WIDTH: Final = 74


def plan_table(
    plan: Plan,
    source: FinishedModel,
    *,
    estimated: Mapping[int, float | str] = _NO_TIMES,
    measured: Mapping[int, float] = _NO_TIMES,
) -> str:
    """Format a plan as a table with a line for each step, and its operations below it.

    Args:
        plan: the plan.
        source: the model that it was made for.
        estimated: expected seconds, or a text instead, by the step's index; steps may be missing.
        measured: measured seconds by the step's index; steps may be missing.

    Returns:
        The lines, without a line end after the last. "bytes across" are the bytes of the values that other
        steps write or read; "+ ?" stands for sizes that are known only after an execution. Columns of times
        appear if a step has one.
    """
    rows = plan_rows(plan, source)
    times = {name: by for name, by in (("estimated", estimated), ("measured", measured)) if by}
    lines = []
    for row in rows:
        counts = map(str, (row.inputs, row.outputs, row.temporaries, row.bytes_across))
        took = (_milliseconds(by.get(row.step)) for by in times.values())
        lines.append([str(row.step), row.device, *counts, *took])
    heading, rule, *steps = text_table([*_HEADINGS, *times], lines).splitlines()
    below = (textwrap.indent(textwrap.fill(row.operations, _WIDTH), _INDENT) for row in rows)
    return "\n".join((heading, rule, *itertools.chain(*zip(steps, below, strict=True))))


def _milliseconds(seconds: float | str | None) -> str:
    if isinstance(seconds, str):
        return seconds
    return "-" if seconds is None else f"{1e3 * seconds:.3f} ms"


# -- graph -----------------------------------------------------------------------------------------


def plan_dot(plan: Plan, source: FinishedModel) -> str:
    """Draw a plan in the DOT language: boxes are steps, edges values, dashed edges results of branches."""
    lines = ["digraph plan {", "  rankdir=TB;", "  node [shape=box];"]
    lines += [f'  {_id(n)} [shape=ellipse, label="{_end_label(n)}"];' for n in _ends(source)]
    for row in _drawn_rows(plan, source):
        shape = ", shape=diamond" if row.device == INTERPRETER else ""
        label = "\\n".join(map(_dot_text, _label(row)))
        lines.append(f'  {_id(DrawnNode(STEP, row.step))} [label="{label}"{shape}];')
    for edge in flow(plan, source):
        style = ", style=dashed" if edge.is_result else ""
        lines.append(
            f'  {_id(edge.writer)} -> {_id(edge.reader)} [label="{_values(edge)}"{style}];'
        )
    return "\n".join([*lines, "}"])


def plan_mermaid(plan: Plan, source: FinishedModel) -> str:
    """Draw a plan as a mermaid flowchart, in the same way as `plan_dot`."""
    lines = ["flowchart TB"]
    lines += [f'  {_id(node)}(["{_end_label(node)}"])' for node in _ends(source)]
    for row in _drawn_rows(plan, source):
        opened, closed = ("{{", "}}") if row.device == INTERPRETER else ("[", "]")
        label = "<br/>".join(map(_mermaid_text, _label(row)))
        lines.append(f'  {_id(DrawnNode(STEP, row.step))}{opened}"{label}"{closed}')
    for edge in flow(plan, source):
        arrow = "-.->" if edge.is_result else "-->"
        lines.append(f'  {_id(edge.writer)} {arrow}|"{_values(edge)}"| {_id(edge.reader)}')
    return "\n".join(lines)


def _ends(source: FinishedModel) -> list[DrawnNode]:
    main = source.model.main
    return [
        *(DrawnNode(INPUT, position) for position in range(len(main.input_indexes))),
        *(DrawnNode(OUTPUT, position) for position in range(len(main.output_indexes))),
    ]


def _drawn_rows(plan: Plan, source: FinishedModel) -> list[StepRow]:
    """All rows but the jumps, whose targets stand in the rows of control flow."""
    rows = plan_rows(plan, source)
    if not isinstance(plan, CompoundPlan):
        return rows
    return [row for row in rows if not isinstance(plan.steps[row.step], GotoStep)]


def _id(node: DrawnNode) -> str:
    return f"{node.kind}{node.number}"


def _end_label(node: DrawnNode) -> str:
    return f"{'input' if node.kind == INPUT else 'output'} {node.number}"


def _label(row: StepRow) -> tuple[str, str]:
    return f"{row.step}: {row.device}", row.operations


def _values(edge: DrawnEdge) -> str:
    values = "value" if edge.values == 1 else "values"
    return f"{edge.values} {values}, {Amount(edge.bytes, edge.exact)} B"


def _dot_text(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")


def _mermaid_text(text: str) -> str:
    return text.replace("&", "#amp;").replace('"', "#quot;").replace("<", "#lt;").replace("\n", " ")
