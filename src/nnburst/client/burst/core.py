"""Keeps the state of one burst: its channels, its slots, its submitted requests, and the reason of its end.

A slot is the number by which the driver refers to a pool of the client (burst:§6.1).
"""

from __future__ import annotations

import os
import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

from nnburst._native import ffi, lib
from nnburst.client.arguments import Array
from nnburst.client.burst.transport import (
    BurstChannels,
    BurstEnded,
    BurstStop,
    abandon_burst,
)
from nnburst.client.execution.prepared import Prepared
from nnburst.client.memory import Memory, find_memory
from nnburst.client.session.gate import BUSY, Gate
from nnburst.control.channel import RELEASE_TIMEOUT
from nnburst.fmq.message_queue import MessageQueue
from nnburst.hal.errors import (
    BurstBusy,
    Closed,
    GeneralFailure,
    InvalidArgument,
    MissedDeadline,
    NnburstError,
)
from nnburst.hal.utils import DaemonThread, OneTimeEvent, weakly
from nnburst.serialize import DATUM_BYTES
from nnburst.tracing.slices import flow_base

if TYPE_CHECKING:
    from nnburst._native import nnb_client


# -- slots -----------------------------------------------------------------------------------------


#: Most retired slots that the driver has not dropped yet when a pool gets a new one: far below its quota.
MAX_BACKLOG: Final = 64


