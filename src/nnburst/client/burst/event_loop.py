"""Runs requests of a burst in an event loop, without blocking it and without a thread.

    run_async:  submit ─► arm: is the result there? ── yes ─► collect
                                    │ no: the driver will send a byte
                                    ▼
                      the loop watches the socket ─► arm again

Several tasks may run requests of one burst at once; while `max_in_flight` of them are under way, further
tasks wait for their turn. If a task is cancelled or its time is up, its result is dropped when it comes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from nnburst._native import lib
from nnburst.client.arguments import ExecutionResult
from nnburst.client.burst.core import TIMED_OUT, BurstCore
from nnburst.client.session.gate import entries, leave
from nnburst.client.session.pending import wake_waiter
from nnburst.hal.errors import BurstBusy, MissedDeadline

if TYPE_CHECKING:
    import asyncio  # a program with an event loop has imported it; others need not

#: Nanoseconds after which the event loop gets a turn although all results came at once.
_TURN_NS: Final = 1_000_000
#: After the socket's end: nanoseconds until the driver's death must be known, and seconds between two looks.
_PATIENCE_NS: Final = 1_000_000_000
_STEP: Final = 0.001


class Outcome(Protocol):
    """A submitted request, for a task that waits for it."""

    @property
    def settled(self) -> bool:
        """Whether the outcome is known."""

    def result(self) -> ExecutionResult:
        """Return the result, or raise the error."""

    def abandon(self) -> None:
        """Give the result up."""


class Submittable(Protocol):
    """A bound request, for a task that runs it."""

    @property
    def _is_given_up(self) -> bool:
        """Whether it is under way, and its result was given up: it will be dropped."""

    def submit(self) -> Outcome:
        """Send the request."""


class ResultWaiter:
    """Waits for the results of one burst, in one event loop at a time; another may follow once no task waits.

    The tasks that wait keep the burst alive; this object does not.

    Attributes:
        turn_due_ns: time on CLOCK_MONOTONIC after which a task gives the loop a turn even without a wait.
    """

    def __init__(self, core: BurstCore) -> None:
        """Wait for results of the burst with `core`."""
        self._core = core
        self._client = core.client
        self._pending = core.pending
        self._wakeup_socket = core.channels.wakeup_socket
        self._waiting: set[asyncio.Future[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended_ns = 0
        self.turn_due_ns = 0

    async def run(
        self, bound: Submittable, pending: Outcome | None, deadline_ns: int
    ) -> ExecutionResult:
        """Wait for the result of `pending`; if it is None, first submit `bound` as soon as there is room.

        If an earlier run of `bound` was given up behind requests of others, its result must come first.
        """
        if pending is None:
            await self._until(lambda: self._has_room() and not bound._is_given_up, deadline_ns)
            pending = bound.submit()
        try:
            await self.settle(pending, deadline_ns)
        except BaseException:  # mostly the task's cancellation
            pending.abandon()
            raise
        return pending.result()

    async def settle(self, pending: Outcome, deadline_ns: int) -> None:
        """Wait until the outcome of `pending` is known.

        Raises:
            MissedDeadline: the result did not come in time.
        """
        await self._until(lambda: pending.settled, deadline_ns)
        if time.monotonic_ns() > self.turn_due_ns:
            await self.take_turn()

    async def take_turn(self) -> None:
        """Give the event loop a turn."""
        import asyncio

        await asyncio.sleep(0)
        self.turn_due_ns = time.monotonic_ns() + _TURN_NS

    def _has_room(self) -> bool:
        return int(self._client.in_flight) < int(self._client.max_in_flight)

    async def _until(self, condition: Callable[[], bool], deadline_ns: int) -> None:
        """Collect results as they come, until `condition` holds.

        Raises:
            MissedDeadline: it did not hold in time.
        """
        while not condition():
            self._take()
            if condition():
                return
            if time.monotonic_ns() >= deadline_ns:
                raise MissedDeadline("timeout: no result came in time; a late one is dropped")
            if self._ended_ns:
                await self._ending()
            else:
                await self._wakeup(deadline_ns)
                self.turn_due_ns = time.monotonic_ns() + _TURN_NS

    def _take(self) -> None:
        """Collect all results that have come; for a later one the driver will send a byte."""
        self._core.check_process()
        me = next(entries)
        try:
            self._pending.gate.enter(me)
            while self._client.in_flight:
                code = lib.nnb_client_arm(self._client)
                if code == TIMED_OUT:
                    return
                if not self._pending:
                    self._core.raise_for(code)
                self._pending[0]._collect(0)
        finally:
            leave(self._pending.gate.struct, me)

    async def _wakeup(self, deadline_ns: int) -> None:
        """Wait for a byte of the driver, the socket's end, or the deadline."""
        import asyncio

        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        left = (deadline_ns - time.monotonic_ns()) * 1e-9
        timer = loop.call_later(max(left, 0.0), wake_waiter, future)
        try:
            try:
                self._watch(loop)
                self._waiting.add(future)
                await future
            finally:
                self._leave(future)
        finally:  # again, since a signal handler may have interrupted the first call
            self._leave(future)
            timer.cancel()

    def _leave(self, future: asyncio.Future[None]) -> None:
        """End the wait of a task; does nothing if it has ended."""
        self._waiting.discard(future)
        if not self._waiting:
            self._unwatch()

    async def _ending(self) -> None:
        """Wait a moment after the socket's end: usually the driver has died, which is reported soon."""
        import asyncio

        await asyncio.sleep(_STEP)
        if time.monotonic_ns() - self._ended_ns > _PATIENCE_NS:
            self._core.raise_failed("the burst has ended: the driver has closed its socket")

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._waiting and self._loop is not None and self._loop.is_closed():
            self._waiting.clear()  # its tasks wait for ever
            self._unwatch()
        if self._waiting and self._loop is not loop:
            raise BurstBusy("another event loop is using this burst: one thread at a time")
        if not self._waiting:
            self._wakeup_socket.hold()
            self._loop = loop
            loop.add_reader(self._wakeup_socket.fileno(), self._woken)

    def _unwatch(self) -> None:
        if self._loop is not None:
            self._loop.remove_reader(self._wakeup_socket.fileno())
            self._loop = None
        self._wakeup_socket.release()

    def _woken(self) -> None:
        """Wake all waiting tasks; the first one collects the results."""
        if not self._wakeup_socket.drain():
            self._ended_ns = self._ended_ns or time.monotonic_ns()
        for future in self._waiting:
            wake_waiter(future)


def waiter_of(core: BurstCore) -> ResultWaiter:
    """The `ResultWaiter` of a burst, made when it is first needed."""
    if core.waiter is None:
        core.waiter = ResultWaiter(core)
    found: ResultWaiter = core.waiter
    return found
