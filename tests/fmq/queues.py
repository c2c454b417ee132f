"""Makes queues, and gives access to their raw counters, for tests with both ends."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nnburst.fmq.message_queue import MessageQueue
from nnburst.fmq.shared_memory import Flavor

ELEMENT = np.dtype("<u4")


def create(capacity: int, flavor: Flavor = Flavor.SYNCHRONIZED_READ_WRITE) -> MessageQueue:
    """A queue of u32 of which any object may be an end."""
    return MessageQueue.create(ELEMENT, capacity, flavor, ends=False)


def other_end(queue: MessageQueue, *, fresh: bool = False) -> MessageQueue:
    """The queue as another process would open it, with mappings of its own."""
    memories = [memory.duplicate() for memory in queue.memories]
    return MessageQueue.open(queue.descriptor, memories, queue.dtype, fresh=fresh)


def opened_again(queue: MessageQueue) -> MessageQueue:
    """Open a queue of elements or messages again, whose ends have one holder each."""
    dtype = queue.dtype if queue.dtype.itemsize else bytes
    return MessageQueue.open(queue.descriptor, [m.duplicate() for m in queue.memories], dtype)


def counter(queue: MessageQueue, grantor: int) -> npt.NDArray[np.uint64]:
    """The shared read counter (0) or write counter (1), as a hostile peer sees it: one u64."""
    part = queue.descriptor.grantors[grantor]
    view = queue.memories[part.fd_index].map(writable=True)
    return view[part.offset : part.offset + 8].view("<u8")


def numbers(start: int, count: int) -> npt.NDArray[np.uint32]:
    """`count` elements that count up from `start`."""
    return np.arange(start, start + count, dtype=ELEMENT)
