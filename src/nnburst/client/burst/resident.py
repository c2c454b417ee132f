"""Executes graphs whose states stay in the driver, in slots: each slot has the states of one sequence.

A request carries the number of its slot and the number of runs that the slot has had. A driver whose state
differs from that, or that has none because it was restarted, answers with an error instead of a result.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NoReturn

import numpy as np

from nnburst.client.arguments import (
    Array,
    ExecutionResult,
    Parameter,
    check_count,
    wait_left,
)
from nnburst.client.burst.interface import (
    DEFAULT_TIMEOUT,
    BoundRequest,
    Burst,
    BurstFunction,
    State,
    SubmittedRequest,
    bind_function,
    new_inputs,
)
from nnburst.client.execution.buffer import Buffer
from nnburst.client.staging import in_new_pool
from nnburst.hal.errors import (
    BurstBusy,
    Closed,
    DeadObject,
    DeviceUnavailable,
    InvalidArgument,
    MissedDeadline,
    NnburstError,
    OutputInsufficientSize,
    StateLost,
)
from nnburst.hal.utils import check_owner
from nnburst.hal.whole_graph import CLOSE_SLOT, OPEN_SLOT, SLOT_EXTENTS

_LOST: Final = "the state of the slot is lost: reset() begins anew"
#: Seconds that closing a slot may take.
_CLOSING: Final = 5.0


#: Executes the model of a burst over the socket, which carries every status and a message; a burst carries
#: neither. It takes all inputs and the seconds, and works as long as the burst is open.
SocketExecution = Callable[[Sequence[Array], float], object]


class _SharedBurst:
    """The burst behind all slots, and the memory for commands that open and close slots. Thread-safe.

    Attributes:
        burst: the burst that executes; its last input is the slot.
        inputs: the caller's inputs.
        closed: whether the burst was closed, so that no slot is opened any more.
    """

    def __init__(self, burst: Burst, execute: SocketExecution) -> None:
        self.burst = burst
        self.closed = False
        self._owner = os.getpid()
        self.inputs = list(burst.inputs)[:-1]
        self._execute = execute
        #: Memory for the words of later orders. Without a lock, so that no order waits for another one.
        self._words: deque[Array] = deque()
        # Placeholders: an execution that opens or closes a slot reads only its word.
        self._nothing = in_new_pool(
            [(p.dtype, tuple(extent or 1 for extent in p.dimensions) or (1,)) for p in self.inputs]
        )
        #: Numbers of slots that cannot be reached any more; filled by finalizers.
        self.abandoned: deque[int] = deque()

    def order(self, number: int, what: int, timeout: float) -> None:
        """Have the driver open or close a slot.

        Raises:
            Closed: the burst is closed, so it opens no slot; or this is a forked child.
        """
        self.check_process()
        if what == OPEN_SLOT and self.closed:
            raise Closed("the burst is closed")
        try:
            word = self._words.pop()
        except IndexError:
            (word,) = in_new_pool([(np.dtype(np.uint64), SLOT_EXTENTS)])
        word[:] = number, what
        self._execute([*self._nothing, word], timeout)
        # Only now: the driver may still read the word of an order whose wait was cut short.
        self._words.append(word)

    def wait_for_late(self, word: Array, number: int, timeout: float) -> None:
        """Wait until the burst has ended a request of a slot that was given up; it may not have begun yet.

        The request reads `word` when it begins, so a word for the slot's next run must not be there before.

        Raises:
            MissedDeadline: the request has not ended in time.
            BurstBusy: another thread is using the burst.
        """
        word[:] = number, CLOSE_SLOT  # a late request that begins only now does the same
        try:
            self.burst.execute([*self._nothing, word], timeout=timeout)  # a burst answers in order
        except (DeadObject, DeviceUnavailable):
            return  # the request ended with the driver
        except Closed:
            if not self.closed:
                raise
            # A closed burst has ended its requests.

    def check_process(self) -> None:
        """Raise Closed in a forked child: slots' memory is not mapped there."""
        check_owner(self._owner, "the burst")

    def close_abandoned(self) -> None:
        """Close slots that cannot be reached any more."""
        while self.abandoned:
            with contextlib.suppress(NnburstError):
                self.order(self.abandoned.popleft(), CLOSE_SLOT, _CLOSING)


