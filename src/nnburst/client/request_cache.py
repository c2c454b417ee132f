"""Keeps what was bound for requests like earlier ones: by key, within bounds, until others take its place.

Many programs send the same request over and over, with other bytes of tensors. What such requests have in
common (shapes, types, places) is the key; what was bound, prepared or read for them is the value. The socket,
bursts, plans, the C interface and the gRPC front each have one of these caches, and this alone counts
sightings, orders entries and decides what goes.
"""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

#: Keys that are counted, as a multiple of those that may have a value.
_SEEN_PER_ENTRY: Final = 8
#: Sightings after which a key is never bound.
_NEVER: Final = sys.maxsize


class _Entry(Generic[V]):
    """A value and what it counts for."""

    __slots__ = ("is_taken", "size", "value", "wanted_at")

    def __init__(self, value: V, size: int, wanted_at: int, is_taken: bool) -> None:
        self.value = value
        self.size = size
        self.wanted_at = wanted_at
        self.is_taken = is_taken


class _Sightings(NamedTuple):
    """The sightings of a key without a value: those so far, and the one with which it is wanted."""

    seen: int
    wanted_at: int


def _nothing(_value: object) -> None:
    """A value that goes needs no farewell."""


class RequestCache(Generic[K, V]):
    """Values by the keys of requests. Thread-safe.

    Some values can serve several callers at once (`find`), others one at a time (`take`, then `put` or
    `remove`); there may be more of the latter with one key. The value used longest ago goes for another one,
    unless it is taken. A key whose value went must be seen twice as often before it is wanted again, so a
    program that goes round more requests than there is room for keeps most of them, and binds few anew.

    Attributes:
        most: values that are kept.
        most_bytes: that they may have together; None without a limit.
        bind_at: the sighting of a key with which it is wanted.
    """

    def __init__(
        self,
        most: int,
        *,
        most_bytes: int | None = None,
        bind_at: int = 1,
        end: Callable[[V], object] = _nothing,
    ) -> None:
        """Begin with none.

        Args:
            most: at least 1.
            most_bytes: see the attributes.
            bind_at: at least 1.
            end: called without a lock with each value that goes, and not with one that is removed: once, or
                again with the next call if an exception has come out of it, so twice must be fine.
        """
        self.most: Final = most
        self.most_bytes: Final = most_bytes
        self.bind_at: Final = bind_at
        self._end: Final = end
        # Reentrant: a signal handler of the program may execute while its thread is in here.
        self._lock: Final = threading.RLock()
        #: The key used longest ago comes first.
        self._entries: Final[OrderedDict[K, list[_Entry[V]]]] = OrderedDict()
        self._sightings: Final[OrderedDict[K, _Sightings]] = OrderedDict()
        #: Values that have gone and have not ended.
        self._gone: list[V] = []
        self._count = 0
        self._bytes = 0
        self._is_closed = False

    def __len__(self) -> int:
        """Values, those that are taken among them."""
        return self._count

    @property
    def bytes(self) -> int:
        """Of all values together."""
        return self._bytes

    def values(self) -> list[V]:
        """All values, the one used longest ago first."""
        with self._lock:
            return [entry.value for _, entry in self._all()]

    def find(self, key: K) -> V | None:
        """A value of a key, which others may use, too; None if it has none."""
        with self._lock:
            entries = self._entries.get(key)
            if entries is None:
                return None
            self._entries.move_to_end(key)
            return entries[0].value

    def take(self, key: K) -> V | None:
        """A value of a key for this caller alone, until `put` or `remove`; None if none is free."""
        with self._lock:
            for entry in self._entries.get(key, ()):
                if not entry.is_taken:
                    entry.is_taken = True
                    self._entries.move_to_end(key)
                    return entry.value
        return None

    def put(self, key: K, value: V) -> None:
        """Give back what was taken, or added as taken. It ends here if it went meanwhile."""
        with self._lock:
            entry = self._entry(key, value)
            if entry is not None:
                entry.is_taken = False
                return
            self._gone += [value]
        self._end_gone()

    def remove(self, key: K, value: V) -> bool:
        """Remove a value that is not to be used again, and does not end; whether it was here.

        The next sighting of its key wants another one.
        """
        with self._lock:
            entry = self._entry(key, value)
            if entry is None:
                return False
            self._take_out(key, entry, ends=False)
            self._note(key, self.bind_at - 1, self.bind_at)
            return True

    def is_wanted(self, key: K) -> bool:
        """Count a sighting of a key for which no value was found; whether one is to be added now."""
        with self._lock:
            entries = self._entries.get(key, ())
            if self._is_closed or not all(entry.is_taken for entry in entries):
                return False
            if not entries:
                seen, wanted_at = self._sightings.get(key, _Sightings(0, self.bind_at))
                seen = min(seen + 1, wanted_at)
                self._note(key, seen, wanted_at)
                if seen < wanted_at:
                    return False
            return self._count < self.most or self._oldest() is not None

    def refuse(self, key: K) -> None:
        """Do not want a value of a key again: there can be none."""
        with self._lock:
            self._note(key, 0, _NEVER)

    def add(self, key: K, value: V, size: int = 0, *, is_taken: bool = False) -> bool:
        """Keep a value; what was used longest ago goes for it, and the value that its key had.

        Args:
            key: others of it that are taken stay.
            value: owned from here on.
            size: its bytes.
            is_taken: whether the caller goes on with it, as after `take`.

        Returns:
            Whether there is room; if not it has ended.
        """
        is_kept = False
        try:
            with self._lock:
                if not self._is_closed and (self.most_bytes is None or size <= self.most_bytes):
                    for entry in [each for each in self._entries.get(key, ()) if not each.is_taken]:
                        self._take_out(key, entry)
                    if self._make_room(size):
                        _, wanted_at = self._sightings.pop(key, _Sightings(0, self.bind_at))
                        added = _Entry(value, size, wanted_at, is_taken)
                        self._entries[key] = [*self._entries.get(key, ()), added]
                        # No call until the bytes are counted, so that no signal handler comes between.
                        is_kept = True
                        self._count += 1
                        self._bytes += size
                        self._entries.move_to_end(key)
        finally:
            if not is_kept:
                self._gone += [value]
        self._end_gone()
        return is_kept

    def release(self, matches: Callable[[K], bool]) -> None:
        """Let go of all keys that match: values end now, those that are taken when they come back.

        If a signal handler raises meanwhile, the next call ends what is left.
        """
        with self._lock:
            for key in [key for key in self._sightings if matches(key)]:
                del self._sightings[key]
            for key, entry in self._all():
                if matches(key):
                    self._take_out(key, entry, ends=not entry.is_taken)
        self._end_gone()

    def close(self) -> None:
        """Release all, and keep nothing from now on. Twice is fine."""
        self._is_closed = True
        self.release(lambda _: True)

    def _end_gone(self) -> None:
        """End what has gone; the next call goes on with what an exception has left."""
        gone, self._gone = self._gone, []  # without a call: this thread alone ends them
        try:
            while gone:
                self._end(gone[0])
                del gone[0]
        finally:
            self._gone += gone

    def _make_room(self, size: int) -> bool:
        """Whether one more fits; what went for it ends with the next `_end_gone`."""
        while self._count >= self.most or (
            self.most_bytes is not None and self._bytes + size > self.most_bytes
        ):
            oldest = self._oldest()
            if oldest is None:
                return False
            key, entry = oldest
            self._take_out(key, entry)
            self._note(key, 0, 2 * entry.wanted_at)
        return True

    def _oldest(self) -> tuple[K, _Entry[V]] | None:
        for key, entries in self._entries.items():
            for entry in entries:
                if not entry.is_taken:
                    return key, entry
        return None

    def _all(self) -> list[tuple[K, _Entry[V]]]:
        return [(key, entry) for key, entries in self._entries.items() for entry in entries]

    def _entry(self, key: K, value: V) -> _Entry[V] | None:
        entries = self._entries.get(key, ())
        return next((entry for entry in entries if entry.value is value), None)

    def _take_out(self, key: K, entry: _Entry[V], *, ends: bool = True) -> None:
        """Take an entry out as a whole: no signal handler runs between statements that call nothing.

        Its value `ends` with the next `_end_gone`.
        """
        others = [each for each in self._entries[key] if each is not entry]
        if others:
            self._entries[key] = others
        else:
            del self._entries[key]
        self._count -= 1
        self._bytes -= entry.size
        if ends:
            self._gone += [entry.value]

    def _note(self, key: K, seen: int, wanted_at: int) -> None:
        self._sightings[key] = _Sightings(seen, wanted_at)
        self._sightings.move_to_end(key)
        if len(self._sightings) > _SEEN_PER_ENTRY * self.most:
            self._sightings.popitem(last=False)
