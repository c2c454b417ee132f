"""What the graphs of one execution share, and how they call each other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnburst.executor.graph.arena import Scratch
from nnburst.executor.graph.layout import lay_out
from nnburst.executor.graph.operation import Binding
from nnburst.executor.graph.plan import Graph, Plan, Step
from nnburst.executor.graph.tensor import Tensor, TensorType, read_only
from nnburst.executor.reference.frame import Frame
from nnburst.hal.diagnostics import vlog
from nnburst.hal.errors import MissedDeadline
from nnburst.hal.limits import DEFAULT_LOOP_TIMEOUT_NS
from nnburst.hal.timing import has_passed


class Evaluator:
    """What the graphs of one execution share: scratch memory, time limits. For one thread."""

    def __init__(self, plan: Plan) -> None:
        """Evaluate graphs of `plan`."""
        self._plan = plan
        self._called: dict[int, CalledGraph] = {}
        self.scratch = Scratch()
        self.deadline_ns: int | None = None
        self.loop_timeout_ns = DEFAULT_LOOP_TIMEOUT_NS

    def check_deadline(self) -> None:
        """Raise MissedDeadline once the execution's deadline has passed (CLOCK_BOOTTIME)."""
        if has_passed(self.deadline_ns):
            raise MissedDeadline("the execution's deadline passed between two operations")

    def binding(self, step: Step) -> Binding:
        """What `step` is bound in; scratch memory of the step before is free again."""
        self.scratch.reset()
        return Binding(self.scratch.allocate, step.constants, step.cache, self)

    def reaches(self, caller: int, called: int) -> bool:
        """Whether running referenced subgraph `caller` may run `called`, which may be itself."""
        return called in self._plan.reached_from(caller)

    def call(
        self,
        subgraph: int,
        inputs: Sequence[Tensor | None],
        outputs: Sequence[TensorType] | None = None,
    ) -> list[Tensor]:
        """Run referenced subgraph `subgraph`; its outputs stay as they are until it is called again.

        It is bound once for the types of its inputs, to private copies of them, and again only when
        they differ from those of the last call. No subgraph calls itself (validation:M5).
        """
        called = self._called.get(subgraph)
        if called is None or not called.fits(inputs, outputs):
            graph = self._plan.referenced[subgraph]
            vlog.write("cpuexe", "subgraph %d: bound, %d operations", subgraph, len(graph.steps))
            called = self._called[subgraph] = CalledGraph(graph, self, inputs, outputs)
        return called.run(inputs)


class CalledGraph:
    """A referenced subgraph bound to private memory."""

    def __init__(
        self,
        graph: Graph,
        evaluator: Evaluator,
        inputs: Sequence[Tensor | None],
        outputs: Sequence[TensorType] | None,
    ) -> None:
        """Bind for inputs of these types.

        Raises:
            OperationFailed: an operation cannot compute these shapes.
        """
        self._types = _types(inputs)
        self._declared = None if outputs is None else tuple(outputs)
        self._copies = [None if t is None else np.empty_like(t.array, order="C") for t in inputs]
        given = {
            index: None if t is None or copy is None else Tensor(t.meta, read_only(copy))
            for index, t, copy in zip(graph.inputs, inputs, self._copies, strict=True)
        }
        declared = (
            {i: graph.declared[i] for i in graph.outputs}
            if outputs is None
            else dict(zip(graph.outputs, outputs, strict=True))
        )
        metas = dict(zip(graph.inputs, self._types, strict=True))
        self._frame = Frame(graph, evaluator, given, declared)
        self._frame.bind(lay_out(graph, metas, declared))

    def fits(self, inputs: Sequence[Tensor | None], outputs: Sequence[TensorType] | None) -> bool:
        """Whether a call with these types can use it."""
        wanted = None if outputs is None else tuple(outputs)
        return self._types == _types(inputs) and self._declared == wanted

    def run(self, inputs: Sequence[Tensor | None]) -> list[Tensor]:
        """Copy the inputs, run all steps, return the outputs."""
        for copy, given in zip(self._copies, inputs, strict=True):
            if copy is not None and given is not None:
                np.copyto(copy, given.array)
        self._frame.run()
        return [self._frame.value(index) for index in self._frame.graph.outputs]


def _types(inputs: Sequence[Tensor | None]) -> list[TensorType | None]:
    return [None if t is None else t.meta for t in inputs]