class _Slot:
    """The client's view of one slot: its number, and the count of its runs. For the burst's thread alone.

    Attributes:
        word: both numbers, in a pool; the last input of each of the slot's requests.
        closed: whether `close` was called, or this is a forked child.
        is_lost: whether a failed run left the state unknown, or a reset did not end.
    """

    def __init__(self, shared: _SharedBurst) -> None:
        """Open a slot in the driver.

        Raises:
            ResourceExhausted: the client has as many slots as it may have, or memory is short.
        """
        self.shared = shared
        self.closed = False
        (self.word,) = in_new_pool([(np.dtype(np.uint64), SLOT_EXTENTS)])
        self._number = random.getrandbits(63) | 1
        self._steps = 0
        self.is_lost = False
        #: The burst of the last request that was given up, which may still be under way.
        self._late_on: _SharedBurst | None = None
        self.pending: _Submission | None = None
        shared.close_abandoned()
        self.reset()
        self._finalizer = weakref.finalize(self, shared.abandoned.append, self._number)
        self._finalizer.atexit = False
        _living_slots.add(self)

    def reset(self, timeout: float = DEFAULT_TIMEOUT) -> None:
        """Set the states to zeros, after a request that was given up has ended."""
        if self.closed:
            self._refuse()
        self.settle()
        self.is_lost = True
        deadline = time.monotonic() + timeout
        if self._late_on is not None:
            self._late_on.wait_for_late(self.word, self._number, timeout)
            self._late_on = None
        self.shared.order(self._number, OPEN_SLOT, wait_left(deadline))
        self.is_lost = False
        self._steps = 0

    def begin(self) -> None:
        """Write the slot's word for a run that begins.

        Raises:
            StateLost: the driver lost the state, or a failed run left it unknown.
            Closed: the slot is closed, or this is a forked child.
        """
        if self.closed:
            self._refuse()
        if self.pending is not None:
            self.settle()
        if self.is_lost:
            raise StateLost(_LOST)
        self.word[0] = self._number
        self.word[1] = self._steps

    def _refuse(self) -> NoReturn:
        self.shared.check_process()
        raise Closed("the slot is closed")

    def ran(self) -> None:
        """Count a run that has succeeded."""
        self._steps += 1

    def failed(self, error: BaseException, on: _SharedBurst) -> BaseException:
        """Handle a run of the burst `on` that has failed with `error`; returns the exception to raise."""
        if isinstance(error, OutputInsufficientSize | InvalidArgument | BurstBusy):
            return error  # the state has not changed
        self.is_lost = True
        if not isinstance(error, NnburstError) or isinstance(error, MissedDeadline | Closed):
            self._late_on = on
        if isinstance(error, DeadObject | DeviceUnavailable):
            return StateLost(f"{_LOST} ({error})")
        return error

    def settle(self) -> None:
        """Collect the outcome of the latest submission, even if the program has not asked for it.

        Raises:
            BurstBusy: the submission is under way.
        """
        pending = self.pending
        if pending is None:
            return
        if not pending.settled and pending.in_flight:
            raise BurstBusy("a request of this slot is under way")
        with contextlib.suppress(NnburstError):
            pending.result(_CLOSING)
        self.pending = None

    def close(self) -> None:
        """Close the slot in the driver; does nothing if the driver is dead."""
        if self.closed:
            return
        self.closed = True
        self._finalizer.detach()
        with contextlib.suppress(NnburstError):
            self.shared.order(self._number, CLOSE_SLOT, _CLOSING)


#: The slots of this process; a forked child may use none of them.
_living_slots: Final[weakref.WeakSet[_Slot]] = weakref.WeakSet()


def _refuse_all_in_child() -> None:
    """Refuse every run in a forked child before it writes a slot's word, which is not mapped there."""
    for slot in list(_living_slots):
        slot.closed = True


os.register_at_fork(after_in_child=_refuse_all_in_child)


def refuse_states(states: Sequence[State]) -> None:
    """Raise InvalidArgument if a model that has slots is given states, too."""
    if states:
        raise InvalidArgument("states: those of the model stay in the driver already")


