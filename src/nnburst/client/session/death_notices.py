"""What a program wants to have run when its driver dies, kept apart from what ends its waits."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from nnburst.control.connection import Connection

logger = logging.getLogger(__name__)

Callback = Callable[[], None]


class DeathNotices:
    """Runs callbacks once, on a thread of their own: none can delay DeadObject, or `close`. Thread-safe."""

    def __init__(self, connection: Connection) -> None:
        """Wait for the end of `connection`."""
        self._lock = threading.Lock()
        self._callbacks: list[Callback] = []
        self._ended = False
        connection.on_end(self._fail)

    def add(self, callback: Callback) -> None:
        """Run `callback` once the connection has ended; at once if it has."""
        with self._lock:
            if not self._ended:
                self._callbacks.append(callback)
                return
        callback()

    def remove_callback(self, callback: Callback) -> None:
        """Do not run `callback` any more; unknown ones are ignored."""
        with self._lock:
            if callback in self._callbacks:
                self._callbacks.remove(callback)

    def _fail(self) -> None:
        with self._lock:
            self._ended = True
            callbacks, self._callbacks = self._callbacks, []
        if callbacks:
            threading.Thread(
                target=_run, args=(callbacks,), name="nnburst death notices", daemon=True
            ).start()


def _run(callbacks: list[Callback]) -> None:
    for callback in callbacks:
        try:
            callback()
        except Exception:
            logger.exception("a handler of a driver's death raised; the others still run")
