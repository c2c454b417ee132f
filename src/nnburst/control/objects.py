"""Handles of one connection: objects that live while their handle or a user of theirs does.

NNAPI: a service's object lives while any client reference exists; a client's death drops them all.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from nnburst.control.channel import MAX_OBJECTS
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.errors import Closed, InvalidArgument, ResourceExhausted
from nnburst.hal.utils import Closing


class Closable(Protocol):
    """What a handle can stand for. A class whose `per_client` is a number has a limit of its own."""

    def close(self) -> None:
        """Free it; called once, when it is not used any more."""


T = TypeVar("T", bound=Closable)


class _Entry:
    __slots__ = ("references", "target")

    def __init__(self, target: Closable) -> None:
        self.target = target
        self.references = 1


class Reference(Closing, Generic[T]):
    """Keeps one object alive until closed, whatever happens to its handle. A context manager."""

    __slots__ = ("_release", "target")

    def __init__(self, target: T, release: Callable[[], None]) -> None:
        """Hold `target`; `release` gives it back."""
        self.target = target
        self._release: Callable[[], None] | None = release

    def close(self) -> None:
        """Give the object back; the second time does nothing."""
        release, self._release = self._release, None
        if release is not None:
            release()


class ObjectTable:
    """The objects of one connection. Thread-safe; no lock is held while an object closes."""

    def __init__(self, limit: int = MAX_OBJECTS) -> None:
        """Hold at most `limit` handles."""
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
            ResourceExhausted: the connection holds its limit; `target` is closed.
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
        """Use an object.

        Raises:
            Closed: the handle is unknown or released.
            InvalidArgument: it stands for something else.
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
        """What a handle stands for, only to look at; None if it is not open."""
        with self._lock:
            entry = self._entries.get(handle)
            return entry.target if entry else None

    def release(self, handle: int) -> None:
        """Drop a handle; the object closes with its last user.

        Raises:
            Closed: the handle is unknown or released.
        """
        with self._lock:
            entry = self._find(handle)
            del self._entries[handle]
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