class ResidentBurst(Burst):
    """A burst on a graph whose states stay in the driver; made by `PreparedModel.open_burst` and by `slot`.

    `execute`, each bound request and each function continue from states of their own; in a burst made by
    `slot`, all of them share one state.
    """

    def __init__(
        self, shared: _SharedBurst, slot: _Slot | None = None, owner: Burst | None = None
    ) -> None:
        """Use `over` and `slot`."""
        self._shared = shared
        self._own = slot
        #: The burst that `slot` was called on; it stays open as long as this one exists.
        self._owner = owner
        self._slots: weakref.WeakSet[_Slot] = weakref.WeakSet()

    @classmethod
    def over(cls, burst: Burst, execute: SocketExecution) -> ResidentBurst:
        """Own `burst`; `execute` opens and closes slots of its model."""
        return cls(_SharedBurst(burst, execute))

    def slot(self) -> ResidentBurst:
        """Open a new sequence; see `Burst.slot`."""
        return ResidentBurst(self._shared, self._opened(), self)

    def beside(self, slot: ResidentBurst) -> ResidentBurst:
        """Use the slot of another burst of the same prepared model in requests of this burst.

        Only one thread at a time may use a slot, even through several bursts.
        """
        return ResidentBurst(self._shared, slot._mine(), self)

    def _opened(self) -> _Slot:
        slot = _Slot(self._shared)
        self._slots.add(slot)
        return slot

    def _mine(self) -> _Slot:
        if self._own is None:
            self._own = self._opened()
        return self._own

    @property
    def is_alive(self) -> bool:
        """Whether the driver is alive now and this object is open."""
        return self._shared.burst.is_alive and not (self._own is not None and self._own.closed)

    @property
    def is_lost(self) -> bool:
        """Whether a run has failed that left the state of `execute` unknown, so that only `reset` helps."""
        return self._own is not None and self._own.is_lost

    @property
    def inputs(self) -> Sequence[Parameter]:
        """Type and shape of each input that is not a state."""
        return self._shared.inputs

    @property
    def outputs(self) -> Sequence[Parameter]:
        """Type and shape of each output that is not a state."""
        return self._shared.burst.outputs

    @property
    def max_in_flight(self) -> int:
        """Requests that may be under way at once, at most one for each slot."""
        return self._shared.burst.max_in_flight

    def bind(
        self,
        inputs: Sequence[Array | None] | None = None,
        outputs: Sequence[Array | None] | None = None,
        *,
        measure: bool = False,
        output_bytes: Sequence[int | None] | None = None,
    ) -> ResidentRequest:
        """Bind a request; see `Burst.bind`."""
        if inputs is None:
            inputs = new_inputs(self.inputs)
        check_count("inputs", inputs, self.inputs)
        slot = self._own if self._owner is not None and self._own else self._opened()
        bound = self._shared.burst.bind(
            [*inputs, slot.word], outputs, measure=measure, output_bytes=output_bytes
        )
        return ResidentRequest(self._shared, slot, bound)

    def execute(
        self,
        inputs: Sequence[Array | Buffer | None],
        outputs: Sequence[Array | Buffer | None] | None = None,
        *,
        measure: bool = False,
        timeout: float = DEFAULT_TIMEOUT,
        copy: bool = True,
    ) -> ExecutionResult:
        """Execute once on numpy arrays, from and to the states of `execute`; see `Burst.execute`."""
        check_count("inputs", inputs, self.inputs)
        slot, burst = self._mine(), self._shared.burst
        return _run(
            slot,
            self._shared,
            lambda seconds: burst.execute(
                [*inputs, slot.word],
                outputs,
                measure=measure,
                timeout=DEFAULT_TIMEOUT if seconds is None else seconds,
                copy=copy,
            ),
            timeout,
        )

    def function(
        self,
        inputs: Sequence[Array | None] | None = None,
        *,
        copy: bool = False,
        timeout: float = DEFAULT_TIMEOUT,
    ) -> BurstFunction:
        """A function of arrays; see `Burst.function`."""
        return bind_function(self, inputs, copy=copy, timeout=timeout)

    def reset(self) -> None:
        """Reset the states of `execute`; see `Burst.reset`."""
        self._mine().reset()

    def statistics(self) -> dict[str, int]:
        """Counters of the client's side; see `Burst.statistics`."""
        return self._shared.burst.statistics()

    def close(self) -> None:
        """End the burst, or only the slot. Twice is fine, and so is a dead driver. Arrays stay usable."""
        if self._owner is not None and self._own is not None:
            self._own.close()
            return
        if self._shared.burst.is_alive:
            for slot in tuple(self._slots):
                slot.close()
            self._shared.close_abandoned()
        self._shared.closed = True
        self._shared.burst.close()

    def __repr__(self) -> str:
        if self._owner is None:
            return f"{repr(self._shared.burst)[:-1]}, with states in its driver>"
        closed = " that is closed" if self._own is not None and self._own.closed else ""
        return f"{repr(self._shared.burst)[:-1]}, with a slot{closed}>"


