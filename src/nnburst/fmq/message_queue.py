"""Implements message queues in shared memory: a ring of fixed-size elements, and an event flag for the peer.

    queue = MessageQueue.create(np.dtype("<u4"), 1024)
    queue.write(np.arange(3, dtype="<u4"))
    same = MessageQueue.open(queue.descriptor, queue.memories, np.dtype("<u4"))   # or in another process
    same.read(3, timeout=1.0)

NNAPI: fmq/MessageQueue.h. DEVIATES: counters are never reset; waiting always has a deadline; every write
wakes sleeping readers, and every read a sleeping writer; readers of an unsynchronized queue can wait, too; an
impossible counter is not repaired, but makes the queue `QueueCorrupted` for good.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final, Self, SupportsIndex, TypeVar, cast, final

import msgspec

from nnburst._native import ffi, lib
from nnburst.fmq.event_flag import EventFlag
from nnburst.fmq.queue_end import SPIN_WINDOW, Rules, checked_spin_window, open_end
from nnburst.fmq.queue_loop import PATIENCE, Carrier, Elements, InEventLoops, joined
from nnburst.fmq.shared_memory import (
    ENDS_BYTES,
    EVENT_FLAG_BYTES,
    Bytes,
    Flavor,
    MQDescriptor,
    SharedMemory,
    address_of,
    check,
    layout,
)
from nnburst.hal import late_numpy as np
from nnburst.hal.errors import BadState, Closed, InvalidArgument, MissedDeadline, QueueCorrupted
from nnburst.hal.model import checked_dtype

if TYPE_CHECKING:
    import numpy.typing as npt

    from nnburst._native import QueueEnd, nnb_ring

_Array = TypeVar("_Array", bound="Carrier")


class QueueStatistics(msgspec.Struct, frozen=True):
    """Counts of the elements that went through one end of a queue, and of its waits.

    Attributes:
        capacity: the queue's capacity in elements.
        written: elements written through this object, since the queue's counters began.
        read: elements read through this object, since the queue's counters began.
        corrupted: whether the peer's counter was impossible.
        missed: elements of an unsynchronized queue that this object has lost: once the writer has overwritten
            one of them, reading goes on with what is written next.
        waits: calls through this object that waited longer than about two microseconds.
        sleeps: number of sleeps in these calls.
        spun_seconds: seconds of spinning in these calls.
        crowded: number of times that spinning stopped because cores were scarce.
    """

    capacity: int
    written: int
    read: int
    corrupted: bool
    missed: int = 0
    waits: int = 0
    sleeps: int = 0
    spun_seconds: float = 0.0
    crowded: int = 0


class Claim(msgspec.Struct):
    """Elements in place: two arrays, the second one empty unless the range wraps."""

    first: Elements
    second: Elements


@final
class MessageQueue(InEventLoops):
    """One end (or both, within a process) of a queue. One thread writes and one thread reads.

    The first write makes this object the queue's writer, the first read its reader: from then on other
    objects, also in other processes, are refused, unless the queue was made without `ends`. If the other
    end was closed or its process died, calls raise `Closed` or `DeadObject` as soon as nothing is left to
    read.

    Attributes:
        descriptor: description of the queue, which another process needs to open it, with `memories`.
        memories: the regions that the descriptor's fd indexes refer to; owned by this object.
        dtype: element type; a queue that only C reads and writes may have none. The dtype for `bytes` has no
            size: elements are messages of any length.
        event_flag: the event flag; None if the queue was made without one.
        ring: the struct nnb_ring, for code in C.
    """

    dtype: np.dtype[Any]

    def __init__(
        self,
        descriptor: MQDescriptor,
        memories: Sequence[SharedMemory],
        views: Sequence[Bytes | memoryview],
        dtype: np.dtype[Any] | None = None,
        spin_window: float = SPIN_WINDOW,
    ) -> None:
        """Use `create` or `open`; this lays a ring over mapped regions. Only C uses queues without dtype."""
        self.descriptor = descriptor
        self.memories = tuple(memories)
        if dtype is not None:
            self.dtype = dtype
        self._spin_window = checked_spin_window(spin_window)
        self._open = True
        self._at_close: Callable[[], object] | None = None
        self._lay_over(views)
        if len(descriptor.grantors) == 5:
            _with_ends.add(self)

    def _lay_over(self, views: Sequence[Bytes | memoryview]) -> None:
        descriptor = self.descriptor
        self._views = tuple(views)
        self._ends: dict[bool, QueueEnd] = {}
        self.ring: nnb_ring = ffi.new("struct nnb_ring *")
        read, write, data, *flag = descriptor.grantors
        self.event_flag = (
            EventFlag(
                views[flag[0].fd_index],
                flag[0].offset,
                is_broadcast=descriptor.flags == Flavor.UNSYNCHRONIZED_WRITE,
            )
            if flag
            else None
        )
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
        ends: bool = True,
        reopen: bool = False,
        keep_unread: bool = True,
        original_layout: bool = False,
        spin_window: float = SPIN_WINDOW,
    ) -> Self:
        """Make a new empty queue in anonymous sealed memory.

        Args:
            dtype: element type; its item size is the quantum. `bytes` for messages of any length: then
                elements are single bytes, and each message takes four more.
            capacity: number of elements.
            flavor: synchronized (one reader; a write into a full queue is refused) or not. With `ends` every
                other object of an unsynchronized queue is a reader; it can write only the event flag.
            event_flag: whether calls can wait; without it, `ends` has no effect.
            ends: whether a second writer or reader is refused, and the end of the other side is noticed.
            reopen: whether a new writer or reader may replace one that has ended. It continues at the same
                element.
            keep_unread: whether a reader that replaces another one begins with the elements that are unread;
                otherwise it begins with elements written from then on; False only with `reopen` and `ends`.
            original_layout: whether to lay counters out as the original does, for comparison with it; with
                it, `ends` has no effect.
            spin_window: seconds that a wait spins before it sleeps if no rhythm is known, 0 to 1.

        Raises:
            InvalidArgument: a size is not positive or too large, or elements contain Python objects; or
                `reopen` for an unsynchronized queue, which only its maker can write; or `keep_unread=False`
                without `reopen`, or for a queue without ends.
            ResourceExhausted: the kernel has no memory left.
        """
        kind = element_type(dtype)
        descriptor = layout(
            kind.itemsize or 1,
            capacity,
            flavor,
            event_flag=event_flag,
            ends=ends and event_flag and not original_layout,
            original=original_layout,
        )
        size, protected = descriptor.size_bytes(), descriptor.is_broadcast
        memory = SharedMemory.create(size, "nnburst-queue", read_only_for_others=protected)
        memories = [memory]
        view = memory.map_then_protect() if protected else memory.map_memory(writable=True)
        if protected:
            memories.append(SharedMemory.create(EVENT_FLAG_BYTES, "nnburst-queue-flag"))
        views = [view, *(more.map_memory(writable=True) for more in memories[1:])]
        prepare_ends(view, descriptor, reopen=reopen, keep_unread=keep_unread)
        return cls(descriptor, memories, views, kind, spin_window)

    @classmethod
    def open(
        cls,
        descriptor: MQDescriptor,
        memories: Sequence[SharedMemory],
        dtype: npt.DTypeLike | int,
        *,
        fresh: bool = False,
        spin_window: float = SPIN_WINDOW,
    ) -> Self:
        """Open the other end of a queue, and own `memories`.

        Args:
            descriptor: the descriptor that was received; checked against the regions' sizes.
            memories: the regions that were received (`SharedMemory.adopt` has checked their seals).
            dtype: the expected element type; or the bytes of an element, for a queue that only C reads and
                writes.
            fresh: whether to refuse a queue that was used before: both counters must be 0.
            spin_window: as for `create`.

        Raises:
            InvalidArgument: the descriptor does not describe a queue in these regions, or the queue
                is not fresh.
            QueueCorrupted: the counters are impossible.
        """
        if not isinstance(given := cast("object", descriptor), MQDescriptor):
            what = type(given).__name__
            raise InvalidArgument(f"descriptor is of type {what}, expected an MQDescriptor")
        kind: np.dtype[Any] | None = None
        if isinstance(dtype, int):
            quantum = dtype
        else:
            kind = element_type(dtype)
            quantum = kind.itemsize or 1
        check(descriptor, [m.size for m in memories], quantum)
        queue = cls(descriptor, memories, _mapped(descriptor, memories), kind, spin_window)
        if fresh and (queue.ring.read_index or queue.ring.write_index):
            raise InvalidArgument("the queue's counters are not 0 at the hand-over")
        return queue

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:  # noqa: ANN401 - what pickle takes
        """Pickle for a child that `multiprocessing` starts by spawn or forkserver: it opens the same queue.

        Raises:
            TypeError: pickled for another purpose, in which no descriptors are sent.
        """
        from multiprocessing import context, reduction

        if context.get_spawning_popen() is None:
            super().__reduce_ex__(protocol)
        fds = [
            (reduction.DupFd(memory.fd), memory.size, memory.is_sealed) for memory in self.memories
        ]
        has_type = hasattr(self, "dtype")
        return _open_in_child, (
            type(self),
            self.descriptor,
            fds,
            self.dtype if has_type else self.descriptor.quantum,
            self._spin_window,
        )

    @property
    def capacity(self) -> int:
        """Number of elements, all of them usable."""
        return self.descriptor.capacity

    def available_to_write(self) -> int:
        """Number of elements that can be written now. Any thread and any object may call this.

        Raises:
            QueueCorrupted: the reader's counter is impossible.
        """
        return self._available(writes=True)

    def available_to_read(self) -> int:
        """Number of elements that can be read now, at most the capacity. Any thread may call this.

        In a synchronized queue any object has the number; in an unsynchronized one each has its own.

        Raises:
            QueueCorrupted: the writer's counter is impossible.
        """
        return self._available(writes=False)

    def _available(self, *, writes: bool) -> int:
        ring, end = self._ring(), self._ends.get(writes)
        # A thread may wait with the end; without one that side is another object's.
        count = int(lib.nnb_ring_look(ring, writes)) if end is None else end.available()
        if ring.corrupted or count > self.capacity:
            raise QueueCorrupted("the peer's counter contradicts the queue's size")
        return count

    @property
    def peer(self) -> int | None:
        """Number of the process at the other end; None without one, or if this end was not used yet."""
        return next((pid for end in self._ends.values() if (pid := end.peer())), None)

    def write(self, elements: Carrier, timeout: float = 0.0) -> bool:
        """Write all of `elements` as one unit, or none; wakes a reader that sleeps, once.

        Args:
            elements: array of this queue's dtype, or a buffer of whole elements.
            timeout: seconds to wait for room; 0 does not wait.

        Returns:
            whether there was room.

        Raises:
            InvalidArgument: another dtype, no whole elements, an invalid timeout, or a wait for a queue
                without an event flag.
            BadState: the queue has another writer, or another thread is writing.
            Closed: this object, or the reader, was closed.
            DeadObject: the reader's process has died.
            QueueCorrupted: the reader's counter is impossible.
        """
        if True not in self._ends:
            self._open_end(writes=True)
        return self.write(elements, timeout)

    def read(self, count: int, timeout: float = 0.0) -> Elements | None:
        """Read `count` elements as one unit; None if there are fewer (or they were lost).

        In an unsynchronized queue, elements that the writer is overwriting at the same time are lost, too:
        the writer announces that first. DEVIATES: an original writer does not; its elements can be torn.

        Args:
            count: elements, from 0 to 2**64 - 1.
            timeout: seconds to wait for them; 0 does not wait.

        Raises:
            InvalidArgument, BadState, Closed, DeadObject, QueueCorrupted: as for `write`, of the reader.
        """
        if False not in self._ends:
            self._open_end(writes=False)
        return self.read(count, timeout)

    def read_into(self, array: Carrier, timeout: float = 0.0) -> bool:
        """Read as many elements as `array` has room for, as one unit, into it.

        Args:
            array: contiguous, writable, of this queue's dtype; or a writable buffer of whole elements.
            timeout: seconds to wait for them; 0 does not wait.

        Returns:
            whether there were enough elements; else `array` is unchanged.

        Raises:
            InvalidArgument, BadState, Closed, DeadObject, QueueCorrupted: as for `write`, of the reader.
        """
        if False not in self._ends:
            self._open_end(writes=False)
        return self.read_into(array, timeout)

    def sender(self, array: Carrier, timeout: float = PATIENCE) -> Callable[[], bool]:
        """Make a function that writes the current elements of `array` at each call, by one C call.

        Args:
            array: contiguous, of this queue's dtype; or a buffer of whole elements. The function keeps it
                and the queue.
            timeout: seconds that a call waits for room; 0 does not wait.

        Returns:
            A function without arguments that returns and raises as `write` does, and allocates nothing.

        Raises:
            InvalidArgument: as for `write`; or more elements than the queue has.
            BadState, Closed, DeadObject: as for `write`.
        """
        send: Callable[[], bool] = self._bound(array, timeout, writes=True)
        return send

    def receiver(self, array: _Array, timeout: float = PATIENCE) -> Callable[[], _Array | None]:
        """Make a function that fills `array` with elements at each call, by one C call.

        Args:
            array: contiguous, writable, of this queue's dtype; or a writable buffer of whole elements. The
                function keeps it and the queue.
            timeout: seconds that a call waits for elements; 0 does not wait.

        Returns:
            A function without arguments. It returns `array`, or None if there were not enough elements in
            time, raises as `read_into` does, and allocates nothing.

        Raises:
            InvalidArgument: as for `read_into`; or more elements than the queue has.
            BadState, Closed, DeadObject: as for `read_into`.
        """
        receive: Callable[[], _Array | None] = self._bound(array, timeout, writes=False)
        return receive

    def send(self, message: Carrier, timeout: float = 0.0) -> bool:
        """Write one message of any length, whole or not at all; for queues of `bytes`.

        Args:
            message: bytes, or another contiguous buffer; at most four bytes less than the capacity.
            timeout: seconds to wait for room; 0 does not wait.

        Returns:
            whether there was room.

        Raises:
            InvalidArgument: the message is too long or not a buffer, or the queue's elements have a fixed
                size.
            BadState, Closed, DeadObject, QueueCorrupted: as for `write`.
        """
        if True not in self._ends:
            self._open_end(writes=True)
        return self.send(message, timeout)

    def receive(self, timeout: float = 0.0) -> bytes | None:
        """Read the next message, or None without one; for queues of `bytes`.

        Args:
            timeout: seconds to wait for it; 0 does not wait.

        Raises:
            InvalidArgument: the queue's elements have a fixed size.
            QueueCorrupted: the ring has no valid message at the expected place.
            BadState, Closed, DeadObject: as for `read`.
        """
        if False not in self._ends:
            self._open_end(writes=False)
        return self.receive(timeout)

    def writing(self, count: int, timeout: float = 0.0) -> AbstractContextManager[Elements]:
        """Claim `count` elements to write in place; the end of the block publishes them.

            with queue.writing(512, timeout=1.0) as elements:
                camera.read_into(elements)

        Nothing is published if the block raises. If the claim crosses the end of the ring, the array is a
        copy that is written back.

        Args:
            count: elements, 0 to the capacity.
            timeout: seconds to wait for room; 0 does not wait.

        Returns:
            A block for `with`. It gets an array of `count` elements, whose content is undefined, not to be
            used after the block.

        Raises:
            MissedDeadline: there was no room in time.
            BadState: at the end of the block, if this object has written or claimed others within it.
            InvalidArgument, BadState, Closed, DeadObject, QueueCorrupted: as for `write`.
        """
        return _Writing(self, count, timeout)

    def reading(self, count: int, timeout: float = 0.0) -> AbstractContextManager[Elements]:
        """Claim `count` elements to read in place; the end of the block frees them.

        If the block raises, they stay unread. If the claim crosses the end of the ring, the array is a copy.

        Args:
            count: elements, 0 to the capacity.
            timeout: seconds to wait for them; 0 does not wait.

        Returns:
            A block for `with`. It gets a read-only array of `count` elements, which a hostile writer may
            change, not to be used after the block.

        Raises:
            MissedDeadline: there were not enough elements in time.
            BadState: an unsynchronized writer has overwritten them meanwhile, or this object has read or
                claimed others within the block.
            InvalidArgument, BadState, Closed, DeadObject, QueueCorrupted: as for `read`.
        """
        return _Reading(self, count, timeout)

    def begin_write(self, count: int) -> Claim | None:
        """Claim `count` elements to write in place; None if there is no room.

        The reader sees nothing before `commit_write(count)`; a claim that is not committed has no effect.
        """
        return self._claim(count, 0.0, writes=True)

    def commit_write(self, count: int) -> bool:
        """Publish the first `count` claimed elements, and wake a sleeping reader.

        Raises:
            BadState: fewer are claimed, or this object has written or claimed others since.
        """
        return self._opened(writes=True).commit(count)

    def begin_read(self, count: int) -> Claim | None:
        """Claim `count` elements to read in place; None if there are fewer.

        The peer may change them meanwhile: copy before checking (`read` does).
        """
        return self._claim(count, 0.0, writes=False)

    def commit_read(self, count: int) -> bool:
        """Free the first `count` claimed elements; False if they were overwritten meanwhile.

        Raises:
            BadState: fewer are claimed, or this object has read or claimed others since.
        """
        return self._opened(writes=False).commit(count)

    def statistics(self) -> QueueStatistics:
        """Counts of the elements that went through this object, and of its waits."""
        ring = self._ring()
        quantum = self.descriptor.quantum
        waited = [end.statistics() for end in self._ends.values()]
        return QueueStatistics(
            self.capacity,
            int(ring.write_index) // quantum,
            int(ring.read_index) // quantum,
            bool(ring.corrupted),
            int(ring.missed) // quantum,
            sum(each[0] for each in waited),
            sum(each[1] for each in waited),
            sum(each[2] for each in waited) * 1e-9,
            sum(each[3] for each in waited),
        )

    def close(self) -> None:
        """End every call, close the fds and refuse further calls; idempotent.

        At the other end, a reader gets the unread elements, then `Closed`; a writer gets `Closed` at once.
        """
        self._open = False
        for end in self._ends.values():
            end.close()
        if self._at_close is not None:
            self._at_close()
        for memory in self.memories:
            memory.close()

    def __repr__(self) -> str:
        dtype = vars(self).get("dtype")  # a queue that only C uses has none
        kind = f"elements of {dtype}" if dtype is None or dtype.itemsize else "bytes of messages"
        state = "open" if self._open else "closed"
        return f"<nnburst.fmq.MessageQueue of {self.capacity} {kind}: {state}>"

    def _ring(self) -> Any:  # noqa: ANN401 - a cffi pointer
        if not self._open:
            raise Closed("the queue is closed")
        if os.getpid() != self._owner:
            if len(self.descriptor.grantors) < 5:  # both processes would share one end
                raise Closed(f"the queue is not mapped here: process {self._owner} forked")
            self._lay_over(_mapped(self.descriptor, self.memories))
        return self.ring

    def _when_closed(self, action: Callable[[], object]) -> None:
        """Run an action in `close`, or when the object is garbage-collected or the program ends."""
        self._at_close = weakref.finalize(self, action)

    def _go_on_in_child(self) -> None:
        """Reset the ends after a fork: in the child, this object is a new one over the same memory."""
        self._ends = {}
        for name in _CALLS_OF_ENDS:
            vars(self).pop(name, None)

    def _has_elements(self) -> bool:
        """Whether it holds elements, and not messages.

        Raises:
            InvalidArgument: it was opened without a dtype.
        """
        dtype = vars(self).get("dtype")
        if dtype is None:
            raise InvalidArgument(
                "the queue was opened without a dtype: only C reads and writes it"
            )
        return bool(dtype.itemsize)

    def _opened(self, *, writes: bool) -> QueueEnd:
        """Return this object's writing or reading end, and open it first if needed."""
        end = self._ends.get(writes)
        return self._open_end(writes=writes) if end is None else end

    def _open_end(self, *, writes: bool) -> QueueEnd:
        has_size = self._has_elements()
        grantors = self.descriptor.grantors
        words, ring = 0, self._ring()
        if writes and _is_read_only(self._views[grantors[1].fd_index]):
            raise BadState("this object maps the queue read-only: only its maker can write")
        if len(grantors) == 5:
            words = self._address(grantors[4].fd_index, grantors[4].offset)
        flag = self.event_flag
        end = open_end(
            self._rules(writes=writes),
            ring=int(ffi.cast("uintptr_t", ring)),
            flag=0 if flag is None else int(ffi.cast("uintptr_t", flag.word)),
            words=words,
            quantum=self.descriptor.quantum,
            spin_window=self._spin_window,
            keep=(self.ring, self._views),
        )
        self._ends[writes] = end
        if has_size:
            region, start, size = grantors[2].fd_index, grantors[2].offset, grantors[2].extent
            self._data_at = self._address(region, start)
            bytes_of_ring = np.frombuffer(self._views[region], np.uint8, size, start)
            self._elements: Elements = bytes_of_ring.view(self.dtype)
        weakref.finalize(self, end.close)  # also at exit, so that the other end notices
        # From now on each of these is a C function; methods that a program has bound before still work.
        for name in ("write",) if writes else ("read", "read_into"):
            vars(self)[name] = getattr(end, name) if has_size else _refuse_elements
        name = "send" if writes else "receive"
        vars(self)[name] = _refuse_messages if has_size else getattr(end, name)
        return end

    def _rules(self, *, writes: bool) -> Rules:
        why = "the queue has no words of its ends, which waiting in an event loop needs"
        if self.event_flag is None:
            why = "the queue has no event flag to wait on"
        return Rules(self.dtype, writes=writes, unwaitable=why)

    def _bound(self, array: Carrier, timeout: float, *, writes: bool) -> Callable[[], Any]:
        end = self._opened(writes=writes)
        memory = self._rules(writes=writes).memory_of(array)
        if memory.size > self.capacity * self.descriptor.quantum:
            raise InvalidArgument(
                f"array has {memory.size} bytes, the queue {self.capacity} elements of"
                f" {self.descriptor.quantum}"
            )
        return end.bind(array, memory, timeout, self)

    def _claim(self, count: int, timeout: float, *, writes: bool) -> Claim | None:
        if not self._has_elements():
            _refuse_elements()
        regions = self._opened(writes=writes).begin(count, timeout)
        if regions is None:
            return None
        first, first_bytes, second, second_bytes = regions
        return Claim(self._view(first, first_bytes), self._view(second, second_bytes))

    def _in_time(self, count: int, timeout: float, *, writes: bool) -> Claim:
        claim = self._claim(count, timeout, writes=writes)
        if claim is None and count > self.capacity:
            raise InvalidArgument(f"count is {count}, the queue has {self.capacity} elements")
        if claim is None:
            what = "no room for" if writes else "there are not"
            raise MissedDeadline(f"{what} {count} elements within {timeout} s")
        return claim

    def _view(self, address: int, size: int) -> Elements:
        quantum = self.descriptor.quantum
        start = (address - self._data_at) // quantum
        return self._elements[start : start + size // quantum]


class _Block:
    """A block that claims elements. A class costs a third of what a generator costs."""

    __slots__ = ("_count", "_queue", "_timeout")

    def __init__(self, queue: MessageQueue, count: int, timeout: float) -> None:
        self._queue, self._count, self._timeout = queue, count, timeout


class _Writing(_Block):
    """The block of `MessageQueue.writing`."""

    __slots__ = ("_claim", "_whole")

    def __enter__(self) -> Elements:
        claim = self._claim = self._queue._in_time(self._count, self._timeout, writes=True)
        wraps = len(claim.second)
        self._whole = np.empty(self._count, self._queue.dtype) if wraps else claim.first
        return self._whole

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            return
        first, second, whole = self._claim.first, self._claim.second, self._whole
        if len(second):
            first[:] = whole[: len(first)]
            second[:] = whole[len(first) :]
        self._queue.commit_write(self._count)


class _Reading(_Block):
    """The block of `MessageQueue.reading`."""

    __slots__ = ()

    def __enter__(self) -> Elements:
        claim = self._queue._in_time(self._count, self._timeout, writes=False)
        first, second = claim.first, claim.second
        whole: Elements = joined(first, second) if len(second) else first
        whole.flags.writeable = False
        return whole

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None and not self._queue.commit_read(self._count):
            raise BadState("the writer has overwritten the elements meanwhile")


#: Queues that a forked child may use.
_with_ends: weakref.WeakSet[MessageQueue] = weakref.WeakSet()
#: Attributes of an object that call its ends directly.
_CALLS_OF_ENDS: Final = (
    *("write", "send", "read", "read_into", "receive"),
    *("_loop_waits", "_watched"),
)


def _go_on_in_child() -> None:
    for queue in list(_with_ends):
        queue._go_on_in_child()


os.register_at_fork(after_in_child=_go_on_in_child)


def _is_read_only(view: Bytes | memoryview) -> bool:
    return view.readonly if isinstance(view, memoryview) else not view.flags.writeable


def _mapped(descriptor: MQDescriptor, memories: Sequence[SharedMemory]) -> list[memoryview]:
    """Map each region, for writing if that is permitted.

    Raises:
        InvalidArgument: a region that must be writable is not.
    """
    views = [memory.map_memory(writable=memory.is_writable) for memory in memories]
    needed = descriptor.grantors[3:4] if descriptor.is_broadcast else descriptor.grantors
    if any(views[grantor.fd_index].readonly for grantor in needed):
        raise InvalidArgument("memories: a region is read-only that an end of the queue writes to")
    return views


def prepare_ends(
    view: Bytes | memoryview, descriptor: MQDescriptor, *, reopen: bool, keep_unread: bool
) -> None:
    """Write to a new queue whether its ends may be replaced, and the name for its many readers.

    Raises:
        InvalidArgument: `reopen` for an unsynchronized queue; `keep_unread=False` without `reopen` or ends.
    """
    if not (reopen or keep_unread):
        raise InvalidArgument("keep_unread: False, expected reopen=True with it")
    if len(descriptor.grantors) < 5:
        if not keep_unread:
            raise InvalidArgument("keep_unread: False, expected a queue with ends")
        return
    writer = descriptor.grantors[4].offset
    reader = writer + ENDS_BYTES // 2
    if descriptor.is_broadcast:
        if reopen:
            raise InvalidArgument("reopen: only its maker can write an unsynchronized queue")
        for at, byte in enumerate(os.urandom(16), start=reader + 16):
            view[at] = byte
    elif reopen:
        for words in (writer, reader):  # as csrc/queue.h has it
            view[words + 8] = 1 if keep_unread else 2


def element_type(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """The dtype of a queue's elements; one without size for messages of any length.

    Raises:
        InvalidArgument: numpy knows no such type; or elements have no size and are not `bytes`, contain
            Python objects, or are arrays, which numpy takes apart.
    """
    kind = checked_dtype(dtype)
    if not kind.itemsize and kind.kind != "S":
        raise InvalidArgument(f"dtype is {kind}, which has no size; `bytes` is for messages")
    return kind


def _open_in_child(
    kind: type[MessageQueue],
    descriptor: MQDescriptor,
    fds: Sequence[tuple[Any, int, bool]],
    dtype: np.dtype[Any] | int,
    spin_window: float,
) -> MessageQueue:
    memories = [
        SharedMemory.adopt(fd.detach()) if is_sealed else SharedMemory(fd.detach(), size)
        for fd, size, is_sealed in fds
    ]
    return kind.open(descriptor, memories, dtype, spin_window=spin_window)


def _refuse_messages(*_arguments: object, **_named: object) -> Any:  # noqa: ANN401 - never returns
    raise InvalidArgument("the queue has elements of a fixed size: use write and read")


def _refuse_elements(*_arguments: object, **_named: object) -> Any:  # noqa: ANN401 - never returns
    raise InvalidArgument("the queue has messages of any length: use send and receive")
