"""EndCallbacks: what runs when the peer has died or its connection was closed."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable

logger = logging.getLogger(__name__)


class EndCallbacks:
    """Runs each callback once, at the end or, if that has been, at once.

    Thread-safe and reentrant without a lock, so that the garbage collector and signal handlers may add and
    remove: each step on the list is one call of a function of C's. (NNAPI: DeathHandler.)

    Attributes:
        ended: what is added runs at once; those that are there wait for `run`.
    """

    def __init__(self, what: str) -> None:
        """`what` names it in the log."""
        self._what = what
        self.ended = False
        self._callbacks: list[Callable[[], None]] = []

    def __bool__(self) -> bool:
        """Whether there are any to run."""
        return bool(self._callbacks)

    def add(self, callback: Callable[[], None]) -> None:
        """Run `callback` once at the end; at once if that has been."""
        self._callbacks.append(callback)
        if self.ended and self.remove(callback):
            callback()

    def add_weakly(self, method: Callable[[], None]) -> None:
        """Run a method at the end if its object still exists then."""

        def call() -> None:
            alive = reference()
            if alive is not None:
                alive()

        # What is left of an object that is gone goes with it, and keeps nothing alive until then.
        remove = self.remove
        reference = weakref.WeakMethod(method)
        weakref.finalize(method.__self__, remove, call).atexit = False  # type: ignore[attr-defined]
        self.add(call)

    def remove(self, callback: Callable[[], None]) -> bool:
        """Do not run `callback` any more; False if it is unknown, or was run."""
        try:
            self._callbacks.remove(callback)
        except ValueError:
            return False
        return True

    def run(self) -> None:
        """It has ended: run all, the one added last first. Twice is fine."""
        self.ended = True
        while True:
            try:
                callback = self._callbacks.pop()
            except IndexError:
                return
            try:
                callback()
            except Exception:
                logger.exception(
                    "a callback for the end of %s raised; the others follow", self._what
                )