def _run(
    slot: _Slot,
    shared: _SharedBurst,
    work: Callable[[float | None], ExecutionResult],
    timeout: float | None,
) -> ExecutionResult:
    slot.begin()
    try:
        result = work(timeout)
    except BaseException as error:
        found = slot.failed(error, shared)
        if found is error:
            raise
        raise found from error
    slot.ran()
    return result


class ResidentRequest(BoundRequest):
    """A request on the states of a slot; made by `ResidentBurst.bind`."""

    __slots__ = ("_bound", "_inputs", "_run", "_shared", "_slot")

    def __init__(self, shared: _SharedBurst, slot: _Slot, bound: BoundRequest) -> None:
        """Run `bound`, a request of the burst in `shared`, whose last input is the slot's word."""
        self._shared = shared
        self._slot = slot
        self._bound = bound
        self._inputs = bound.inputs[:-1]
        self._run = bound.run

    @property
    def inputs(self) -> tuple[Array, ...]:
        """Arrays that every run reads; see `BoundRequest.inputs`."""
        return self._inputs

    @property
    def outputs(self) -> tuple[Array, ...]:
        """Arrays that every run writes; see `BoundRequest.outputs`."""
        return self._bound.outputs

    @property
    def in_flight(self) -> bool:
        """Whether it was submitted and its result has not been collected yet."""
        return self._bound.in_flight

    @property
    def closed(self) -> bool:
        """Whether it cannot run any more."""
        return self._slot.closed or self._bound.closed

    def reset(self) -> None:
        """Reset the states; see `BoundRequest.reset`."""
        self._slot.reset()

    def run(self, timeout: float | None = None) -> ExecutionResult:
        """Execute once and wait for the result; see `BoundRequest.run`."""
        return _run(self._slot, self._shared, self._run, timeout)

    async def run_async(
        self,
        timeout: float | None = None,  # noqa: ASYNC109 - as for `run`
    ) -> ExecutionResult:
        """Execute once without blocking the event loop; see `BoundRequest.run_async`."""
        slot = self._slot
        slot.begin()
        try:
            result = await self._bound.run_async(timeout)
        except BaseException as error:
            found = slot.failed(error, self._shared)
            if found is error:
                raise
            raise found from error
        slot.ran()
        return result

    def submit(self, timeout: float | None = None) -> SubmittedRequest:
        """Send the request without waiting for its result; see `BoundRequest.submit`."""
        slot = self._slot
        slot.begin()
        submitted = self._bound.submit(timeout)
        slot.pending = _Submission(self._shared, slot, self._bound, submitted)
        return slot.pending


class _Submission(SubmittedRequest):
    """A submitted request on the states of a slot."""

    __slots__ = ("_bound", "_is_taken", "_shared", "_slot", "_submitted")

    def __init__(
        self,
        shared: _SharedBurst,
        slot: _Slot,
        bound: BoundRequest,
        submitted: SubmittedRequest,
    ) -> None:
        self._shared = shared
        self._slot = slot
        self._bound = bound
        self._submitted = submitted
        self._is_taken = False

    @property
    def settled(self) -> bool:
        """Whether the outcome is known, so that `result` does not wait."""
        return self._submitted.settled

    @property
    def in_flight(self) -> bool:
        """Whether it is under way."""
        return self._bound.in_flight

    def result(self, timeout: float = DEFAULT_TIMEOUT) -> ExecutionResult:
        """Wait for the result; see `SubmittedRequest.result`."""
        try:
            result = self._submitted.result(timeout)
        except BaseException as error:
            raise self._ended(error) from None
        self._took()
        return result

    async def result_async(
        self,
        timeout: float = DEFAULT_TIMEOUT,  # noqa: ASYNC109 - as for `result`
    ) -> ExecutionResult:
        """Wait like `result`, without blocking the event loop."""
        try:
            result = await self._submitted.result_async(timeout)
        except BaseException as error:
            raise self._ended(error) from None
        self._took()
        return result

    def abandon(self) -> None:
        """Give up the result, and with it the state; see `SubmittedRequest.abandon`."""
        self._submitted.abandon()
        if not self._is_taken:
            self._is_taken = True
            self._slot.failed(Closed("the request was abandoned"), self._shared)
            self._leave()

    def _took(self) -> None:
        if not self._is_taken:
            self._is_taken = True
            self._slot.ran()
            self._leave()

    def _ended(self, error: BaseException) -> BaseException:
        if not self._submitted.settled or self._is_taken:
            return error  # it may come yet, or was taken before
        self._is_taken = True
        self._leave()
        return self._slot.failed(error, self._shared)

    def _leave(self) -> None:
        if self._slot.pending is self:
            self._slot.pending = None
