"""Runs of a burst in an event loop: nothing blocks, no thread is used.

    run_async:  submit ─► arm: is the result there? ── yes ─► collect
                                    │ no: the driver will send a byte
                                    ▼
                      the loop watches the socket ─► arm again

Several tasks may run requests of one burst at once; those that find `max_in_flight` of them out wait for
their turn. A task that is cancelled, or whose time is up, leaves its result overdue: it is dropped when it
comes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, Protocol

from nnburst._native import lib
from nnburst.client.arguments import ExecutionResult
from nnburst.client.burst.core import TIMED_OUT, BurstCore
from nnburst.client.session.gate import entries, leave
from nnburst.client.session.pending import wake_waiter
from nnburst.hal.errors import BurstBusy, MissedDeadline

#: Results that come at once need no loop; it gets its turn at least so often all the same.
_TURN_NS: Final = 1_000_000
#: How long the end of the socket may come before the word that the driver is dead, and how often to look.
_PATIENCE_NS: Final = 1_000_000_000
_STEP: Final = 0.001


class Outcome(Protocol):
    """A submitted request, as far as a task needs it."""

    @property
    def settled(self) -> bool:
        """Whether the outcome is known."""

    def result(self) -> ExecutionResult:
        """The result, or what went wrong."""

    def abandon(self) -> None:
        """Do without the result."""


class Submittable(Protocol):
    """A bound request, as far as a task needs it."""

    def submit(self) -> Outcome:
        """Send it."""


class ResultWaiter:
    """Waits for the results of one burst, in one event loop at a time; it may change when no task waits.

    Keeps no burst alive: tasks do.

    Attributes:
        turn_due_ns: on CLOCK_MONOTONIC; from then on a result that comes at once waits for the loop's turn.
    """

    def __init__(self, core: BurstCore) -> None:
        """Wait for what `core` has submitted."""
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
        """Wait for the result of `pending`; without one, first send `bound`, as soon as there is room."""
        if pending is None:
            await self._until(self._has_room, deadline_ns)
            pending = bound.submit()
        try:
            await self.settle(pending, deadline_ns)
        except BaseException:  # above all: the task was cancelled
            pending.abandon()
            raise
        return pending.result()

    async def settle(self, pending: Outcome, deadline_ns: int) -> None:
        """Wait until the outcome of `pending` is known.

        Raises:
            MissedDeadline: it is not in time.
        """
        await self._until(lambda: pending.settled, deadline_ns)
        if time.monotonic_ns() > self.turn_due_ns:
            await self.take_turn()

    async def take_turn(self) -> None:
        """Let the loop go on with what else it has."""
        await asyncio.sleep(0)
        self.turn_due_ns = time.monotonic_ns() + _TURN_NS

    def _has_room(self) -> bool:
        return int(self._client.in_flight) < int(self._client.max_in_flight)

    async def _until(self, condition: Callable[[], bool], deadline_ns: int) -> None:
        """Settle what is there until `condition` holds."""
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
        """Settle every request whose result is there; a later one comes with a byte."""
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
        """Wait for the byte, the end, or the deadline."""
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
        finally:  # twice: a signal handler may have interrupted the first
            self._leave(future)
            timer.cancel()

    def _leave(self, future: asyncio.Future[None]) -> None:
        """Let a task wait no more; nothing if it does not."""
        self._waiting.discard(future)
        if not self._waiting:
            self._unwatch()

    async def _ending(self) -> None:
        """The driver has closed the socket. Mostly it is dead, and that will be known in a moment."""
        await asyncio.sleep(_STEP)
        if time.monotonic_ns() - self._ended_ns > _PATIENCE_NS:
            self._core.raise_failed("the burst has ended: the driver has closed its socket")

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
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
        """Wake all: the first one settles what is there."""
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
