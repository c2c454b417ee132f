"""Holds everything that a worker has for its client, waits for its sync fences, and unbinds what idles."""

from __future__ import annotations

import logging
import math
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import msgspec

from nnburst.control.channel import MAX_CALLS
from nnburst.control.connection import Connection
from nnburst.control.fences import FenceStatus, fence_status
from nnburst.control.service import ObjectTable
from nnburst.driver.counters import CounterPage
from nnburst.driver.model.buffers import BufferTracker
from nnburst.driver.model.device import Device
from nnburst.driver.outbox import Outbox
from nnburst.driver.quotas import HELD_FDS, SHARED_BYTES, Charge, Quota
from nnburst.driver.scheduler import Scheduler
from nnburst.driver.served_models import ServedModels
from nnburst.hal.enums import Priority
from nnburst.hal.errors import ResourceExhausted
from nnburst.hal.utils import start_thread

logger = logging.getLogger(__name__)

#: Called with the end of a wait: SIGNALLED, ERROR, or ACTIVE if its deadline has passed. Must not block.
Done = Callable[[FenceStatus], None]
#: Seconds that the thread sleeps at most: no wait is without a deadline.
_SLICE: Final = 60.0


class _Wait(msgspec.Struct, eq=False):
    """All fences of one execution.

    Attributes:
        active: those that have not signalled, by descriptor.
        deadline_ns: on CLOCK_BOOTTIME.
        done: called once.
        charge: for all fences.
    """

    active: dict[int, socket.socket]
    deadline_ns: int | None
    done: Done
    charge: Charge


class FenceWaiter:
    """Waits for sets of fences to signal. Thread-safe. Its thread starts with the first wait.

    Fences are hostile: each is only looked at, and one that is readable without a byte to look at is in the
    error state.
    """

    def __init__(self, limit: int = MAX_CALLS) -> None:
        """Wait for at most `limit` sets at once."""
        self._limit = limit
        self._lock = threading.Lock()
        self._waits: set[_Wait] = set()
        self._new: list[_Wait] = []
        self._wake = -1

    def wait(self, fences: Sequence[socket.socket], deadline_ns: int | None, done: Done) -> None:
        """Call `done` once, on the thread: when all have signalled, one has failed, or the time is up.

        Args:
            fences: closed by this object in any case.
            deadline_ns: on CLOCK_BOOTTIME.
            done: called with the result; must be quick.

        Raises:
            ResourceExhausted: too many sets are being waited for, or too many fences, or there is no thread.
        """
        try:
            charge = HELD_FDS.charge(len(fences))
        except ResourceExhausted:
            for fence in fences:
                fence.close()
            raise
        wait = _Wait({fence.fileno(): fence for fence in fences}, deadline_ns, done, charge)
        try:
            self._add(wait)
        except BaseException:
            _close(wait)
            raise
        os.eventfd_write(self._wake, 1)

    def _add(self, wait: _Wait) -> None:
        with self._lock:
            if len(self._waits) + len(self._new) >= self._limit:
                raise ResourceExhausted(
                    f"{self._limit} executions are waiting for their fences, as many as a client may have"
                )
            if self._wake < 0:
                self._start()
            self._new.append(wait)

    def _start(self) -> None:
        """Start the thread, or leave everything as it was; the lock is held."""
        wake = -1
        try:
            wake = self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            poller = select.epoll()
            poller.register(wake, select.EPOLLIN)
            threading.Thread(
                target=self._serve, args=(poller,), name="nnburst fences", daemon=True
            ).start()
        except (OSError, RuntimeError, MemoryError) as error:
            self._wake = -1
            if wake >= 0:
                os.close(wake)
            raise ResourceExhausted(
                f"cannot start the thread that waits for fences: {error}"
            ) from error

    def _serve(self, poller: select.epoll) -> None:
        owners: dict[int, _Wait] = {}
        while True:
            ready = [fd for fd, _ in poller.poll(self._patience())]
            if self._wake in ready:
                os.eventfd_read(self._wake)
                self._begin(poller, owners)
            for fd in ready:
                wait = owners.get(fd)
                if wait is not None:
                    self._look(poller, owners, wait, fd)
            self._expire(poller, owners)

    def _begin(self, poller: select.epoll, owners: dict[int, _Wait]) -> None:
        with self._lock:
            new, self._new = self._new, []
            self._waits.update(new)
        for wait in new:
            try:
                for fd in wait.active:
                    poller.register(fd, select.EPOLLIN)
                    owners[fd] = wait
            except OSError:  # the kernel has no room for it
                logger.exception("waiting for a fence failed: its execution ends with an error")
                self._conclude(poller, owners, wait, FenceStatus.ERROR)
                continue
            if not wait.active:
                self._conclude(poller, owners, wait, FenceStatus.SIGNALLED)

    def _look(self, poller: select.epoll, owners: dict[int, _Wait], wait: _Wait, fd: int) -> None:
        if fence_status(wait.active[fd]) != FenceStatus.SIGNALLED:
            self._conclude(poller, owners, wait, FenceStatus.ERROR)
            return
        poller.unregister(fd)
        del owners[fd]
        wait.active.pop(fd).close()
        if not wait.active:
            self._conclude(poller, owners, wait, FenceStatus.SIGNALLED)

    def _conclude(
        self, poller: select.epoll, owners: dict[int, _Wait], wait: _Wait, status: FenceStatus
    ) -> None:
        for fd in wait.active:
            if owners.pop(fd, None) is not None:
                poller.unregister(fd)
        _close(wait)
        with self._lock:
            self._waits.discard(wait)
        try:
            wait.done(status)
        except Exception:
            logger.exception("what follows an execution's fences raised; other executions go on")

    def _expire(self, poller: select.epoll, owners: dict[int, _Wait]) -> None:
        now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        with self._lock:
            late = [w for w in self._waits if w.deadline_ns is not None and w.deadline_ns <= now]
        for wait in late:
            self._conclude(poller, owners, wait, FenceStatus.ACTIVE)

    def _patience(self) -> float:
        """Seconds until the next deadline."""
        with self._lock:
            deadlines = [w.deadline_ns for w in self._waits if w.deadline_ns is not None]
        if not deadlines:
            return _SLICE
        left = (min(deadlines) - time.clock_gettime_ns(time.CLOCK_BOOTTIME)) * 1e-9
        return min(max(math.ceil(left * 1e3) * 1e-3, 0.0), _SLICE)


