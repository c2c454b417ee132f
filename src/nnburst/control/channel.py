"""Sends and receives the packets of a control connection, defines limits, and runs callbacks at its end.

A packet consists of msgpack bytes and file descriptors, and is sent over AF_UNIX SEQPACKET; each packet is
answered by one packet.

A packet is the envelope [id, number of fds, body, size of a body that lies in the last fd].
A violation of the envelope (truncated, wrong number of fds, not decodable) raises `ProtocolError`:
the connection cannot be trusted any more. The caller interprets the body.
"""

from __future__ import annotations

import array
import errno
import logging
import math
import operator
import select
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, Any, Final, NamedTuple, Protocol, Self

import msgspec

from nnburst.fmq.shared_memory import SharedMemory, close_received
from nnburst.hal.errors import GeneralFailure, InvalidArgument, NnburstError, ResourceExhausted
from nnburst.hal.peer import PeerCredentials, fds_of, unix_peer
from nnburst.hal.utils import Closing, polled, weakly

logger = logging.getLogger(__name__)

#: Most file descriptors of a message (the kernel's own limit is 253 for a packet).
MAX_FDS: Final = 64
#: Bodies up to this size travel in the packet; AF_UNIX SEQPACKET refuses more than about 200 KiB.
MAX_INLINE_BYTES: Final = 64 * 1024
#: Largest body; one above the inline size is sent in a sealed memfd. A model's constants lie in the body.
MAX_BODY_BYTES: Final = 1 << 30
#: Bytes reserved for the envelope around an inline body.
ENVELOPE_BYTES: Final = 64
#: Largest packet.
MAX_PACKET_BYTES: Final = MAX_INLINE_BYTES + ENVELOPE_BYTES
#: Seconds to wait until a reply can be sent to a peer that does not read.
SEND_TIMEOUT: Final = 5.0
#: Seconds that an upcall may take. getMemories is only a lookup, but the client may be stopped, for example
#: by a debugger, and a burst has no status for a late answer.
UPCALL_TIMEOUT: Final = 30.0
#: Seconds that a client may hold a worker without sending anything.
HELLO_TIMEOUT: Final = 30.0
#: Most calls of one connection that may be in progress at once.
MAX_CALLS: Final = 1024
#: Most file descriptors of the calls in progress.
MAX_CALL_FDS: Final = 4096
#: Most bytes of the bodies of calls in progress; the largest body fits twice.
MAX_CALL_BYTES: Final = 2 * MAX_BODY_BYTES
#: Most objects of all kinds that one connection may have.
MAX_OBJECTS: Final = 4096
#: Most prepared models of one connection.
MAX_MODELS: Final = 1024
#: Most bursts of one connection; each has a thread and two rings.
MAX_BURSTS: Final = 256
#: Most buffers of one connection.
MAX_BUFFERS: Final = 1024
#: Most pools of a client that its driver may have at once: those of requests under way, and of slots.
MAX_POOLS: Final = 4096
#: Most fences that executions wait for, together with cache files of models that wait to be prepared.
MAX_HELD_FDS: Final = 4096
#: Most outstanding notifications of one connection: one for each asynchronous call and each open burst.
MAX_NOTIFICATIONS: Final = 2048
#: Most characters of an error message.
MAX_MESSAGE_CHARACTERS: Final = 4096
#: Seconds that closing an object waits for the driver, which only drops a reference. A stopped driver, for
#: example in a debugger, finds the call in its socket and drops the reference when it continues.
RELEASE_TIMEOUT: Final = 2.0


class Cost(NamedTuple):
    """The resources of calls: their number, their descriptors, the bytes of their bodies."""

    calls: int
    fds: int
    size: int


DEFAULT_LIMIT: Final = Cost(MAX_CALLS, MAX_CALL_FDS, MAX_CALL_BYTES)
_NAMES: Final = ("calls", "file descriptors of calls", "bytes of calls")


