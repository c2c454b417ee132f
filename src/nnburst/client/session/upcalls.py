"""Answers the driver's calls: requests for the pools of bursts, and notifications of outcomes.

Each callback of an asynchronous call runs exactly once: at the driver's notification, its refusal of the
call, or its death, whichever comes first. A model that a later notification brings is released. (NNAPI:
TransferValue.)
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from nnburst.client.memory import Memory
from nnburst.control.channel import MAX_FDS, Channel, Fds, ProtocolError
from nnburst.control.connection import Connection
from nnburst.control.messages import (
    BurstClosed,
    GetMemories,
    Memories,
    Message,
    Nothing,
    NotifyExecuted,
    NotifyPrepared,
    Release,
    decode_upcall,
)
from nnburst.control.service import Answer, Service, nothing
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.errors import GeneralFailure, InvalidArgument, NnburstError, error_for
from nnburst.hal.utils import start_thread

Notification = NotifyPrepared | NotifyExecuted
#: Receives the driver's notification, or the reason why none will come. It must not block its thread.
Listener = Callable[[Notification | NnburstError], None]


class Interrupted(GeneralFailure):
    """An asynchronous call was interrupted: it is unknown whether the driver has received it."""


class Callback:
    """One callback (NNAPI: IPreparedModelCallback, IExecutionCallback). Thread-safe.

    Attributes:
        number: the number that names it in messages.
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
        """Notify the listener; True if this was the first time."""
        with self._lock:
            listener, self._listener = self._listener, None
        if listener is None:
            return False
        listener(outcome)
        return True

    def notify_as_dead_object(self) -> None:
        """Notify the listener that the driver has died, or that the connection was closed."""
        self.notify(self._ended(self))


class Callbacks:
    """All callbacks that one driver may notify; its death notifies them, too. Thread-safe.

    A callback, and the memory that it refers to, is kept until the driver no longer needs it.
    """

    def __init__(self, connection: Connection) -> None:
        """Create the callbacks for the driver behind `connection`."""
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
            fds: borrowed descriptors that are sent with it.
            listener: receives the outcome exactly once, even if this method raises; for an exception that is
                not an NnburstError it receives an Interrupted.
            timeout: seconds until the call must be sent.

        Raises:
            MissedDeadline: the driver does not accept the call.
            DeadObject: the driver has died.
            InvalidArgument: the call is too large, or has too many descriptors.
        """
        callback = Callback(next(self._numbers), listener, self._ended)

        def answered(error: NnburstError | None) -> None:
            if error is not None:
                self.refused(callback, error)

        try:
            self._add(callback)  # in here: a signal handler may raise amid it
            call = message(callback.number)
            self._connection.call_async(call, Nothing, fds, answered, timeout=timeout)
        except NnburstError as error:
            self.refused(callback, error)
            raise
        except BaseException as error:
            self.refused(callback, Interrupted(f"the call was interrupted: {error!r}"))
            raise

    def open(self, listener: Listener) -> Callback:
        """Make a callback that notifies `listener`; its number goes into the call."""
        callback = Callback(next(self._numbers), listener, self._ended)
        self._add(callback)
        return callback

    def _add(self, callback: Callback) -> None:
        self._callbacks[callback.number] = callback
        self._connection.on_end(callback.notify_as_dead_object)

    def notified(self, message: Notification) -> None:
        """Handle a notification of the driver: run the callback, or release a model that came too late."""
        callback = self._callbacks.get(message.callback)
        outcome: Notification | NnburstError = message
        if message.status != ErrorStatus.NONE:
            shapes = message.output_shapes if isinstance(message, NotifyExecuted) else ()
            outcome = error_for(message.status, message.reason or message.status.name, shapes)
        if callback is None or not self._finish(callback, outcome):
            self.release_unwanted(message)

    def refused(self, callback: Callback, error: NnburstError) -> None:
        """End a callback whose call failed: the driver will not notify it, or has done so already."""
        self._finish(callback, error)

    def release_unwanted(self, message: Notification) -> None:
        """Release the prepared model of a notification that no call awaits."""
        if isinstance(message, NotifyPrepared) and message.handle is not None:
            self._connection.post(Release(message.handle))

    def _finish(self, callback: Callback, outcome: Notification | NnburstError) -> bool:
        self._callbacks.pop(callback.number, None)
        self._connection.remove_callback(callback.notify_as_dead_object)
        return callback.notify(outcome)

    def _ended(self, callback: Callback) -> NnburstError:
        self._callbacks.pop(callback.number, None)
        return self._connection.end_error()


class BurstCallback(NamedTuple):
    """The functions that a driver may call about one burst (NNAPI: IBurstCallback).

    Attributes:
        get_memories: returns the pools of slots, in order; raises InvalidArgument for a slot not in use.
        closed: called with the reason when the driver has ended the burst.
    """

    get_memories: Callable[[Sequence[int]], Sequence[Memory]]
    closed: Callable[[str], None]


class UpcallServer:
    """Serves a driver's upcalls. Thread-safe; no lock is held while a callback runs."""

    def __init__(
        self,
        channel: Channel,
        notified: Callable[[NotifyPrepared | NotifyExecuted], None],
        ended: Callable[[], None],
    ) -> None:
        """Own `channel` from here on and start the thread.

        Args:
            channel: connected to the driver.
            notified: called with each notification of an asynchronous call; must not block.
            ended: called last, on this thread, when the driver makes no more calls.

        Raises:
            ResourceExhausted: this process may have no more threads; `channel` is closed.
        """
        self._channel = channel
        self._notified = notified
        self._ended = ended
        self._callbacks: dict[int, BurstCallback] = {}
        self._numbers = itertools.count(1)
        self._thread = threading.Thread(target=self._serve, name="nnburst upcalls", daemon=True)
        start_thread(self._thread, channel)

    def register(self, callback: BurstCallback) -> int:
        """Register a burst's callback; returns its number, for `OpenBurst.callback`."""
        number = next(self._numbers)
        self._callbacks[number] = callback
        return number

    def release(self, number: int) -> None:
        """Remove a burst's callback; unknown numbers are ignored."""
        self._callbacks.pop(number, None)

    def abandon_in_child(self) -> None:
        """Stop serving upcalls in a forked child: the parent serves them."""
        self._channel.abandon_in_child()

    def close(self) -> None:
        """End the thread."""
        self._channel.shutdown()
        if threading.current_thread() is not self._thread:
            self._thread.join()
            self._channel.close()

    def _serve(self) -> None:
        service: Service[Message] = Service(self._channel, decode_upcall, self._answer)
        try:
            service.serve()
        except ProtocolError:
            self._channel.shutdown()
        finally:
            self._ended()  # else threads would wait for notifications for ever

    def _answer(self, call: Message, _fds: Fds) -> Answer:
        if isinstance(call, GetMemories):
            return self._get_memories(call)
        if isinstance(call, NotifyPrepared | NotifyExecuted):
            self._notified(call)
        elif isinstance(call, BurstClosed) and (callback := self._callbacks.get(call.callback)):
            callback.closed(call.reason)
        return nothing()

    def _get_memories(self, call: GetMemories) -> Answer:
        if len(call.slots) > MAX_FDS:
            raise InvalidArgument(f"getMemories: {len(call.slots)} slots, at most {MAX_FDS}")
        callback = self._callbacks.get(call.callback)
        if callback is None:
            raise InvalidArgument(f"getMemories: burst {call.callback} does not exist")
        memories = callback.get_memories(call.slots)
        return Memories(tuple(memory.size for memory in memories)), Fds.duplicates(memories)
