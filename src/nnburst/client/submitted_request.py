"""Requests of a burst that are out: results come in the order of submission."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from nnburst._native import lib
from nnburst.client.arguments import ExecutionResult, check_timeout
from nnburst.client.one_thread import OneThread
from nnburst.hal.errors import BurstBusy, GeneralFailure, MissedDeadline

if TYPE_CHECKING:
    from nnburst.client.bound_request import BoundRequest
    from nnburst.client.burst import Burst

_TAKEN: Final = int(lib.NNB_CLIENT_RESULT)


class SubmittedRequest:
    """A submitted request. Results come in order, so earlier ones are collected on the way.

    Attributes:
        bound: the request.
        abandoned: nobody wants its result any more.
    """

    __slots__ = ("_burst", "_outcome", "abandoned", "bound")

    def __init__(self, burst: Burst, bound: BoundRequest) -> None:
        """Made by `BoundRequest.submit`."""
        self._burst = burst
        self.bound = bound
        self.abandoned = False
        self._outcome: ExecutionResult | BaseException | None = None

    @property
    def settled(self) -> bool:
        """Whether the outcome is known, so that `result` does not wait."""
        return self._outcome is not None

    def result(self, timeout: float = 30.0) -> ExecutionResult:
        """Wait for the result; raises what `BoundRequest.run` says. May be called again."""
        deadline = time.monotonic_ns() + int(check_timeout(timeout) * 1e9)
        pending, me = self._burst.pending, object()
        try:
            pending.one_thread.enter(me)
            while self._outcome is None:
                pending[0].collect(deadline)
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
        try:
            self._settle(self.bound.collect(deadline_ns))
        except BaseException as error:
            waiting = isinstance(error, MissedDeadline | BurstBusy)
            interrupted = not isinstance(error, Exception)
            if (waiting or interrupted) and self._burst.pending.first_is_out():
                raise
            self._settle(
                GeneralFailure("an interruption took the result") if interrupted else error
            )
            if interrupted:
                raise

    def _settle(self, outcome: ExecutionResult | BaseException) -> None:
        self._outcome = outcome
        self.bound.in_flight = False
        self._burst.pending.popleft()
        self._burst.pending.forsake()


class SubmissionQueue(deque[SubmittedRequest]):
    """The submitted requests of a burst, oldest first. Agrees with what its C side has out.

    Attributes:
        one_thread: keeps other threads out, since order is all that matches results with requests.
    """

    def __init__(self, client: Any) -> None:  # noqa: ANN401 - a cffi struct nnb_client *
        """Count against `client`."""
        super().__init__()
        self._client = client
        self.one_thread = OneThread()

    def _out(self) -> int:
        return int(self._client.in_flight) - int(self._client.overdue)

    def first_is_out(self) -> bool:
        """Whether the oldest one's result has not been taken yet."""
        return self._out() >= len(self)

    def forsake(self) -> None:
        """Make those at the front overdue that nobody wants any more. Inside of `one_thread`."""
        while self and self[0].abandoned and lib.nnb_client_forsake(self._client) == _TAKEN:
            self.popleft().bound.in_flight = False

    def forget_unsent(self) -> None:
        """Take the newest one back where it has not been sent."""
        if self._out() < len(self):
            self.pop()
