"""Waits for results that come later, and runs the program's callbacks on a thread."""

from __future__ import annotations

import logging
import math
import os
import queue
import threading
import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar

from nnburst.client.arguments import check_timeout
from nnburst.hal.errors import Closed, GeneralFailure, MissedDeadline, NnburstError
from nnburst.hal.utils import NotPicklable

if TYPE_CHECKING:
    import asyncio

logger = logging.getLogger(__name__)


class CallbackThread:
    """Runs a program's own callbacks, one after the other: they may block, and delay only each other.

    Thread-safe. The thread starts with the first one.
    """

    def __init__(self) -> None:
        """Start nothing yet."""
        self._lock = threading.Lock()
        self._waiting: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._started = False
        self._closed = False

    def run(self, callback: Callable[[], None]) -> None:
        """Run `callback` soon; after `close`, at once."""
        with self._lock:
            closed = self._closed
            if not closed:
                self._waiting.put(callback)
                self._started = self._started or self._start()
        if closed:
            _attempt(callback)

    def _start(self) -> bool:
        """Start the thread; False if the process may have no more, and the next callback tries again."""
        try:
            threading.Thread(target=self._serve, name="nnburst callbacks", daemon=True).start()
        except RuntimeError as error:
            logger.warning(
                "cannot start the callback thread; the next callback tries again: %s", error
            )
            return False
        return True

    def close(self) -> None:
        """Run what waits, and end; does not wait for that. Twice is fine."""
        with self._lock:
            self._closed = True
        self._waiting.put(None)

    def _serve(self) -> None:
        while (callback := self._waiting.get()) is not None:
            _attempt(callback)
            del callback


def _attempt(callback: Callable[[], None]) -> None:
    try:
        callback()
    except Exception:
        logger.exception("a callback raised; later ones are still called")


T = TypeVar("T")

#: Seconds that `result` waits at a time: no wait is without a deadline.
_LONG: Final = 3600.0


class Pending(NotPicklable, Generic[T]):
    """A result that comes later, for threads, callbacks and event loops (`await`). Thread-safe.

    It is done once: with a result, with an error, or because it was cancelled. A result that comes after
    that is released.
    """

    _instead = "pickle its result instead"

    def __init__(self, what: str, thread: CallbackThread) -> None:
        """`what` names it in messages; callbacks run on `thread`."""
        self._what = what
        self._thread = thread
        self._owner = os.getpid()
        self._changed = threading.Condition()
        self._done = False
        self._cancelled = False
        self._result: T | None = None
        self._error: NnburstError | None = None
        self._finish: Callable[[Any], T] | None = None
        self._finishing = threading.Lock()
        self._wakers: list[Callable[[], None]] = []

    def done(self) -> bool:
        """Whether `result` returns, or raises, at once."""
        return self._done

    def cancelled(self) -> bool:
        """Whether it was cancelled before it was done."""
        return self._cancelled

    def result(self, timeout: float | None = None) -> T:
        """Wait for the outcome; may be called again.

        Args:
            timeout: seconds; None to wait until the driver answers or dies.

        Raises:
            MissedDeadline: it is not there in time; it may come yet.
            Closed: it was cancelled.
            NnburstError: the driver's reason, or DeadObject.
        """
        seconds = None if timeout is None else check_timeout(timeout)
        self._check_process()
        deadline = math.inf if seconds is None else time.monotonic() + seconds
        with self._changed:
            while not self._changed.wait_for(lambda: self._done, _slice(deadline)):
                if time.monotonic() >= deadline:
                    raise MissedDeadline(f"timeout: {self._what} was not done in {timeout:g} s")
        return self._outcome()

    def cancel(self) -> bool:
        """Cancel it; False if it is done already.

        The driver finishes what it has begun, and memory that it uses is kept until then.
        """
        return self._complete(Closed(f"{self._what} was cancelled"), cancelled=True)

    def add_done_callback(self, callback: Callable[[Self], object]) -> None:
        """Call `callback(self)` once it is done: on a thread for callbacks, or at once if it is done already.

        Callbacks of one device run one after the other; what they raise on their thread is logged.
        """

        def call() -> None:
            callback(self)

        if not self._wake_later(lambda: self._thread.run(call)):
            call()

    def __await__(self) -> Generator[Any, None, T]:
        """Wait in an event loop. A task that is cancelled meanwhile cancels this, too."""
        import asyncio

        self._check_process()
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            try:
                loop.call_soon_threadsafe(wake_waiter, woken)
            except RuntimeError:
                pass  # the loop has been closed: there are no waiters any more

        if self._wake_later(wake):
            try:
                yield from woken
            except asyncio.CancelledError:
                self.cancel()
                raise
        return self._outcome()

    def _check_process(self) -> None:
        if os.getpid() != self._owner:
            raise Closed(f"{self._what} belongs to process {self._owner}, which forked")

    def _wake_later(self, waker: Callable[[], None]) -> bool:
        """Run `waker` when it is done; False if it is already."""
        with self._changed:
            if self._done:
                return False
            self._wakers.append(waker)
            return True

    def _complete(
        self, outcome: Callable[[Any], T] | NnburstError, *, cancelled: bool = False
    ) -> bool:
        """Be done; whether this was the first outcome.

        Args:
            outcome: an error, or what makes the result from this object: run once, for the first caller
                first. It must not refer to this object by itself: one that is never asked would live on.
            cancelled: whether it is not wanted any more.
        """
        with self._changed:
            if self._done:
                return False
            if isinstance(outcome, NnburstError):
                self._error = outcome
            else:
                self._finish = outcome
            self._done, self._cancelled = True, cancelled
            wakers, self._wakers = self._wakers, []
            self._changed.notify_all()
        for wake in wakers:
            wake()
        return True

    def _outcome(self) -> T:
        with self._finishing:
            if self._finish is not None:
                finish, self._finish = self._finish, None
                try:
                    self._result = finish(self)
                except NnburstError as error:
                    self._error = _again(error)
                    raise
                except BaseException as error:  # Ctrl-C, say, which is raised once
                    self._error = GeneralFailure(f"an interruption lost the result: {error!r}")
                    raise
        if self._error is not None:
            raise _again(self._error)
        return self._result  # type: ignore[return-value]  # done, and not with an error

    def __repr__(self) -> str:
        state = "cancelled" if self._cancelled else "done" if self._done else "pending"
        return f"<nnburst.{type(self).__name__}: {state}>"


def wake_waiter(future: asyncio.Future[None]) -> None:
    """End the wait for a future, in its event loop; nothing if that has ended already."""
    if not future.done():
        future.set_result(None)


def _slice(deadline: float) -> float:
    return min(max(deadline - time.monotonic(), 0.0), _LONG)


def _again(error: NnburstError) -> NnburstError:
    """The same error without its traceback, which grows with each raise and refers to its frames."""
    kind = type(error)
    again = kind.__new__(kind)
    again.args, again.__cause__ = error.args, error.__cause__
    again.__suppress_context__ = error.__suppress_context__
    again.__dict__.update(error.__dict__)
    return again
