"""Keeps the states of a model's sequences; one request at a time executes on each state."""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Hashable
from collections.abc import Sequence as Several
from dataclasses import dataclass, field
from typing import Final

from nnburst.client.burst.interface import Burst
from nnburst.client.burst.resident import ResidentBurst
from nnburst.hal.errors import InvalidArgument, MissedDeadline, ResourceExhausted
from nnburst.hal.utils import Closing
from nnburst.serving.tensors import Array

#: Seconds after which a new sequence may replace an unused one.
IDLE_SECONDS: Final = 60.0


@dataclass(frozen=True)
class SequenceWord:
    """A request's parameters for its sequence: `sequence_id`, `sequence_start`, `sequence_end`."""

    key: Hashable
    starts: bool
    ends: bool


class State(Closing):
    """The state of one sequence, in the front or in the driver. One thread at a time."""

    @abstractmethod
    def execute(
        self, arrays: Several[Array], timeout: float, lane: ResidentBurst | None
    ) -> Several[Array]:
        """Execute once; return the outputs, which are valid until the next execution.

        Args:
            arrays: the inputs.
            timeout: seconds that the execution may take.
            lane: the caller's burst, if the model's states stay in the driver.
        """

    @property
    @abstractmethod
    def is_lost(self) -> bool:
        """Whether an execution that has failed left no state from which the sequence could go on."""

    @abstractmethod
    def take_back(self) -> bool:
        """Restore the state before the last execution; False if that is no longer possible."""


class PoolState(State):
    """A state in pools of the front, with a burst of its own."""

    def __init__(self, burst: Burst) -> None:
        """Own `burst`, which was opened with states."""
        self._burst = burst
        self._bound = burst.bind()
        self._before: dict[str, Array] = {}

    def execute(
        self,
        arrays: Several[Array],
        timeout: float,
        lane: ResidentBurst | None,  # noqa: ARG002 - it has its own burst
    ) -> Several[Array]:
        """See `State`."""
        # An execution reads one place of a state and writes another one, so the old state still exists after
        # it.
        self._before = dict(self._bound.states)
        for view, array in zip(self._bound.inputs, arrays, strict=True):
            view[...] = array
        return self._bound.run(timeout).outputs

    @property
    def is_lost(self) -> bool:
        """See `State`: only with its driver, since a run that fails leaves the state as it was."""
        return not self._burst.is_alive

    def take_back(self) -> bool:
        """See `State`."""
        for name, place in self._bound.states.items():
            place[...] = self._before[name]
        return True

    def close(self) -> None:
        """Close the burst."""
        self._burst.close()


class SlotState(State):
    """A state in a slot of the driver, which every lane can use over its own burst."""

    def __init__(self, slot: ResidentBurst) -> None:
        """Own `slot`."""
        self._slot = slot

    def execute(
        self, arrays: Several[Array], timeout: float, lane: ResidentBurst | None
    ) -> Several[Array]:
        """See `State`."""
        burst = self._slot if lane is None else lane.beside(self._slot)
        return burst.execute(arrays, timeout=timeout, copy=False).outputs

    @property
    def is_lost(self) -> bool:
        """See `State`."""
        return self._slot.is_lost

    def take_back(self) -> bool:
        """See `State`: False, since the old state was overwritten."""
        return False

    def close(self) -> None:
        """Free the slot."""
        self._slot.close()


@dataclass
class Sequence(Closing):
    """A sequence with its state. Used by one request at a time, which holds `lock`."""

    state: State
    used: float
    ended: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def close(self) -> None:
        """Release the state; the caller holds `lock`."""
        self.ended = True
        self.state.close()


class Sequences(Closing):
    """The sequences of one model. Thread-safe."""

    def __init__(self, begin: Callable[[], State], limit: int) -> None:
        """Start without sequences.

        Args:
            begin: makes an initial state.
            limit: greatest number of sequences at once.
        """
        self._begin = begin
        self._limit = limit
        self._lock = threading.Lock()
        self._sequences: OrderedDict[Hashable, Sequence] = OrderedDict()
        #: Keys of sequences that are being started; they count for the limit.
        self._starting: set[Hashable] = set()

    def __len__(self) -> int:
        return len(self._sequences)

    def take(self, key: Hashable, *, starts: bool, timeout: float) -> Sequence:
        """Return the sequence of `key`, a new one if `starts`, with its lock, which the caller releases.

        Raises:
            InvalidArgument: the sequence was not started, was ended, is being started, or lost its driver.
            MissedDeadline: the sequence was busy, or was being made, for `timeout` seconds.
            ResourceExhausted: too many sequences are in use, or the driver has no room for one more.
        """
        deadline = time.monotonic() + timeout
        if starts:
            return self._start(key, deadline)
        with self._lock:
            found = self._sequences.get(key)
            if found is None:
                raise _not_there(key)
            found.used = time.monotonic()
            self._sequences.move_to_end(key)
        _wait_for(found, key, deadline)
        if found.ended:
            found.lock.release()
            raise _not_there(key)
        return found

    def close_sequence(self, key: Hashable, sequence: Sequence) -> None:
        """Remove a sequence; the caller holds its lock."""
        with self._lock:
            if self._sequences.get(key) is sequence:
                del self._sequences[key]
        sequence.close()

    def _start(self, key: Hashable, deadline: float) -> Sequence:
        with self._lock:
            if key in self._starting:
                raise InvalidArgument(f"sequence {key}: another request is starting it")
            before = self._sequences.get(key)
            if before is None:
                self._make_room()
            self._starting.add(key)
        try:
            if before is not None:
                _wait_for(before, key, deadline)
                try:
                    self.close_sequence(key, before)
                finally:
                    before.lock.release()
            sequence = Sequence(self._begin(), time.monotonic())
            if time.monotonic() >= deadline:
                sequence.close()
                raise MissedDeadline(f"timeout: passed while sequence {key} was started")
            sequence.lock.acquire()
            with self._lock:
                self._sequences[key] = sequence
            return sequence
        finally:
            with self._lock:
                self._starting.discard(key)

    def close(self) -> None:
        """Remove all sequences."""
        with self._lock:
            sequences, self._sequences = self._sequences, OrderedDict()
        for sequence in sequences.values():
            with sequence.lock:
                sequence.close()

    def _make_room(self) -> None:
        if len(self._sequences.keys() | self._starting) < self._limit:
            return
        # A sequence that is being started anew must stay. Without others, all are being started.
        free = (item for item in self._sequences.items() if item[0] not in self._starting)
        key, oldest = next(free, (None, None))
        if (
            oldest is None
            or time.monotonic() - oldest.used < IDLE_SECONDS
            or not oldest.lock.acquire(blocking=False)
        ):
            raise ResourceExhausted(f"{self._limit} sequences are in use, as many as the model has")
        del self._sequences[key]
        oldest.close()
        oldest.lock.release()


def _wait_for(sequence: Sequence, key: Hashable, deadline: float) -> None:
    if not sequence.lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
        raise MissedDeadline(f"timeout: sequence {key} was busy until the deadline")


def _not_there(key: Hashable) -> InvalidArgument:
    return InvalidArgument(
        f"sequence {key}: not started, ended, expired while idle, or its state is lost"
    )
