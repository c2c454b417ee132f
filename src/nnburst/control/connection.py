"""Makes calls over the control channel from any thread, and matches answers with calls.

Waiting threads form a queue, and the first one reads for all (`csrc/reply_reader.c`, ADR 15). No lock is held
while a call waits. When the peer ends, every pending call ends at once.
"""

from __future__ import annotations

import collections
import itertools
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from threading import get_ident
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, Self, TypeVar

import msgspec

from nnburst._native import ffi, lib
from nnburst.control.channel import (
    NO_FDS,
    RELEASE_TIMEOUT,
    SEND_TIMEOUT,
    Channel,
    Disconnected,
    EndCallbacks,
    Fds,
    Incoming,
    ProtocolError,
    body_of_whole_packet,
    whole_packet,
)
from nnburst.control.messages import (
    Allocated,
    Fenced,
    Message,
    Nothing,
    Opened,
    Release,
    Reply,
    decode_reply,
    encode,
)
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.errors import (
    Closed,
    DeadObject,
    GeneralFailure,
    MissedDeadline,
    NnburstError,
    ResourceExhausted,
    error_for,
)
from nnburst.hal.utils import ReadyThread, start_thread

if TYPE_CHECKING:
    from nnburst._native import nnb_caller, nnb_reply_reader


logger = logging.getLogger(__name__)

R = TypeVar("R", bound=Message)


class ReceivedReply(NamedTuple):
    """A reply and its descriptors, which the receiver owns."""

    reply: Reply
    fds: Fds

    @classmethod
    def of_packet(cls, packet: bytes) -> Self:
        """Decode the answer in a packet without descriptors.

        Raises:
            ProtocolError: the packet breaks the rules of the channel.
            msgspec.MsgspecError, ValueError, RecursionError: its body is not a reply.
        """
        return cls(decode_reply(body_of_whole_packet(packet)), NO_FDS)

    def result(self, expected: type[R], name: str) -> tuple[R, Fds]:
        """The result and its descriptors, which the caller owns from here on.

        Args:
            expected: type of the result.
            name: the peer's name, for messages.

        Raises:
            GeneralFailure: the peer answered with another type.
            NnburstError: the peer answered with an error.
        """
        reply, fds = self
        if reply.status not in (ErrorStatus.NONE, ErrorStatus.DEAD_OBJECT):
            fds.close()
            raise error_for(reply.status, reply.message, reply.output_shapes)
        if (
            reply.status != ErrorStatus.NONE
            or not isinstance(reply.result, expected)
            or reply.result.fd_count not in (None, len(fds))
        ):
            fds.close()
            what = type(reply.result).__name__
            raise GeneralFailure(f"{name} answered {what}, expected {expected.__name__}")
        return reply.result, fds


class ReplyListener:
    """Reports the outcome of a call that does not wait for its answer."""

    def __init__(
        self,
        expected: type[Message],
        name: str,
        answered: Callable[[NnburstError | None], None],
        dead: Callable[[], NnburstError],
    ) -> None:
        """Create the listener for one answer.

        Args:
            expected: type of the result, which has no descriptors.
            name: the peer's name, for messages.
            answered: called once with an error, or None after a success.
            dead: makes the error of a call that gets no answer.
        """
        self._expected, self._name, self._answered, self._dead = expected, name, answered, dead

    def put(self, answer: ReceivedReply | None, /) -> None:
        """Report the answer, or (None) that none will come. Never raises."""
        error: NnburstError | None = None
        if answer is None:
            error = self._dead()
        else:
            try:
                answer.result(self._expected, self._name)[1].close()
            except NnburstError as refusal:
                error = refusal
        try:
            self._answered(error)
        except Exception:
            logger.exception(
                "the callback of a call to %s raised; the connection goes on", self._name
            )


