"""Waits for queues in event loops: by asyncio, by iteration, or by a descriptor for selectors.

An end that waits sets its bit in the event flag; only then the other end sends a byte after its next write or
read (csrc/queue.h).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from nnburst._native import lib
from nnburst.fmq.event_flag import LONGEST
from nnburst.fmq.shared_memory import MQDescriptor
from nnburst.hal import late_numpy as np
from nnburst.hal.errors import BadState, Closed, InvalidArgument, ResourceExhausted
from nnburst.hal.utils import Closing, as_float, is_number

if TYPE_CHECKING:
    import asyncio  # a program with an event loop has imported it; others need not
    from array import array
    from mmap import mmap

    from nnburst._native import QueueEnd

Elements: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
#: What a call writes from or reads into: an array, or another buffer.
Carrier: TypeAlias = "Elements | bytes | bytearray | memoryview | array[Any] | mmap"

#: Default timeout of a wait in seconds.
PATIENCE: Final = 30.0
#: Seconds between two looks of a wait in an event loop that nothing wakes.
_LOOK: Final = 0.05
#: Nanoseconds after which the event loop gets a turn although no call had to wait.
_TURN_NS: Final = 1_000_000


class LoopWait:
    """Waits for one end in event loops: for a byte that the other end sends, or the end of its process.

    The wait also looks every 50 ms, for ends in another network or process namespace, where neither bytes nor
    pidfds work.
    """

    __slots__ = ("_capacity", "_end", "_loop", "_turn_due_ns")

    def __init__(self, end: QueueEnd, capacity: int) -> None:
        self._end, self._capacity = end, capacity
        self._turn_due_ns = 0
        self._loop: asyncio.AbstractEventLoop | None = None  # of the task that waits

    async def until(self, attempt: Callable[[], Any], count: int, timeout: float) -> Any:  # noqa: ANN401, ASYNC109
        """Return the first result of `attempt` that is neither None nor False, or the last one in time.

        Args:
            attempt: reads or writes at once.
            count: number of elements that it needs; no wait for more than the capacity.
            timeout: seconds to wait.

        Raises:
            BadState: another task is waiting with this end.
            InvalidArgument: the queue has no words of its ends, or no event flag; or `timeout` is invalid.
        """
        if not is_number(timeout) or not 0 <= timeout < float("inf"):
            raise InvalidArgument(
                f"timeout is {timeout!r}, expected a finite number of seconds, at least 0"
            )
        # Other tasks get a turn even if the queue is always ready; before the attempt, since a cancellation
        # would lose what it has read.
        now = time.monotonic_ns()
        if self._turn_due_ns and now > self._turn_due_ns:
            await self._take_turn()
        found = attempt()
        if not _is_not_now(found) or not timeout or count > self._capacity:
            self._turn_due_ns = self._turn_due_ns or now + _TURN_NS
            return found
        import asyncio

        loop = asyncio.get_running_loop()
        if self._loop is not None and not self._loop.is_closed():
            raise BadState("another task is waiting with this end of the queue")
        self._loop = loop
        try:
            return await self._wait(attempt, count, min(as_float(timeout), LONGEST))
        finally:
            self._turn_due_ns = 0
            if self._loop is loop:  # else it was closed, and a task of another loop waits
                self._loop = None

    async def _take_turn(self) -> None:
        import asyncio

        self._turn_due_ns = time.monotonic_ns() + _TURN_NS
        await asyncio.sleep(0)

    async def _wait(self, attempt: Callable[[], Any], count: int, timeout: float) -> Any:  # noqa: ANN401, ASYNC109
        import asyncio

        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        woken = asyncio.Event()
        with contextlib.ExitStack() as stack:
            watched = _duplicate(stack, self._end.watch())
            loop.add_reader(watched, woken.set)
            stack.callback(loop.remove_reader, watched)
            while True:
                woken.clear()
                armed = self._end.arm(count)
                found = attempt()
                if not _is_not_now(found) or loop.time() >= deadline:
                    return found
                if armed:
                    look = loop.call_later(min(deadline - loop.time(), _LOOK), woken.set)
                    try:
                        await woken.wait()
                    finally:
                        look.cancel()
                else:
                    await asyncio.sleep(0)


def joined(first: Elements, second: Elements) -> Elements:
    """A copy of elements that lie in two places: of all their bytes, since numpy would change the type."""
    both: Elements = np.concatenate((first.view(np.uint8), second.view(np.uint8)))
    return both.view(first.dtype)


def _is_not_now(found: object) -> bool:
    return found is None or found is False


def _duplicate(stack: contextlib.ExitStack, fd: int) -> int:
    """Duplicate the descriptor of an end, which may be closed in the wait.

    Its number could belong to another file then, which the loop would take for the one that it watches.
    """
    try:
        own = os.dup(fd)
    except OSError as error:
        raise ResourceExhausted(f"cannot wait for the queue: {error.strerror}") from error
    stack.callback(os.close, own)
    return own


class InEventLoops(Closing):
    """The methods of a message queue for event loops, over its two ends."""

    descriptor: MQDescriptor
    dtype: np.dtype[Any]
    _open: bool
    _ends: dict[bool, QueueEnd]
    _watched: int

    async def write_async(
        self,
        elements: Carrier,
        timeout: float = PATIENCE,  # noqa: ASYNC109 - as for `write`
    ) -> bool:
        """Do `write` without blocking the event loop while there is no room.

        Raises:
            BadState: another task is waiting with this end.
            InvalidArgument: as for `write`; or the queue was made without `ends`.
            Closed, DeadObject, QueueCorrupted: as for `write`.
        """
        wait, count = self._loop_wait(writes=True), self._count_of(elements)
        done: bool = await wait.until(lambda: self.write(elements), count, timeout)
        return done

    async def read_async(
        self,
        count: int,
        timeout: float = PATIENCE,  # noqa: ASYNC109 - as for `read`
    ) -> Elements | None:
        """Do `read` without blocking the event loop until the elements come.

        Raises:
            InvalidArgument, BadState, Closed, DeadObject, QueueCorrupted: as for `write_async`.
        """
        wait = self._loop_wait(writes=False)
        found: Elements | None = await wait.until(lambda: self.read(count), count, timeout)
        return found

    async def send_async(
        self,
        message: Carrier,
        timeout: float = PATIENCE,  # noqa: ASYNC109 - as for `send`
    ) -> bool:
        """Do `send` without blocking the event loop while there is no room.

        Raises:
            InvalidArgument, BadState, Closed, DeadObject, QueueCorrupted: as for `write_async`.
        """
        wait, count = self._loop_wait(writes=True), self._count_of(message)
        count += lib.NNB_MESSAGE_HEADER
        done: bool = await wait.until(lambda: self.send(message), count, timeout)
        return done

    async def receive_async(
        self,
        timeout: float = PATIENCE,  # noqa: ASYNC109 - as for `receive`
    ) -> bytes | None:
        """Do `receive` without blocking the event loop until a message comes.

        Raises:
            InvalidArgument, BadState, Closed, DeadObject, QueueCorrupted: as for `write_async`.
        """
        wait = self._loop_wait(writes=False)
        found: bytes | None = await wait.until(lambda: self.receive(), 1, timeout)
        return found

    async def __aiter__(self) -> AsyncIterator[Any]:
        """Iterate over messages of a queue of `bytes`, else over arrays of all elements that have come.

        The iteration ends when the writer has closed the queue and nothing is left to read.

        Raises:
            BadState, DeadObject, QueueCorrupted: as for `read`.
        """
        wait = self._loop_wait(writes=False)
        has_size = self.dtype.itemsize != 0

        def attempt() -> Any:  # noqa: ANN401 - an array or bytes
            if not has_size:
                return self.receive()
            count = self.available_to_read()
            found = self.read(max(count, 1))
            if count or found is None or not (count := self.available_to_read()):
                return found
            rest = self.read(count)  # of a write between the first two calls
            return found if rest is None else joined(found, rest)

        while self._open:
            try:
                found = await wait.until(attempt, 1, PATIENCE)
            except Closed:
                return
            if found is not None:
                yield found

    def fileno(self) -> int:
        """A descriptor for `selectors` that is readable while there may be something to read.

        From this call on, the first write after a `read`, `read_into` or `receive` that found too little
        makes the descriptor readable, and so does the end of the writer's process: so read until nothing is
        left, then select. The queue owns the descriptor; do not read from it or close it.

        Raises:
            InvalidArgument: the queue has no event flag, or was made without `ends`.
            ResourceExhausted: 72 readers of a broadcast wait in event loops, or the system refuses a socket.
            BadState, Closed: as for `read`.
        """
        end = self._opened(writes=False)
        watched = end.watch()
        if "_watched" not in vars(self):
            self._watched, arm = watched, end.arm
            read, read_into, receive = self.read, self.read_into, self.receive

            def read_or_arm(count: int, timeout: float = 0.0) -> Elements | None:
                while (found := read(count, timeout)) is None and not arm(count):
                    pass
                return found

            def read_into_or_arm(array: Carrier, timeout: float = 0.0) -> bool:
                while not (done := read_into(array, timeout)) and not arm(self._count_of(array)):
                    pass
                return done

            def receive_or_arm(timeout: float = 0.0) -> bytes | None:
                while (found := receive(timeout)) is None and not arm(1):
                    pass
                return found

            vars(self).update(read=read_or_arm, read_into=read_into_or_arm, receive=receive_or_arm)
            if not arm(1):
                end.wake_self()
        return watched

    def _loop_wait(self, *, writes: bool) -> LoopWait:
        waits: dict[bool, LoopWait] = vars(self).setdefault("_loop_waits", {})
        if (found := waits.get(writes)) is None:
            found = waits[writes] = LoopWait(self._opened(writes=writes), self.descriptor.capacity)
        return found

    def _count_of(self, elements: object) -> int:
        """The number of elements in an array or a buffer; 0 for other objects, which `write` refuses."""
        try:
            array = elements if isinstance(elements, np.ndarray) else memoryview(elements)  # type: ignore[arg-type]
        except TypeError:
            return 0
        return array.nbytes // self.descriptor.quantum

    def _opened(self, *, writes: bool) -> QueueEnd:
        raise NotImplementedError

    def write(self, elements: Carrier, timeout: float = 0.0) -> bool:
        """See `MessageQueue`."""
        raise NotImplementedError

    def read(self, count: int, timeout: float = 0.0) -> Elements | None:
        """See `MessageQueue`."""
        raise NotImplementedError

    def read_into(self, array: Carrier, timeout: float = 0.0) -> bool:
        """See `MessageQueue`."""
        raise NotImplementedError

    def send(self, message: Carrier, timeout: float = 0.0) -> bool:
        """See `MessageQueue`."""
        raise NotImplementedError

    def receive(self, timeout: float = 0.0) -> bytes | None:
        """See `MessageQueue`."""
        raise NotImplementedError

    def available_to_read(self) -> int:
        """See `MessageQueue`."""
        raise NotImplementedError
