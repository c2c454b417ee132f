"""Callbacks that a driver was asked to notify: each is called exactly once, whatever happens.

What comes first counts: the driver's notification, its refusal of the call, or its death. Later ones are
disposed of. (NNAPI: TransferValue.)
"""

from __future__ import annotations

import itertools
import logging
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Final

from nnburst.control.connection import Connection
from nnburst.control.messages.device import NotifyPrepared
from nnburst.control.messages.message import Message
from nnburst.control.messages.prepared_model import NotifyExecuted
from nnburst.control.messages.session import Nothing, Release
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.errors import GeneralFailure, NnburstError, error_for

logger = logging.getLogger(__name__)

Notification = NotifyPrepared | NotifyExecuted
#: What a callback gets: the driver's word, or why it will not come. Runs on a thread that must go on.
Listener = Callable[[Notification | NnburstError], None]


class Interrupted(GeneralFailure):
    """An interruption fell into an asynchronous call: it is unknown whether the driver has got it."""


class Callback:
    """One callback (NNAPI: IPreparedModelCallback, IExecutionCallback). Thread-safe.

    Attributes:
        number: what messages call it.
    """

    def __init__(
        self, number: int, listener: Listener, ended: Callable[[Callback], NnburstError]
    ) -> None:
        """Use `Callbacks.open`."""
        self.number: Final = number
        self._listener: Listener | None = listener
        self._ended = ended
        self._lock = threading.Lock()

    def notify(self, outcome: Notification | NnburstError) -> bool:
        """Tell the listener; whether this was the first."""
        with self._lock:
            listener, self._listener = self._listener, None
        if listener is None:
            return False
        listener(outcome)
        return True

    def notify_as_dead_object(self) -> None:
        """The driver has died, or the connection was closed: the listener gets the reason."""
        self.notify(self._ended(self))


class Callbacks:
    """All callbacks that one driver may notify, protected against its death. Thread-safe.

    A callback, and the memory that it holds, stays here until the driver can have no use for it any more.
    """

    def __init__(self, connection: Connection) -> None:
        """Expect notifications from the driver behind `connection`."""
        self._connection = connection
        self._callbacks: dict[int, Callback] = {}
        self._numbers = itertools.count(1)

    def call(
        self,
        message: Callable[[int], Message],
        fds: Sequence[int],
        listener: Listener,
        timeout: float,
    ) -> None:
        """Send an asynchronous call.

        Args:
            message: makes the call from the number of its callback.
            fds: borrowed descriptors that go with it.
            listener: gets what becomes of it, exactly once, also if this raises; of an exception that is
                no NnburstError it gets an Interrupted.
            timeout: seconds until the call must have left.

        Raises:
            MissedDeadline: the driver does not take it.
            DeadObject: the driver has died.
            InvalidArgument: it is too large, or brings too many descriptors.
        """
        callback = self.open(listener)

        def answered(error: NnburstError | None) -> None:
            if error is not None:
                self.refused(callback, error)

        try:
            call = message(callback.number)
            self._connection.call_async(call, Nothing, fds, answered, timeout=timeout)
        except NnburstError as error:
            self.refused(callback, error)
            raise
        except BaseException as error:
            self.refused(callback, Interrupted(f"the call was interrupted: {error!r}"))
            raise

    def open(self, listener: Listener) -> Callback:
        """A callback that notifies `listener`; its number goes into the call."""
        callback = Callback(next(self._numbers), listener, self._ended)
        self._callbacks[callback.number] = callback
        self._connection.on_end(callback.notify_as_dead_object)
        return callback

    def notified(self, message: Notification) -> None:
        """The driver notifies: run the callback, or dispose of what comes too late."""
        callback = self._callbacks.get(message.callback)
        outcome: Notification | NnburstError = message
        if message.status != ErrorStatus.NONE:
            shapes = message.output_shapes if isinstance(message, NotifyExecuted) else ()
            outcome = error_for(message.status, message.reason or message.status.name, shapes)
        if callback is None or not self._finish(callback, outcome):
            self.release_unwanted(message)

    def refused(self, callback: Callback, error: NnburstError) -> None:
        """The call failed: the driver will not notify, or has done so."""
        self._finish(callback, error)

    def release_unwanted(self, message: Notification) -> None:
        """Release what an unwanted notification brings."""
        if isinstance(message, NotifyPrepared) and message.handle is not None:
            self._connection.post(Release(message.handle))

    def _finish(self, callback: Callback, outcome: Notification | NnburstError) -> bool:
        self._callbacks.pop(callback.number, None)
        self._connection.remove_callback(callback.notify_as_dead_object)
        return callback.notify(outcome)

    def _ended(self, callback: Callback) -> NnburstError:
        self._callbacks.pop(callback.number, None)
        return self._connection.end_error()


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
