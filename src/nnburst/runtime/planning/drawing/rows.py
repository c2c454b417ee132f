"""The rows of a plan's table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from nnburst.hal.enums import operation_name
from nnburst.runtime.planning.drawing.flow import Amount, amount, operand_of
from nnburst.runtime.planning.models.finished_model import FinishedModel
from nnburst.runtime.planning.plan import (
    CompoundPlan,
    ExecutionStep,
    GotoStep,
    IfStep,
    Plan,
    SimplePlan,
    SourceOperand,
    Step,
)

#: Kinds of operations that a row names; the rest is counted.
_NAMED_AT_MOST: Final = 4
#: What stands for a device in rows of control flow.
INTERPRETER: Final = "interpreter"


class StepRow(NamedTuple):
    """One step for people.

    Attributes:
        step: its index.
        device: name of the device, or "interpreter".
        operations: their kinds with counts; of control flow where it goes on.
        inputs: how many values it reads.
        outputs: how many values it writes.
        temporaries: how many of both are temporaries.
        bytes_across: of the values that other steps write or read.
    """

    step: int
    device: str
    operations: str
    inputs: int = 0
    outputs: int = 0
    temporaries: int = 0
    bytes_across: Amount = Amount(0, True)


def plan_rows(plan: Plan, source: FinishedModel) -> list[StepRow]:
    """A row for each step; one for a simple plan."""
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
    """Columns as wide as their widest entry, two spaces apart."""
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    lines = [headings, ["-" * width for width in widths], *rows]
    return "\n".join(
        "  ".join(entry.ljust(width) for entry, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
