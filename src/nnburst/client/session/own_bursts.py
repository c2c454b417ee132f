"""Decides whether models of a session may execute over bursts that no program has opened."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from nnburst.hal.enums import Priority
from nnburst.hal.errors import ResourceExhausted

B = TypeVar("B")

#: Such bursts of one session: a quarter of what the driver's quota allows a client.
MOST: Final = 64


class BurstUser(Protocol):
    """What may have opened bursts of its own."""

    def release(self) -> None:
        """Give all of them up; calls that are inside of one end there."""


class PriorityNote:
    """Stands for a prepared model as long as it is open.

    Attributes:
        priority: its own; this object, which equals no other, if only the driver has it.
    """

    __slots__ = ("__weakref__", "priority")

    def __init__(self, priority: Priority | None) -> None:
        """Note a priority."""
        self.priority: object = self if priority is None else priority


class OwnBursts:
    """Counts the bursts that models of a session open by themselves. Thread-safe.

    The driver runs executions over the socket by priority, HIGH before MEDIUM before LOW, and each burst on a
    thread of its own as soon as a request comes. So while models of a session have different priorities,
    their executions go over the socket.
    """

    def __init__(self) -> None:
        """Begin with no models."""
        self._lock: Final = threading.RLock()
        self._notes: Final[weakref.WeakSet[PriorityNote]] = weakref.WeakSet()
        self._bursts: Final[weakref.WeakSet[object]] = weakref.WeakSet()
        self._users: Final[weakref.WeakSet[BurstUser]] = weakref.WeakSet()

    def note_priority(self, priority: Priority | None) -> PriorityNote:
        """One more model is prepared; it counts as long as it keeps what this returns.

        Args:
            priority: its own; None if only the driver has it, which counts as one that no other has.
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
            open_burst: keeps it where `user.release` finds it, and returns it.
            user: whose `release` is called once none is allowed any more.

        Raises:
            ResourceExhausted: there are too many, or models of several priorities.
            NnburstError: it cannot be opened.
        """
        with self._lock:
            self._users.add(user)
            if len(self._bursts) >= MOST:
                raise ResourceExhausted(f"the session has {MOST} such bursts")
        self._check_priorities()
        burst = open_burst()
        with self._lock:
            self._bursts.add(burst)
        try:
            self._check_priorities()  # a model of another priority may have come meanwhile
        except ResourceExhausted:
            user.release()
            raise
        return burst

    def _check_priorities(self) -> None:
        if self._are_mixed():
            raise ResourceExhausted("models of the session have several priorities")
