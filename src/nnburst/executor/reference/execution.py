"""Runs a bound request in numpy: the main graph, and every graph that it calls.

A `Frame` has the values of one graph and runs its steps. `MainFrame` puts results into the request's
memory; `CalledGraph` runs a branch or a body in memory of its own. `ReferenceExecution` is what the
driver runs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, Protocol

import numpy as np

from nnburst.executor.base import Argument, Execution, Outcome
from nnburst.executor.graph.binding import Layout, bind, compute, infer, lay_out
from nnburst.executor.graph.memory import Scratch, aligned_bytes, byte_size, carve
from nnburst.executor.graph.operation import Binding, Run
from nnburst.executor.graph.plan import Graph, Plan, Step
from nnburst.executor.graph.tensor import Array, Tensor, TensorType, read_only
from nnburst.hal import vlog
from nnburst.hal.enums import ErrorStatus, OperandType, operation_name
from nnburst.hal.errors import InvalidArgument, MissedDeadline, NnburstError
from nnburst.hal.limits import DEFAULT_LOOP_TIMEOUT_NS
from nnburst.hal.types import OutputShape, has_passed
from nnburst.tracing.slices import Layer, Phase, traced


class FrameEvaluation(Protocol):
    """The interface of an execution that its frames use."""

    deadline_ns: int | None

    def binding(self, step: Step) -> Binding:
        """The memory and caches that `step` is bound with."""

    def check_deadline(self) -> None:
        """Raise MissedDeadline once the execution's deadline has passed."""


class Frame:
    """One graph while it runs: the values of its operands, and its bound steps.

    Attributes:
        values: value of each operand that has one by now; None if it is omitted.
        declared: declarations of outputs that differ from the graph's own, by operand index.
        kept: operands whose values are not dropped after their last reader.
    """

    def __init__(
        self,
        graph: Graph,
        evaluator: FrameEvaluation,
        inputs: Mapping[int, Tensor | None],
        declared: Mapping[int, TensorType],
    ) -> None:
        """Start with the values of constants and inputs, and without bound steps."""
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
            NnburstError: a step fails, or the deadline has passed; `.status` has the kind.
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
            NnburstError: the step fails; `.status` has the kind.
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
        """Allocate memory for operand `index`; subclasses choose where."""
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


# -- Referenced subgraphs --------------------------------------------------------------------------


class Evaluator:
    """Scratch memory and time limits that all graphs of one execution share. For one thread."""

    def __init__(self, plan: Plan) -> None:
        """Begin an execution of `plan` without called graphs."""
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
        """The memory and caches that `step` is bound with; the scratch of the step before is reused."""
        self.scratch.reset()
        return Binding(self.scratch.allocate, step.constants, step.cache, self)

    def reaches(self, caller: int, called: int) -> bool:
        """Whether a run of referenced subgraph `caller` may run subgraph `called`, which may be the same."""
        return called in self._plan.reached_from(caller)

    def call(
        self,
        subgraph: int,
        inputs: Sequence[Tensor | None],
        outputs: Sequence[TensorType] | None = None,
    ) -> list[Tensor]:
        """Run referenced subgraph `subgraph`; its outputs keep their values until it is called again.

        The subgraph is bound once to private copies of its inputs, and again only when their types differ
        from those of the last call. No subgraph calls itself (validation:M5).
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
        """Whether a call with operands of these types can use this binding."""
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


# -- The main graph, and the request that it is bound to -------------------------------------------


log = logging.getLogger("nnburst.executor")

_TOO_SMALL: Final = "an output buffer is too small for what was computed"


class OutputBuffers:
    """Memory for the model's outputs: the request's buffers, or private memory that is copied to them.

    An output that is read by an operation is computed privately, because another process may change
    the request's memory. An output whose buffer is too small is computed only if another operation reads it.
    """

    def __init__(self, graph: Graph, arguments: Sequence[Argument]) -> None:
        """One argument per output of `graph`."""
        self._order = graph.outputs
        self._read = graph.last_read
        self._buffers = dict(zip(graph.outputs, (a.buffer for a in arguments), strict=True))
        self._shapes: dict[int, OutputShape] = {}
        self._copies: dict[int, tuple[Array, Array]] = {}

    def __contains__(self, index: int) -> bool:
        return index in self._buffers

    def takes(self, index: int, meta: TensorType) -> bool:
        """Note the shape of output `index`; True if its elements are needed."""
        room = self._buffers[index]
        sufficient = byte_size(meta.dimensions, meta.dtype) <= (0 if room is None else room.size)
        self._shapes[index] = OutputShape(meta.dimensions, sufficient)
        return sufficient or index in self._read

    def memory(self, index: int, meta: TensorType) -> Array:
        """Memory for output `index`, whose shape has been noted."""
        dtype = meta.dtype
        buffer = self._buffers[index]
        self._copies.pop(index, None)
        if buffer is None or not self._shapes[index].is_sufficient:
            return np.empty(meta.dimensions, dtype)
        target = carve(buffer, 0, meta.dimensions, dtype)
        if index not in self._read:
            return target
        private = np.empty(meta.dimensions, dtype)
        self._copies[index] = (target, private)
        return private

    def copy_back(self) -> None:
        """Copy privately computed outputs to the request's buffers."""
        for target, private in self._copies.values():
            np.copyto(target, private)

    def outcome(self) -> Outcome:
        """The outcome that the execution reports, once every output has its memory."""
        shapes = tuple(self._shapes[i] for i in self._order)
        if all(shape.is_sufficient for shape in shapes):
            return Outcome(ErrorStatus.NONE, shapes)
        return Outcome(ErrorStatus.OUTPUT_INSUFFICIENT_SIZE, shapes, _TOO_SMALL)


