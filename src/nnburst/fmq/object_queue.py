"""Passes Python's objects between two processes, in place of `multiprocessing.SimpleQueue`.

    queue = Queue()
    multiprocessing.Process(target=consume, args=(queue,)).start()      # fork, spawn or forkserver
    queue.put({"frame": 1})

One process puts and one gets.
"""

from __future__ import annotations

import pickle
import time
from typing import Any, Final, Generic, SupportsIndex, TypeVar

from nnburst.fmq.event_flag import timeout_ns
from nnburst.fmq.message_queue import MessageQueue
from nnburst.fmq.queue_loop import PATIENCE
from nnburst.hal.errors import InvalidArgument, MissedDeadline
from nnburst.hal.utils import Closing

_Item = TypeVar("_Item")

#: Bytes of the ring unless told otherwise.
_CAPACITY: Final = 1 << 20
#: Parts that the ring has room for, so that both sides copy a large object at once.
_PARTS: Final = 4


class Queue(Closing, Generic[_Item]):
    """Hands objects from one process to another, pickled; of any size.

    One process puts and one gets, a thread each. An object longer than a quarter of the ring goes in parts.
    """

    def __init__(self, capacity: int = _CAPACITY) -> None:
        """A new empty queue.

        Args:
            capacity: bytes of the ring, at least 64; `put` waits while it is full.

        Raises:
            InvalidArgument: fewer than 64, or more than 4 GiB.
        """
        if not capacity >= 64:
            raise InvalidArgument(f"capacity is {capacity!r}, expected at least 64 bytes")
        self._use(MessageQueue.create(bytes, capacity))

    def _use(self, messages: MessageQueue) -> None:
        self._messages = messages
        self._part = messages.capacity // _PARTS

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:  # noqa: ANN401 - what pickle takes
        """Go to a child of `multiprocessing`, as `MessageQueue` does."""
        return _in_child, (type(self), self._messages)

    def put(self, item: _Item, timeout: float | None = None) -> None:
        """Hand an object over; wait while the ring is full.

        Args:
            item: anything that pickle takes.
            timeout: seconds; None waits as long as the other side lives, as SimpleQueue does.

        Raises:
            MissedDeadline: the ring stayed full. The queue is of no use any more if a part of it went.
            Closed, DeadObject: the consumer has closed the queue, or its process has died.
            BadState: another process is the producer.
        """
        data = memoryview(pickle.dumps(item, pickle.HIGHEST_PROTOCOL))
        deadline = _deadline(timeout)
        # A part that is shorter than others is the last one; it may be empty.
        for at in range(0, len(data) + 1, self._part):
            part = bytes(data[at : at + self._part])
            while not self._messages.send(part, _left(deadline)):
                _check(deadline, timeout)

    def get(self, timeout: float | None = None) -> _Item:
        """The next object; waits for it.

        Args:
            timeout: seconds; None waits as long as the other side lives, as SimpleQueue does.

        Raises:
            MissedDeadline: none came. The queue is of no use any more if a part of one has come.
            Closed, DeadObject: nothing is left, and the producer has closed the queue or died.
            BadState: another process is the consumer.
        """
        deadline, parts = _deadline(timeout), []
        while True:
            found = self._messages.receive(_left(deadline))
            if found is None:
                _check(deadline, timeout)
                continue
            parts.append(found)
            if len(found) < self._part:
                # TRUST: the two processes are one program, as with SimpleQueue: what is unpickled runs.
                item: _Item = pickle.loads(parts[0] if len(parts) == 1 else b"".join(parts))  # noqa: S301
                return item

    def empty(self) -> bool:
        """Whether there is nothing to get now."""
        return self._messages.available_to_read() == 0

    def close(self) -> None:
        """End the queue for this process; the other one gets what is left, then `Closed`. Idempotent."""
        self._messages.close()


def _in_child(kind: type[Queue[Any]], messages: MessageQueue) -> Queue[Any]:
    queue = kind.__new__(kind)
    queue._use(messages)
    return queue


def _deadline(timeout: float | None) -> int | None:
    return None if timeout is None else time.monotonic_ns() + timeout_ns(timeout)


def _left(deadline: int | None) -> float:
    """Seconds of one wait; without a deadline one wait follows the other."""
    return PATIENCE if deadline is None else max((deadline - time.monotonic_ns()) * 1e-9, 0.0)


def _check(deadline: int | None, timeout: Any) -> None:  # noqa: ANN401 - shown
    if deadline is not None and time.monotonic_ns() >= deadline:
        raise MissedDeadline(f"no object, or no room for one, within {timeout} s")
