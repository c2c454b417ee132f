"""Runs whole .tflite graphs of clients, also by sequences, and checks them against their declarations.

libLiteRt.so gives wrong numbers, and no error, for an output whose extents a run finds out. So it runs graphs
whose extents are all known before (`TfliteGraph.is_fixed`), without Python and on memory where it lies; the
wheel's Interpreter runs the others, and each argument is copied. It also runs requests of other extents than
the file suggests, if it leaves some open.

LiteRT cannot read variables out of an engine or write them back, least of all resource variables. So each
sequence on a graph that keeps a state has an engine of its own: a slot is such an engine, made when the slot
is opened and released when it is closed.
"""

from __future__ import annotations

import functools
import logging
import math
import struct
import threading
from collections.abc import Callable, Sequence
from typing import Final

from nnburst.executor.base import Argument, Cached, Execution, Outcome, Prepared
from nnburst.executor.graph.tensor import Array
from nnburst.executor.graph.whole_graph import (
    MAX_SLOTS,
    SLOT_BYTES,
    Apart,
    GraphTensor,
    WholeGraph,
    check_declared,
)
from nnburst.executor.litert import native
from nnburst.executor.litert.engines import (
    MAX_ENGINES,
    Engines,
    LiteRtExecution,
    outcome_of,
    room_of,
)
from nnburst.executor.litert.interpreter import ExternalDelegate, GraphCall, GraphInterpreter, take
from nnburst.formats.tflite_graph import BorderTensor, TfliteGraph, read_graph
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.errors import GeneralFailure, InvalidArgument
from nnburst.hal.limits import DEFAULT_LOOP_TIMEOUT_NS
from nnburst.hal.model import Model
from nnburst.hal.types import OutputShape, changes_dimensions, has_passed
from nnburst.hal.whole_graph import BY_TFLITE, CLOSE_SLOT, OPEN_SLOT, TFLITE

log = logging.getLogger("nnburst.executor")

_TITLE: Final = "litert: whole graph"
_CLOSED: Final = Outcome(ErrorStatus.INVALID_ARGUMENT, (), "the execution was closed")
#: The word that names a slot: the slot's number, and the number of runs so far.
_WORD: Final = struct.Struct("<QQ")
_BUSY: Final = Outcome(ErrorStatus.GENERAL_FAILURE, (), "another run of the slot is under way")

#: Extents and bytes of inputs.
_Given = tuple[tuple[tuple[int, ...], ...], list[bytes]]


class _Slot:
    """One sequence: its engine, and the number of its runs. The thread that has set `busy` uses it."""

    def __init__(self, engine: GraphInterpreter) -> None:
        self.engine = engine
        self.steps = 0
        self.busy = False
        #: Inputs and results of a run whose outputs had no room; the client expects to repeat this run.
        self.unread: tuple[_Given, list[Array]] | None = None


class Slots:
    """The slots of one prepared model, which serves one client. Thread-safe."""

    def __init__(self, make: Callable[[], GraphInterpreter], first: GraphInterpreter) -> None:
        """Start without open slots.

        Args:
            make: makes an engine whose variables have the file's initial values.
            first: such an engine, already made.
        """
        self._make = make
        self._ready = [first]
        self._lock = threading.Lock()
        self._slots: dict[int, _Slot | None] = {}  # None while the slot's engine is made

    def open(self, number: int) -> Outcome:
        """Open a slot; an open one starts again with initial values, and a run of it ends without it."""
        with self._lock:
            if number in self._slots and self._slots[number] is None:
                return _BUSY
            if number == 0 or (number not in self._slots and len(self._slots) == MAX_SLOTS):
                why = f"the client has {MAX_SLOTS} slots, as many as it may"
                return Outcome(ErrorStatus.RESOURCE_EXHAUSTED_PERSISTENT, (), why)
            self._slots[number] = None
            ready = self._ready.pop() if self._ready else None
        made = None
        try:
            made = _Slot(ready or self._make())
        except (InvalidArgument, MemoryError) as error:  # the file itself is valid
            why = f"out of memory for a slot's engine: {error}"
            return Outcome(ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT, (), why)
        finally:
            with self._lock:
                if made is None:
                    self._slots.pop(number, None)
                else:
                    self._slots[number] = made
        return Outcome(ErrorStatus.NONE, ())

    def close(self, number: int) -> Outcome:
        """Release the slot of this number, after a run of it that is under way; no such slot is no error."""
        with self._lock:
            if number in self._slots and self._slots[number] is None:
                return _BUSY
            self._slots.pop(number, None)
        return Outcome(ErrorStatus.NONE, ())

    def enter(self, number: int, steps: int) -> _Slot | Outcome:
        """Reserve the slot for the run that follows `steps` others; the reason if it cannot run now."""
        with self._lock:
            slot = self._slots.get(number)
            if slot is None or slot.steps != steps:
                why = f"the slot's state is lost: it is not after {steps} runs"
                return Outcome(ErrorStatus.DEVICE_UNAVAILABLE, (), why)
            if slot.busy:
                return _BUSY
            slot.busy = True
            return slot

    def leave(self, number: int, slot: _Slot, steps: int | None) -> None:
        """End a run: the slot has now had `steps` runs; None if its state is lost."""
        with self._lock:
            slot.busy = False
            if steps is not None:
                slot.steps = steps
            elif self._slots.get(number) is slot:
                del self._slots[number]

    def close_all(self) -> None:
        """Release all slots; an engine is freed after the run that is under way on it."""
        with self._lock:
            self._slots.clear()
            self._ready.clear()