class SlotTable:
    """Maps the pools of one burst to slots and back. Thread-safe.

    Pools are referenced weakly: an array of a bound request keeps its pool alive, the table does not. A new
    pool gets the slot that was freed last, or else the next one, from 0 on. A slot is free only after the
    driver has dropped it (`release`), so a number never means two pools at once.
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
        """The slot of a pool, and whether the pool has just got it."""
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
        """Remove a closed pool; returns its slot, which is not free before `release`."""
        with self._lock:
            slot = self._slots.pop(number, None)
            if slot is not None:
                self._pools[slot] = None
            return slot

    def release(self, slot: int) -> None:
        """Make a retired slot free after the driver has dropped it."""
        with self._lock:
            self._free.append(slot)

    def pools(self) -> list[Memory]:
        """The pools that have a slot and still exist."""
        with self._lock:
            references = [reference for reference in self._pools if reference is not None]
        return [pool for reference in references if (pool := reference()) is not None]


class SlotReleaser:
    """Asks the driver to drop slots whose pools are closed, on a thread of its own.

    A pool can be closed anywhere, also by the garbage collector in the middle of another call, so closing it
    must neither wait nor take a lock. If a program closes pools faster than the driver drops their slots, the
    next new pool waits for the driver (`keep_up`).
    """

    def __init__(self, free_memory: Callable[[int], None], slots: SlotTable) -> None:
        """`free_memory(slot)` asks the driver and waits for its answer."""
        self._queue: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._clean_up: Callable[[], None] | None = None
        self._free_memory = free_memory
        self._slots = slots
        self._progress = OneTimeEvent()
        self._closing = False
        self._thread: DaemonThread | None = None

    def start(self) -> None:
        """Start the thread; `close` or `abandon` ends it, even if its start was interrupted.

        Raises:
            ResourceExhausted: the process may have no more threads.
        """
        self._thread = DaemonThread(self._serve)

    def release(self, slot: int) -> None:
        """Queue a retired slot for the thread to free. Reentrant."""
        self._queue.put(slot)

    def keep_up(self, timeout: float) -> None:
        """Wait until the driver is no more than MAX_BACKLOG slots behind.

        Args:
            timeout: seconds.

        Raises:
            MissedDeadline: the driver is still further behind.
        """
        deadline = time.monotonic() + timeout
        while self._queue.qsize() > MAX_BACKLOG:
            self._progress = progress = OneTimeEvent()
            left = deadline - time.monotonic()
            if left <= 0:
                raise MissedDeadline(
                    f"the driver has not released closed pools in {max(timeout, 0):g} s"
                )
            if self._queue.qsize() > MAX_BACKLOG:
                progress.wait(left)

    def close(self) -> None:
        """End the thread after the slot that it is freeing; the driver drops all others with the burst.

        This does not wait for a driver that is stopped: then the thread ends when its call does.
        """
        self._closing = True
        self._queue.put(None)
        if self._thread is not None:
            self._thread.join(RELEASE_TIMEOUT)

    def abandon(self, clean_up: Callable[[], None]) -> None:
        """Let the thread end by itself; it runs `clean_up` last. Reentrant."""
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
                continue  # the driver has the slot still, or is gone: never use the number again
            self._slots.release(slot)
        if self._clean_up is not None:
            self._clean_up()


# -- submitted requests ----------------------------------------------------------------------------


class InFlight(Protocol):
    """A bound request that may be under way."""

    in_flight: bool


class Submission(Protocol):
    """A request that is under way: it was sent, and its result was not collected yet.

    Attributes:
        _abandoned: whether the program gave the result up.
        _taken: whether no wait is needed: the result was taken out of the ring, or is overdue.
    """

    _abandoned: bool
    _taken: bool

    @property
    def _bound(self) -> InFlight:
        """The request."""

    def _collect(self, deadline_ns: int) -> None:
        """Wait for its result until `deadline_ns` on CLOCK_MONOTONIC; it must be the oldest one under way."""


class SubmissionQueue(deque[Submission]):
    """The submitted requests of a burst that are under way, oldest first.

    Signal handlers may raise anywhere, several in a row. So the state of a request is derived from the
    counters of the C side, and stored without a function call before any other step.

    Attributes:
        gate: lets one thread in at a time, since results are matched with requests by their order alone.
    """

    def __init__(self, client: nnb_client) -> None:
        """Create the empty queue of the burst with the struct `client`."""
        super().__init__()
        self._client = client
        self.gate: Final = Gate()

    def skip_abandoned(self) -> None:
        """Count abandoned requests at the front as overdue. The caller is inside `gate`."""
        client = self._client
        while self and self[0]._abandoned:
            first = self[0]
            if not first._taken:
                before = client.collected
                try:
                    lib.nnb_client_forsake(client)
                finally:  # without a call: a second handler may raise
                    if client.collected != before:
                        first._taken = True
                if not first._taken:
                    return
            first._bound.in_flight = False
            self.popleft()


# -- core ------------------------------------------------------------------------------------------


#: Seconds that a control call about the burst may take.
_CALL_TIMEOUT: Final = 30.0

MALFORMED: Final = int(lib.NNB_CLIENT_MALFORMED)
TIMED_OUT: Final = int(lib.NNB_CLIENT_TIMED_OUT)
_CORRUPT: Final = int(lib.NNB_CLIENT_CORRUPT)
_SURPLUS: Final = int(lib.NNB_CLIENT_SURPLUS)
NO_ROOM: Final = int(lib.NNB_CLIENT_NO_ROOM)
BUSY_CODE: Final = int(lib.NNB_CLIENT_BUSY)
IN_FLIGHT: Final = int(lib.NNB_CLIENT_IN_FLIGHT)
_UNBOUND: Final = int(lib.NNB_CLIENT_UNBOUND)


class Bindable(Protocol):
    """A bound request, as the core of its burst calls it."""

    def _pool_closed(self, number: int) -> None:
        """Note that a pool was closed."""

    def _fail(self) -> None:
        """Refuse runs from now on."""


class BurstCore:
    """The state that a burst shares with its requests: channels, slots, and the reason of its end.

    A burst and its requests refer to the core; it refers to them weakly or not at all. It is closed when
    the last reference to it goes.

    Attributes:
        prepared: the model that the burst executes.
        inputs: type and shape of each input.
        outputs: type and shape of each output.
        client: the struct nnb_client.
        channels: the two queues.
        slots: the numbers by which the driver refers to pools.
        user: as whom the burst holds the model until its end, if it does.
        pending: the submitted requests that are under way.
        closed: whether `close` was called.
        lost: whether it was closed because its driver had died and another burst replaced it.
        waiter: waits for results in an event loop; None before the first such wait.
    """

    def __init__(
        self, prepared: Prepared, channels: BurstChannels, slots: SlotTable, user: object
    ) -> None:
        """Own `channels` from here on, and release `user` at the end."""
        self.prepared = prepared
        self.user = user
        self.inputs, self.outputs = prepared.inputs, prepared.outputs
        self.slots = slots
        self.channels = channels
        self.client = _new_client(channels.requests, channels.results)
        self._buffer = ffi.new("uint8_t[]", channels.results.capacity * DATUM_BYTES)
        self.client.packet = self._buffer
        self.connection = prepared.session.connection
        self.closed = False
        self.lost = False
        self.waiter: Any = None
        self._forked_from = 0
        self._reason: str = ""
        # A plain set of weak references: it is copied in one step while other threads bind.
        self._bound: set[weakref.ref[Bindable]] = set()
        self.pending = SubmissionQueue(self.client)
        self._lock = threading.Lock()
        # Functions that are registered elsewhere must not keep this object alive.
        self._stop = BurstStop(self.client, channels)
        self._on_pool_closed = weakly(self.pool_closed)
        self._releaser = SlotReleaser(channels.free_memory, slots)
        let_go = partial(weakly(prepared.release), user)
        clean_up = partial(abandon_burst, self.connection, channels, self._stop, let_go)
        self._finalizer = weakref.finalize(self, self._releaser.abandon, clean_up)
        self._finalizer.atexit = False  # the end of the process releases everything
        self._releaser.start()
        _cores.add(self)

    def watch(self, ended: BurstEnded) -> None:
        """End all waits when the driver dies or ends the burst."""
        self.connection.on_end(self._stop)
        ended.tell(weakly(self.fail))

    @property
    def result_bytes(self) -> int:
        """Bytes of the largest result packet."""
        return len(self._buffer)

    @property
    def max_in_flight(self) -> int:
        """Requests that may be under way at once."""
        return int(self.client.max_in_flight)

    def add(self, bound: Bindable) -> None:
        """Register a bound request, whose `_pool_closed` is called for closed pools; it is held weakly."""
        self._bound.add(weakref.ref(bound, self._bound.discard))

    def has(self, bound: Bindable) -> bool:
        """Whether a bound request is one of this burst's."""
        return weakref.ref(bound) in self._bound

    def locate(
        self, array: Array, name: str, deadline_ns: int | None = None
    ) -> tuple[Memory, int, int]:
        """Pool, offset and slot of a pool-backed array; the pool gets a slot if it has none.

        Args:
            array: the array.
            name: the name of its parameter, for messages.
            deadline_ns: end of the wait for the driver to drop closed pools, on CLOCK_MONOTONIC; None for
                the timeout of a control call.

        Raises:
            InvalidArgument: the array lies in no pool, or in one of another device.
            MissedDeadline: the driver does not drop pools that were closed before.
        """
        found = find_memory(array)
        if found is None:
            raise InvalidArgument(
                f"{name} does not lie in an open pool, expected an array of Device.allocate(...) or"
                " nnburst.Memory(...)"
            )
        memory, offset = found
        if not self.slots.has(memory):
            memory._on_close(self._on_pool_closed)  # before the slot exists, so that none lacks it
        slot, new = self.slots.slot_of(memory)
        if memory.closed:
            self.pool_closed(memory._number)
            raise Closed(f"{name}: its pool is closed")
        if new:
            seconds = _CALL_TIMEOUT
            if deadline_ns is not None:
                seconds = min(seconds, (deadline_ns - time.monotonic_ns()) * 1e-9)
            self._releaser.keep_up(seconds)
        return memory, offset, slot

    def check_open(self) -> None:
        """Raise Closed after `close`, GeneralFailure if client and driver have lost track of each other."""
        self.check_process()
        if self.closed:
            raise self.connection.end_error() if self.lost else Closed("the burst is closed")
        if self._reason:
            raise GeneralFailure(self._reason)

    def check_running(self) -> None:
        """`check_open`, and DeadObject once the driver is dead."""
        self.check_open()
        if not self.connection.is_alive:
            raise self.stopped_error()

    def check_process(self) -> None:
        """Raise Closed in a forked child: the queues are not mapped there."""
        if self._forked_from:
            raise Closed(f"the burst belongs to process {self._forked_from}, which forked")

    def stopped_error(self) -> NnburstError:
        """The exception to raise for a run that was stopped."""
        if self.closed and not self.lost:
            return Closed("the burst was closed while it ran")
        return GeneralFailure(self._reason) if self._reason else self.connection.end_error()

    def fail(self, reason: str) -> None:
        """Stop all runs, now and later: client and driver have lost track of each other."""
        if self._forked_from:
            return
        self._reason = self._reason or reason
        self._stop()

    def abandon_in_child(self) -> None:
        """Prevent any use of the queues in a forked child, in which they are not mapped."""
        self._forked_from, self.closed = os.getppid(), True
        self._finalizer.detach()
        self.channels.wakeup_socket.abandon_in_child()
        for bound in self._bound_requests():
            bound._fail()

    def raise_for(self, code: int) -> NoReturn:
        """Raise the error of a code that is not a result."""
        if code == TIMED_OUT:
            raise MissedDeadline("timeout: no result came in time; a late one is dropped")
        if code == BUSY_CODE:
            self.check_running()
            raise BurstBusy(BUSY)
        if code == IN_FLIGHT:
            self.check_running()
            raise BurstBusy(
                f"{self.max_in_flight} requests are under way, as many as the burst was opened for"
            )
        if code == MALFORMED:
            raise GeneralFailure("the driver sent a malformed result packet")
        if code == NO_ROOM:
            raise NoRoom("the request does not fit the channel")
        if code in (_CORRUPT, _SURPLUS):
            self.raise_failed(
                "the burst has ended: the driver's counters are impossible"
                if code == _CORRUPT
                else "the burst has ended: the driver sent a result without a request"
            )
        if code == _UNBOUND:
            self.check_open()
            raise Closed("a pool of the bound request is closed")
        raise self.stopped_error()

    def raise_failed(self, reason: str) -> NoReturn:
        """End the burst, since client and driver have lost track of each other, and raise GeneralFailure."""
        self.fail(reason)
        self.check_open()
        raise self.stopped_error()

    def pool_closed(self, number: int) -> None:
        """Note that a pool was closed: its slot is retired, and requests that used it cannot run any more."""
        for bound in self._bound_requests():
            bound._pool_closed(number)
        slot = self.slots.remove(number)
        if slot is not None and not self.closed:
            self._releaser.release(slot)

    def _bound_requests(self) -> list[Bindable]:
        return [bound for held in tuple(self._bound) if (bound := held()) is not None]

    def close(self) -> None:
        """End the burst; idempotent, and fine with a dead driver. Arrays stay usable.

        A run on another thread ends with Closed.
        """
        if self._forked_from:
            return
        with self._lock:
            if self.closed:
                return
            self.closed = True
        self._stop()
        lib.nnb_client_drain_unlocked(self.client, int(_CALL_TIMEOUT * 1e9))
        self.connection.remove_callback(self._stop)
        for memory in self.slots.pools():
            memory._remove_callback(self._on_pool_closed)
        self._releaser.close()
        self.channels.close()
        self.prepared.release(self.user)
        self._finalizer.detach()  # last: if a signal handler raises before, it does the rest


class NoRoom(GeneralFailure):
    """Raised when a packet is too large to be sent over the ring, now or later."""


#: The cores of all bursts of this process; a forked child abandons them.
_cores: Final[weakref.WeakSet[BurstCore]] = weakref.WeakSet()


def _abandon_all_in_child() -> None:
    for core in list(_cores):
        core.abandon_in_child()


os.register_at_fork(after_in_child=_abandon_all_in_child)


def _new_client(requests: MessageQueue, results: MessageQueue) -> nnb_client:
    """A struct nnb_client over the two channels."""
    if requests.event_flag is None or results.event_flag is None:
        raise InvalidArgument("both channels need an event flag")
    client = ffi.new("struct nnb_client *")
    client.requests = requests.ring[0]
    client.results = results.ring[0]
    client.request_flag = requests.event_flag.word
    client.result_flag = results.event_flag.word
    client.flow = flow_base(requests.memories[0].fd)
    lib.nnb_client_share_interpreter(client)
    return client
