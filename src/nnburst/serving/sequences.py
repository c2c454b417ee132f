"""States of networks that have some: one for each sequence that a client has begun."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Final

from nnburst.client.burst.burst import Burst
from nnburst.client.burst.stateful_burst import StatefulBurst
from nnburst.hal.closing import Closing
from nnburst.hal.errors import InvalidArgument, ResourceExhausted
from nnburst.serving.tensors import Array, Value, value_of

#: Seconds after which an unused sequence gives way to a new one.
IDLE_SECONDS: Final = 60.0


@dataclass
class Sequence(Closing):
    """One state. Used by one request at a time, which holds `lock`."""

    burst: Burst
    stateful: StatefulBurst
    used: float
    lock: threading.Lock = field(default_factory=threading.Lock)

    def execute(
        self, arrays: Iterable[Array], wanted: Iterable[int], timeout: float
    ) -> dict[int, Value]:
        """Execute once on the state; outputs by index."""
        for view, array in zip(self.stateful.inputs, arrays, strict=True):
            view[...] = array
        self.stateful.run(timeout)
        return {index: value_of(self.stateful.outputs[index]) for index in wanted}

    def close(self) -> None:
        """Give the state up."""
        self.burst.close()


class Sequences(Closing):
    """The sequences of one model. Thread-safe."""

    def __init__(self, begin: Callable[[], tuple[Burst, StatefulBurst]], limit: int) -> None:
        """Begin with none.

        Args:
            begin: makes a burst with the initial state.
            limit: sequences at once.
        """
        self._begin = begin
        self._limit = limit
        self._lock = threading.Lock()
        self._sequences: OrderedDict[Hashable, Sequence] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sequences)

    def find(self, key: Hashable, *, starts: bool) -> Sequence:
        """The sequence of `key`, new if `starts`.

        Raises:
            InvalidArgument: it was not started, was ended, or has died with its driver.
            ResourceExhausted: there are too many that are in use.
        """
        if starts:
            self.remove(key)
            with self._lock:
                self._make_room()
            burst, stateful = self._begin()
            sequence = Sequence(burst, stateful, time.monotonic())
            with self._lock:
                self._sequences[key] = sequence
            return sequence
        with self._lock:
            found = self._sequences.get(key)
            if found is None:
                raise InvalidArgument(
                    f"sequence {key}: not started, ended, expired while idle, or lost with its driver"
                )
            found.used = time.monotonic()
            self._sequences.move_to_end(key)
            return found

    def remove(self, key: Hashable) -> None:
        """Forget a sequence; an unknown one is ignored."""
        with self._lock:
            sequence = self._sequences.pop(key, None)
        if sequence is not None:
            with sequence.lock:
                sequence.close()

    def close(self) -> None:
        """Forget all."""
        for key in list(self._sequences):
            self.remove(key)

    def _make_room(self) -> None:
        if len(self._sequences) < self._limit:
            return
        key, oldest = next(iter(self._sequences.items()))
        if time.monotonic() - oldest.used < IDLE_SECONDS or not oldest.lock.acquire(blocking=False):
            raise ResourceExhausted(f"{self._limit} sequences are in use, as many as the model has")
        del self._sequences[key]
        oldest.close()
        oldest.lock.release()
