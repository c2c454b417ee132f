"""Answers the calls of one connection, and keeps the objects of its client by handle.

An object is kept as long as its handle is open or something still uses it. NNAPI: an object of a service
exists as long as any client refers to it; a client's death drops all its references.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

import msgspec

from nnburst.control.channel import (
    MAX_MESSAGE_CHARACTERS,
    MAX_OBJECTS,
    NO_FDS,
    CallBudget,
    Channel,
    Cost,
    Disconnected,
    Fds,
    Incoming,
)
from nnburst.control.messages import Message, Nothing, Reply, Result, encode
from nnburst.hal.enums import FAILURES, ErrorStatus
from nnburst.hal.errors import Closed, InvalidArgument, NnburstError, ResourceExhausted
from nnburst.hal.utils import Closing


class Closable(Protocol):
    """An object with a handle. A number `per_client` of its class limits the objects of this class."""

    def close(self) -> None:
        """Free the object; called once, when it is not used any more."""


T = TypeVar("T", bound=Closable)


class _Entry:
    __slots__ = ("references", "target")

    def __init__(self, target: Closable) -> None:
        self.target = target
        self.references = 1


class Reference(Closing, Generic[T]):
    """Keeps one object open until closed, even if its handle is released. A context manager."""

    __slots__ = ("_release", "target")

    def __init__(self, target: T, release: Callable[[], None]) -> None:
        """Refer to `target`; `release` ends its use."""
        self.target = target
        self._release: Callable[[], None] | None = release

    def close(self) -> None:
        """End the use of the object; a second call does nothing."""
        release, self._release = self._release, None
        if release is not None:
            release()


class ObjectTable:
    """The objects of one connection. Thread-safe; no lock is held while an object closes."""

    def __init__(self, limit: int = MAX_OBJECTS) -> None:
        """Create an empty table for at most `limit` handles."""
        self._limit = limit
        self._lock = threading.Lock()
        self._counts: Counter[type] = (
            Counter()
        )  # of what is not closed yet, with a handle or without
        self._entries: dict[int, _Entry] = {}
        self._next = itertools.count(1)

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, target: Closable) -> int:
        """Register an object and return its handle; handles are never used twice.

        Raises:
            ResourceExhausted: the connection has as many objects as it may have; `target` is closed.
        """
        kind = type(target)
        limit = getattr(kind, "per_client", self._limit)
        with self._lock:
            whole = len(self._entries) >= self._limit
            if not whole and self._counts[kind] < limit:
                handle = next(self._next)
                self._entries[handle] = _Entry(target)
                self._counts[kind] += 1
                return handle
        target.close()
        raise ResourceExhausted(
            f"a client may hold {self._limit} objects"
            if whole
            else f"a client may hold {limit} objects of class {kind.__name__}",
            status=ErrorStatus.RESOURCE_EXHAUSTED_PERSISTENT,
        )

    def acquire(self, handle: int, kind: type[T]) -> Reference[T]:
        """Begin to use an object.

        Raises:
            Closed: the handle is unknown or released.
            InvalidArgument: it belongs to an object of another kind.
        """
        with self._lock:
            entry = self._find(handle)
            if not isinstance(entry.target, kind):
                raise InvalidArgument(
                    f"handle {handle} is a {type(entry.target).__name__},"
                    f" expected a {kind.__name__}"
                )
            entry.references += 1
        return Reference(entry.target, lambda: self._release_reference(entry))

    def find(self, handle: int) -> Closable | None:
        """The object of a handle, for reading its attributes only; None if the handle is not open."""
        with self._lock:
            entry = self._entries.get(handle)
            return entry.target if entry else None

    def release(self, handle: int) -> None:
        """Drop a handle; the object is closed after its last use.

        Raises:
            Closed: the handle is unknown or released.
        """
        with self._lock:
            entry = self._find(handle)
            del self._entries[handle]
        self._release_reference(entry)

    def close(self) -> None:
        """Drop all handles; objects in use are closed after their last use."""
        with self._lock:
            entries, self._entries = self._entries, {}
        for entry in entries.values():
            self._release_reference(entry)

    def _find(self, handle: int) -> _Entry:
        entry = self._entries.get(handle)
        if entry is None:
            raise Closed(f"handle {handle} is not open on this connection")
        return entry

    def _release_reference(self, entry: _Entry) -> None:
        with self._lock:
            entry.references -= 1
            last = entry.references == 0
        if last:
            try:
                entry.target.close()
            finally:  # what is closing counts, too
                with self._lock:
                    self._counts[type(entry.target)] -= 1


logger = logging.getLogger(__name__)

M = TypeVar("M", bound=Message)
#: The return value of a handler: the result, and descriptors that are sent with it and closed afterwards.
Answer = tuple[Result, Fds]
Job = Callable[[], None]
_ONE_WAY: Final = 0


def nothing() -> Answer:
    """The answer of a call that has no result."""
    return Nothing(), NO_FDS


class Service(Generic[M]):
    """Answers the calls of one peer.

    A call that cannot be decoded, or has the wrong number of descriptors, is answered with INVALID_ARGUMENT;
    an exception of a handler is answered with its status (GENERAL_FAILURE if it has none). Neither ends the
    connection or the process.
    """

    def __init__(
        self,
        channel: Channel,
        decode: Callable[[bytes], M],
        handler: Callable[[M, Fds], Answer],
        submit: Callable[[M, Job], Job | None] = lambda _, job: job(),
        budget: CallBudget | None = None,
    ) -> None:
        """Serve `channel`.

        Args:
            channel: a connected channel; stays the caller's.
            decode: turns a body into a call.
            handler: answers a call; borrows the descriptors, and calls `take` for those that it keeps.
            submit: runs a job that answers the call, now or on another thread; raises if it never will. If it
                returns a job, the thread that received the call runs it, after it has stopped receiving.
            budget: limits calls in progress together; the default limits unless given.
        """
        self._channel = channel
        self._decode = decode
        self._handler = handler
        self._submit = submit
        self._budget = budget or CallBudget()

    def serve(
        self,
        patience: float | None = None,
        is_known: Callable[[], bool] = lambda: True,
        and_then: Callable[[], None] | None = None,
    ) -> None:
        """Answer calls until the peer is gone.

        Args:
            patience: seconds that the peer has to become known; None for no limit.
            is_known: called after each call until it returns true.
            and_then: called when the peer is known; answers all later calls by `accept`.

        Raises:
            ProtocolError: the peer broke the rules of the channel.
            TimeoutError: the peer did not become known in time.
        """
        deadline = None if patience is None else time.monotonic() + patience
        while True:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise TimeoutError(f"the peer did not introduce itself in {patience} s")
            try:
                job = self.accept(left)
            except Disconnected:
                return
            if job is not None:
                job()
            if deadline is not None and is_known():
                if and_then is not None:
                    and_then()
                    return
                deadline = None

    def accept(self, timeout: float | None = None) -> Job | None:
        """Receive one call and submit its answer; returns a job that the calling thread must run, if any.

        Raises:
            Disconnected: the peer is gone.
            ProtocolError: the peer broke the rules of the channel.
            TimeoutError: nothing came.
        """
        return self._accept(self._channel.receive(timeout))

    def _accept(self, incoming: Incoming) -> Job | None:
        cost = Cost(1, len(incoming.fds), len(incoming.body))
        try:
            if incoming.failure is not None:
                raise incoming.failure  # noqa: TRY301 - answered like every other error
            try:
                call = self._decode(incoming.body)
            except UnicodeDecodeError as error:  # of msgspec before 0.23
                raise InvalidArgument(f"malformed message: {error}") from None
            if call.fd_count not in (None, len(incoming.fds)):
                raise InvalidArgument(  # noqa: TRY301 - answered like every other error
                    f"{type(call).__name__} came with {len(incoming.fds)} file descriptors,"
                    f" expected {call.fd_count}"
                )
            self._budget.take(cost)
        except Exception as error:
            incoming.fds.close()
            self._reply(incoming.id, failure(error), NO_FDS)
            return None
        try:
            return self._submit(call, lambda: self._run(incoming, call, cost))
        except Exception as error:
            self._budget.release(cost)
            incoming.fds.close()
            self._reply(incoming.id, failure(error), NO_FDS)
            return None

    def _run(self, incoming: Incoming, call: M, cost: Cost) -> None:
        try:
            with incoming.fds as fds:
                result, outgoing = self._handler(call, fds)
            reply = Reply(result=result)
        except BaseException as error:  # an executor of others may raise anything, SystemExit too
            reply, outgoing = failure(error), NO_FDS
        finally:
            self._budget.release(cost)
        self._reply(incoming.id, reply, outgoing)

    def _reply(self, call: int, reply: Reply, fds: Fds) -> None:
        with fds:
            if call == _ONE_WAY:
                return
            try:
                try:
                    self._channel.send(call, encode(reply), list(fds) if fds else ())
                except (NnburstError, MemoryError, TypeError, ValueError, OverflowError) as error:
                    # Of a result that an executor of others has filled with what no message can hold.
                    self._channel.send(call, encode(failure(error)))
            except (Disconnected, TimeoutError, NnburstError, MemoryError):
                self._channel.shutdown()  # a peer without replies cannot go on: end the connection


def failure(error: BaseException) -> Reply:
    """Convert an exception to a reply for the peer."""
    if isinstance(error, NnburstError) and error.status in FAILURES:
        return Reply(error.status, text_of(error), error.output_shapes)
    if isinstance(error, MemoryError):
        return Reply(ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT, "out of memory")
    if isinstance(error, msgspec.MsgspecError | RecursionError):
        return Reply(ErrorStatus.INVALID_ARGUMENT, _sendable(f"malformed message: {error}"))
    logger.error("a handler raised: the call is answered with GENERAL_FAILURE", exc_info=error)
    text = f"{type(error).__name__}: {text_of(error)}"
    return Reply(ErrorStatus.GENERAL_FAILURE, _sendable(text))


def text_of(error: BaseException) -> str:
    """The text of an exception as a message can hold it."""
    try:
        return _sendable(str(error))
    except Exception:
        return "it has no text"  # an exception of others may raise another one


def _sendable(words: str) -> str:
    """Words as a message can hold them: not too many, and with escapes for what UTF-8 lacks."""
    encoded = words[:MAX_MESSAGE_CHARACTERS].encode("utf-8", "backslashreplace")
    return encoded.decode()[:MAX_MESSAGE_CHARACTERS]
