"""Runs sequences on a whole .tflite graph that keeps a state, each with variables of its own.

LiteRT has no operation that takes variables out of an engine or puts them back, resource variables not at
all. So a slot is an engine of its own, made when the slot is opened and let go of when it is closed.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Sequence
from typing import Final

from nnburst.executor.base import Argument, Execution, Outcome
from nnburst.executor.graph.tensor import Array
from nnburst.executor.graph.whole_graph import MAX_SLOTS, SLOT_BYTES
from nnburst.executor.litert.engines import outcome_of
from nnburst.executor.litert.interpreter import GraphInterpreter, take
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.limits import DEFAULT_LOOP_TIMEOUT_NS
from nnburst.hal.types import OutputShape, has_passed
from nnburst.hal.whole_graph import CLOSE_SLOT, OPEN_SLOT

_WORD: Final = struct.Struct("<QQ")
_CLOSED: Final = Outcome(ErrorStatus.INVALID_ARGUMENT, (), "the execution was closed")
_BUSY: Final = Outcome(ErrorStatus.GENERAL_FAILURE, (), "another run of the slot is under way")


#: Extents and bytes of inputs.
_Given = tuple[tuple[tuple[int, ...], ...], list[bytes]]


class _Slot:
    """One sequence: its engine, and the number of its runs. The thread that has set `busy` uses it."""

    def __init__(self, engine: GraphInterpreter) -> None:
        self.engine = engine
        self.steps = 0
        self.busy = False
        #: A run whose outputs had no room: what it read, and what it made. The client takes it for not done.
        self.unread: tuple[_Given, list[Array]] | None = None


class Slots:
    """The slots of one prepared model, which is one client's. Thread-safe."""

    def __init__(self, make: Callable[[], GraphInterpreter], first: GraphInterpreter) -> None:
        """No slot is open.

        Args:
            make: an engine whose variables are as the file has them at first.
            first: one that was made already.
        """
        self._make = make
        self._ready = [first]
        self._lock = threading.Lock()
        self._slots: dict[int, _Slot | None] = {}  # None while its engine is made

    def open(self, number: int) -> Outcome:
        """Open a slot, anew if it is open."""
        with self._lock:
            known = self._slots.get(number)
            if (known is not None and known.busy) or (known is None and number in self._slots):
                return _BUSY
            if number == 0 or (number not in self._slots and len(self._slots) == MAX_SLOTS):
                why = f"the client has {MAX_SLOTS} slots, as many as it may"
                return Outcome(ErrorStatus.RESOURCE_EXHAUSTED_PERSISTENT, (), why)
            self._slots[number] = None
            ready = self._ready.pop() if self._ready else None
        made = None
        try:
            made = _Slot(ready or self._make())
        except (InvalidArgument, MemoryError) as error:  # it took the file before
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
        """Let go of a slot, if there is one of this number."""
        with self._lock:
            known = self._slots.get(number)
            if number in self._slots and (known is None or known.busy):
                return _BUSY
            self._slots.pop(number, None)
        return Outcome(ErrorStatus.NONE, ())

    def enter(self, number: int, steps: int) -> _Slot | Outcome:
        """The slot, for the run that comes after `steps` others; or why it cannot run now."""
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
        """A run has ended: the slot has had so many now; None if its state is not known any more."""
        with self._lock:
            slot.busy = False
            if steps is not None:
                slot.steps = steps
            elif self._slots.get(number) is slot:
                del self._slots[number]

    def close_all(self) -> None:
        """Let go of all slots; each ends with the run that is under way on it."""
        with self._lock:
            self._slots.clear()
            self._ready.clear()


class SlotExecution(Execution):
    """A request on whichever slot its word names when it runs. One thread runs it at a time."""

    def __init__(
        self,
        slots: Slots,
        word: Argument,
        inputs: Sequence[tuple[memoryview, tuple[int, ...]]],
        outputs: Sequence[Argument],
    ) -> None:
        """Bind memory.

        Args:
            slots: of the prepared model.
            word: the input that names the slot, and how many runs that has had.
            inputs: bytes and extents of the others.
            outputs: room for each.

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
        """Run on the slot's engine, or take what a run on the same inputs has made and had no room for."""
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
        outcome = outcome_of(tuple(take(*pair) for pair in pairs), self._declared)
        if outcome.status == ErrorStatus.OUTPUT_INSUFFICIENT_SIZE:
            slot.unread = self._given(), found
        return outcome

    def _given(self) -> _Given:
        return self._extents, [bytes(memory) for memory in self._inputs]

    def close(self) -> None:
        """Let go of the request's memory."""
        self._word = None
        self._inputs, self._rooms = [], []
