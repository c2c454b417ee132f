"""Private pools for arrays that lie outside of shared memory: copied in before, copied out after.

`PlacedRequest` takes one for each request over the socket, and it goes back when the execution has ended: the
next request, of whatever shapes, may have it. Two things differ:

* A burst's bound request has a pool of its own as long as it is bound (`client/burst/binding.py`): its packet
  names the driver's slot for that pool and is sent again as it is, so nothing else may ever lie there.
  `Layout` places its arrays, too. What copies them checks them in the same loop
  (`client/burst/last_request.py`): an execution over a burst takes microseconds.
* A buffer's copy (`client/execution/buffer.py`) is not a request: one array at the beginning of one memory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from nnburst.client.memory.memory import Memory

#: Engines want their tensors aligned like this.
ALIGNMENT: Final = 64
_SMALLEST: Final = 4096


class Layout:
    """Places tensors in a pool, one after the other, aligned."""

    def __init__(self) -> None:
        self.size = 0

    def place(self, length: int) -> int:
        """Reserve `length` bytes and return their offset."""
        offset = -(-self.size // ALIGNMENT) * ALIGNMENT
        self.size = offset + length
        return offset


class StagingPools:
    """Pools that one execution at a time uses, kept for the next. Thread-safe."""

    def __init__(self, allocate: Callable[[int], Memory]) -> None:
        """`allocate(size)` makes a pool."""
        self._allocate = allocate
        self._lock = threading.Lock()
        self._free: list[Memory] = []
        self._closed = False

    def take(self, size: int) -> Memory:
        """A pool of at least `size` bytes that is not in use; the last one used comes first."""
        with self._lock:
            memory = self._free.pop() if self._free else None
        if memory is not None and memory.size >= size:
            return memory
        if memory is not None:
            memory.close()
        return self._allocate(max(_SMALLEST, 1 << (size - 1).bit_length()))

    def release(self, memory: Memory) -> None:
        """Keep a pool for the next execution. Not after a timeout: the driver may still write to it."""
        with self._lock:
            if not self._closed:
                self._free.append(memory)
                return
        memory.close()

    def close(self) -> None:
        """Free all pools."""
        with self._lock:
            self._closed = True
            free, self._free = self._free, []
        for memory in free:
            memory.close()


class PrivatePool:
    """What one request has of the staging pools, until it gives it back. Thread-safe.

    Attributes:
        memory: of at least so many bytes as were wanted; None if none were.
    """

    def __init__(self, staging: StagingPools, size: int) -> None:
        """Take a pool of `size` bytes."""
        self.memory = staging.take(size) if size else None
        self._staging = staging
        self._to_release = [] if self.memory is None else [self.memory]

    def release(self) -> None:
        """The driver does not use it any more: the next request may have it. Twice is fine."""
        try:
            memory = self._to_release.pop()  # in one step: two threads may find that it has ended
        except IndexError:
            return
        self._staging.release(memory)

    def keep(self) -> None:
        """No other request ever gets it: it is in use as long as this object, or longer."""
        self._to_release.clear()
