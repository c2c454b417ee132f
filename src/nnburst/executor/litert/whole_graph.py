"""Checks whole .tflite graphs of clients, compares them with their declarations, and runs them.

libLiteRt.so gives wrong numbers, and no error, for an output whose extents a run finds out. So it runs graphs
whose extents are all known before (`TfliteGraph.is_fixed`), without Python and on memory where it lies; the
wheel's Interpreter runs the others, and each argument is copied. It also runs requests of other extents than
the file suggests, if it leaves some open.
"""

from __future__ import annotations

import functools
import logging
import math
import threading
from collections.abc import Callable, Sequence
from typing import Final

from nnburst.executor.base import Argument, Cached, Execution, Outcome, Prepared
from nnburst.executor.graph.whole_graph import Apart, GraphTensor, WholeGraph, check_declared
from nnburst.executor.litert import native
from nnburst.executor.litert.engines import (
    MAX_ENGINES,
    Engines,
    LiteRtExecution,
    outcome_of,
    room_for,
)
from nnburst.executor.litert.interpreter import ExternalDelegate, GraphCall, GraphInterpreter
from nnburst.executor.litert.slots import SlotExecution, Slots
from nnburst.formats.tflite_graph import BorderTensor, TfliteGraph, read_graph
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.errors import GeneralFailure, InvalidArgument
from nnburst.hal.limits import DEFAULT_LOOP_TIMEOUT_NS
from nnburst.hal.model import Model
from nnburst.hal.types import OutputShape, has_passed
from nnburst.hal.whole_graph import BY_TFLITE, TFLITE

log = logging.getLogger("nnburst.executor")

_TITLE: Final = "litert: whole graph"


class InterpretedExecution(Execution):
    """A request bound to an interpreter. One thread runs it at a time."""

    def __init__(
        self, call: GraphCall, declared: Sequence[tuple[int, ...]], release: Callable[[], None]
    ) -> None:
        """Own `call`, whose outputs were `declared` with extents; call `release` when it is closed."""
        self._call: GraphCall | None = call
        self._declared = declared
        self._release = release

    def run(
        self,
        deadline_ns: int | None = None,
        loop_timeout_ns: int = DEFAULT_LOOP_TIMEOUT_NS,  # noqa: ARG002 - loops are the graph's own
    ) -> Outcome:
        """Execute once; see `nnburst.executor.base.Execution`."""
        if self._call is None:
            return Outcome(ErrorStatus.INVALID_ARGUMENT, (), "the execution was closed")
        if has_passed(deadline_ns):
            return Outcome(ErrorStatus.MISSED_DEADLINE_PERSISTENT, (), "the deadline has passed")
        failure = self._call.run()
        if failure:
            return Outcome(ErrorStatus.GENERAL_FAILURE, (), f"LiteRT: {failure}")
        return outcome_of(self._call.shapes, self._declared)

    def close(self) -> None:
        """Let go of the engine and of the request's memory."""
        call, self._call = self._call, None
        if call is not None:
            call.close()
            self._release()