class CallBudget:
    """Limits the resources that calls in progress take together. Thread-safe."""

    def __init__(self, limit: Cost = DEFAULT_LIMIT) -> None:
        """Allow calls to take `limit` together."""
        self._limit = limit
        self._lock = threading.Lock()
        self._taken = (0, 0, 0)

    def take(self, cost: Cost) -> None:
        """Take `cost`, which `release` returns.

        Raises:
            ResourceExhausted: the limit would be exceeded; nothing is taken.
        """
        with self._lock:
            calls, fds, size = map(operator.add, self._taken, cost)
            most_calls, most_fds, most_size = self._limit
            if calls > most_calls or fds > most_fds or size > most_size:
                raise ResourceExhausted(self._exceeded(Cost(calls, fds, size)))
            self._taken = calls, fds, size

    def _exceeded(self, taken: Cost) -> str:
        over = zip(_NAMES, taken, self._limit, strict=True)
        name, limit = next((name, limit) for name, amount, limit in over if amount > limit)
        return f"at most {limit} {name} may be in progress"

    def release(self, cost: Cost) -> None:
        """Return the cost of a call that is done."""
        with self._lock:
            calls, fds, size = map(operator.sub, self._taken, cost)
            self._taken = calls, fds, size


#: Plain numbers: operations on enumerations take a microsecond.
_RECEIVE_FLAGS: Final = int(socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC)
#: Flags of a packet that did not fit.
_CUT: Final = int(socket.MSG_TRUNC | socket.MSG_CTRUNC)
_SEND_FLAGS: Final = int(socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
#: Buffer for the descriptors of a message, and one more for a large body.
_ANCILLARY_BYTES: Final = socket.CMSG_LEN((MAX_FDS + 1) * array.array("i").itemsize)
#: Errors of a socket whose peer is gone.
_NO_PEER: Final = frozenset({errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN})
#: Temporary errors: too little memory in the kernel, or too many descriptors of this user in sockets.
_SCARCE: Final = frozenset({errno.ETOOMANYREFS, errno.ENOBUFS, errno.ENOMEM})
#: Seconds before another attempt; the kernel gives no signal.
_SCARCE_PAUSE: Final = 0.005
#: Longest single wait in seconds; poll(2) accepts at most about 24 days.
_LONGEST_WAIT: Final = 86_400.0


class ProtocolError(GeneralFailure):
    """The peer broke a rule of the channel; the connection must end."""


class Disconnected(Exception):
    """The peer has closed its end, or died."""


class _Holder(Protocol):
    """An object with a descriptor: a pool or a fence."""

    def duplicate(self) -> int:
        """Duplicate the descriptor; the caller owns the new one."""


class Fds(Closing):
    """The file descriptors of a message. `close` closes those that were not taken. Not thread-safe."""

    __slots__ = ("_fds",)

    def __init__(self, fds: Iterable[int] = ()) -> None:
        """Own `fds` from here on."""
        self._fds: list[int | None] = list(fds)

    @classmethod
    def duplicates(cls, holders: Iterable[_Holder]) -> Self:
        """Duplicate the descriptors of pools and fences, to send them with a message.

        Raises:
            Closed: one of them is closed.
            ResourceExhausted: this process may have no more descriptors.
        """
        fds = cls()
        for holder in holders:
            fds.add(holder.duplicate())
        return fds

    def __len__(self) -> int:
        return len(self._fds)

    def __iter__(self) -> Iterator[int]:
        """Borrow all descriptors."""
        return (self[index] for index in range(len(self)))

    def __getitem__(self, index: int) -> int:
        """Borrow a descriptor."""
        fd = self._fds[index]
        if fd is None:
            raise InvalidArgument(f"file descriptor {index} of the message is already taken")
        return fd

    def add(self, fd: int) -> None:
        """Own another descriptor."""
        self._fds.append(fd)

    def take(self, index: int) -> int:
        """Give a descriptor to the caller, who owns it."""
        fd = self[index]
        self._fds[index] = None
        return fd

    def cut(self) -> int:
        """Remove the last descriptor, and give it to the caller, who owns it."""
        fd = self.take(len(self._fds) - 1)
        self._fds.pop()
        return fd

    def close(self) -> None:
        """Close the descriptors that were not taken."""
        while self._fds:
            fd = self._fds.pop()
            if fd is not None:
                close_received(fd)

    def __del__(self) -> None:
        if hasattr(self, "_fds"):  # its constructor may have been interrupted
            self.close()


#: The empty descriptors of all packets without any. It is never finalised: an exception of a signal handler
#: during a finalisation would be lost.
NO_FDS: Final = Fds()


class Incoming(msgspec.Struct, frozen=True, eq=False):
    """A packet as it arrived. The receiver owns `fds`.

    Attributes:
        id: matches a reply to its call.
        body: the message.
        fds: the descriptors that were sent with it.
        failure: set if this process had no room for the descriptors, which are then missing, or for a large
            body, which is then empty. It affects this message only, not the connection.
    """

    id: int
    body: bytes
    fds: Fds
    failure: MemoryError | ResourceExhausted | None = None


class _Packet(msgspec.Struct, frozen=True, array_like=True):
    id: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    fds: Annotated[int, msgspec.Meta(ge=0, le=MAX_FDS)]
    body: bytes
    body_size: Annotated[int, msgspec.Meta(ge=0, le=MAX_BODY_BYTES)]


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Packet).decode


