"""Runs long work on a background thread, once for all callers that wait for it."""

from __future__ import annotations

import threading
from collections import deque
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
        self._lock: Final = threading.Lock()
        self._waiting: Final[deque[tuple[Hashable, Errand]]] = deque()
        self._known: Final[dict[Hashable, Errand]] = {}
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
        with self._lock:
            known = self._known.get(key)
            if known is not None:
                return known
            errand = self._known[key] = Errand(what, work)
            self._waiting.append((key, errand))
            if self._serves:
                return errand
            try:
                self._serves = True
                DaemonThread(self._serve)
            except BaseException:  # of a signal handler, too: two threads may serve then
                self._serves = False
                raise
            return errand

    def _serve(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._serves = False
                    return
                key, errand = self._waiting.popleft()
            errand.run()
            with self._lock:
                self._known.pop(key, None)
            errand.settle()
