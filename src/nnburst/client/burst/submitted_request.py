"""Requests of a burst that are out: results come in the order of submission."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from nnburst._native import lib
from nnburst.client.memory.arguments import ExecutionResult, check_timeout
from nnburst.client.session.one_thread import OneThread
from nnburst.hal.errors import BurstBusy, Closed, GeneralFailure, MissedDeadline, NnburstError

if TYPE_CHECKING:
    from nnburst.client.burst.bound_request import BoundRequest
    from nnburst.client.burst.burst import Burst

_LOST: Final = "an interruption took the result"


class SubmittedRequest:
    """A submitted request. Results come in order, so earlier ones are collected on the way.

    Attributes:
        bound: the request.
        abandoned: nobody wants its result any more.
        taken: its result is not to be waited for: it has been taken out of the ring, or is overdue.
    """

    __slots__ = ("_burst", "_outcome", "abandoned", "bound", "taken")

    def __init__(self, burst: Burst, bound: BoundRequest) -> None:
        """Made by `BoundRequest.submit`."""
        self._burst = burst
        self.bound = bound
        self.abandoned = False
        self.taken = False
        self._outcome: ExecutionResult | BaseException | None = None

    @property
    def settled(self) -> bool:
        """Whether the outcome is known, so that `result` does not wait."""
        return self._outcome is not None or self.taken

    def result(self, timeout: float = 30.0) -> ExecutionResult:
        """Wait for the result; raises what `BoundRequest.run` says. May be called again."""
        return self.wait(time.monotonic_ns() + int(check_timeout(timeout) * 1e9))

    def wait(self, deadline_ns: int) -> ExecutionResult:
        """`result`, until a moment on CLOCK_MONOTONIC."""
        pending, me = self._burst.pending, object()
        try:
            pending.one_thread.enter(me)
            while self._outcome is None:
                if self.abandoned and self not in pending:
                    raise Closed("the request was abandoned")
                pending[0].collect(deadline_ns)
        finally:
            pending.one_thread.pop(me, None)
        if isinstance(self._outcome, BaseException):
            raise self._outcome
        return self._outcome

    async def result_async(
        self,
        timeout: float = 30.0,  # noqa: ASYNC109 - as for `result`
    ) -> ExecutionResult:
        """`result`, while the event loop goes on; where it is cancelled it may be called again."""
        deadline_ns = time.monotonic_ns() + int(check_timeout(timeout) * 1e9)
        await self._burst.waiter.settle(self, deadline_ns)
        return self.result()

    def abandon(self) -> None:
        """Do without the result: it is overdue as soon as it is the oldest one out."""
        self.abandoned = self._outcome is None
        pending, me = self._burst.pending, object()
        try:
            with contextlib.suppress(BurstBusy):
                pending.one_thread.enter(me)
                pending.forsake()
        finally:
            pending.one_thread.pop(me, None)

    def collect(self, deadline_ns: int) -> None:
        """Fetch this request's result, which must be the oldest one out.

        Args:
            deadline_ns: on CLOCK_MONOTONIC.
        """
        if self.taken:  # and a second handler came before that could be noted
            self._settle(GeneralFailure(_LOST))
            return
        client = self._burst.client
        before = client.collected
        try:
            self._settle(self.bound.collect(deadline_ns))
        except BaseException as error:
            if client.collected != before:  # first of all, and no call: a second handler may raise
                self.taken = True
            waiting = isinstance(error, MissedDeadline | BurstBusy)
            # Whatever is not ours comes from a signal handler, and says nothing about the request.
            interrupted = not isinstance(error, NnburstError)
            if (waiting or interrupted) and not self.taken:
                raise
            self._settle(GeneralFailure(_LOST) if interrupted else error)
            if interrupted:
                raise

    def _settle(self, outcome: ExecutionResult | BaseException) -> None:
        """Note the outcome, unless there is one, and go out of the queue. May be interrupted and repeated."""
        pending = self._burst.pending
        if self._outcome is None:
            self._outcome = outcome
        self.bound.in_flight = False
        if pending and pending[0] is self:
            pending.popleft()
        pending.forsake()


class SubmissionQueue(deque[SubmittedRequest]):
    """The submitted requests of a burst, oldest first: those that its C side has out.

    Signal handlers may raise anywhere, several in a row. So what happens to a request is read off what the C
    side has counted, and noted without a call before anything else is done about it.

    Attributes:
        one_thread: keeps other threads out, since order is all that matches results with requests.
    """

    def __init__(self, client: Any) -> None:  # noqa: ANN401 - a cffi struct nnb_client *
        """Count against `client`."""
        super().__init__()
        self._client = client
        self.one_thread = OneThread()

    def forsake(self) -> None:
        """Make those at the front overdue that nobody wants any more. Inside of `one_thread`."""
        client = self._client
        while self and self[0].abandoned:
            first = self[0]
            if not first.taken:
                before = client.collected
                try:
                    lib.nnb_client_forsake(client)
                finally:  # no call: a second handler may raise
                    if client.collected != before:
                        first.taken = True
                if not first.taken:
                    return
            first.bound.in_flight = False
            self.popleft()
