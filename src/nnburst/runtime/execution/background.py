"""Runs work on threads of its own: once for all callers that wait for it, or for tasks of event loops."""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from collections.abc import Callable, Hashable
from functools import partial
from queue import SimpleQueue
from typing import Final, TypeVar

from nnburst.client.arguments import ExecutionResult, seconds_until
from nnburst.client.burst.beside_loop import settle_by
from nnburst.hal.errors import Closed, GeneralFailure, MissedDeadline, NnburstError
from nnburst.hal.utils import DaemonThread, OneTimeEvent

T = TypeVar("T")


class Errand:
    """A piece of work of the background thread. Any thread may wait for it."""

    def __init__(self, what: str, work: Callable[[], None]) -> None:
        """Run `work` later; `what` describes it in messages."""
        self._what: Final = what
        self._work: Callable[[], None] | None = work
        self._ended: Final = OneTimeEvent()
        self._error: NnburstError | None = None

    def run(self) -> None:
        """Do the work, and keep its error instead of raising it."""
        work, self._work = self._work, None
        assert work is not None
        try:
            work()
        except NnburstError as error:
            self._error = error
        except BaseException as error:
            self._error = GeneralFailure(f"{self._what}: {type(error).__name__}: {error}")

    def settle(self) -> None:
        """Wake the callers that wait for the work."""
        self._ended.set()

    def wait(self, deadline_ns: int | None) -> None:
        """Wait until the work has ended, or until a deadline on CLOCK_BOOTTIME; None waits without a limit.

        Raises:
            MissedDeadline: the work has not ended in time; it goes on.
            NnburstError: the work has ended with this error.
        """
        left = None if deadline_ns is None else max(seconds_until(deadline_ns), 0.0)
        if not self._ended.wait(left):
            raise MissedDeadline(f"the deadline has passed, and still goes on: {self._what}")
        if self._error is not None:
            error = self._error
            raise type(error)(str(error), status=error.status) from error


class Background:
    """Runs errands one after the other, on a thread that ends when none is left. Thread-safe.

    No call waits for the start of that thread. If an errand is requested again while it is under way, both
    callers get the same one.
    """

    def __init__(self) -> None:
        """Begin without errands."""
        #: Errands by key, the one under way first. It is changed in single steps, without a lock: a signal
        #: handler may begin an errand and wait for it wherever it interrupts a call.
        self._known: Final[dict[Hashable, Errand]] = {}
        self._turn: Final = threading.Lock()  # only for the threads that serve
        self._serves = False

    def begin(self, key: Hashable, what: str, work: Callable[[], None]) -> Errand:
        """Start an errand, or return the one with the same `key` that is under way.

        Args:
            key: identifies the errand.
            what: describes it in messages.
            work: does it.

        Raises:
            ResourceExhausted: the process may have no more threads.
        """
        errand = self._known.setdefault(key, Errand(what, work))
        if not self._serves:
            # If two callers come at once, one thread too many starts, which finds nothing to do.
            DaemonThread(self._serve)
        return errand

    def _serve(self) -> None:
        with self._turn:
            while self._known:
                self._serves = True
                # `list` of the keys is one step. A view of the pairs makes tuples, so the garbage collector,
                # and with it another thread, may run amid it.
                key = list(self._known)[0]  # noqa: RUF015
                errand = self._known[key]
                errand.run()
                del self._known[key]
                errand.settle()
                if not self._known:
                    self._serves = False  # before the last look


class TaskThread:
    """A thread of a burst that runs blocking calls for tasks of event loops.

    The tasks wait without blocking their loops.
    """

    def __init__(self) -> None:
        """Do not start the thread; the first call does."""
        self._calls: Final = SimpleQueue[Callable[[], None] | None]()
        self._is_started = False
        self._is_closed = False
        #: The calls that have not ended. The references are weak: if an interruption keeps a call from the
        #: queue, it ends with its future.
        self._under_way: Final[set[weakref.ref[asyncio.Future[ExecutionResult]]]] = set()
        self._threads: Final[set[int]] = set()

    @property
    def under_way(self) -> list[bool]:
        """For each call that has not ended, whether its task no longer waits; empty on the thread itself."""
        if threading.get_ident() in self._threads:
            return []
        futures = [reference() for reference in tuple(self._under_way)]
        return [future.cancelled() for future in futures if future is not None]

    async def call(self, work: Callable[[], ExecutionResult], deadline_ns: int) -> ExecutionResult:
        """Call `work` on the thread; return its result, or raise its exception.

        Raises:
            Closed: the thread was closed meanwhile; in a rare case `work` still runs.
            MissedDeadline: there was no result by `deadline_ns`, on CLOCK_MONOTONIC; `work` goes on.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[ExecutionResult] = loop.create_future()
        reference = weakref.ref(future, self._under_way.discard)

        def run() -> ExecutionResult:
            try:
                return work()
            finally:
                self._under_way.discard(reference)

        if not self._is_started:
            DaemonThread(self._serve)
            self._is_started = True
        self._under_way.add(reference)
        self._calls.put(partial(settle_by, loop, future, run))
        if self._is_closed:  # then the call may lie behind the end of the queue
            future.cancel()
            raise Closed("the burst is closed")
        return await wait_for_future(future, deadline_ns)

    def close(self) -> None:
        """Let the thread end after its present calls, without waiting. Twice is fine."""
        self._is_closed = True
        self._calls.put(None)

    def _serve(self) -> None:
        self._threads.add(threading.get_ident())
        while (call := self._calls.get()) is not None:
            call()
            del call
        self._calls.put(None)  # for a second thread that an interrupted start may have left


async def wait_for_future(future: asyncio.Future[T], deadline_ns: int) -> T:
    """Wait for the result of a future until a deadline on CLOCK_MONOTONIC; cancel it if none has come."""
    left = max(deadline_ns - time.monotonic_ns(), 0) * 1e-9
    try:
        done, _ = await asyncio.wait([future], timeout=left)
        if not done:
            raise MissedDeadline("timeout: no result came in time")
        return future.result()
    finally:
        future.cancel()
