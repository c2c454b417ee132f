"""Message queue: a ring of fixed-size elements in shared memory, with an optional event flag.

    queue = MessageQueue.create(np.dtype("<u4"), 1024)
    queue.write(np.arange(3, dtype="<u4"))
    same = MessageQueue.open(queue.descriptor, queue.memories, np.dtype("<u4"))   # or in another process
    same.read(3)

NNAPI: fmq/MessageQueue.h. DEVIATES: counters are never reset; waiting always has a deadline; a counter that
cannot be is `QueueCorrupted` for good instead of being repaired.
"""

from __future__ import annotations

import operator
import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import msgspec

from nnburst._native import ffi, lib
from nnburst.fmq.descriptor import Flavor, MQDescriptor, check, layout
from nnburst.fmq.event_flag import EventFlag, EventFlagBits, timeout_ns
from nnburst.fmq.shared_memory import Bytes, SharedMemory, address_of
from nnburst.hal.closing import Closing
from nnburst.hal.errors import Closed, InvalidArgument, QueueCorrupted
from nnburst.hal.imports import late_numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from nnburst._native import nnb_ring

Elements: TypeAlias = "npt.NDArray[Any]"


class QueueStatistics(msgspec.Struct, frozen=True):
    """What a queue has carried.

    Attributes:
        capacity: elements.
        written: elements written through this object, since the counters began.
        read: elements read through this object, likewise.
        corrupted: the peer's counter was impossible.
    """

    capacity: int
    written: int
    read: int
    corrupted: bool


class Claim(msgspec.Struct):
    """Elements in place: two arrays, the second one empty unless the range wraps."""

    first: Elements
    second: Elements