class RemoteObject:
    """Owns an object of the peer: when nothing refers to this any more, the next call releases the object.

    `Connection.call` fills it, so that a signal handler that raises behind the answer leaves no object.

    Attributes:
        number: the peer's number for the object; 0 before the answer.
        is_open: whether the object is there, and not released.
    """

    number = 0
    is_open = False

    def __init__(self, connection: Connection) -> None:
        """Own nothing yet; the object will be one of the peer of `connection`."""
        self._connection = connection

    def release(self) -> None:
        """Release the object, and wait for that; see `Connection.release`. Twice is fine."""
        self._release_by(self._connection.release)

    def post_release(self) -> None:
        """Release the object now, without waiting for that. Twice is fine."""
        self._release_by(lambda number: self._connection.post(Release(number)))

    def release_later(self) -> None:
        """Release the object just before the next call; see `Connection.release_later`. Twice is fine."""
        self._release_by(self._connection.release_later)

    def detach(self) -> None:
        """Leave the release of the object to another owner."""
        self.is_open = False

    def _release_by(self, release: Callable[[int], None]) -> None:
        if self.is_open:
            release(self.number)
            # Only now: a second release does no harm, and so an interruption loses none.
            self.is_open = False

    def __del__(self) -> None:
        if self.is_open:
            self._connection.release_later(self.number)


# -- connection ------------------------------------------------------------------------------------


_ONE_WAY: Final = 0
#: Held briefly, to decide which comes first if an answer and its caller's timeout coincide.
_giving_up: Final = threading.Lock()
#: Most given-up calls that are remembered until their answers come; those of older calls count as unknown.
_MOST_ABANDONED: Final = 4096

_TIMED_OUT: Final = int(lib.NNB_REPLY_TIMED_OUT)
_INTERRUPTED: Final = int(lib.NNB_REPLY_INTERRUPTED)
_NOT_SENT: Final = int(lib.NNB_REPLY_NOT_SENT)
_READABLE: Final = int(lib.NNB_REPLY_READABLE)
#: Longest single wait, in seconds; and that of the main thread, which must handle signals that the kernel may
#: have given to another thread.
_LONGEST: Final = 86_400.0
_SLICE: Final = 0.05
_main_thread = threading.main_thread().ident
_NULL: Final = ffi.NULL
_new: Final = ffi.new
_call: Final = lib.nnb_reply_reader_call_unlocked


class _NotSent(Exception):
    """A call was not sent: because of its cause, or, without one, because its time was up."""


class _Pending(Protocol):
    """The receiver of an answer."""

    def put(self, answer: ReceivedReply | None, /) -> None:
        """Receive the answer, or None if none will come; never blocks."""


class _ReplyReader:
    """The queue of threads that wait for answers of one connection, and its reader thread. Thread-safe.

    The reader thread handles packets that have descriptors, are large, or answer no call of a waiting thread.

    Attributes:
        struct: struct nnb_reply_reader.
    """

    def __init__(self, socket: int) -> None:
        """Create an empty queue; `socket` stays the caller's, open until `close`.

        Raises:
            ResourceExhausted: this process may have no more descriptors.
        """
        self.struct: nnb_reply_reader = ffi.new("struct nnb_reply_reader *")
        failed = lib.nnb_reply_reader_open(self.struct, socket)
        self._open = not failed
        if failed:
            raise ResourceExhausted(
                f"cannot wait for a connection's replies: {os.strerror(failed)}"
            )

    def close(self) -> None:
        """Free the struct. No thread may be waiting. Twice is fine."""
        still, self._open = self._open, False
        if still:
            lib.nnb_reply_reader_close(self.struct)

    def abandon_in_child(self) -> None:
        """Close the queue in a forked child, in which no thread may wait."""
        still, self._open = self._open, False
        if still:
            os.close(int(self.struct.epoll))

    def __del__(self) -> None:
        if hasattr(self, "_open"):  # its constructor may have been interrupted
            self.close()


