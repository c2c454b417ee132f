"""The client's slot table: which number stands for a pool in the driver (burst:§6.1)."""

from __future__ import annotations

import queue
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Final

from nnburst._native import lib
from nnburst.client.memory.memory import Memory
from nnburst.control.limits import RELEASE_TIMEOUT
from nnburst.hal.errors import InvalidArgument, MissedDeadline, NnburstError
from nnburst.hal.process.daemon_thread import DaemonThread

#: Slots that the driver may have yet to forget when another pool gets one: far below its quota of pools.
MAX_BACKLOG: Final = 64


class SlotTable:
    """Pools to slots and back, for one burst. Thread-safe.

    Pools are referenced weakly: an array of a bound request keeps its pool alive, the table does not.
    A slot is the one freed last, or else the next from 0. It is free again only when the driver has
    forgotten it (`release`), so a number never means two pools at once.
    """

    def __init__(self) -> None:
        # Reentrant: the garbage collector may close a pool, which retires its slot, in any of these.
        self._lock = threading.RLock()
        self._slots: dict[int, int] = {}  # pool number -> slot
        self._pools: list[weakref.ref[Memory] | None] = []  # slot -> pool
        self._free: list[int] = []

    def has(self, memory: Memory) -> bool:
        """Whether a pool has a slot."""
        return memory._number in self._slots

    def slot_of(self, memory: Memory) -> tuple[int, bool]:
        """The slot of a pool, and whether it was given just now."""
        with self._lock:
            known = self._slots.get(memory._number)
            if known is not None:
                return known, False
            if self._free:
                slot = self._free.pop()
                self._pools[slot] = weakref.ref(memory)
            else:
                slot = len(self._pools)
                self._pools.append(weakref.ref(memory))
            self._slots[memory._number] = slot
            return slot, True

    def memories(self, slots: Sequence[int]) -> list[Memory]:
        """The pools behind `slots`, all or nothing (NNAPI: getMemories).

        Raises:
            InvalidArgument: a slot is not in use.
        """
        with self._lock:
            references = [self._pools[s] if 0 <= s < len(self._pools) else None for s in slots]
        found = [None if r is None else r() for r in references]
        missing = [slot for slot, pool in zip(slots, found, strict=True) if pool is None]
        if missing:
            raise InvalidArgument(f"getMemories: slot {missing[0]} is not in use")
        return [pool for pool in found if pool is not None]

    def remove(self, number: int) -> int | None:
        """Take a closed pool out; its slot, which stays taken until `release`."""
        with self._lock:
            slot = self._slots.pop(number, None)
            if slot is not None:
                self._pools[slot] = None
            return slot

    def release(self, slot: int) -> None:
        """Give a retired slot back for reuse: the driver has forgotten it."""
        with self._lock:
            self._free.append(slot)

    def pools(self) -> list[Memory]:
        """The pools that have a slot and still exist."""
        with self._lock:
            references = [reference for reference in self._pools if reference is not None]
        return [pool for reference in references if (pool := reference()) is not None]


class SlotReleaser:
    """Tells the driver which slots it may forget, on a thread of its own.

    A pool can be closed anywhere, also by the garbage collector in the middle of another call, so
    closing it must neither wait nor take a lock. So that no program closes pools faster than the
    driver forgets them for long, giving a new pool a slot waits first (`keep_up`).
    """

    def __init__(self, free_memory: Callable[[int], None], slots: SlotTable) -> None:
        """`free_memory(slot)` asks the driver and waits for its answer."""
        self._queue: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._clean_up: Callable[[], None] | None = None
        self._free_memory = free_memory
        self._slots = slots
        self._progress = threading.Event()
        self._closing = False
        self._thread = DaemonThread(self._serve)

    def release(self, slot: int) -> None:
        """Free a retired slot, soon. Reentrant."""
        self._queue.put(slot)

    def keep_up(self, timeout: float) -> None:
        """Wait until the driver is no more than MAX_BACKLOG slots behind.

        Args:
            timeout: seconds.

        Raises:
            MissedDeadline: it still is.
        """
        deadline = time.monotonic() + timeout
        while self._queue.qsize() > MAX_BACKLOG:
            self._progress.clear()
            left = deadline - time.monotonic()
            if left <= 0:
                raise MissedDeadline(f"the driver has not released closed pools in {timeout:g} s")
            if self._queue.qsize() > MAX_BACKLOG:
                self._progress.wait(left)

    def close(self) -> None:
        """End the thread after the slot that it is at: with the burst the driver forgets all the others.

        A driver that stands still is not waited for: then the thread ends with its call.
        """
        self._closing = True
        self._queue.put(None)
        self._thread.join(RELEASE_TIMEOUT)

    def abandon(self, clean_up: Callable[[], None]) -> None:
        """End the thread, soon; `clean_up` is the last thing that it runs. Reentrant."""
        self._clean_up = clean_up
        self._queue.put(None)

    def _serve(self) -> None:
        lib.nnb_set_thread_name(b"nnburst slots")
        while (slot := self._queue.get()) is not None:
            self._progress.set()
            if self._closing:
                continue
            try:
                self._free_memory(slot)
            except NnburstError:
                continue  # the driver still holds the slot, or is gone: never use its number again
            self._slots.release(slot)
        if self._clean_up is not None:
            self._clean_up()