def _close(wait: _Wait) -> None:
    for fence in wait.active.values():
        fence.close()
    wait.active.clear()
    wait.charge.close()


class Idling(Protocol):
    """Holds something of an executor's that it can take again."""

    def idles_at_ns(self) -> int:
        """When it has idled long enough to be unbound (time.monotonic_ns), as things are now."""
        ...

    def unbind_if_idle(self) -> bool:
        """Give up the executor's share if it has idled for long; whether nothing is bound now."""
        ...


class IdleWatch:
    """Unbinds what a client has not used for long. Thread-safe. Its thread ends when nothing is bound."""

    def __init__(self) -> None:
        """Watch nothing yet."""
        self._bound: set[Idling] = set()
        self._lock = threading.Lock()
        self._is_running = False

    def add(self, idling: Idling) -> None:
        """Watch what has something bound. Twice is fine. Without a thread for it, it stays bound."""
        with self._lock:
            self._bound.add(idling)
            if self._is_running:
                return
            try:
                start_thread(threading.Thread(target=self._serve, name="nnburst idle", daemon=True))
            except ResourceExhausted as error:
                logger.info("what idles stays bound: %s", error)
                return
            self._is_running = True

    def release(self, idling: Idling) -> None:
        """Watch it no longer; one that is not watched is fine."""
        with self._lock:
            self._bound.discard(idling)

    def _serve(self) -> None:
        while (due_ns := self._due_ns()) is not None:
            # Of those that come meanwhile none is due before that.
            time.sleep(min(max(due_ns - time.monotonic_ns(), 0) * 1e-9, _SLICE))
            for each in self._watched():
                self._look(each)

    def _watched(self) -> list[Idling]:
        with self._lock:
            return list(self._bound)

    def _due_ns(self) -> int | None:
        """When the next one may have idled long enough; None if the thread is to end."""
        with self._lock:
            if not self._bound:
                self._is_running = False
                return None
            return min(each.idles_at_ns() for each in self._bound)

    def _look(self, idling: Idling) -> None:
        # Not watched while it is looked at: it may be bound again, and come back, at once.
        self.release(idling)
        try:
            is_bound = not idling.unbind_if_idle()
        except Exception:
            logger.exception("unbinding what idled raised: it counts as unbound")
            return
        if is_bound:
            with self._lock:
                self._bound.add(idling)


class ModelSession:
    """One client's device and objects. Thread-safe.

    Attributes:
        device: whose calls it makes.
        objects: those behind its handles.
        buffers: those of them that requests name by tokens.
        shared_bytes: what its pools, once mapped, are charged to.
        idle: unbinds what it has not used for long.
        counter_page: where its executions are counted; None if there is no supervisor to read it.
    """

    def __init__(
        self,
        device: Device,
        counter_page: CounterPage | None = None,
        shared_bytes: Quota = SHARED_BYTES,
    ) -> None:
        """Hold objects of `device`; see the attributes."""
        self.device: Final = device
        self.counter_page: Final = counter_page
        self.shared_bytes: Final = shared_bytes
        self.objects: Final = ObjectTable()
        self.buffers: Final = BufferTracker(self.objects)
        self.idle: Final = IdleWatch()


class ClientSession(ModelSession):
    """One client's device, objects and upcalls, of a process that serves no other. Thread-safe.

    Attributes:
        upcalls: the socket on which the driver calls the client.
        scheduler: runs its work.
        outbox: notifications that are still to be sent.
        fences: waits for its sync fences.
        served_models: what it may open by name.
    """

    def __init__(
        self,
        device: Device,
        upcalls: Connection,
        counter_page: CounterPage | None = None,
        served_models: ServedModels | None = None,
    ) -> None:
        """Serve `device` to the client at the other end of `upcalls`."""
        super().__init__(device, counter_page)
        self.served_models: Final = served_models or ServedModels()
        self.upcalls: Final = upcalls
        self.scheduler: Final = Scheduler()
        self.outbox: Final = Outbox(upcalls)
        self.fences: Final = FenceWaiter()


def priority_of(target: object) -> Priority:
    """The priority of the prepared model that an object belongs to; MEDIUM if it has none."""
    priority = getattr(target, "priority", Priority.MEDIUM)
    return priority if isinstance(priority, Priority) else Priority.MEDIUM
