"""Runs long work on a background thread, once for all callers that wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Final

from nnburst.client.arguments import seconds_until
from nnburst.hal.errors import GeneralFailure, MissedDeadline, NnburstError
from nnburst.hal.utils import DaemonThread


class Errand:
    """A piece of work of the background thread. Any thread may wait for it."""

    def __init__(self, what: str, work: Callable[[], None]) -> None:
        """Run `work` later; `what` describes it in messages."""
        self._what: Final = what
        self._work: Callable[[], None] | None = work
        self._ended: Final = threading.Event()
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
