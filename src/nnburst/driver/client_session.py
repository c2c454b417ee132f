"""Keeps a client's objects, sends its notifications, waits for its fences, and unbinds its idle requests.

The outcome of each asynchronous call is sent exactly once, however slowly the client reads: a call is
checked, then the scheduler runs it; notifications that do not fit into the socket are kept, and their number
is bounded.
"""

from __future__ import annotations

import logging
import math
import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import msgspec

from nnburst.control.channel import MAX_CALLS, MAX_NOTIFICATIONS, SEND_TIMEOUT
from nnburst.control.connection import Connection
from nnburst.control.fences import FenceStatus, fence_status
from nnburst.control.messages import Message, Reply
from nnburst.control.service import Answer, ObjectTable, failure, nothing
from nnburst.driver.confinement import HELD_FDS, SHARED_BYTES, Charge, Quota
from nnburst.driver.counters import CounterPage
from nnburst.driver.model.buffers import BufferTracker
from nnburst.driver.model.device import Device
from nnburst.driver.scheduler import Scheduler, Work
from nnburst.driver.served_models import ServedModels
from nnburst.hal.enums import Priority
from nnburst.hal.errors import Closed, DeadObject, NnburstError, ResourceExhausted
from nnburst.hal.utils import start_thread

logger = logging.getLogger(__name__)

#: Called with the result of a wait: SIGNALLED, ERROR, or ACTIVE if its deadline has passed. Must not block.
Done = Callable[[FenceStatus], None]
#: Longest sleep of the thread in seconds: every wait has a deadline.
_SLICE: Final = 60.0
#: Seconds until the next attempt to send, after memory or descriptors were short.
_PAUSE: Final = 0.05


class Outbox:
    """Sends one-way upcalls in order and keeps those that do not fit into the socket. Thread-safe.

    The number of messages is bounded: each needs a ticket, taken before the work that it reports begins. A
    thread runs only while the client reads too slowly; it ends with the connection.
    """

    def __init__(self, upcalls: Connection, limit: int = MAX_NOTIFICATIONS) -> None:
        """Post to the peer of `upcalls`; at most `limit` tickets exist at once."""
        self._upcalls = upcalls
        self._limit = limit
        self._lock = threading.Lock()
        self._waiting: deque[Message] = deque()
        self._tickets = 0
        self._sending = False

    def ticket(self) -> Ticket:
        """Take a ticket, the right to post one message.

        Raises:
            ResourceExhausted: all tickets are taken; a ticket is free again when its message was sent.
        """
        with self._lock:
            if self._tickets >= self._limit:
                raise ResourceExhausted(
                    f"{self._limit} notifications are due or unread, as many as a client may have"
                )
            self._tickets += 1
        return Ticket(self)

    def post(self, message: Message) -> None:
        """Send a message, or keep it until it can be sent; called by tickets only."""
        with self._lock:
            if not self._waiting and self._leaves(message, 0):
                self._tickets -= 1
                return
            self._waiting.append(message)
            if self._sending:
                return
            self._sending = True
        try:
            threading.Thread(target=self._send, name="nnburst outbox", daemon=True).start()
        except RuntimeError as error:
            logger.warning(
                "cannot start the outbox's thread; the next notification tries again: %s", error
            )
            with self._lock:
                self._sending = False

    def release(self) -> None:
        """Return a ticket that will not be used."""
        with self._lock:
            self._tickets -= 1

    def _send(self) -> None:
        """Send waiting messages until none is left."""
        while True:
            with self._lock:
                if not self._waiting:
                    self._sending = False
                    return
                message = self._waiting[0]
            if self._leaves(message, SEND_TIMEOUT):
                with self._lock:
                    self._waiting.popleft()
                    self._tickets -= 1

    def _leaves(self, message: Message, timeout: float) -> bool:
        """Send a message; returns whether it was sent, or the client is gone."""
        try:
            self._upcalls.notify(message, timeout)
        except TimeoutError:
            return False
        except (ResourceExhausted, MemoryError):
            time.sleep(min(timeout, _PAUSE))
            return False
        except (Closed, DeadObject) as error:
            logger.debug("%s has no receiver and is dropped: %s", type(message).__name__, error)
        except (NnburstError, TypeError, ValueError, OverflowError) as error:
            # Not only of the connection: an executor of others may report what no message can hold.
            logger.warning("%s cannot be sent and is dropped: %s", type(message).__name__, error)
        return True


class Ticket:
    """The right to post one message. Thread-safe: the first message is posted, later ones are dropped."""

    def __init__(self, outbox: Outbox) -> None:
        """Use `Outbox.ticket`."""
        self._outbox: Outbox | None = outbox
        self._lock: Final = threading.Lock()

    def post(self, message: Message) -> bool:
        """Notify the client; True if this was the first time."""
        outbox = self._take()
        if outbox is None:
            return False
        outbox.post(message)
        return True

    def cancel(self) -> None:
        """Return the ticket without a message; does nothing after `post`."""
        outbox = self._take()
        if outbox is not None:
            outbox.release()

    def _take(self) -> Outbox | None:
        with self._lock:
            outbox, self._outbox = self._outbox, None
        return outbox


class AsyncCall(Protocol):
    """The work of an asynchronous call that has been checked. Either `run` or `cancel` is called, once."""

    @property
    def priority(self) -> Priority:
        """Its priority among the client's work."""

    def run(self) -> Message:
        """Do the work, and return the notification of success. Its exceptions are sent to the client."""

    def cancel(self) -> None:
        """Free the resources of work that will not be done."""