def whole_packet(
    id: int,  # noqa: A002 - what it is called in the packet
    body: bytes,
) -> bytes | None:
    """Encode the packet of a message without descriptors; None if the body is too large for that."""
    return _encode(_Packet(id, 0, body, 0)) if len(body) <= MAX_INLINE_BYTES else None


def body_of_whole_packet(packet: bytes) -> bytes:
    """Decode a packet without descriptors, and return its body.

    Raises:
        ProtocolError: the packet breaks the rules.
    """
    try:
        opened = _decode(packet)
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"malformed envelope: {error}") from error
    if opened.fds or opened.body_size:
        raise ProtocolError(f"a packet with 0 file descriptors that declares {opened.fds}")
    return opened.body


class Channel(Closing):
    """A connected SEQPACKET socket. Any thread may send; one thread receives."""

    def __init__(self, connected: socket.socket) -> None:
        """Own `connected` from here on."""
        self._socket = connected
        self._peer_process = -1
        # Reentrant: a signal handler of the program may send while its thread is in here.
        self._lock = threading.RLock()

    @property
    def peer(self) -> PeerCredentials:
        """The process at the other end, and its user."""
        return unix_peer(self._socket)

    def watch_process(self, pidfd: int) -> None:
        """Treat the end of a process as the peer's end, after the packets that were sent before it.

        Args:
            pidfd: pidfd of the process; owned from here on. Only for the thread that receives.
        """
        self._release_process()
        self._peer_process = pidfd

    def fileno(self) -> int:
        """The socket's descriptor, -1 once closed."""
        return self._socket.fileno()

    @property
    def peer_process(self) -> int:
        """The pidfd of `watch_process`; -1 without one."""
        return self._peer_process

    def send(
        self,
        id: int,  # noqa: A002 - what it is called in the packet
        body: bytes,
        fds: Sequence[int] = (),
        timeout: float = SEND_TIMEOUT,
    ) -> None:
        """Send one packet.

        Args:
            id: matches a reply to its call.
            body: the message.
            fds: descriptors to send; they stay the caller's.
            timeout: seconds to wait for room in the socket.

        Raises:
            InvalidArgument: more than MAX_FDS descriptors, an invalid one, or a body above MAX_BODY_BYTES.
            ResourceExhausted: there is no memory for a large body.
            TimeoutError: until then, the peer did not read, or the kernel lacked memory or descriptors.
            Disconnected: there is no peer.
            GeneralFailure: the kernel refuses it; the connection stays usable.
        """
        if len(fds) > MAX_FDS:
            raise InvalidArgument(f"{len(fds)} file descriptors in a message, at most {MAX_FDS}")
        if len(body) > MAX_BODY_BYTES:
            raise InvalidArgument(f"a message of {len(body)} bytes, at most {MAX_BODY_BYTES}")
        if len(body) <= MAX_INLINE_BYTES:
            packet = _encode(_Packet(id, len(fds), body, 0))
            if fds or not self._leaves(packet):
                self._send(packet, fds, timeout)
            return
        memory = SharedMemory.create(len(body), name="message")
        try:
            memory.map_memory(writable=True)[: len(body)] = body
            packet = _encode(_Packet(id, len(fds), b"", len(body)))
            self._send(packet, [*fds, memory.fd], timeout)
        finally:
            memory.close()

    def _leaves(self, packet: bytes) -> bool:
        """Send a packet without descriptors if the socket has room now; returns whether it was sent."""
        try:
            with self._lock:  # so that close() cannot give the descriptor away meanwhile
                self._socket.send(packet, _SEND_FLAGS)
        except OSError:
            return False
        return True

    def _send(self, packet: bytes, fds: Sequence[int], timeout: float) -> None:
        deadline = time.monotonic() + timeout
        try:
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        except (OverflowError, TypeError) as error:
            raise InvalidArgument(f"a file descriptor of the message: {error}") from None
        while True:
            try:
                with self._lock:  # so that close() cannot give the descriptor away meanwhile
                    self._socket.sendmsg([packet], rights, _SEND_FLAGS)
            except BlockingIOError:
                self._wait(select.POLLOUT, deadline)
            except OSError as error:
                self._not_sent(error, fds, deadline)
            else:
                return

    def _not_sent(self, error: OSError, fds: Sequence[int], deadline: float) -> None:
        """Raise the error of a failed send, unless another attempt may succeed: then return."""
        if error.errno in _NO_PEER or self._socket.fileno() < 0:
            raise Disconnected(str(error)) from error
        if error.errno == errno.EBADF:
            raise InvalidArgument(f"a file descriptor of the message is not open: {list(fds)}")
        if error.errno not in _SCARCE:
            raise GeneralFailure(f"a message cannot be sent: {error}") from error
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"a message cannot be sent: {error}") from error
        time.sleep(min(left, _SCARCE_PAUSE))

    def receive(self, timeout: float | None = None) -> Incoming:
        """Receive one packet.

        Args:
            timeout: seconds; None to wait for the next message or the end of the connection.

        Raises:
            TimeoutError: nothing came.
            Disconnected: the peer is gone.
            ProtocolError: the packet breaks the rules; its descriptors are closed.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            try:
                data, ancillary, flags, _ = self._socket.recvmsg(
                    MAX_PACKET_BYTES, _ANCILLARY_BYTES, _RECEIVE_FLAGS
                )
                break
            except BlockingIOError:
                self._wait(select.POLLIN, deadline)
            except OSError as error:
                raise Disconnected(str(error)) from error
        fds = Fds(fds_of(ancillary)) if ancillary else NO_FDS
        try:
            if not ancillary and not flags & _CUT and data:
                packet = _decode(data)
                if not packet.fds and not packet.body_size:
                    return Incoming(packet.id, packet.body, NO_FDS)
            return _open_packet(data, fds, flags)
        except msgspec.MsgspecError as error:
            raise ProtocolError(f"malformed envelope: {error}") from error
        except BaseException:
            fds.close()
            raise

    def _wait(self, event: int, deadline: float | None) -> None:
        poller = select.poll()
        try:
            poller.register(self._socket.fileno(), event)
        except ValueError as error:
            raise Disconnected("closed by this side") from error
        if event == select.POLLIN and self._peer_process >= 0:
            poller.register(self._peer_process, select.POLLIN)
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            raise TimeoutError("the peer did not answer in time")
        ready = polled(poller, _milliseconds(left))  # if not, the caller polls again
        if ready and all(fd == self._peer_process for fd, _ in ready):
            raise Disconnected("the peer's process has ended")

    def peer_has_ended(self) -> bool:
        """Whether the other end is closed, without reading what it sent before."""
        poller = select.poll()
        try:
            poller.register(self._socket.fileno(), select.POLLRDHUP)
        except ValueError:
            return True  # closed by this side
        return bool(poller.poll(0))

    def shutdown(self) -> None:
        """End the connection for both ends; a waiting receiver returns."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the peer has ended it first, or it is closed

    def abandon_in_child(self) -> None:
        """Close the descriptor in a forked child: the parent keeps the connection."""
        self._socket.close()  # without the lock, which another thread may have held at the fork
        self._release_process()

    def close(self) -> None:
        """Close the descriptor. The thread that receives must have returned."""
        with self._lock:
            self._socket.close()
            self._release_process()

    def _release_process(self) -> None:
        pidfd, self._peer_process = self._peer_process, -1
        if pidfd >= 0:
            close_received(pidfd)


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else math.ceil(min(seconds, _LONGEST_WAIT) * 1000)