class MainFrame(Frame):
    """The main graph, whose outputs lie in the request's memory."""

    def __init__(
        self,
        graph: Graph,
        evaluator: Evaluator,
        inputs: Mapping[int, Tensor | None],
        declared: Mapping[int, TensorType],
        outputs: OutputBuffers,
    ) -> None:
        """Start with constants and inputs; results go to `outputs`."""
        super().__init__(graph, evaluator, inputs, declared)
        self._outputs = outputs

    def is_needed(self, step: Step, metas: Sequence[TensorType]) -> bool:
        """Note shapes of outputs; True if a result is read, or has room."""
        outputs = self._outputs
        needed = [
            i not in outputs or outputs.takes(i, m)
            for i, m in zip(step.outputs, metas, strict=True)
        ]
        return any(needed)

    def allocate(self, index: int, meta: TensorType) -> Tensor:
        """Allocate memory for operand `index`: an output's buffer, or new memory."""
        if index in self._outputs:
            return Tensor(meta, self._outputs.memory(index, meta))
        return super().allocate(index, meta)


class ReferenceExecution(Execution):
    """One request bound to its memory. One thread runs it at a time.

    Model inputs that steer an operation (axes, sizes, indexes, conditions) are copied at the start
    of each run: another process may change them at any time. So are truth values, which become 0 and 1.
    """

    def __init__(
        self,
        plan: Plan,
        layout: Layout,
        inputs: Mapping[int, TensorType | None],
        arguments: tuple[Sequence[Argument], Sequence[Argument]],
        declared: Mapping[int, TensorType],
    ) -> None:
        """Bind the request's arguments.

        Args:
            plan: the prepared model.
            layout: the static part of its main graph for these input shapes.
            inputs: type of each input by operand index; None if it is omitted.
            arguments: inputs and outputs of the request, in the model's order.
            declared: each output as declared by model and request together.

        Raises:
            NnburstError: a static operation cannot be bound.
        """
        graph = plan.main
        self._closed = False
        self._evaluator = Evaluator(plan)
        self._outputs = OutputBuffers(graph, arguments[1])
        self._refresh: list[Run] = []
        values = {
            index: self._input(graph, index, meta, argument)
            for (index, meta), argument in zip(inputs.items(), arguments[0], strict=True)
        }
        self._frame = MainFrame(graph, self._evaluator, values, declared, self._outputs)
        self._frame.bind(layout)
        bound, count = len(layout.steps), len(graph.steps)
        vlog.write("cpuexe", "bound %d of %d operations before the run", bound, count)
        static = bound == count
        self._outcome = self._outputs.outcome() if static else None

    def run(
        self,
        deadline_ns: int | None = None,
        loop_timeout_ns: int = DEFAULT_LOOP_TIMEOUT_NS,
    ) -> Outcome:
        """Execute once; see `nnburst.executor.base.Execution`."""
        if self._closed:
            return Outcome(ErrorStatus.INVALID_ARGUMENT, (), "the execution was closed")
        try:
            with np.errstate(all="ignore"):
                return self._run(deadline_ns, loop_timeout_ns)
        except NnburstError as error:
            vlog.write("cpuexe", "run: %s", error.status.name)
            return Outcome(error.status, (), str(error))
        except MemoryError:
            return Outcome(ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT, (), "out of memory")
        except Exception as error:
            log.exception("an execution raised: answered with GENERAL_FAILURE")
            return Outcome(ErrorStatus.GENERAL_FAILURE, (), f"{type(error).__name__}: {error}")

    def close(self) -> None:
        """Drop every view of the request's memory."""
        if self._closed:
            return
        self._closed = True
        del self._refresh, self._outputs, self._frame, self._evaluator

    def _run(self, deadline_ns: int | None, loop_timeout_ns: int) -> Outcome:
        evaluator = self._evaluator
        evaluator.deadline_ns = deadline_ns
        evaluator.loop_timeout_ns = loop_timeout_ns
        for refresh in self._refresh:
            refresh()
        self._frame.run()
        self._outputs.copy_back()
        return self._outcome or self._outputs.outcome()

    def _input(
        self, graph: Graph, index: int, meta: TensorType | None, argument: Argument
    ) -> Tensor | None:
        if meta is None or argument.buffer is None:
            return None
        dtype = meta.dtype
        if argument.buffer.size < byte_size(meta.dimensions, dtype):
            raise InvalidArgument(
                f"validation:R11: an input of {list(meta.dimensions)} has only {argument.buffer.size} bytes"
            )
        shared = carve(argument.buffer, 0, meta.dimensions, dtype)
        is_truth = meta.type in (OperandType.BOOL, OperandType.TENSOR_BOOL8)
        if index not in graph.steering and not is_truth:
            return Tensor(meta, read_only(shared))
        private = np.empty_like(shared)
        refresh = (
            partial(np.not_equal, shared, 0, out=private)
            if is_truth
            else partial(np.copyto, private, shared)
        )
        refresh()
        self._refresh.append(refresh)
        return Tensor(meta, read_only(private))
