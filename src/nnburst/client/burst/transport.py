"""Opens and closes the channels of a burst, and ends its waits when the burst or its driver ends."""

from __future__ import annotations

import contextlib
import socket
import threading
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import msgspec

from nnburst._native import lib
from nnburst.client.execution.prepared import Prepared
from nnburst.client.session.upcalls import BurstCallback
from nnburst.control.connection import Connection, RemoteObject
from nnburst.control.messages import FreeMemory, Message, Nothing, OpenBurst, Opened
from nnburst.fmq.cores import allowed_cores
from nnburst.fmq.message_queue import MessageQueue
from nnburst.hal.enums import ExecutionPreference
from nnburst.hal.errors import Closed
from nnburst.hal.utils import Scarce
from nnburst.serialize import REQUEST_DATUM, RESULT_DATUM
from nnburst.tracing.slices import Layer, Phase, trace

if TYPE_CHECKING:
    from nnburst._native import nnb_client


#: More bytes than a driver ever sends between two reads: it sends one for each wait that began.
_ENOUGH: Final = 4096


class WakeupSocket:
    """A socketpair by which a driver wakes the client's event loop; readable also at the end. Thread-safe."""

    def __init__(self) -> None:
        """Make both ends; the driver's end stays open here until `release_their_fd`.

        Raises:
            ResourceExhausted: this process may have no more descriptors.
        """
        with Scarce("a burst cannot be opened"):
            self._socket, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        # If a burst is never closed, the garbage collector closes these descriptors with its channels.
        for end in (self._socket, self._theirs):
            weakref.finalize(self, end.close).atexit = False
        self._lock = threading.RLock()  # a signal handler may close it while its thread is in here
        self._closed = False
        self._in_use = False

    @property
    def their_fd(self) -> int:
        """The descriptor of the driver's end; borrowed, to be sent in one message."""
        return self._theirs.fileno()

    def release_their_fd(self) -> None:
        """Close this process's copy of the driver's end, after the driver has received its own."""
        self._theirs.close()

    def fileno(self) -> int:
        """The descriptor of the client's end, for an event loop."""
        return self._socket.fileno()

    def drain(self) -> bool:
        """Read the wakeups that have come; returns False after the end."""
        try:
            return bool(self._socket.recv(_ENOUGH))
        except BlockingIOError:
            return True
        except OSError:
            return False

    def hold(self) -> None:
        """Note that an event loop watches the descriptor: `close` then leaves it open until `release`.

        Raises:
            Closed: `close` was called before.
        """
        with self._lock:
            if not self._closed:
                self._in_use = True
                return
        raise Closed("the burst is closed")

    def release(self) -> None:
        """Note that no event loop watches the descriptor any more; closes it if `close` was called."""
        with self._lock:
            self._in_use = False
            if self._closed:
                self._socket.close()

    def fail(self) -> None:
        """Wake all waiters, now and from now on."""
        with self._lock, contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Wake all waiters, and close both ends as soon as no event loop watches them; twice is fine."""
        self.fail()
        with self._lock:
            self._closed = True
            self._theirs.close()
            if not self._in_use:
                self._socket.close()

    def abandon_in_child(self) -> None:
        """Close the descriptors in a forked child: only the parent uses them."""
        self._theirs.close()
        self._socket.close()


#: Seconds that a control call about the burst may take.
_TIMEOUT: Final = 30.0


class BurstChannels:
    """A request and a result queue that a driver serves (NNAPI: configureExecutionBurst).

    Attributes:
        requests: written by this process.
        results: read by this process.
        wakeup_socket: receives a byte for each result that an event loop awaits.
        handle: the driver's number for the burst.
        may_spin: whether both sides can run at the same time.
    """

    def __init__(
        self,
        prepared: Prepared,
        callback: BurstCallback,
        lengths: tuple[int, int],
        *,
        max_in_flight: int = 1,
        preference: ExecutionPreference = ExecutionPreference.FAST_SINGLE_ANSWER,
    ) -> None:
        """Allocate the queues and have the driver open them.

        Args:
            prepared: a prepared model that is open.
            callback: the functions that the driver may call.
            lengths: elements of the request and of the result queue.
            max_in_flight: requests that may be under way at once.
            preference: LOW_POWER keeps the driver from spinning.

        Raises:
            ResourceExhausted: this process may have no more descriptors, or no memory is left.
            NnburstError: the driver refuses.
        """
        # Refuse a closed device first, while there is nothing to release yet.
        self._connection = prepared.session.connection
        self._remote = RemoteObject(self._connection)
        self._upcalls = prepared.session.upcalls
        with ExitStack() as undo:
            self.requests = undo.enter_context(
                MessageQueue.create(REQUEST_DATUM, lengths[0], ends=False)
            )
            self.results = undo.enter_context(
                MessageQueue.create(RESULT_DATUM, lengths[1], ends=False)
            )
            self.wakeup_socket = WakeupSocket()
            undo.pop_all()
        self._callback = self._upcalls.register(callback)
        user = object()
        try:
            # The model stays valid in the driver meanwhile, even if another thread closes it.
            opened = self._open(prepared.hold(user), max_in_flight, preference)
        except BaseException:
            self._release()
            raise
        finally:
            prepared.release(user)
        self.wakeup_socket.release_their_fd()
        self.handle = opened.handle
        self.may_spin = bool(opened.fields.get("may_spin"))

    def _open(self, handle: int, max_in_flight: int, preference: ExecutionPreference) -> Opened:
        message = OpenBurst(
            handle=handle,
            callback=self._callback,
            request_channel=msgspec.Raw(msgspec.msgpack.encode(self.requests.descriptor)),
            result_channel=msgspec.Raw(msgspec.msgpack.encode(self.results.descriptor)),
            max_in_flight=max_in_flight,
            cpus=allowed_cores(),
            preference=preference,
        )
        fds = [
            self.requests.memories[0].fd,
            self.results.memories[0].fd,
            self.wakeup_socket.their_fd,
        ]
        with trace(Layer.IPC, Phase.COMPILATION, "configureExecutionBurst"):
            opened, _ = self._connection.call(
                message, Opened, fds, timeout=_TIMEOUT, remote=self._remote
            )
        return opened

    def call(self, message: Message) -> None:
        """Make a control call about the burst, and wait for the answer."""
        self._connection.call(message, Nothing, timeout=_TIMEOUT)

    def free_memory(self, slot: int) -> None:
        """Make the driver drop a slot (NNAPI: IBurstContext::freeMemory)."""
        self.call(FreeMemory(self.handle, slot))

    def abandon(self) -> None:
        """Like `close`, without waiting for the driver."""
        self._remote.post_release()
        self._release()

    def close(self) -> None:
        """Release the burst in the driver and here; fine with a dead driver."""
        try:
            self._remote.release()
        finally:
            self._release()

    def _release(self) -> None:
        self._upcalls.release(self._callback)
        self.requests.close()
        self.results.close()
        self.wakeup_socket.close()


class BurstStop:
    """Ends every wait of a burst. It keeps the queues mapped, but holds no reference to the burst."""

    def __init__(self, client: nnb_client, channels: BurstChannels) -> None:
        """End the waits of `client`, whose queues are `channels`."""
        self._client = client
        self._channels = channels

    def __call__(self) -> None:
        """End all waits, current and later ones. Any thread."""
        lib.nnb_client_stop(self._client)
        self._channels.wakeup_socket.fail()


def abandon_burst(
    connection: Connection, channels: BurstChannels, stop: BurstStop, let_go: Callable[[], None]
) -> None:
    """Give up a burst that was never closed; `let_go` releases its model."""
    connection.remove_callback(stop)
    channels.abandon()
    let_go()


class BurstEnded:
    """Passes on that the driver has ended a burst, even if that comes before the burst object exists."""

    def __init__(self) -> None:
        """Start without an end and without a listener."""
        self._lock = threading.Lock()
        self._reason = ""
        self._listener: Callable[[str], None] | None = None

    def set(self, reason: str) -> None:
        """Note that the driver has ended the burst, and call the listener."""
        with self._lock:
            self._reason, listener = f"the driver has ended the burst: {reason}", self._listener
        if listener is not None:
            listener(self._reason)

    def tell(self, listener: Callable[[str], None]) -> None:
        """Set the listener; it is called at once if the burst has ended already."""
        with self._lock:
            self._listener, reason = listener, self._reason
        if reason:
            listener(reason)