class _Waiting:
    """One thread that waits for one answer, which it reads itself or gets from the reader."""

    __slots__ = ("_abandoned", "_release_answer", "_replies", "handed_over", "struct")

    def __init__(self, release: Callable[[ReceivedReply], None], replies: _ReplyReader) -> None:
        """Wait in the queue of `replies`.

        Args:
            release: called with an answer that comes too late.
            replies: the queue of the connection.
        """
        self.struct: nnb_caller = _new("struct nnb_caller *")
        self._release_answer = release
        self._replies = replies
        #: The answer from the reader; None at the end of the connection.
        self.handed_over: ReceivedReply | None = None
        self._abandoned = False

    @property
    def answered(self) -> bool:
        """Whether this thread has read the answer itself."""
        return bool(self.struct.bytes)

    @property
    def packet(self) -> bytes:
        """The packet of the answer that this thread has read."""
        return bytes(ffi.buffer(self.struct.packet, self.struct.bytes))

    def put(self, answer: ReceivedReply | None) -> None:
        """Give the thread its answer, or None at the end of the connection. Called once."""
        with _giving_up:
            self.handed_over, abandoned = answer, self._abandoned
        lib.nnb_reply_reader_notice(self._replies.struct, self.struct)
        if abandoned and answer is not None:
            self._release_answer(answer)

    def wait(self, packet: bytes | None, deadline: float) -> bool:
        """Send a packet, unless it is None, and wait for the answer or the end of the connection.

        Returns:
            Whether the packet was sent; False without a wait.

        Raises:
            TimeoutError: the answer did not come in time.
        """
        longest = _SLICE if get_ident() == _main_thread else _LONGEST
        while True:
            left = deadline - time.monotonic()
            nanoseconds = int(min(left, longest) * 1e9) if left > 0 else 0
            count = 0 if packet is None else len(packet)
            code = _call(self._replies.struct, self.struct, packet or _NULL, count, nanoseconds)
            if code == _TIMED_OUT and left <= longest:
                raise TimeoutError
            if code not in (_TIMED_OUT, _INTERRUPTED):
                return code != _NOT_SENT
            packet = None

    def abandon(self) -> None:
        """Stop waiting; the answer is released now or when it comes."""
        with _giving_up:
            answer, self._abandoned = self.handed_over, True
        if answer is not None:
            self._release_answer(answer)


