"""What the calls of one peer that are in progress may take together."""

from __future__ import annotations

import operator
import threading
from typing import Final, NamedTuple

from nnburst.control.limits import MAX_CALL_BYTES, MAX_CALL_FDS, MAX_CALLS
from nnburst.hal.errors import ResourceExhausted


class Cost(NamedTuple):
    """What one call takes: itself, its descriptors, the bytes of its body."""

    calls: int
    fds: int
    size: int


DEFAULT_LIMIT: Final = Cost(MAX_CALLS, MAX_CALL_FDS, MAX_CALL_BYTES)
_NAMES: Final = ("calls", "file descriptors of calls", "bytes of calls")


class CallBudget:
    """Counts what is taken. Thread-safe."""

    def __init__(self, limit: Cost = DEFAULT_LIMIT) -> None:
        """Allow `limit` at once."""
        self._limit = limit
        self._lock = threading.Lock()
        self._taken = (0, 0, 0)

    def take(self, cost: Cost) -> None:
        """Take `cost`, which `release` returns.

        Raises:
            ResourceExhausted: that would be too much; nothing is taken.
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
        """A call is done."""
        with self._lock:
            calls, fds, size = map(operator.sub, self._taken, cost)
            self._taken = calls, fds, size
