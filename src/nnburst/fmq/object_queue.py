"""Passes Python objects between two processes, in place of `multiprocessing.SimpleQueue`.

    queue = Queue()
    multiprocessing.Process(target=consume, args=(queue,)).start()      # fork, spawn or forkserver
    queue.put({"frame": 1})

Only one process may put, and only one may get.
"""

from __future__ import annotations

import pickle
import struct
import time
from typing import Any, Final, Generic, SupportsIndex, TypeVar

from nnburst.fmq.event_flag import timeout_ns
from nnburst.fmq.message_queue import MessageQueue
from nnburst.fmq.queue_loop import PATIENCE
from nnburst.hal.errors import InvalidArgument, MissedDeadline
from nnburst.hal.utils import Closing

_Item = TypeVar("_Item")

#: Default size of the ring in bytes.
_CAPACITY: Final = 1 << 20
#: Number of parts that fit into the ring, so that both sides can copy a large object at the same time.
_PARTS: Final = 4
#: The end of each part: its place in its object, and the object's number of parts. pickle ignores what
#: follows an object.
_PLACE: Final = struct.Struct("<II")


class Queue(Closing, Generic[_Item]):
    """Passes pickled objects of any size from one process to another.

    One thread of one process puts, and one thread of the other gets. An object longer than a quarter of the
    ring is sent in parts.
    """

    def __init__(self, capacity: int = _CAPACITY) -> None:
        """Make a new empty queue.

        Args:
            capacity: bytes of the ring, at least 64; `put` waits while it is full.

        Raises:
            InvalidArgument: fewer than 64, or more than 4 GiB.
        """
        messages = MessageQueue.create(bytes, capacity)
        if capacity < 64:
            messages.close()
            raise InvalidArgument(f"capacity is {capacity!r}, expected at least 64 bytes")
        self._use(messages)

    def _use(self, messages: MessageQueue) -> None:
        self._messages = messages
        self._part = messages.capacity // _PARTS - _PLACE.size
        self._parts: list[bytes] = []  # of the object that is coming

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:  # noqa: ANN401 - what pickle takes
        """Pickle for a child of `multiprocessing`, as `MessageQueue` does."""
        return _in_child, (type(self), self._messages)

    def put(self, item: _Item, timeout: float | None = None) -> None:
        """Send an object; wait while the ring is full.

        Args:
            item: an object that can be pickled.
            timeout: seconds to wait; None to wait while the other process is alive, as SimpleQueue does.

        Raises:
            MissedDeadline: the ring stayed full; the consumer drops the parts that were sent.
            Closed, DeadObject: the consumer has closed the queue, or its process has died.
            BadState: another process is the producer.
        """
        data = memoryview(pickle.dumps(item, pickle.HIGHEST_PROTOCOL))
        deadline = _deadline(timeout)
        count = -(-len(data) // self._part)
        for at in range(count):
            piece = data[at * self._part : (at + 1) * self._part]
            part = b"".join((piece, _PLACE.pack(at, count)))
            while not self._messages.send(part, _left(deadline)):
                _check(deadline, timeout)

    def get(self, timeout: float | None = None) -> _Item:
        """Wait for the next object and return it.

        Args:
            timeout: seconds to wait; None to wait while the other process is alive, as SimpleQueue does.

        Raises:
            MissedDeadline: no whole object came; a later call goes on with the parts that have come.
            Closed, DeadObject: nothing is left, and the producer has closed the queue or died.
            BadState: another process is the consumer.
        """
        deadline = _deadline(timeout)
        while True:
            found = self._messages.receive(_left(deadline))
            if found is None:
                _check(deadline, timeout)
                continue
            at, count = _PLACE.unpack_from(found, len(found) - _PLACE.size)
            if at != len(self._parts):
                self._parts.clear()  # a `put` ended before its last part, or an interrupted `get` lost one
            if at == len(self._parts):
                self._parts.append(found)
            if len(self._parts) == count:
                parts, self._parts = self._parts, []
                if count > 1:
                    found = b"".join(memoryview(part)[: -_PLACE.size] for part in parts)
                # TRUST: both processes are one program, as for SimpleQueue: unpickling can run any code.
                item: _Item = pickle.loads(found)  # noqa: S301
                return item

    def empty(self) -> bool:
        """Whether there is nothing to get now."""
        return self._messages.available_to_read() == 0

    def close(self) -> None:
        """End the queue for this process; the other one gets what is left, then `Closed`. Idempotent."""
        self._messages.close()

    def __repr__(self) -> str:
        return f"<nnburst.fmq.Queue over {self._messages!r}>"


def _in_child(kind: type[Queue[Any]], messages: MessageQueue) -> Queue[Any]:
    queue = kind.__new__(kind)
    queue._use(messages)
    return queue


def _deadline(timeout: float | None) -> int | None:
    return None if timeout is None else time.monotonic_ns() + timeout_ns(timeout)


def _left(deadline: int | None) -> float:
    """Seconds of the next wait; without a deadline, waits are repeated."""
    return PATIENCE if deadline is None else max((deadline - time.monotonic_ns()) * 1e-9, 0.0)


def _check(deadline: int | None, timeout: Any) -> None:  # noqa: ANN401 - shown
    if deadline is not None and time.monotonic_ns() >= deadline:
        raise MissedDeadline(f"no object, or no room for one, within {timeout} s")