class TflitePrepared(Prepared):
    """A whole graph. `bind` may be called from several threads at once.

    A graph that keeps state has one engine, so its executions take turns and each goes on where the last one
    ended, or one for each slot, if the client asks for them; any other has one for each thread that computes.
    """

    def __init__(
        self,
        model: Model,
        graph: WholeGraph,
        num_threads: int,
        delegate: ExternalDelegate | None = None,
    ) -> None:
        """Check the file, compare it with what the client declares, and make the first engine.

        Args:
            model: the client's.
            graph: as it came from the client.
            num_threads: that compute.
            delegate: that takes the operators that it can; then one Interpreter is the only road.

        Raises:
            InvalidArgument: the file is not intact, names another one, is not what the client declares, or
                the engine refuses it.
        """
        if graph.files:
            raise InvalidArgument(f"{TFLITE}: {len(graph.files)} other files, expected none")
        if graph.params.states:
            raise InvalidArgument(f"{TFLITE}: a file keeps its own states, and has no others")
        read = read_graph(graph.content)
        if graph.params.keeps and not read.keeps_state:
            raise InvalidArgument(f"{TFLITE}: slots for a file without variables")
        self.num_threads = num_threads
        self._model, self._graph, self._content = model, graph, read.content
        self._inputs = [_known("input", tensor) for tensor in read.inputs]
        self._outputs = [_known("output", tensor) for tensor in read.outputs]
        # Resized variables would begin anew.
        self._open = [
            known._replace(extents=known.extents if read.keeps_state else tensor.signature)
            for known, tensor in zip(self._inputs, read.inputs, strict=True)
        ]
        self._check_declared()
        self._delegate = delegate
        self._most = 1 if read.keeps_state or delegate is not None else MAX_ENGINES
        self._lock = threading.Lock()
        self._interpreters: Engines | None = None
        self._slots: Slots | None = None
        self._fixed = self._by_library(read, self._most)
        if self._fixed is None:
            first = self._first_interpreter(read)
            if graph.params.keeps:
                self._slots = Slots(self._interpreter, first)
            else:
                ready = [first]
                self._interpreters = Engines(
                    lambda: ready.pop() if ready else self._interpreter(), self._most
                )

    def bind(self, inputs: Sequence[Argument], outputs: Sequence[Argument]) -> Execution:
        """Bind memory; see `nnburst.executor.base.Prepared`."""
        count = len(self._inputs) + (self._slots is not None)
        if len(inputs) != count or len(outputs) != len(self._outputs):
            raise InvalidArgument(
                f"validation:R1: {len(inputs)} inputs and {len(outputs)} outputs given, the graph has"
                f" {count} and {len(self._outputs)}"
            )
        found = [_input(*each) for each in zip(inputs, self._open, strict=False)]
        if self._slots is not None:
            return SlotExecution(self._slots, inputs[-1], found, outputs)
        given, extents = [memory for memory, _ in found], tuple(extents for _, extents in found)
        is_suggested = all(
            have == tensor.extents for have, tensor in zip(extents, self._inputs, strict=True)
        )
        if self._fixed is None or not is_suggested:
            rooms = [room.memory for room in outputs]
            binding, release = self._interpreting().bind(given, rooms)
            assert isinstance(binding, GraphCall)
            binding.extents = extents
            return InterpretedExecution(binding, [room.dimensions for room in outputs], release)
        taken = [
            room_for(argument, slot.dimensions or (1,), slot.size)
            for argument, slot in zip(outputs, self._fixed, strict=True)
        ]
        shapes = tuple(
            OutputShape(slot.dimensions or (1,), room is not None)
            for room, slot in zip(taken, self._fixed, strict=True)
        )
        native_binding, release = self._engines.bind(given, taken)
        return LiteRtExecution(native_binding, shapes, release)

    def to_cache(self) -> Cached:
        """The graph's bytes: the engine compiles them again."""
        return Cached(self._model, self._graph.pack())

    def close(self) -> None:
        """Free the engines."""
        if self._fixed is not None:
            self._engines.close()
        if self._interpreters is not None:
            self._interpreters.close()
        if self._slots is not None:
            self._slots.close_all()

    def _check_declared(self) -> None:
        # Extents of outputs in files are often wrong: only the engine's count.
        unknown = [tensor._replace(extents=None) for tensor in self._outputs]
        check_declared(self._model, self._graph, self._open, unknown)

    def _interpreting(self) -> Engines:
        """Engines whose inputs may get other extents; made when the first request needs one."""
        with self._lock:
            if self._interpreters is None:
                self._interpreters = Engines(self._interpreter, self._most)
            return self._interpreters

    def _interpreter(self) -> GraphInterpreter:
        return GraphInterpreter(
            self._content, self._inputs, self._outputs, self.num_threads, self._delegate
        )

    def _first_interpreter(self, read: TfliteGraph) -> GraphInterpreter:
        """The first engine of a graph that the library does not run, or not by slots."""
        first = self._interpreter()
        if read.is_fixed:  # else the interpreter has extents of the file, which a run may change
            found = [
                tensor._replace(extents=each)
                for tensor, each in zip(self._outputs, first.output_extents, strict=True)
            ]
            check_declared(self._model, self._graph, self._open, found)
        return first

    def _by_library(self, read: TfliteGraph, most: int) -> tuple[native.Slot, ...] | None:
        """Make the engines by the library, if it can: the outputs' slots."""
        if self._graph.params.keeps or not read.is_fixed or self._delegate is not None:
            return None
        if not native.available():
            return None
        given = _slots(self._inputs, Apart.of_input)
        taken = _slots(self._outputs, Apart.of_output)
        if given is None or taken is None:
            return None
        try:
            first = native.NativeEngine(
                native.EngineProgram(read.content, given, taken), self.num_threads, _TITLE
            )
            extents = first.output_extents()
        except GeneralFailure as error:
            log.info("the Interpreter runs a graph that libLiteRt.so refuses: %s", error)
            return None
        if any(min(each, default=1) < 1 for each in extents):
            return None
        found = [
            tensor._replace(extents=each)
            for tensor, each in zip(self._outputs, extents, strict=True)
        ]
        check_declared(self._model, self._graph, self._open, found)
        actual = _slots(found, Apart.of_output)
        if actual is None:
            return None
        program = native.EngineProgram(read.content, given, actual)
        make = functools.partial(native.NativeEngine, program, self.num_threads, _TITLE)
        ready = [first] if actual == taken else []
        self._engines = Engines(lambda: ready.pop() if ready else make(), most)
        return actual


def _known(side: str, tensor: BorderTensor) -> GraphTensor:
    element = BY_TFLITE.get(tensor.type)
    if element is None:
        raise InvalidArgument(
            f"{side} {tensor.name!r} is {tensor.type}: {TFLITE} has tensors of numbers"
        )
    if side == "input" and min(tensor.extents, default=1) < 1:
        raise InvalidArgument(
            f"input {tensor.name!r} is {list(tensor.extents)}, expected extents above 0"
        )
    return GraphTensor(tensor.name, element, tensor.extents)


def _slots(
    tensors: Sequence[GraphTensor], apart: Callable[..., Apart]
) -> tuple[native.Slot, ...] | None:
    """Their slots; None if the library cannot have one."""
    found = [native.graph_slot(t.element, t.extents or (), apart(t.element)) for t in tensors]
    return None if None in found else tuple(slot for slot in found if slot is not None)


def _input(argument: Argument, tensor: GraphTensor) -> tuple[memoryview, tuple[int, ...]]:
    """Its bytes and extents."""
    if argument.memory is None:
        raise GeneralFailure(f"input {tensor.name!r} is omitted")
    wanted = tensor.extents or (1,)
    fits = len(argument.dimensions) == len(wanted) and all(
        have > 0 and want in (-1, have)
        for have, want in zip(argument.dimensions, wanted, strict=True)
    )
    if not fits:
        raise InvalidArgument(
            f"input {tensor.name!r} has extents {argument.dimensions}, the graph {wanted}"
        )
    extents = argument.dimensions if tensor.extents else ()
    size = math.prod(extents) * tensor.element.size
    if argument.memory.nbytes < size:
        raise InvalidArgument(
            f"validation:R11: an input of {size} bytes has only {argument.memory.nbytes}"
        )
    return argument.memory[:size], extents
