"""DeathHandler: ends the waits for a driver's callbacks when that driver dies.

NNAPI: nnapi/hal/1.0/ProtectCallback.h. A call that is answered is ended by its connection; a callback that
the driver would have called is ended here.
"""

from __future__ import annotations

import logging
import threading
from typing import Protocol, Self

from nnburst.control.connection import Connection
from nnburst.hal.closing import Closing
from nnburst.hal.errors import GeneralFailure, InvalidArgument

logger = logging.getLogger(__name__)


class ProtectedCallback(Protocol):
    """Something that a driver was to call (NNAPI: IProtectedCallback)."""

    def notify_as_dead_object(self) -> None:
        """The driver has died, or its connection was closed. Must not block; called at most once."""


class DeathHandler:
    """Notifies callbacks of one driver's death. Thread-safe; no lock is held meanwhile."""

    @classmethod
    def create(cls, connection: Connection | None) -> Self:
        """Watch `connection`.

        Raises:
            InvalidArgument: it is None.
            GeneralFailure: it has ended already.
        """
        if connection is None:
            raise InvalidArgument("connection is None, expected that of a driver")
        if not connection.is_alive:
            raise GeneralFailure("the driver has died before its death could be watched for")
        return cls(connection)

    def __init__(self, connection: Connection) -> None:
        """Watch `connection`, be it at its end."""
        self._lock = threading.Lock()
        self._callbacks: dict[int, ProtectedCallback] = {}
        self._dead = False
        connection.on_end(self._died)

    def protect_callback(self, callback: ProtectedCallback | None) -> Protection:
        """Tell `callback` of the driver's death until the guard that this returns is left or released.

        A driver that has died already is notified of at once.

        Raises:
            InvalidArgument: it is None.
        """
        if callback is None:
            raise InvalidArgument("callback is None, expected one to protect")
        self.protect_callback_for_lifetime(callback)
        return Protection(self, callback)

    def protect_callback_for_lifetime(self, callback: ProtectedCallback | None) -> None:
        """Tell `callback` of the driver's death, whenever that is (NNAPI: for bursts).

        Raises:
            InvalidArgument: it is None.
        """
        if callback is None:
            raise InvalidArgument("callback is None, expected one to protect")
        with self._lock:
            dead = self._dead
            if not dead:
                self._callbacks[id(callback)] = callback
        if dead:
            callback.notify_as_dead_object()

    def unprotect(self, callback: ProtectedCallback) -> None:
        """Do not notify `callback` any more; unknown ones are ignored."""
        with self._lock:
            self._callbacks.pop(id(callback), None)

    def _died(self) -> None:
        with self._lock:
            self._dead = True
            callbacks, self._callbacks = self._callbacks, {}
        for callback in callbacks.values():
            try:
                callback.notify_as_dead_object()
            except Exception:
                logger.exception(
                    "a callback for a driver's death raised; the others are still called"
                )


class Protection(Closing):
    """A scope in which a callback is notified of a driver's death. A context manager."""

    __slots__ = ("_callback", "_handler")

    def __init__(self, handler: DeathHandler, callback: ProtectedCallback) -> None:
        """Use `DeathHandler.protect_callback`."""
        self._handler = handler
        self._callback = callback

    def close(self) -> None:
        """Leave the scope; twice is fine."""
        self._handler.unprotect(self._callback)