def start_async_call(
    outbox: Outbox,
    scheduler: Scheduler,
    work: Work,
    check: Callable[[], AsyncCall],
    failed: Callable[[Reply], Message],
) -> Answer:
    """Check a call's arguments, and submit its work to the scheduler.

    After a failure, the callback is notified of the status before the call is answered with the same status.

    Args:
        outbox: the outbox of the client that calls.
        scheduler: the scheduler of the client that calls.
        work: the scheduler's lanes that the work runs on.
        check: checks the arguments, while the client waits, and returns the work.
        failed: makes the notification of a failure.

    Raises:
        ResourceExhausted: too many notifications are outstanding; then only the answer reports it.
        NnburstError: `check` raised it, or device:P9.
    """
    ticket = outbox.ticket()

    def run() -> None:
        try:
            message = checked.run()
        except BaseException as error:  # an executor of others may raise anything, SystemExit too
            message = failed(failure(error))
        ticket.post(message)

    try:
        checked = check()
        try:
            scheduler.submit(run, checked.priority, work)
        except BaseException:
            checked.cancel()
            raise
    except BaseException as error:
        ticket.post(failed(failure(error)))
        raise
    return nothing()


class _Wait(msgspec.Struct, eq=False):
    """All fences of one execution.

    Attributes:
        active: the fences that have not signalled, by descriptor.
        deadline_ns: time on CLOCK_BOOTTIME.
        done: called once, with the result.
        charge: the charge for all fences.
    """

    active: dict[int, socket.socket]
    deadline_ns: int | None
    done: Done
    charge: Charge


class FenceWaiter:
    """Waits for sets of fences to signal. Thread-safe. Its thread starts with the first wait.

    Fences are hostile: they are only peeked at, and a fence that is readable without a byte is in the error
    state.
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
            deadline_ns: time on CLOCK_BOOTTIME.
            done: called with the result; must be quick.

        Raises:
            ResourceExhausted: there are too many waits or fences, or the thread cannot be started.
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
        """Start the thread; after a failure everything is as before. With the lock held."""
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
    """A bound request whose memory in the executor can be released while it is idle, and taken again."""

    def idles_at_ns(self) -> int:
        """The time (time.monotonic_ns) at which it may be unbound if no run comes until then."""
        ...

    def unbind_if_idle(self) -> bool:
        """Unbind the request if it was idle for long; returns whether it is unbound now."""
        ...


class IdleWatch:
    """Unbinds requests that a client has not used for long. Thread-safe. Its thread ends if none is bound."""

    def __init__(self) -> None:
        """Create an empty watch."""
        self._bound: set[Idling] = set()
        self._lock = threading.Lock()
        self._is_running = False

    def add(self, idling: Idling) -> None:
        """Watch a bound request. Twice is fine. If the thread cannot be started, the request stays bound."""
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
        """Stop watching a request; does nothing if it is not watched."""
        with self._lock:
            self._bound.discard(idling)

    def _serve(self) -> None:
        while (due_ns := self._due_ns()) is not None:
            # Requests that are added meanwhile are due later.
            time.sleep(min(max(due_ns - time.monotonic_ns(), 0) * 1e-9, _SLICE))
            for each in self._watched():
                self._look(each)

    def _watched(self) -> list[Idling]:
        with self._lock:
            return list(self._bound)

    def _due_ns(self) -> int | None:
        """The earliest time at which a request may be unbound; None if the thread is to end."""
        with self._lock:
            if not self._bound:
                self._is_running = False
                return None
            return min(each.idles_at_ns() for each in self._bound)

    def _look(self, idling: Idling) -> None:
        # Removed first: a run may bind the request again at once, which adds it again.
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
        device: the device that the client calls.
        objects: the client's objects by handle.
        buffers: the client's buffers by token.
        shared_bytes: the quota for mapped bytes of its pools.
        idle: unbinds requests that the client has not used for long.
        counter_page: counts its executions; None if there is no supervisor to read it.
    """

    def __init__(
        self,
        device: Device,
        counter_page: CounterPage | None = None,
        shared_bytes: Quota = SHARED_BYTES,
    ) -> None:
        """Create a session without objects on `device`; see the attributes."""
        self.device: Final = device
        self.counter_page: Final = counter_page
        self.shared_bytes: Final = shared_bytes
        self.objects: Final = ObjectTable()
        self.buffers: Final = BufferTracker(self.objects)
        self.idle: Final = IdleWatch()


class ClientSession(ModelSession):
    """One client's device, objects and upcalls, in a process that serves only this client. Thread-safe.

    Attributes:
        upcalls: the connection on which the driver calls the client.
        scheduler: runs the client's work.
        outbox: sends notifications, and keeps those that are still to be sent.
        fences: waits for the client's sync fences.
        served_models: the networks that the client may open by name.
    """

    def __init__(
        self,
        device: Device,
        upcalls: Connection,
        counter_page: CounterPage | None = None,
        served_models: ServedModels | None = None,
        scheduler: Scheduler | None = None,
    ) -> None:
        """Serve `device` to the client at the other end of `upcalls`, by a new scheduler unless given."""
        super().__init__(device, counter_page)
        self.served_models: Final = served_models or ServedModels()
        self.upcalls: Final = upcalls
        self.scheduler: Final = scheduler or Scheduler()
        self.outbox: Final = Outbox(upcalls)
        self.fences: Final = FenceWaiter()


def priority_of(target: object) -> Priority:
    """The priority of the prepared model that an object belongs to; MEDIUM if it has none."""
    priority = getattr(target, "priority", Priority.MEDIUM)
    return priority if isinstance(priority, Priority) else Priority.MEDIUM
