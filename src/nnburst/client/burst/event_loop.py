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
from typing import TYPE_CHECKING, Any, Final

from nnburst._native import lib
from nnburst.client.burst.kicks import Kicks
from nnburst.hal.errors import BurstBusy, MissedDeadline

if TYPE_CHECKING:
    from nnburst.client.burst.bound_request import BoundRequest
    from nnburst.client.burst.submitted_request import SubmissionQueue, SubmittedRequest
    from nnburst.client.memory.arguments import ExecutionResult

_TIMED_OUT: Final = int(lib.NNB_CLIENT_TIMED_OUT)
#: Results that come at once need no loop; it gets its turn at least so often all the same.
_TURN_NS: Final = 1_000_000
#: How long the end of the socket may come before the word that the driver is dead, and how often to look.
_PATIENCE_NS: Final = 1_000_000_000
_STEP: Final = 0.001


class ResultWaiter:
    """What waits for the results of one burst. One event loop at a time, which may change when nobody waits.

    Keeps no burst alive: tasks do.
    """

    def __init__(self, client: Any, pending: SubmissionQueue, kicks: Kicks) -> None:  # noqa: ANN401
        """`client` is the burst's struct nnb_client, `pending` what it has submitted."""
        self._client = client
        self._pending = pending
        self._kicks = kicks
        self._waiting: set[asyncio.Future[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended_ns = 0
        self._turn_ns = 0

    async def run(self, bound: BoundRequest, deadline_ns: int) -> ExecutionResult:
        """Send `bound`, as soon as there is room for it, and wait for its result; see `run_async`."""
        await self._until(self._has_room, bound, deadline_ns)
        pending = bound.submit()
        try:
            await self.settle(pending, deadline_ns)
        except BaseException:  # above all: the task was cancelled
            pending.abandon()
            raise
        return pending.result()

    async def settle(self, pending: SubmittedRequest, deadline_ns: int) -> None:
        """Wait until the outcome of `pending` is known.

        Raises:
            MissedDeadline: it is not in time.
        """
        await self._until(lambda: pending.settled, pending.bound, deadline_ns)
        if time.monotonic_ns() - self._turn_ns > _TURN_NS:
            await asyncio.sleep(0)
            self._turn_ns = time.monotonic_ns()

    def _has_room(self) -> bool:
        return int(self._client.in_flight) < int(self._client.max_in_flight)

    async def _until(
        self, condition: Callable[[], bool], bound: BoundRequest, deadline_ns: int
    ) -> None:
        """Settle what is there until `condition` holds; `bound` says why it never will."""
        while not condition():
            self._take(bound)
            if condition():
                return
            if time.monotonic_ns() >= deadline_ns:
                raise MissedDeadline("timeout: no result in time; it will be dropped when it comes")
            if self._ended_ns:
                await self._ending(bound)
            else:
                await self._kick(deadline_ns)
                self._turn_ns = time.monotonic_ns()

    def _take(self, bound: BoundRequest) -> None:
        """Settle every request whose result is there; a later one comes with a byte."""
        bound.check_process()
        me = object()
        try:
            self._pending.one_thread.enter(me)
            while self._client.in_flight:
                code = lib.nnb_client_arm(self._client)
                if code == _TIMED_OUT:
                    return
                if not self._pending:
                    bound.fail(code)
                self._pending[0].collect(0)
        finally:
            self._pending.one_thread.pop(me, None)

    async def _kick(self, deadline_ns: int) -> None:
        """Wait for the byte, the end, or the deadline."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._watch(loop)
        self._waiting.add(future)
        left = (deadline_ns - time.monotonic_ns()) * 1e-9
        timer = loop.call_later(max(left, 0.0), _wake, future)
        try:
            await future
        finally:
            timer.cancel()
            self._waiting.discard(future)
            if not self._waiting:
                self._unwatch()

    async def _ending(self, bound: BoundRequest) -> None:
        """The driver has closed the socket. Mostly it is dead, and that will be known in a moment."""
        await asyncio.sleep(_STEP)
        if time.monotonic_ns() - self._ended_ns > _PATIENCE_NS:
            bound.end_burst("the burst has ended: the driver has closed its socket")

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._waiting and self._loop is not loop:
            raise BurstBusy("another event loop is using this burst: one thread at a time")
        if not self._waiting:
            self._kicks.hold()
            self._loop = loop
            loop.add_reader(self._kicks.fileno(), self._kicked)

    def _unwatch(self) -> None:
        if self._loop is not None:
            self._loop.remove_reader(self._kicks.fileno())
            self._loop = None
        self._kicks.let_go()

    def _kicked(self) -> None:
        """Wake all: the first one settles what is there."""
        if not self._kicks.drain():
            self._ended_ns = self._ended_ns or time.monotonic_ns()
        for future in self._waiting:
            _wake(future)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
