"""Answers the driver's calls: requests for the pools of bursts, and notifications of outcomes.

Each callback of an asynchronous call runs exactly once, whatever happens. What comes first counts: the
driver's notification, its refusal of the call, or its death. Later ones are released. (NNAPI: TransferValue.)
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
        """Notify the listener; True if this was the first time."""
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


class BurstCallback(NamedTuple):
    """The functions that a driver may call about one burst (NNAPI: IBurstCallback).

    Attributes:
        get_memories: pools behind slots, in order; raises InvalidArgument for one not in use.
        closed: the driver has ended the burst, for this reason.
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
            channel: connected.
            notified: is given the notifications of asynchronous calls; must not block.
            ended: the driver does not call any more; runs on this thread, last.

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
        """Let the driver call back; the number goes into `OpenBurst.callback`."""
        number = next(self._numbers)
        self._callbacks[number] = callback
        return number

    def release(self, number: int) -> None:
        """The driver may not ask any more; unknown numbers are ignored."""
        self._callbacks.pop(number, None)

    def abandon_in_child(self) -> None:
        """Leave the upcalls to the parent of this forked process."""
        self._channel.abandon_in_child()

    def close(self) -> None:
        """End the thread."""
        self._channel.shutdown()
        if threading.current_thread() is not self._thread:
            self._thread.join()
            self._channel.close()

    def _serve(self) -> None:
        try:
            Service[Message](self._channel, decode_upcall, self._answer).serve()
        except ProtocolError:
            self._channel.shutdown()
        finally:
            self._ended()  # who waits for a notification would wait for ever

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
