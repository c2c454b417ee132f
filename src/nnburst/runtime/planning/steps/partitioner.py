"""Partitioner: from the best device of each operation to steps (RT:P10 and P11)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from nnburst.hal.enums import OperationType
from nnburst.hal.errors import GeneralFailure
from nnburst.hal.model import Operation, Subgraph
from nnburst.runtime.planning.models.finished_model import FinishedModel
from nnburst.runtime.planning.models.run_order import ReadyOperations
from nnburst.runtime.planning.plan import GotoStep, IfStep, WhileStep
from nnburst.runtime.planning.steps.step_builder import StepBuilder

#: Branches are written out at each mention, so a few nested models could ask for any number of steps.
#: DEVIATES: the original has no limit.
MAX_STEPS: Final = 65536

RawStep = StepBuilder | IfStep | WhileStep | GotoStep


class Partitioner:
    """Lays out the steps of one plan.

    Attributes:
        steps: in order; execution steps are still to be finished.
        source_models: the subgraph of each source model.
    """

    def __init__(
        self, source: FinishedModel, find: Callable[[int], Sequence[int]], interpreter: int
    ) -> None:
        """Start without steps.

        Args:
            source: the model.
            find: gives the device of each operation of a subgraph.
            interpreter: the number that stands for interpreted control flow, behind all devices.
        """
        self.steps: list[RawStep] = []
        self.source_models: list[int] = []
        self._source = source
        self._find = find
        self._interpreter = interpreter

    def lay_out_main(self, best: Sequence[int]) -> None:
        """Lay out the main model, and what it refers to."""
        self._lay_out(self._mention(0), best)

    def _mention(self, subgraph: int) -> int:
        """Number of a new source model."""
        self.source_models.append(subgraph)
        return len(self.source_models) - 1

    def _lay_out(self, source_model: int, best: Sequence[int]) -> None:
        subgraph = self.source_models[source_model]
        graph = self._source.subgraph(subgraph)
        waiting = ReadyOperations(graph.operands, graph.operations)
        queues: list[deque[int]] = [deque() for _ in range(self._interpreter + 1)]

        def enqueue(numbers: Sequence[int]) -> None:
            for number in numbers:
                queues[best[number]].append(number)

        enqueue(waiting.first)
        while (device := next((n for n in self._highest_first if queues[n]), None)) is not None:
            queue = queues[device]
            interpreted = device == self._interpreter
            step = None if interpreted else self._new_step(source_model, subgraph, device)
            while queue:
                number = queue.popleft()
                if step is None:
                    self._interpret(source_model, graph, number)
                else:
                    step.add(number)
                enqueue(waiting.done(number))

    @property
    def _highest_first(self) -> range:
        return range(self._interpreter, -1, -1)

    def _new_step(self, source_model: int, subgraph: int, device: int) -> StepBuilder:
        step = StepBuilder(self._source, self._next(), source_model, subgraph, device)
        self.steps.append(step)
        return step

    def _next(self) -> int:
        if len(self.steps) >= MAX_STEPS:
            raise GeneralFailure(f"model: its plan would have more than {MAX_STEPS} steps")
        return len(self.steps)

    def _interpret(self, source_model: int, graph: Subgraph, number: int) -> None:
        operation = graph.operations[number]
        if operation.type == OperationType.IF:
            self._lay_out_if(source_model, graph, number, operation)
        else:
            self._lay_out_while(source_model, graph, number, operation)

    def _lay_out_if(
        self, source_model: int, graph: Subgraph, number: int, operation: Operation
    ) -> None:
        condition, then, other, *outer = operation.inputs
        then_model, else_model = (self._mention(_referenced(graph, i)) for i in (then, other))
        index = self._reserve()
        then_step = self._inner(then_model)
        leave = self._reserve()
        else_step = self._inner(else_model)
        self.steps[leave] = GotoStep(leave, len(self.steps))
        inside = [
            self._source.subgraph(self.source_models[model]) for model in (then_model, else_model)
        ]
        self.steps[index] = IfStep(
            index=index,
            source_model=source_model,
            operation=number,
            condition=condition,
            then_step=then_step,
            else_step=else_step,
            then_model=then_model,
            else_model=else_model,
            outer_inputs=tuple(outer),
            outer_outputs=operation.outputs,
            then_inputs=inside[0].input_indexes,
            then_outputs=inside[0].output_indexes,
            else_inputs=inside[1].input_indexes,
            else_outputs=inside[1].output_indexes,
        )

    def _lay_out_while(
        self, source_model: int, graph: Subgraph, number: int, operation: Operation
    ) -> None:
        cond, body, *outer = operation.inputs
        cond_model, body_model = (self._mention(_referenced(graph, i)) for i in (cond, body))
        index = self._reserve()
        cond_step = self._inner(cond_model)
        decide = self._reserve()
        self.steps[decide] = GotoStep(decide, index)
        body_step = self._inner(body_model)
        again = self._reserve()
        self.steps[again] = GotoStep(again, index)
        conditions, bodies = (
            self._source.subgraph(self.source_models[model]) for model in (cond_model, body_model)
        )
        self.steps[index] = WhileStep(
            index=index,
            source_model=source_model,
            operation=number,
            cond_step=cond_step,
            body_step=body_step,
            exit_step=len(self.steps),
            cond_model=cond_model,
            body_model=body_model,
            outer_inputs=tuple(outer),
            outer_outputs=operation.outputs,
            cond_inputs=conditions.input_indexes,
            cond_output=conditions.output_indexes[0],
            body_inputs=bodies.input_indexes,
            body_outputs=bodies.output_indexes,
        )

    def _reserve(self) -> int:
        """Index of a step that is filled in when its targets are known."""
        index = self._next()
        self.steps.append(GotoStep(index, index))
        return index

    def _inner(self, source_model: int) -> int:
        """Lay out a referenced model; index of its first step."""
        first = len(self.steps)
        self._lay_out(source_model, self._find(self.source_models[source_model]))
        return first


def _referenced(graph: Subgraph, operand: int) -> int:
    """Number of the subgraph that a SUBGRAPH operand names."""
    return graph.operands[operand].location.offset + 1
