"""Caches bound requests for later requests of the same kind, within bounds of entries and bytes.

Many programs send the same request over and over, with other bytes of tensors. The common properties of such
requests (shapes, types, places) are the key; the object that was bound, prepared or read for them is the
value. The socket, bursts, plans, the C interface and the gRPC front each have one of these caches. Only this
class counts sightings of keys, orders entries and evicts them.
"""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

#: Most keys whose sightings are counted, as a multiple of the values that the cache keeps.
_SEEN_PER_ENTRY: Final = 8
#: The number of sightings for a key that is never wanted.
_NEVER: Final = sys.maxsize


class _Entry(Generic[V]):
    """A value, its size, and the caller that has taken it."""

    __slots__ = ("size", "taker", "value", "wanted_at")

    def __init__(self, value: V, size: int, wanted_at: int, taker: object) -> None:
        self.value = value
        self.size = size
        self.wanted_at = wanted_at
        self.taker = taker

    @property
    def is_taken(self) -> bool:
        return self.taker is not None


class _Sightings(NamedTuple):
    """The sightings of a key without a value: the number so far, and the number that makes it wanted."""

    seen: int
    wanted_at: int


def _nothing(_value: object) -> None:
    """Do nothing with an evicted value; the default of `end`."""


class RequestCache(Generic[K, V]):
    """Maps keys of requests to values. Thread-safe.

    Some values can serve several callers at once (`find`), others one at a time (`take`, then `put` or
    `remove_taken`); a key may have several values of the second kind. A new value evicts the least recently
    used one that is not taken. A key whose value was evicted must be seen twice as often before it is wanted
    again; so if a program cycles through more requests than fit, most stay cached and few are bound anew.

    Attributes:
        most: most values that are kept.
        most_bytes: most bytes that they may have together; None without a limit.
        bind_at: the number of sightings at which a value for a key is wanted.
    """

    def __init__(
        self,
        most: int,
        *,
        most_bytes: int | None = None,
        bind_at: int = 1,
        end: Callable[[V], object] = _nothing,
    ) -> None:
        """Create an empty cache.

        Args:
            most: at least 1.
            most_bytes: see the attributes.
            bind_at: at least 1.
            end: called without the lock with each value that is evicted or released, and not with a removed
                one. If it raises, the next call of this cache calls it with that value again.
        """
        self.most: Final = most
        self.most_bytes: Final = most_bytes
        self.bind_at: Final = bind_at
        self._end: Final = end
        # Reentrant: a signal handler of the program may execute while its thread is in here.
        self._lock: Final = threading.RLock()
        #: The least recently used key comes first.
        self._entries: Final[OrderedDict[K, list[_Entry[V]]]] = OrderedDict()
        self._sightings: Final[OrderedDict[K, _Sightings]] = OrderedDict()
        #: Values that have gone and have not ended.
        self._gone: list[V] = []
        self._count = 0
        self._bytes = 0
        self._is_closed = False

    def __len__(self) -> int:
        """Number of values, taken ones included."""
        return self._count

    @property
    def bytes(self) -> int:
        """Bytes of all values together."""
        return self._bytes

    def values(self) -> list[V]:
        """All values, the least recently used one first."""
        with self._lock:
            return [entry.value for _, entry in self._all()]

    def find(self, key: K) -> V | None:
        """Find a value of a key that several callers may use at once; None if the key has none."""
        with self._lock:
            entries = self._entries.get(key)
            if entries is None:
                return None
            self._entries.move_to_end(key)
            return entries[0].value

    def take(self, key: K, taker: object) -> V | None:
        """Take a value of a key for this caller only, until `put` or `remove_taken`; None if none is free.

        Args:
            key: the key.
            taker: any object of this one call. If a signal handler raises before the caller has the value,
                `remove_taken` still finds it.
        """
        with self._lock:
            for entry in self._entries.get(key, ()):
                if not entry.is_taken:
                    entry.taker = taker
                    self._entries.move_to_end(key)
                    return entry.value
        return None

    def put(self, key: K, value: V) -> None:
        """Return a taken value. If it was released meanwhile, `end` is called with it."""
        with self._lock:
            entry = self._entry(key, value)
            if entry is not None:
                entry.taker = None
                return
            self._gone += [value]
        self._end_gone()

    def remove_taken(self, key: K, taker: object) -> list[V]:
        """Remove and return what `taker` has taken and not put back, as `remove` does."""
        with self._lock:
            entries = self._entries.get(key, ())
            found = [entry.value for entry in entries if entry.taker is taker]
        return [value for value in found if self.remove(key, value)]

    def remove(self, key: K, value: V) -> bool:
        """Remove a value without calling `end`; returns whether the cache had it.

        At the next sighting of its key, a new value is wanted.
        """
        with self._lock:
            entry = self._entry(key, value)
            if entry is None:
                return False
            self._take_out(key, entry, ends=False)
            self._note(key, self.bind_at - 1, self.bind_at)
            return True

    def is_wanted(self, key: K) -> bool:
        """Count a sighting of a key for which no value was found; returns whether to add a value now."""
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
        """Never want a value of this key again, because none can be made."""
        with self._lock:
            self._note(key, 0, _NEVER)

    def add(self, key: K, value: V, size: int = 0, *, taker: object = None) -> bool:
        """Add a value; it replaces the key's free values, and evicts the least recently used ones.

        Args:
            key: the key; its taken values stay.
            value: owned from here on.
            size: the value's bytes.
            taker: the caller that uses it now, as after `take`; None for none.

        Returns:
            Whether there was room; if not, `end` was called with the value.
        """
        is_kept = False
        try:
            with self._lock:
                if not self._is_closed and (self.most_bytes is None or size <= self.most_bytes):
                    for entry in [each for each in self._entries.get(key, ()) if not each.is_taken]:
                        self._take_out(key, entry)
                    if self._make_room(size):
                        _, wanted_at = self._sightings.pop(key, _Sightings(0, self.bind_at))
                        added = _Entry(value, size, wanted_at, taker)
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
        """Release all values, and accept none from now on. Twice is fine."""
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