class Connection:
    """Calls over a channel. Thread-safe.

    A calling thread reads its own answer, and those of other waiting threads. A reader thread handles all
    other packets until the peer ends or `close` is called; then it ends all pending calls and runs the
    callbacks of `on_end`, once.
    """

    def __init__(
        self,
        channel: Channel,
        name: str,
        dead: Callable[[], NnburstError] | None = None,
        reader: ReadyThread | None = None,
    ) -> None:
        """Own `channel` from here on and start the reader.

        Args:
            channel: a connected channel.
            name: the peer's name, for messages and for the thread.
            dead: makes the error of calls after the end of the peer.
            reader: the thread to read on; None to start one.

        Raises:
            ResourceExhausted: this process may have no more descriptors or threads; `channel` is closed.
        """
        self._channel = channel
        try:
            self._replies = _ReplyReader(channel.fileno())
        except BaseException:
            channel.close()
            raise
        self._name = name
        self._dead = dead or (lambda: DeadObject(f"{name} is gone"))
        # No call is made while this is held, so that no signal handler runs, which may call, too.
        self._lock = threading.Lock()
        self._ids = itertools.count(1)
        self._pending: dict[int, _Pending] = {}
        self._abandoned: set[int] = set()
        self._newest_abandoned = 0
        self._abandoned_once = 0  # the last call of those that were too many
        self._later: collections.deque[Message] = collections.deque()
        self._ended_ns = 0
        self._on_end = EndCallbacks(name)
        self._reader: threading.Thread
        if reader is None:
            self._reader = threading.Thread(target=self._read, name=f"nnburst {name}", daemon=True)
            start_thread(self._reader, self._replies, channel)
        else:
            self._reader = reader
            reader.begin(self._read)

    @property
    def is_alive(self) -> bool:
        """Whether the end of the peer has not been noticed yet."""
        return not self._ended_ns

    @property
    def ended_ns(self) -> int:
        """The time at which the end was noticed, on CLOCK_MONOTONIC; 0 before."""
        return self._ended_ns

    def on_end(self, callback: Callable[[], None]) -> None:
        """Run `callback` once when the connection ends; at once if it has ended already.

        Callbacks must not block: all run on the thread that noticed the end, the one added last first.
        """
        self._on_end.add(callback)

    def on_end_weakly(self, method: Callable[[], None]) -> None:
        """Like `on_end` for a method, with a weak reference to its object."""
        self._on_end.add_weakly(method)

    def remove_callback(self, callback: Callable[[], None]) -> None:
        """Do not run `callback` any more; unknown ones are ignored."""
        self._on_end.remove(callback)

    def call(
        self,
        message: Message,
        expected: type[R],
        fds: Sequence[int] = (),
        *,
        timeout: float,
        remote: RemoteObject | None = None,
    ) -> tuple[R, Fds]:
        """Call the peer and wait for the answer.

        Args:
            message: the call.
            expected: type of the result.
            fds: descriptors that are sent with it; they stay the caller's.
            timeout: seconds until the answer must have come, sending included.
            remote: owns the object that the result names, if it names one.

        Returns:
            The result and its descriptors, which the caller owns.

        Raises:
            MissedDeadline: no answer in time; a late one is dropped, and an object in it released.
            DeadObject: the peer is gone.
            NnburstError: the peer answered with an error.
        """
        deadline = time.monotonic() + timeout
        pending = _Waiting(self._release_answer, self._replies)
        call = pending.struct.id = next(self._ids)
        try:
            self._register(call, pending)
            answer = self._exchange(call, pending, message, fds, deadline)
            if remote is not None and answer is not None:
                number = getattr(answer.reply.result, "handle", 0)
                remote.number, remote.is_open = number, number > 0
        except _NotSent as error:
            self._pending.pop(call, None)  # no answer will come
            if error.__cause__ is not None:
                raise error.__cause__ from None
            raise self._missed(message, timeout) from None
        except TimeoutError:
            self._abandon(call, pending)
            raise self._missed(message, timeout) from None
        except BaseException:  # Ctrl-C, most likely
            self._abandon(call, pending)
            raise
        if answer is None:
            raise self._dead()
        return answer.result(expected, self._name)

    def _exchange(
        self, call: int, pending: _Waiting, message: Message, fds: Sequence[int], deadline: float
    ) -> ReceivedReply | None:
        """Send a call and return its answer; None at the end of the connection."""
        if self._later:
            self._post_the_later_ones()
        body = encode(message)
        packet = None if fds else whole_packet(call, body)
        if packet is None or not pending.wait(packet, deadline):
            try:
                left = max(deadline - time.monotonic(), 0.0)
                self._channel.send(call, body, fds, left)
            except Disconnected:
                raise _NotSent from self._gone()
            except NnburstError as error:
                raise _NotSent from error
            except TimeoutError:
                raise _NotSent from None
            pending.wait(None, deadline)
        if pending.answered:
            answer = self._taken(pending)
            self._pending.pop(call, None)
            return answer
        return pending.handed_over

    def _taken(self, pending: _Waiting) -> ReceivedReply:
        """Decode the answer that the calling thread has read.

        Raises:
            ProtocolError: the answer is malformed; that ends the connection.
        """
        try:
            return ReceivedReply.of_packet(pending.packet)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            broken = ProtocolError(f"{self._name} sent an invalid reply: {error}")
            raise self._broken(broken) from error
        except ProtocolError as error:
            raise self._broken(error) from None

    def _broken(self, error: ProtocolError) -> NnburstError:
        """End the connection to a peer that broke the rules; the reader thread ends the other calls."""
        dead, now = _again(error), time.monotonic_ns()
        with self._lock:
            if not self._ended_ns:
                self._dead, self._ended_ns = dead, now
        self._on_end.ended = True
        self._channel.shutdown()
        return self._dead()

    def _missed(self, message: Message, timeout: float) -> MissedDeadline:
        what = type(message).__name__
        return MissedDeadline(f"timeout: {self._name} did not answer {what} in {timeout:g} s")

    def call_async(
        self,
        message: Message,
        expected: type[Message],
        fds: Sequence[int],
        answered: Callable[[NnburstError | None], None],
        *,
        timeout: float,
    ) -> None:
        """Call the peer without waiting for the answer.

        Args:
            message: the call.
            expected: type of the result, which has no descriptors.
            fds: descriptors that are sent with it; they stay the caller's.
            answered: called once with the outcome, on a thread that must not block; not if this raises.
            timeout: seconds until the call must be sent.

        Raises:
            MissedDeadline: the peer does not read.
            DeadObject: the peer is gone.
            BaseException: an interruption; the call may have been sent, but `answered` is not called.
        """
        call = next(self._ids)
        listener = ReplyListener(expected, self._name, answered, self.end_error)
        is_registered = False
        try:
            self._register(call, listener)
            is_registered = True
            self._send(call, message, fds, timeout)
        except (NnburstError, TimeoutError) as error:
            if self._pending.pop(call, None) is None and is_registered:
                return  # the connection has ended, which called `answered`
            if isinstance(error, NnburstError):
                raise
            what = type(message).__name__
            raise MissedDeadline(
                f"timeout: {self._name} did not take {what} in {timeout:g} s"
            ) from None
        except BaseException:  # Ctrl-C, most likely; whether it has left is unknown
            self._expect_no_more(call)
            raise

    def post(self, message: Message) -> None:
        """Send a call without waiting for its answer; does nothing if the peer is gone."""
        self._post_the_later_ones()
        try:
            self.notify(message, SEND_TIMEOUT)
        except (NnburstError, TimeoutError):
            pass  # whatever it was about is gone with the peer

    def notify(self, message: Message, timeout: float) -> None:
        """Send a call without waiting for its answer.

        Args:
            message: a call without descriptors.
            timeout: seconds to wait for room; 0 does not wait.

        Raises:
            TimeoutError: the peer does not read; nothing was sent.
            DeadObject: the peer is gone.
        """
        try:
            self._channel.send(_ONE_WAY, encode(message), timeout=timeout)
        except Disconnected:
            raise self._gone() from None

    def post_later(self, message: Message) -> None:
        """Queue a call to be sent just before the next one, without waiting for its answer.

        Takes no lock and does not wait, so the garbage collector may call it in the middle of a send.
        """
        self._later.append(message)

    def release(self, handle: int) -> None:
        """Ask the peer to drop a handle; ignores a peer that is gone or does not answer in time."""
        try:
            self.call(Release(handle), Nothing, timeout=RELEASE_TIMEOUT)
        except (Closed, DeadObject, MissedDeadline):
            pass  # it is gone, or will be
        except NnburstError:
            if self.is_alive:
                raise
            # The peer has broken a rule, which ended the connection: later calls report that.

    def release_later(self, handle: int) -> None:
        """Release the handle of an object that was never closed, just before the next call.

        Takes no lock and does not wait, so the garbage collector may call it in the middle of a send.
        """
        if self.is_alive:
            self.post_later(Release(handle))

    def peer_died(self) -> None:
        """End every call now, after the peer's death was noticed earlier than by the socket."""
        self._fail()

    def end_error(self) -> NnburstError:
        """Make the error of calls after the end of the peer."""
        return self._dead()

    def _register(self, call: int, pending: _Pending) -> None:
        with self._lock:
            ended = self._ended_ns
            if not ended:
                self._pending[call] = pending
        if ended:
            raise self._dead()

    def _send(self, call: int, message: Message, fds: Sequence[int], timeout: float) -> None:
        self._post_the_later_ones()
        try:
            self._channel.send(call, encode(message), fds, timeout)
        except Disconnected:
            raise self._gone() from None

    def _gone(self) -> NnburstError:
        """Note the peer's end after a failed send, and make the error.

        A caller that gets this error must find the peer dead everywhere, even before the reader thread has
        noticed; the reader thread does the rest.
        """
        now = time.monotonic_ns()
        with self._lock:
            self._ended_ns = self._ended_ns or now
        self._on_end.ended = True
        self._channel.shutdown()
        return self._dead()

    def _post_the_later_ones(self) -> None:
        """Send queued calls as far as the socket has room, without waiting."""
        while True:
            try:
                message = self._later.popleft()
            except IndexError:  # it is empty, or another thread was quicker
                return
            try:
                self.notify(message, 0)
            except NnburstError:
                pass  # whatever it was about is gone with the peer
            except TimeoutError:
                self._later.appendleft(message)
                return
            except BaseException:  # Ctrl-C, most likely; a second release does no harm
                self._later.appendleft(message)
                raise

    def _abandon(self, call: int, pending: _Waiting) -> None:
        """Give up a call; its answer is released now or when it comes."""
        if pending.answered:
            self._pending.pop(call, None)
            self._release_answer(self._taken(pending))
        elif not self._expect_no_more(call):
            pending.abandon()

    def _expect_no_more(self, call: int) -> bool:
        """Give up a call; returns whether its answer may still come, to be released then."""
        added, is_full = {call}, len(self._abandoned) >= _MOST_ABANDONED
        with self._lock:  # no allocation in here: a finalizer could run and need the lock
            waits = call in self._pending and not self._ended_ns
            if waits:
                del self._pending[call]
                if is_full:
                    self._abandoned_once, self._abandoned = self._newest_abandoned, added
                else:
                    self._abandoned |= added
                if call > self._newest_abandoned:
                    self._newest_abandoned = call
        return waits

    def _release_answer(self, answer: ReceivedReply) -> None:
        answer.fds.close()
        if isinstance(answer.reply.result, Opened | Allocated | Fenced):
            self.post(Release(answer.reply.result.handle))

    def _read(self) -> None:
        try:
            while lib.nnb_reply_reader_wait_unlocked(self._replies.struct) == _READABLE:
                self._deliver(self._channel.receive())
                lib.nnb_reply_reader_done(self._replies.struct)
        except Disconnected:
            pass
        except NnburstError as error:
            self._dead = _again(error)
        finally:
            self._fail()

    def _deliver(self, incoming: Incoming) -> None:
        try:
            answer = self._answer(incoming)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            incoming.fds.close()
            raise ProtocolError(f"{self._name} sent an invalid reply: {error}") from error
        with self._lock:
            pending = self._pending.pop(incoming.id, None)
            unwanted = (
                self._ended_ns
                or incoming.id in self._abandoned
                or 0 < incoming.id <= self._abandoned_once
            )
            self._abandoned.discard(incoming.id)
        if pending is not None and not (isinstance(pending, _Waiting) and pending.answered):
            pending.put(answer)
        elif unwanted:
            self._release_answer(answer)
        else:
            incoming.fds.close()
            raise ProtocolError(f"{self._name} answered call {incoming.id}, which was never made")

    def _answer(self, incoming: Incoming) -> ReceivedReply:
        if incoming.failure is None:
            return ReceivedReply(decode_reply(incoming.body), incoming.fds)
        if incoming.body:  # the object of the call is useless without its descriptors
            self._release_answer(ReceivedReply(decode_reply(incoming.body), incoming.fds))
        what = f"the answer of {self._name} has come, but: {incoming.failure}"
        return ReceivedReply(Reply(ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT, what), Fds())

    def _fail(self) -> None:
        calls: dict[int, _Pending] = {}
        with self._lock:  # no allocation in here: a finalizer could run and need the lock
            self._ended_ns = self._ended_ns or time.monotonic_ns()
            waiting, self._pending = self._pending, calls
        self._channel.shutdown()
        for pending in list(waiting.values()):
            pending.put(None)
        lib.nnb_reply_reader_end(self._replies.struct)
        self._on_end.run()

    def abandon_in_child(self) -> None:
        """Close this forked child's copy of the connection; the parent keeps using it."""
        self._ended_ns = time.monotonic_ns()
        self._replies.abandon_in_child()
        self._channel.abandon_in_child()

    def abandon(self) -> None:
        """End the connection for both ends, without a lock and without waiting; `close` does the rest."""
        self._channel.shutdown()

    def close(self) -> None:
        """End the connection; pending calls end with Closed. Twice is fine."""
        dead = _again(Closed(f"the connection to {self._name} was closed"))
        with self._lock:
            if not self._ended_ns:
                self._dead = dead
        self._channel.shutdown()
        if threading.current_thread() is not self._reader:
            self._reader.join()
            self._replies.close()
            self._channel.close()


def _again(error: NnburstError) -> Callable[[], NnburstError]:
    """Make a function that copies `error`, to raise it in each call that it ends."""
    return lambda: type(error)(str(error), status=error.status)


def _forked() -> None:
    global _main_thread
    _main_thread = get_ident()


os.register_at_fork(after_in_child=_forked)
