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

from nnburst.client.arguments import check_callable, check_timeout
from nnburst.hal.errors import Closed, GeneralFailure, MissedDeadline, NnburstError
from nnburst.hal.utils import NotPicklable, OneTimeEvent, check_owner

if TYPE_CHECKING:
    import asyncio

logger = logging.getLogger(__name__)


class CallbackThread:
    """Runs a program's own callbacks, one after the other: they may block, and delay only each other.

    Thread-safe. The thread starts with the first callback.
    """

    def __init__(self) -> None:
        """Create the queue, without starting the thread."""
        self._lock = threading.Lock()
        self._waiting: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._started = False
        self._closed = False

    def run(self, callback: Callable[[], None]) -> None:
        """Queue `callback` for the thread; after `close`, run it at once."""
        with self._lock:
            closed = self._closed
            if not closed:
                self._waiting.put(callback)
                self._started = self._started or self._start()
        if closed:
            _attempt(callback)

    def _start(self) -> bool:
        """Start the thread; False if the process may have no more threads. The next callback tries again."""
        try:
            threading.Thread(target=self._serve, name="nnburst callbacks", daemon=True).start()
        except RuntimeError as error:
            logger.warning(
                "cannot start the callback thread; the next callback tries again: %s", error
            )
            return False
        return True

    def close(self) -> None:
        """End the thread after the callbacks that are queued; does not wait for that. Twice is fine."""
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

#: Longest single wait of `result` in seconds: every wait has a deadline.
_LONG: Final = 3600.0


class Pending(NotPicklable, Generic[T]):
    """A result that comes later, for threads, callbacks and event loops (`await`). Thread-safe.

    It is completed once: by a result, an error, or a cancellation. A later result is released.
    """

    _instead = "pickle its result instead"

    def __init__(self, what: str, thread: CallbackThread) -> None:
        """Create a pending result, called `what` in error messages; callbacks run on `thread`."""
        self._what = what
        self._thread = thread
        self._owner = os.getpid()
        self._lock = threading.RLock()
        self._ended = OneTimeEvent()
        self._done = False
        self._cancelled = False
        self._result: T | None = None
        self._error: NnburstError | None = None
        self._finish: Callable[[Any], T] | None = None
        self._finishing = threading.RLock()  # a signal handler may ask while its thread is in here
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
            timeout: seconds to wait; None to wait until the driver answers or dies.

        Raises:
            MissedDeadline: the outcome did not come in time; it may still come.
            Closed: it was cancelled.
            NnburstError: the driver reports it; DeadObject if the driver died.
        """
        seconds = None if timeout is None else check_timeout(timeout)
        self._check_process()
        deadline = math.inf if seconds is None else time.monotonic() + seconds
        while not self._ended.wait(_slice(deadline)):
            if time.monotonic() >= deadline:
                raise MissedDeadline(f"timeout: {self._what} was not done in {timeout:g} s")
        return self._outcome()

    def cancel(self) -> bool:
        """Give the result up; returns False if it is done already.

        The driver still finishes its work, and the memory that it uses is kept until then.
        """
        return self._complete(Closed(f"{self._what} was cancelled"), cancelled=True)

    def add_done_callback(self, callback: Callable[[Self], object]) -> None:
        """Call `callback(self)` once this is done: on a thread for callbacks, or now if it is done already.

        Callbacks of one device run one after the other; their exceptions on that thread are logged.

        Raises:
            InvalidArgument: `callback` cannot be called.
        """
        check_callable("callback", callback)

        def call() -> None:
            callback(self)

        if not self._wake_later(lambda: self._thread.run(call)):
            call()

    def __await__(self) -> Generator[Any, None, T]:
        """Wait in an event loop. If the task is cancelled meanwhile, this is cancelled, too."""
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
        check_owner(self._owner, self._what)

    def _wake_later(self, waker: Callable[[], None]) -> bool:
        """Run `waker` when this is done; returns False if it is done already."""
        with self._lock:
            if self._done:
                return False
            self._wakers.append(waker)
            return True

    def _complete(
        self, outcome: Callable[[Any], T] | NnburstError, *, cancelled: bool = False
    ) -> bool:
        """Complete this with an outcome; returns False if it was complete already.

        Args:
            outcome: an error, or a function that makes the result from this object. The first caller of
                `result` runs it, once. It must not refer to this object: such a cycle would keep it alive.
            cancelled: whether the program gave the result up.
        """
        with self._lock:
            if self._done:
                return False
            if isinstance(outcome, NnburstError):
                self._error = outcome
            else:
                self._finish = outcome
            self._done, self._cancelled = True, cancelled
            wakers, self._wakers = self._wakers, []
            self._ended.set()
        for wake in wakers:
            wake()
        return True

    def _outcome(self) -> T:
        taking = MissedDeadline(f"a signal handler interrupts taking {self._what}")
        with self._finishing:
            if self._finish is not None:
                finish, self._finish, self._error = self._finish, None, taking
                try:
                    self._result = finish(self)
                    self._error = None
                except NnburstError as error:
                    self._error = _again(error)
                    raise
                except BaseException as error:  # such as Ctrl-C, which is raised once
                    self._error = GeneralFailure(f"an interruption lost the result: {error!r}")
                    raise
        if self._error is not None:
            raise _again(self._error)
        return self._result  # type: ignore[return-value]  # done, and not with an error

    def __repr__(self) -> str:
        state = "cancelled" if self._cancelled else "done" if self._done else "pending"
        return f"<nnburst.{type(self).__name__}: {state}>"


def wake_waiter(future: asyncio.Future[None]) -> None:
    """End the wait for a future, in its event loop; does nothing if the wait has ended already."""
    if not future.done():
        future.set_result(None)


def _slice(deadline: float) -> float:
    return min(max(deadline - time.monotonic(), 0.0), _LONG)


def _again(error: NnburstError) -> NnburstError:
    """Copy an error without its traceback, which would grow with each raise and keep frames alive."""
    kind = type(error)
    again = kind.__new__(kind)
    again.args, again.__cause__ = error.args, error.__cause__
    again.__suppress_context__ = error.__suppress_context__
    again.__dict__.update(error.__dict__)
    return again
