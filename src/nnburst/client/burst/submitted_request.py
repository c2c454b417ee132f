"""Requests of a burst that are out: results come in the order of submission."""

from __future__ import annotations

import contextlib
import time
from typing import Final, Protocol

from nnburst.client.burst.core import BurstCore
from nnburst.client.burst.event_loop import waiter_of
from nnburst.client.memory.arguments import ExecutionResult, check_timeout
from nnburst.client.session.gate import entries, leave
from nnburst.hal.errors import BurstBusy, Closed, GeneralFailure, MissedDeadline, NnburstError
from nnburst.hal.process.of_one_process import OfOneProcess

_LOST: Final = "an interruption took the result"


class Collected(Protocol):
    """A bound request, as far as waiting for its result needs it."""

    in_flight: bool

    def _collect(self, deadline_ns: int) -> ExecutionResult:
        """Wait for its result, which must be the oldest one out."""


class SubmittedRequest(OfOneProcess):
    """A request that was sent; made by `BoundRequest.submit`. Usable by the thread that uses the burst.

    Results come in the order of submission, so earlier ones are collected on the way.
    """

    _instead = "pickle the result instead"

    __slots__ = ("_abandoned", "_bound", "_core", "_outcome", "_taken")

    def __init__(self, core: BurstCore, bound: Collected) -> None:
        """Made by `BoundRequest.submit`."""
        self._core = core
        self._bound = bound
        #: The result is not wanted any more.
        self._abandoned = False
        #: The result is not to be waited for: it has been taken out of the ring, or is overdue.
        self._taken = False
        self._outcome: ExecutionResult | BaseException | None = None

    @property
    def settled(self) -> bool:
        """Whether the outcome is known, so that `result` does not wait."""
        return self._outcome is not None or self._taken

    def result(self, timeout: float = 30.0) -> ExecutionResult:
        """Wait for the result. May be called again.

        Args:
            timeout: seconds to wait.

        Raises:
            MissedDeadline: no result in time; it may come yet.
            Closed: it was abandoned, or the burst was closed.
            NnburstError: as for `BoundRequest.run`.
        """
        return self._wait(time.monotonic_ns() + int(check_timeout(timeout) * 1e9))

    def _wait(self, deadline_ns: int) -> ExecutionResult:
        """`result`, until a moment on CLOCK_MONOTONIC."""
        pending, me = self._core.pending, next(entries)
        try:
            pending.gate.enter(me)
            while self._outcome is None:
                if self._abandoned and self not in pending:
                    raise Closed("the request was abandoned")
                pending[0]._collect(deadline_ns)
        finally:
            leave(pending.gate.struct, me)
        if isinstance(self._outcome, BaseException):
            raise self._outcome
        return self._outcome

    async def result_async(
        self,
        timeout: float = 30.0,  # noqa: ASYNC109 - as for `result`
    ) -> ExecutionResult:
        """`result`, while the event loop goes on. If it is cancelled, it may be called again."""
        deadline_ns = time.monotonic_ns() + int(check_timeout(timeout) * 1e9)
        await waiter_of(self._core).settle(self, deadline_ns)
        return self.result()

    def abandon(self) -> None:
        """Give up the result: it is dropped when it comes. Does not wait; twice is fine."""
        self._abandoned = self._outcome is None
        pending, me = self._core.pending, next(entries)
        try:
            with contextlib.suppress(BurstBusy):
                pending.gate.enter(me)
                pending.skip_abandoned()
        finally:
            leave(pending.gate.struct, me)

    def _collect(self, deadline_ns: int) -> None:
        """Fetch this request's result, which must be the oldest one out.

        Args:
            deadline_ns: on CLOCK_MONOTONIC.
        """
        if self._taken:  # and a second handler came before that could be noted
            self._settle(GeneralFailure(_LOST))
            return
        client = self._core.client
        before = client.collected
        try:
            self._settle(self._bound._collect(deadline_ns))
        except BaseException as error:
            if client.collected != before:  # first of all, and no call: a second handler may raise
                self._taken = True
            waiting = isinstance(error, MissedDeadline | BurstBusy)
            # Whatever is not ours comes from a signal handler, and does not concern the request.
            interrupted = not isinstance(error, NnburstError)
            if (waiting or interrupted) and not self._taken:
                raise
            self._settle(GeneralFailure(_LOST) if interrupted else error)
            if interrupted:
                raise

    def _settle(self, outcome: ExecutionResult | BaseException) -> None:
        """Note the outcome, unless there is one, and go out of the queue. May be interrupted and repeated."""
        pending = self._core.pending
        if self._outcome is None:
            self._outcome = outcome
        self._bound.in_flight = False
        if pending and pending[0] is self:
            pending.popleft()
        pending.skip_abandoned()
