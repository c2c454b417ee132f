"""Which step inputs and outputs a memory becomes that is a main input or output (RT:P20)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from nnburst.runtime.planning.plan import (
    Direction,
    ExecutionStep,
    IfStep,
    SourceOperand,
    Step,
    StepRole,
    WhileStep,
)


class StepRoles:
    """Roles of every operand of a plan."""

    def __init__(self, steps: Sequence[Step]) -> None:
        """Collect direct roles, and which operands stand for which through interpreted control flow."""
        self._direct: defaultdict[SourceOperand, list[StepRole]] = defaultdict(list)
        self._inner: defaultdict[SourceOperand, list[SourceOperand]] = defaultdict(list)
        for step in steps:
            if isinstance(step, ExecutionStep):
                self._add_step(step)
            elif isinstance(step, IfStep):
                self._add_if(step)
            elif isinstance(step, WhileStep):
                self._add_while(step)

    def of(self, operand: SourceOperand) -> tuple[StepRole, ...]:
        """All roles of an operand, sorted."""
        found: set[StepRole] = set()
        seen = {operand}
        waiting = [operand]
        while waiting:
            current = waiting.pop()
            found.update(self._direct.get(current, ()))
            further = set(self._inner.get(current, ())) - seen
            seen |= further
            waiting += further
        return tuple(sorted(found, key=lambda role: (role.step, role.direction.value, role[2])))

    def _add_step(self, step: ExecutionStep) -> None:
        for direction, pairs in (
            (Direction.INPUT, step.inputs),
            (Direction.OUTPUT, step.outputs),
        ):
            for position, pair in enumerate(pairs):
                operand = SourceOperand(step.source_model, pair.source)
                self._direct[operand].append(StepRole(step.index, direction, position))

    def _add_if(self, step: IfStep) -> None:
        for model, inputs, outputs in (
            (step.then_model, step.then_inputs, step.then_outputs),
            (step.else_model, step.else_inputs, step.else_outputs),
        ):
            self._stand_for(step.source_model, step.outer_inputs, model, inputs)
            self._stand_for(step.source_model, step.outer_outputs, model, outputs)

    def _add_while(self, step: WhileStep) -> None:
        cond, body = step.cond_model, step.body_model
        self._stand_for(step.source_model, step.outer_inputs, cond, step.cond_inputs)
        self._stand_for(body, step.body_outputs, cond, step.cond_inputs)
        self._stand_for(cond, step.cond_inputs, body, step.body_inputs)

    def _stand_for(
        self, outer_model: int, outer: Sequence[int], inner_model: int, inner: Sequence[int]
    ) -> None:
        for outside, inside in zip(outer, inner, strict=False):
            self._inner[SourceOperand(outer_model, outside)].append(
                SourceOperand(inner_model, inside)
            )
