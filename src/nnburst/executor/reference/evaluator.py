"""A graph being evaluated: values of its operands, and steps that shape, allocate, bind and run."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from nnburst.executor.reference.arena import Scratch
from nnburst.executor.reference.binding import bind, compute, infer
from nnburst.executor.reference.operation import Binding
from nnburst.executor.reference.plan import Graph, Plan, Step
from nnburst.executor.reference.tensor import Tensor, TensorType
from nnburst.hal.errors import MissedDeadline
from nnburst.hal.limits import DEFAULT_LOOP_TIMEOUT_NS
from nnburst.hal.operand_types import DTYPES


class Evaluator:
    """What the graphs of one execution share: scratch memory, time limits. For one thread."""

    def __init__(self, plan: Plan) -> None:
        """Evaluate graphs of `plan`."""
        self._plan = plan
        self.scratch = Scratch()
        self.deadline_ns: int | None = None
        self.loop_timeout_ns = DEFAULT_LOOP_TIMEOUT_NS

    def check_deadline(self) -> None:
        """Raise MissedDeadline once the execution's deadline has passed (CLOCK_BOOTTIME)."""
        if (
            self.deadline_ns is not None
            and time.clock_gettime_ns(time.CLOCK_BOOTTIME) >= self.deadline_ns
        ):
            raise MissedDeadline("the execution's deadline passed between two operations")

    def binding(self, step: Step) -> Binding:
        """What `step` is bound in; scratch memory of the step before is free again."""
        self.scratch.reset()
        return Binding(self.scratch.allocate, step.constants, step.cache, self)

    def call(
        self,
        subgraph: int,
        inputs: Sequence[Tensor | None],
        outputs: Sequence[TensorType] | None = None,
    ) -> list[Tensor]:
        """Run referenced subgraph `subgraph` and return its outputs in private memory."""
        graph = self._plan.referenced[subgraph]
        frame = Frame(graph, self)
        frame.values.update(zip(graph.inputs, inputs, strict=True))
        if outputs is not None:
            frame.declared.update(zip(graph.outputs, outputs, strict=True))
        for number in range(len(graph.steps)):
            frame.evaluate(number)
        return [frame.value(index) for index in graph.outputs]


class Frame:
    """The operands of one graph during one evaluation.

    Attributes:
        values: value of each operand that has one by now; None where it is omitted.
        declared: declarations that differ from the graph's own (outputs, by index).
        kept: operands whose values stay when no step reads them any more.
    """

    def __init__(self, graph: Graph, evaluator: Evaluator) -> None:
        """Start with the constants."""
        self.graph = graph
        self.evaluator = evaluator
        self.values: dict[int, Tensor | None] = dict(graph.constants)
        self.declared: dict[int, TensorType] = {}
        self.kept: set[int] = {*graph.constants, *graph.outputs}

    def value(self, index: int) -> Tensor:
        """The value of an operand that an operation has written."""
        found = self.values[index]
        assert found is not None
        return found

    def evaluate(self, number: int) -> None:
        """Shape, allocate, bind and run step `number`, then drop values that nobody reads any more.

        Raises:
            NnburstError: it fails; `.status` says as what.
        """
        self.evaluator.check_deadline()
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
        """Whether results of these types have to be computed (a subclass may know better)."""
        del step, metas
        return True

    def declarations(self, step: Step) -> tuple[list[TensorType], list[bool]]:
        """Outputs of a step as declared, and whether their quantisation must match exactly."""
        declared = [self.declared.get(i, self.graph.declared[i]) for i in step.outputs]
        return declared, [i in self.graph.outputs for i in step.outputs]

    def allocate(self, index: int, meta: TensorType) -> Tensor:
        """Memory for operand `index` (which memory may depend on the operand in a subclass)."""
        del index
        return Tensor(meta, np.empty(meta.dimensions, DTYPES[meta.type]))

    def release(self, number: int) -> None:
        """Drop temporaries that no step after `number` reads."""
        for index in self.graph.steps[number].inputs:
            if self.graph.last_read[index] == number and index not in self.kept:
                self.values.pop(index, None)
