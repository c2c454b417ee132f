"""A bound request: the main graph over the request's memory."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from nnburst.executor.base import Argument, Execution, Outcome
from nnburst.executor.graph.arena import byte_size, carve
from nnburst.executor.graph.layout import Layout
from nnburst.executor.graph.plan import Graph, Plan, Step
from nnburst.executor.graph.tensor import Array, Tensor, TensorType, read_only
from nnburst.executor.reference.evaluator import Evaluator
from nnburst.executor.reference.frame import Frame
from nnburst.hal.diagnostics import vlog
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.errors import InvalidArgument, NnburstError
from nnburst.hal.limits import DEFAULT_LOOP_TIMEOUT_NS
from nnburst.hal.timing import OutputShape

log = logging.getLogger("nnburst.executor")

_TOO_SMALL: Final = "an output buffer is too small for what was computed"


class OutputBuffers:
    """Where the model's outputs go: the request's buffers, or private memory that is copied.

    An output that is read by an operation is computed privately, because another process may change
    the request's memory. One whose buffer is too small is computed only if another needs it.
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
        """Note the shape of output `index`; whether its elements are read."""
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
        """Copy what was computed privately to the request's buffers."""
        for target, private in self._copies.values():
            np.copyto(target, private)

    def outcome(self) -> Outcome:
        """What the execution reports, once every output has its memory."""
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
        """Note shapes of outputs; whether a result is read, or has room."""
        outputs = self._outputs
        needed = [
            i not in outputs or outputs.takes(i, m)
            for i, m in zip(step.outputs, metas, strict=True)
        ]
        return any(needed)

    def allocate(self, index: int, meta: TensorType) -> Tensor:
        """Memory for operand `index`: an output's own, or fresh."""
        if index in self._outputs:
            return Tensor(meta, self._outputs.memory(index, meta))
        return super().allocate(index, meta)


class ReferenceExecution(Execution):
    """One request bound to its memory. One thread runs it at a time.

    Model inputs that steer an operation (axes, sizes, indexes, conditions) are copied at the start
    of each run: another process may change them at any time.
    """

    def __init__(
        self,
        plan: Plan,
        layout: Layout,
        inputs: Mapping[int, TensorType | None],
        arguments: tuple[Sequence[Argument], Sequence[Argument]],
        declared: Mapping[int, TensorType],
    ) -> None:
        """Bind.

        Args:
            plan: the prepared model.
            layout: its static part for these shapes.
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
        self._refresh: list[tuple[Array, Array]] = []
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
        for private, shared in self._refresh:
            np.copyto(private, shared)
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
        if index not in graph.steering:
            return Tensor(meta, read_only(shared))
        private = shared.copy()
        self._refresh.append((private, shared))
        return Tensor(meta, read_only(private))
