"""Opens a burst for each thread that executes arrays repeatedly, if its session may open one.

`PreparedModel.execute` and `CompiledModel.execute` go over the socket at first. With a thread's second call,
a burst is opened in the background; as soon as it is open, the thread's calls use it. A burst that was not
used for some seconds is closed, and so is one whose thread has ended.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final, Generic, Protocol, TypeVar

from nnburst.control.connection import Connection
from nnburst.hal.enums import Priority
from nnburst.hal.errors import NnburstError, ResourceExhausted
from nnburst.hal.utils import DaemonThread

B = TypeVar("B")

#: Most bursts that a session opens by itself: a quarter of the driver's quota for a client.
MOST_BURSTS: Final = 64


class BurstUser(Protocol):
    """An object that may have opened bursts of its own."""

    def release(self) -> None:
        """Close all of them; calls under way on them end."""


class PriorityNote:
    """The priority of a prepared model; it is kept as long as the model is open.

    Attributes:
        priority: the priority; if only the driver has it, this object, which equals no other.
    """

    __slots__ = ("__weakref__", "priority")

    def __init__(self, priority: Priority | None) -> None:
        """Note a priority."""
        self.priority: object = self if priority is None else priority


class OwnBursts:
    """Counts the bursts that models of a session open by themselves. Thread-safe.

    The driver runs executions over the socket by priority, HIGH before MEDIUM before LOW; it runs those of
    bursts as soon as they come, each burst on its own thread. So while models of a session have different
    priorities, all their executions go over the socket.
    """

    def __init__(self) -> None:
        """Begin with no models."""
        self._lock: Final = threading.RLock()
        self._notes: Final[weakref.WeakSet[PriorityNote]] = weakref.WeakSet()
        self._bursts: Final[weakref.WeakSet[object]] = weakref.WeakSet()
        self._users: Final[weakref.WeakSet[BurstUser]] = weakref.WeakSet()

    def note_priority(self, priority: Priority | None) -> PriorityNote:
        """Count a prepared model and its priority, as long as the returned note exists.

        Args:
            priority: the model's priority; None if only the driver has it: it counts as a different one.
        """
        note = PriorityNote(priority)
        with self._lock:
            self._notes.add(note)
            users = [*self._users] if self._are_mixed() else ()
        for user in users:
            user.release()
        return note

    def _are_mixed(self) -> bool:
        with self._lock:
            priorities = [note.priority for note in self._notes]
        return any(priority is not priorities[0] for priority in priorities)

    def open(self, open_burst: Callable[[], B], user: BurstUser) -> B:
        """Open a burst for `user`, if one more is allowed.

        Args:
            open_burst: opens a burst, stores it where `user.release` finds it, and returns it.
            user: its `release` is called as soon as the session may have no such bursts any more.

        Raises:
            ResourceExhausted: the session has too many bursts, or models of several priorities.
            NnburstError: the burst cannot be opened.
        """
        with self._lock:
            self._users.add(user)
            if len(self._bursts) >= MOST_BURSTS:
                raise ResourceExhausted(f"the session has {MOST_BURSTS} such bursts")
        self._check_priorities()
        burst = open_burst()
        with self._lock:
            self._bursts.add(burst)
        try:
            self._check_priorities()  # a model of another priority may be new
        except ResourceExhausted:
            user.release()
            raise
        return burst

    def _check_priorities(self) -> None:
        if self._are_mixed():
            raise ResourceExhausted("models of the session have several priorities")


logger = logging.getLogger(__name__)


#: The number of a thread's call that opens its burst.
_OPENS_AT: Final = 2
#: Number of calls until the next try, if a thread's burst could not be opened.
_ASKS_AGAIN: Final = 1000
#: Most threads that may have a burst of one model.
MOST_THREADS: Final = 16
#: Seconds after which an unused burst is closed.
_LOOK: Final = 5.0


class ThreadBurst(Generic[B]):
    """One thread's burst, and how often the thread has called without one.

    Attributes:
        burst: None while it has none.
        is_used: set by each call over the burst.
        is_wanted: whether it is being opened.
        calls: number of calls over the socket that returned a result.
    """

    __slots__ = ("__weakref__", "burst", "calls", "is_used", "is_wanted")

    def __init__(self) -> None:
        """Begin without a burst."""
        self.burst: B | None = None
        self.is_used = False
        self.is_wanted = False
        self.calls = 0


class _Registry(Generic[B]):
    """The bursts of one model, held weakly, and the thread that opens them. Thread-safe.

    The thread refers to the model weakly, too.
    """

    def __init__(self, open_burst: Callable[[Callable[[B], None]], None]) -> None:
        self._open_burst: Final = open_burst
        self._lock: Final = threading.RLock()
        self._all: Final[weakref.WeakSet[ThreadBurst[B]]] = weakref.WeakSet()
        self._wanted: Final[SimpleQueue[weakref.ref[ThreadBurst[B]] | None]] = SimpleQueue()
        self._has_thread = False
        self.is_closed = False

    def add(self, mine: ThreadBurst[B]) -> None:
        with self._lock:
            self._all.add(mine)

    def all(self) -> list[ThreadBurst[B]]:
        with self._lock:
            return [*self._all]

    def want(self, mine: ThreadBurst[B]) -> None:
        """Queue the opening of a burst for a thread."""
        with self._lock:
            in_use = sum(each.burst is not None or each.is_wanted for each in self._all)
            if self.is_closed or in_use >= MOST_THREADS:
                mine.calls = -_ASKS_AGAIN
                return
            mine.is_wanted = True
            self._wanted.put(weakref.ref(mine))
            if not self._has_thread:
                try:
                    DaemonThread(self._serve)
                except ResourceExhausted:
                    return  # the next thread that wants a burst tries again
                self._has_thread = True

    def abandon(self) -> None:
        """End the opening thread soon. Takes no lock and does not wait."""
        self.is_closed = True
        self._wanted.put(None)

    def _serve(self) -> None:
        while not self.is_closed:
            try:
                wanted = self._wanted.get(timeout=_LOOK)
            except Empty:
                self._release_unused()
                if self._may_end():
                    return
                continue
            mine = None if wanted is None else wanted()
            if mine is not None:
                self._open(mine)
            del mine

    def _open(self, mine: ThreadBurst[B]) -> None:
        def keep(burst: B) -> None:
            mine.is_used = True
            mine.calls = 0
            mine.burst = burst

        try:
            self._open_burst(keep)
        except NnburstError as error:
            logger.info("a thread executes over the socket, it gets no burst: %s", error)
            mine.calls = -_ASKS_AGAIN
        finally:
            mine.is_wanted = False
        if self.is_closed:
            mine.burst = None

    def _release_unused(self) -> None:
        for each in self.all():
            if not each.is_used:
                each.burst = None
            each.is_used = False

    def _may_end(self) -> bool:
        with self._lock:
            if not self._wanted.empty() or any(each.burst is not None for each in self._all):
                return False
            self._has_thread = False
            return True


class _Local(threading.local, Generic[B]):
    """The `ThreadBurst` of the calling thread, as `mine`."""

    def __init__(self, registry: _Registry[B]) -> None:
        self.mine: Final[ThreadBurst[B]] = ThreadBurst()
        registry.add(self.mine)


class ThreadBursts(Generic[B]):
    """The bursts of a model's threads. Thread-safe.

    Attributes:
        local: `local.mine` is the `ThreadBurst` of the calling thread.
    """

    def __init__(self, open_burst: Callable[[Callable[[B], None]], None]) -> None:
        """Create the table without opening a burst.

        Args:
            open_burst: opens a burst and passes it to its argument, or raises NnburstError. It is called on a
                thread of this object and kept by it, so it must not refer to the model.
        """
        self._registry: Final = _Registry(open_burst)
        self.local: Final = _Local(self._registry)
        self._watched: weakref.WeakSet[Connection] = weakref.WeakSet()
        weakref.finalize(self, self._registry.abandon).atexit = False

    def add(self, mine: ThreadBurst[B]) -> None:
        """Add a thread's entry that the caller keeps, instead of `local.mine`; it is referred to weakly."""
        self._registry.add(mine)

    def is_opening(self, mine: ThreadBurst[B]) -> bool:
        """Note that a call over the socket begins; returns whether the thread's burst is being opened."""
        if mine.calls >= _OPENS_AT - 1 and not mine.is_wanted and not self._registry.is_closed:
            self._registry.want(mine)
        return mine.is_wanted

    def release(self) -> None:
        """Close all bursts; calls under way on them end, and later calls are counted anew."""
        for each in self._registry.all():
            each.burst = None
            each.calls = 0

    def release_at_end_of(self, connection: Connection) -> None:
        """Close all bursts when a connection ends; asking again for the same one changes nothing."""
        if connection not in self._watched:
            self._watched.add(connection)
            connection.on_end_weakly(self.release)

    def close(self) -> None:
        """Close all bursts, and open no more. Twice is fine."""
        self._registry.abandon()
        self.release()