def _open_packet(data: bytes, fds: Fds, flags: int) -> Incoming:
    if not data:
        raise Disconnected("end of file")
    no_room = bool(flags & socket.MSG_CTRUNC)
    if no_room and len(fds) > MAX_FDS:  # all that fit have arrived, and there were more
        raise ProtocolError(f"a packet with more than {MAX_FDS + 1} file descriptors")
    if flags & socket.MSG_TRUNC:
        raise ProtocolError(f"a packet of more than {MAX_PACKET_BYTES} bytes")
    try:
        packet = _decode(data)
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"malformed envelope: {error}") from error
    if no_room:
        fds.close()
        failure = ResourceExhausted("no file descriptors are left for those of a message")
        return Incoming(packet.id, packet.body, fds, failure)
    if len(fds) != packet.fds + (packet.body_size > 0):
        raise ProtocolError(f"a packet with {len(fds)} file descriptors that declares {packet.fds}")
    if not packet.body_size:
        return Incoming(packet.id, packet.body, fds)
    try:
        return Incoming(packet.id, _large_body(fds.cut(), packet.body_size), fds)
    except (MemoryError, ResourceExhausted) as error:
        # This affects the message only, not the connection.
        return Incoming(packet.id, b"", fds, error)


def _large_body(fd: int, size: int) -> bytes:
    """Copy a body out of its memfd before anything reads it."""
    try:
        memory = SharedMemory.adopt(fd, size)
    except NnburstError as error:
        raise ProtocolError(f"the body must be a sealed memfd: {error}") from error
    try:
        return memory.map_memory(writable=False)[:size].tobytes()
    finally:
        memory.close()