class SlotExecution(Execution):
    """A request that runs on the slot that its word names at that time. One thread runs it at a time."""

    finds_shapes = True

    def __init__(
        self,
        slots: Slots,
        word: Argument,
        inputs: Sequence[tuple[memoryview, tuple[int, ...]]],
        outputs: Sequence[Argument],
    ) -> None:
        """Bind memory.

        Args:
            slots: the prepared model's slots.
            word: the input with the slot's number and the number of runs that the slot has had.
            inputs: bytes and extents of the other inputs.
            outputs: room for each output.

        Raises:
            InvalidArgument: the word has too few bytes.
        """
        if word.memory is None or word.memory.nbytes < SLOT_BYTES:
            raise InvalidArgument("the input that names a slot has too few bytes")
        self._slots = slots
        self._word: memoryview | None = word.memory[:SLOT_BYTES]
        self._inputs = [memory for memory, _ in inputs]
        self._extents = tuple(extents for _, extents in inputs)
        self._rooms = [room.memory for room in outputs]
        self._declared = [room.dimensions for room in outputs]

    def run(
        self,
        deadline_ns: int | None = None,
        loop_timeout_ns: int = DEFAULT_LOOP_TIMEOUT_NS,  # noqa: ARG002 - loops are the graph's own
    ) -> Outcome:
        """Execute once, or open or close a slot; see `nnburst.executor.base.Execution`."""
        if self._word is None:
            return _CLOSED
        if has_passed(deadline_ns):
            return Outcome(ErrorStatus.MISSED_DEADLINE_PERSISTENT, (), "the deadline has passed")
        # TRUST: copied once; any number is looked up among the client's slots
        number, steps = _WORD.unpack(bytes(self._word))
        if steps in (OPEN_SLOT, CLOSE_SLOT):
            done = self._slots.open(number) if steps == OPEN_SLOT else self._slots.close(number)
            if done.status != ErrorStatus.NONE:
                return done
            known = [each if each and 0 not in each else (1,) for each in self._declared]
            return Outcome(ErrorStatus.NONE, tuple(OutputShape(each, True) for each in known))
        slot = self._slots.enter(number, steps)
        if isinstance(slot, Outcome):
            return slot
        after: int | None = None
        try:
            outcome = self._run_on(slot)
            if outcome.status == ErrorStatus.NONE:
                after = steps + 1
            elif outcome.status == ErrorStatus.OUTPUT_INSUFFICIENT_SIZE:
                after = steps
            return outcome
        finally:
            self._slots.leave(number, slot, after)

    def _run_on(self, slot: _Slot) -> Outcome:
        """Run on the slot's engine; if a run on the same inputs had no room for its results, return those."""
        unread, slot.unread = slot.unread, None
        found: list[Array] | str
        if unread is None:
            found = slot.engine.run(self._inputs, self._extents)
        elif unread[0] == self._given():
            found = unread[1]
        else:
            why = "the slot's state is lost: a run without room for its outputs was not repeated"
            return Outcome(ErrorStatus.DEVICE_UNAVAILABLE, (), why)
        if isinstance(found, str):
            return Outcome(ErrorStatus.GENERAL_FAILURE, (), f"LiteRT: {found}")
        pairs = zip(found, self._rooms, strict=True)
        outcome = outcome_of(tuple(take(*pair) for pair in pairs))
        if outcome.status == ErrorStatus.OUTPUT_INSUFFICIENT_SIZE:
            slot.unread = self._given(), found
        return outcome

    def _given(self) -> _Given:
        return self._extents, [bytes(memory) for memory in self._inputs]

    def close(self) -> None:
        """Release the request's memory."""
        self._word = None
        self._inputs, self._rooms = [], []


