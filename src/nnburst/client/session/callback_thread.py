"""CallbackThread: where a program's own callbacks run."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

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