class EndCallbacks:
    """Runs each callback once: at the end of a connection, or at once if it has ended already.

    Thread-safe and reentrant without a lock, so that the garbage collector and signal handlers may add and
    remove callbacks: each step on the list is one call of a C function. (NNAPI: DeathHandler.)

    Attributes:
        ended: whether new callbacks run at once; earlier ones run in `run`.
    """

    def __init__(self, what: str) -> None:
        """Create an empty list; `what` names it in log lines."""
        self._what = what
        self.ended = False
        self._callbacks: list[Callable[[], None]] = []
        self._finalizers: dict[Callable[[], None], weakref.finalize[..., Any]] = {}

    def __bool__(self) -> bool:
        """Whether there are callbacks to run."""
        return bool(self._callbacks)

    def add(self, callback: Callable[[], None]) -> None:
        """Run `callback` once at the end, or at once if the end has passed."""
        self._callbacks.append(callback)
        if self.ended and self.remove(callback):
            callback()

    def add_weakly(self, method: Callable[[], None]) -> None:
        """Run a method at the end if its object still exists then."""
        # The callback refers to the object weakly, and is removed with it; it keeps this list no longer than
        # it stays in it.
        remove, call = self.remove, weakly(method)
        finalizer = weakref.finalize(method.__self__, remove, call)  # type: ignore[attr-defined]
        finalizer.atexit = False
        self._finalizers[call] = finalizer
        self.add(call)

    def remove(self, callback: Callable[[], None]) -> bool:
        """Do not run `callback` any more; False if it is unknown, or was run."""
        try:
            self._callbacks.remove(callback)
        except ValueError:
            return False
        self._detach_finalizer(callback)
        return True

    def _detach_finalizer(self, callback: Callable[[], None]) -> None:
        """Let go of the finalizer of a callback that is no longer in the list."""
        finalizer = self._finalizers.pop(callback, None)
        if finalizer is not None:
            finalizer.detach()

    def run(self) -> None:
        """Run all callbacks, the one added last first. Twice is fine."""
        self.ended = True
        while True:
            try:
                callback = self._callbacks.pop()
            except IndexError:
                return
            self._detach_finalizer(callback)
            try:
                callback()
            except Exception:
                logger.exception(
                    "a callback for the end of %s raised; the others follow", self._what
                )