class InterpretedExecution(Execution):
    """A request bound to an interpreter. One thread runs it at a time."""

    finds_shapes = True

    def __init__(
        self, call: GraphCall, declared: Sequence[tuple[int, ...]], release: Callable[[], None]
    ) -> None:
        """Own `call`; call `release` at `close`. For `declared` see `outcome_of`."""
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
            return _CLOSED
        if has_passed(deadline_ns):
            return Outcome(ErrorStatus.MISSED_DEADLINE_PERSISTENT, (), "the deadline has passed")
        failure = self._call.run()
        if failure:
            return Outcome(ErrorStatus.GENERAL_FAILURE, (), f"LiteRT: {failure}")
        return outcome_of(self._call.shapes, self._declared)

    def close(self) -> None:
        """Release the engine and the request's memory."""
        call, self._call = self._call, None
        if call is not None:
            call.close()
            self._release()


class TflitePrepared(Prepared):
    """A prepared model that is a whole graph. `bind` may be called from several threads at once.

    A graph that keeps state has one engine, so its executions take turns and each continues the last one; or
    it has an engine for each slot, if the client asks for slots. Any other graph has one for each thread that
    computes.
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
            model: the client's model.
            graph: the graph that the client sent.
            num_threads: number of threads that compute.
            delegate: library that runs the operators that it supports; one Interpreter then runs the graph.

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
        # Resizing would reset the variables.
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
            holds = self._graph.params.extents_hold
            declared = [room.dimensions for room in outputs] if holds else ()
            return InterpretedExecution(binding, declared, release)
        taken = [
            room_of(argument, slot.size)
            for argument, slot in zip(outputs, self._fixed, strict=True)
        ]
        shapes = tuple(
            OutputShape(slot.dimensions or (1,), room is not None)
            for room, slot in zip(taken, self._fixed, strict=True)
        )
        native_binding, release = self._engines.bind(given, taken)
        differ = any(
            changes_dimensions(argument.dimensions, shape.dimensions)
            for argument, shape in zip(outputs, shapes, strict=True)
        )
        return LiteRtExecution(native_binding, shapes, release, finds_shapes=differ)

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
        # Extents of outputs in files are often wrong, or missing: only those of the engine are used.
        unknown = [tensor._replace(extents=None) for tensor in self._outputs]
        check_declared(self._model, self._graph, self._open, unknown)

    def _interpreting(self) -> Engines:
        """The engines whose inputs may be resized, made when the first request needs one."""
        with self._lock:
            if self._interpreters is None:
                self._interpreters = Engines(self._interpreter, self._most)
            return self._interpreters

    def _interpreter(self) -> GraphInterpreter:
        return GraphInterpreter(
            self._content, self._inputs, self._outputs, self.num_threads, self._delegate
        )

    def _first_interpreter(self, read: TfliteGraph) -> GraphInterpreter:
        """The first engine of a graph that libLiteRt.so cannot run, or that has slots."""
        first = self._interpreter()
        if read.is_fixed:  # else extents are the file's, which a run may change
            self._check_outputs(first.output_extents)
        return first

    def _check_outputs(self, extents: Sequence[tuple[int, ...]]) -> None:
        """Compare the engine's extents of outputs with the declared ones, if these must hold."""
        if self._graph.params.extents_hold:
            found = [
                tensor._replace(extents=each)
                for tensor, each in zip(self._outputs, extents, strict=True)
            ]
            check_declared(self._model, self._graph, self._open, found)

    def _by_library(self, read: TfliteGraph, most: int) -> tuple[native.Slot, ...] | None:
        """Make engines of libLiteRt.so, and return their output slots; None if it cannot run the graph."""
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
        self._check_outputs(extents)
        found = [
            tensor._replace(extents=each)
            for tensor, each in zip(self._outputs, extents, strict=True)
        ]
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
    """The tensors as slots of the library; None if it does not support one of them."""
    found = [native.graph_slot(t.element, t.extents or (), apart(t.element)) for t in tensors]
    return None if None in found else tuple(slot for slot in found if slot is not None)


def _input(argument: Argument, tensor: GraphTensor) -> tuple[memoryview, tuple[int, ...]]:
    """The bytes and extents of an input."""
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
