"""A graph bound to its inputs: some steps bound once, the others shaped and bound before each run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

import numpy as np

from nnburst.executor.graph.arena import aligned_bytes, carve
from nnburst.executor.graph.binding import bind, compute, infer
from nnburst.executor.graph.layout import Layout
from nnburst.executor.graph.operation import Binding, Run
from nnburst.executor.graph.plan import Graph, Step
from nnburst.executor.graph.tensor import Array, Tensor, TensorType
from nnburst.hal.enums import operation_name
from nnburst.tracing.slices import Layer, Phase, traced


class FrameEvaluation(Protocol):
    """What a frame needs of the execution that it is part of."""

    deadline_ns: int | None

    def binding(self, step: Step) -> Binding:
        """What `step` is bound in."""

    def check_deadline(self) -> None:
        """Raise MissedDeadline once the execution's deadline has passed."""


class Frame:
    """The operands of one graph, and what runs its steps.

    Attributes:
        values: value of each operand that has one by now; None if it is omitted.
        declared: declarations that differ from the graph's own (outputs, by index).
        kept: operands whose values stay when no step reads them any more.
    """

    def __init__(
        self,
        graph: Graph,
        evaluator: FrameEvaluation,
        inputs: Mapping[int, Tensor | None],
        declared: Mapping[int, TensorType],
    ) -> None:
        """Start with constants and inputs; nothing is bound yet."""
        self.graph = graph
        self.evaluator = evaluator
        self.values: dict[int, Tensor | None] = {**graph.constants, **inputs}
        self.declared = dict(declared)
        self.kept: set[int] = {*graph.constants, *graph.inputs, *graph.outputs}
        self._runs: list[Run] = []

    def bind(self, layout: Layout) -> None:
        """Bind the static steps; `layout` was made for the types of the inputs.

        Raises:
            OperationFailed: a kernel refuses its operands.
        """
        arena = aligned_bytes(layout.arena_bytes)
        runs: list[Callable[[], None]] = []
        for number, step in enumerate(self.graph.steps):
            if number not in layout.steps:
                runs.append(partial(self.evaluate, number))
                continue
            if not self.is_needed(step, [layout.types[i] for i in step.outputs]):
                continue
            outputs = [self._static(arena, layout, i) for i in step.outputs]
            inputs = [self.values.get(i) for i in step.inputs]
            declared, _ = self.declarations(step)
            run = bind(step, inputs, outputs, declared, self.evaluator.binding(step))
            name = operation_name(step.type)
            runs.append(traced(run, Layer.CPU, Phase.COMPUTATION, name))
            self.values.update(zip(step.outputs, outputs, strict=True))
            self.kept.update(step.outputs)
        self._runs = runs

    def run(self) -> None:
        """Run all steps.

        Raises:
            NnburstError: one fails, or the deadline has passed; `.status` has the kind.
        """
        evaluator = self.evaluator
        if evaluator.deadline_ns is None:
            for run in self._runs:
                run()
        else:
            for run in self._runs:
                evaluator.check_deadline()
                run()

    def value(self, index: int) -> Tensor:
        """The value of an operand that an operation has written."""
        found = self.values[index]
        assert found is not None
        return found

    def evaluate(self, number: int) -> None:
        """Shape, allocate, bind and run step `number`, then drop values that are not read any more.

        Raises:
            NnburstError: it fails; `.status` has the kind.
        """
        step = self.graph.steps[number]
        inputs = [self.values.get(i) for i in step.inputs]
        declared, exact = self.declarations(step)
        binding = self.evaluator.binding(step)
        if step.definition.shape is None:
            made = compute(step, inputs, declared, exact, binding)
            if self.is_needed(step, [t.meta for t in made]):
                outputs = [
                    self.allocate(i, t.meta) for i, t in zip(step.outputs, made, strict=True)
                ]
                for target, source in zip(outputs, made, strict=True):
                    np.copyto(target.array, source.array)
                self.values.update(zip(step.outputs, outputs, strict=True))
        else:
            metas = infer(step, inputs, declared, exact)
            if self.is_needed(step, metas):
                outputs = [self.allocate(i, m) for i, m in zip(step.outputs, metas, strict=True)]
                bind(step, inputs, outputs, declared, binding)()
                self.values.update(zip(step.outputs, outputs, strict=True))
        self.release(number)

    def is_needed(self, step: Step, metas: Sequence[TensorType]) -> bool:
        """Whether results of these types have to be computed (a subclass may skip some)."""
        del step, metas
        return True

    def declarations(self, step: Step) -> tuple[list[TensorType], list[bool]]:
        """Outputs of a step as declared, and whether their quantisation must match exactly."""
        declared = [self.declared.get(i, self.graph.declared[i]) for i in step.outputs]
        return declared, [i in self.graph.outputs for i in step.outputs]

    def allocate(self, index: int, meta: TensorType) -> Tensor:
        """Memory for operand `index` (which memory may depend on the operand in a subclass)."""
        del index
        return Tensor(meta, np.empty(meta.dimensions, meta.dtype))

    def release(self, number: int) -> None:
        """Drop temporaries that no step after `number` reads."""
        for index in self.graph.steps[number].inputs:
            if self.graph.last_read[index] == number and index not in self.kept:
                self.values.pop(index, None)

    def _static(self, arena: Array, layout: Layout, index: int) -> Tensor:
        meta = layout.types[index]
        if index not in layout.offsets:
            return self.allocate(index, meta)
        return Tensor(meta, carve(arena, layout.offsets[index], meta.dimensions, meta.dtype))