class MessageQueue(Closing):
    """One end (or both, within a process) of a queue. One thread writes and one thread reads.

    Attributes:
        descriptor: what the other process needs beside `memories` to open it.
        memories: the regions that the descriptor's fd indexes name; owned by this object.
        dtype: element type; a queue that only C reads and writes may have none.
    """

    dtype: np.dtype[Any]

    def __init__(
        self,
        descriptor: MQDescriptor,
        memories: Sequence[SharedMemory],
        views: Sequence[Bytes | memoryview],
        dtype: np.dtype[Any] | None = None,
    ) -> None:
        """Lay a ring over mapped regions; use `create` or `open`. Only C uses one without dtype."""
        self.descriptor = descriptor
        self.memories = tuple(memories)
        if dtype is not None:
            self.dtype = dtype
        self._views = tuple(views)
        self.ring: nnb_ring = ffi.new("struct nnb_ring *")
        read, write, data, *flag = descriptor.grantors
        self.event_flag = EventFlag(views[flag[0].fd_index], flag[0].offset) if flag else None
        self._open = True
        self._owner = os.getpid()
        status = lib.nnb_ring_init(
            self.ring,
            ffi.cast("uint8_t *", self._address(data.fd_index, data.offset)),
            ffi.cast("nnb_atomic_u64 *", self._address(read.fd_index, read.offset)),
            ffi.cast("nnb_atomic_u64 *", self._address(write.fd_index, write.offset)),
            data.extent,
            descriptor.quantum,
            descriptor.flags == Flavor.SYNCHRONIZED_READ_WRITE,
        )
        if status != lib.NNB_RING_OK:
            raise QueueCorrupted("the queue's counters contradict its size")

    def _address(self, region: int, offset: int) -> int:
        return address_of(self._views[region]) + offset

    @classmethod
    def create(
        cls,
        dtype: npt.DTypeLike,
        capacity: int,
        flavor: Flavor = Flavor.SYNCHRONIZED_READ_WRITE,
        *,
        event_flag: bool = True,
        original_layout: bool = False,
    ) -> Self:
        """A new empty queue in anonymous sealed memory.

        Args:
            dtype: element type; its item size is the quantum.
            capacity: elements.
            flavor: synchronized (one reader, writes refuse when full) or not.
            event_flag: whether it can be waited for.
            original_layout: counters as the original lays them, for comparison with it.
        """
        kind = np.dtype(dtype)
        descriptor = layout(
            kind.itemsize, capacity, flavor, event_flag=event_flag, original=original_layout
        )
        memory = SharedMemory.create(descriptor.size_bytes(), "nnburst-queue")
        return cls(descriptor, [memory], [memory.map_memory(writable=True)], kind)

    @classmethod
    def open(
        cls,
        descriptor: MQDescriptor,
        memories: Sequence[SharedMemory],
        dtype: npt.DTypeLike | int,
        *,
        fresh: bool = False,
    ) -> Self:
        """The other end of a queue; takes over `memories`.

        Args:
            descriptor: as received; checked against the regions' sizes.
            memories: as received (`SharedMemory.adopt` has checked their seals).
            dtype: element type that is expected; or an element's bytes, for a queue that only C
                reads and writes.
            fresh: refuse a queue that was used before: both counters must be 0.

        Raises:
            InvalidArgument: the descriptor does not describe a queue in these regions, or the queue
                is not fresh.
            QueueCorrupted: the counters are impossible.
        """
        kind = None if isinstance(dtype, int) else np.dtype(dtype)
        quantum = dtype if isinstance(dtype, int) else np.dtype(dtype).itemsize
        check(descriptor, [m.size for m in memories], quantum)
        views = [m.map_memory(writable=True) for m in memories]
        queue = cls(descriptor, memories, views, kind)
        if fresh and (queue.ring.read_index or queue.ring.write_index):
            raise InvalidArgument("the queue's counters are not 0 at the hand-over")
        return queue

    @property
    def capacity(self) -> int:
        """Elements; every one is usable."""
        return self.descriptor.capacity

    def available_to_write(self) -> int:
        """Elements that can be written now.

        Raises:
            QueueCorrupted: the reader's counter is impossible.
        """
        count = int(lib.nnb_ring_available_to_write(self._ring()))
        self._check_corruption()
        return count

    def available_to_read(self) -> int:
        """Elements that can be read now; never more than the capacity.

        Raises:
            QueueCorrupted: the writer's counter is impossible.
        """
        count = int(lib.nnb_ring_available_to_read(self._ring()))
        self._check_corruption()
        return count

    def write(self, elements: npt.ArrayLike) -> bool:
        """Write all of `elements` as one unit, or none.

        Args:
            elements: array of this queue's dtype, or a buffer of whole elements.

        Returns:
            whether there was room.
        """
        array = self._elements(elements)
        status = lib.nnb_ring_write(self._ring(), ffi.from_buffer(array), len(array))
        return self._done(status)

    def read(self, count: int) -> Elements | None:
        """Read `count` elements as one unit; None if there are fewer (or they were lost).

        Of an unsynchronized queue, elements that the writer is overwriting at this very moment are lost, too:
        the writer announces it first. DEVIATES: an original writer does not, and its elements can be torn.
        """
        self._check_count(count)
        array = np.empty(min(count, self.capacity), self.dtype)  # the ring refuses more than it has
        status = lib.nnb_ring_read(self._ring(), ffi.from_buffer(array.view(np.uint8)), count)
        return array if self._done(status) else None

    def write_blocking(self, elements: npt.ArrayLike, timeout: float) -> bool:
        """Write, waiting for room up to `timeout` seconds, and wake the reader.

        Synchronized queues only, and so is `read_blocking` (NNAPI: the same).
        """
        array = self._elements(elements)
        if len(array) > self.capacity:
            return False
        done = self._until(lambda: self.write(array), EventFlagBits.NOT_FULL, timeout)
        if done:
            self._flag().wake(EventFlagBits.NOT_EMPTY)
        return done

    def read_blocking(self, count: int, timeout: float) -> Elements | None:
        """Read, waiting for `count` elements up to `timeout` seconds, and wake the writer."""
        self._check_count(count)
        if count > self.capacity:
            return None
        found: list[Elements] = []

        def attempt() -> bool:
            elements = self.read(count)
            if elements is None:
                return False
            found.append(elements)
            return True

        if not self._until(attempt, EventFlagBits.NOT_EMPTY, timeout):
            return None
        self._flag().wake(EventFlagBits.NOT_FULL)
        return found[0]

    def begin_write(self, count: int) -> Claim | None:
        """Claim `count` elements to write in place; None if there is no room.

        Nothing is visible before `commit_write(count)`; a claim that is not committed is forgotten.
        """
        return self._claim(lib.nnb_ring_begin_write, count)

    def commit_write(self, count: int) -> bool:
        """Publish the first `count` claimed elements."""
        self._check_count(count)
        return self._done(lib.nnb_ring_commit_write(self._ring(), count))

    def begin_read(self, count: int) -> Claim | None:
        """Claim `count` elements to read in place; None if there are fewer.

        The peer may change them meanwhile: copy before checking (`read` does).
        """
        return self._claim(lib.nnb_ring_begin_read, count)

    def commit_read(self, count: int) -> bool:
        """Let go of the first `count` claimed elements; False if they were overwritten meanwhile."""
        self._check_count(count)
        return self._done(lib.nnb_ring_commit_read(self._ring(), count))

    def statistics(self) -> QueueStatistics:
        """What went through this object."""
        ring = self._ring()
        quantum = self.descriptor.quantum
        return QueueStatistics(
            self.capacity,
            int(ring.write_index) // quantum,
            int(ring.read_index) // quantum,
            bool(ring.corrupted),
        )

    def close(self) -> None:
        """Close the fds and refuse further calls; idempotent. The peer's end is not touched."""
        self._open = False
        for memory in self.memories:
            memory.close()

    def _ring(self) -> Any:  # noqa: ANN401 - a cffi pointer
        if not self._open:
            raise Closed("the queue is closed")
        if os.getpid() != self._owner:
            raise Closed(f"the queue is not mapped here: process {self._owner} forked")
        return self.ring

    def _flag(self) -> EventFlag:
        if self.event_flag is None:
            raise InvalidArgument("the queue has no event flag to wait on")
        if self.descriptor.flags != Flavor.SYNCHRONIZED_READ_WRITE:
            # One reader would consume the bit that another one is about to sleep on.
            raise InvalidArgument("an unsynchronized queue cannot be waited for")
        return self.event_flag

    def _elements(self, elements: npt.ArrayLike) -> Elements:
        if isinstance(elements, np.ndarray):
            array = np.ascontiguousarray(elements).reshape(-1)
            raw = "V" in (array.dtype.kind, self.dtype.kind)
            same = array.dtype.itemsize == self.dtype.itemsize if raw else array.dtype == self.dtype
            if not same:
                raise InvalidArgument(f"elements have dtype {array.dtype}, expected {self.dtype}")
            return array
        try:
            data: Elements = np.frombuffer(elements, np.uint8)  # type: ignore[call-overload]
        except (TypeError, ValueError, BufferError) as error:
            raise InvalidArgument(
                f"elements are of type {type(elements).__name__}, expected an array of"
                f" {self.dtype} or a buffer of whole elements"
            ) from error
        if len(data) % self.dtype.itemsize:
            raise InvalidArgument(
                f"elements have {len(data)} bytes, not a multiple of {self.dtype.itemsize}"
            )
        return data.view(self.dtype)

    def _check_count(self, count: int) -> None:
        try:
            fits = 0 <= operator.index(count) < 2**64
        except TypeError:
            fits = False
        if not fits:
            raise InvalidArgument(f"count is {count!r}, expected at least 0 and below 2**64")

    def _check_corruption(self) -> None:
        if self.ring.corrupted:
            raise QueueCorrupted("the peer's counter contradicts the queue's size")

    def _done(self, status: int) -> bool:
        if status == lib.NNB_RING_CORRUPT:
            self._check_corruption()
        return bool(status == lib.NNB_RING_OK)

    def _claim(self, begin: Any, count: int) -> Claim | None:  # noqa: ANN401 - a cffi function
        self._check_count(count)
        regions = ffi.new("struct nnb_ring_regions *")
        if not self._done(begin(self._ring(), count, regions)):
            return None
        return Claim(
            self._view(regions.first, regions.first_bytes),
            self._view(regions.second, regions.second_bytes),
        )

    def _view(self, pointer: Any, size: int) -> Elements:  # noqa: ANN401 - a cffi pointer
        region = self._views[self.descriptor.grantors[2].fd_index]
        start = int(ffi.cast("uintptr_t", pointer)) - address_of(region)
        elements: Elements = np.frombuffer(region[start : start + size], np.uint8).view(self.dtype)
        return elements

    def _until(self, attempt: Any, bits: int, timeout: float) -> bool:  # noqa: ANN401
        flag = self._flag()
        deadline = time.monotonic_ns() + timeout_ns(timeout)
        while not attempt():
            left = deadline - time.monotonic_ns()
            if left <= 0:
                return False
            flag.wait(bits, left * 1e-9)
        return True
