"""BurstCore: the state of one burst, which the burst, its bound and its submitted requests share."""

from __future__ import annotations

import os
import threading
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

from nnburst._native import ffi, lib
from nnburst.client.burst.slots import SlotReleaser, SlotTable
from nnburst.client.burst.submission_queue import SubmissionQueue
from nnburst.client.burst.transport.channels import BurstChannels
from nnburst.client.burst.transport.ending import BurstEnded, BurstStop, abandon_burst, weakly
from nnburst.client.execution.prepared import Prepared
from nnburst.client.memory.arguments import Array
from nnburst.client.memory.memory import Memory, find_memory
from nnburst.client.session.gate import BUSY
from nnburst.fmq.message_queue import MessageQueue
from nnburst.hal.errors import (
    BurstBusy,
    Closed,
    GeneralFailure,
    InvalidArgument,
    MissedDeadline,
    NnburstError,
)
from nnburst.serialize import DATUM_BYTES
from nnburst.tracing.flows import flow_base

if TYPE_CHECKING:
    from nnburst._native import nnb_client

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
    """What the core of a burst needs of a bound request."""

    def _pool_closed(self, number: int) -> None:
        """A pool is gone."""

    def _fail(self) -> None:
        """Refuse runs from now on."""


class BurstCore:
    """What is left of a burst if its methods are taken away: channels, slots, and whether it goes on.

    A burst and its requests keep it alive; it keeps none of them alive. Once it cannot be reached any more
    it is given up like a closed one.

    Attributes:
        prepared: what the burst executes.
        inputs: what each input must look like.
        outputs: what each output must look like.
        client: the struct nnb_client.
        channels: the two queues.
        slots: the numbers by which the driver refers to pools.
        pending: the requests that were submitted and are out.
        closed: whether `close` was called.
        waiter: what waits for results in an event loop, once that was needed.
    """

    def __init__(self, prepared: Prepared, channels: BurstChannels, slots: SlotTable) -> None:
        """Own `channels` from here on."""
        self.prepared = prepared
        self.inputs, self.outputs = prepared.inputs, prepared.outputs
        self.slots = slots
        self.channels = channels
        self.client = _new_client(channels.requests, channels.results)
        self._buffer = ffi.new("uint8_t[]", channels.results.capacity * DATUM_BYTES)
        self.client.packet = self._buffer
        self.connection = prepared.session.connection
        self.closed = False
        self.waiter: Any = None
        self._forked_from = 0
        self._reason: str = ""
        # A plain set: it is looked through, in one step, while other threads bind.
        self._bound: set[weakref.ref[Bindable]] = set()
        self.pending = SubmissionQueue(self.client)
        self._lock = threading.Lock()
        # What is registered elsewhere must not keep this object alive.
        self._stop = BurstStop(self.client, channels)
        self._on_pool_closed = weakly(self.pool_closed)
        self._releaser = SlotReleaser(channels.free_memory, slots)
        clean_up = partial(abandon_burst, self.connection, channels, self._stop)
        self._finalizer = weakref.finalize(self, self._releaser.abandon, clean_up)
        self._finalizer.atexit = False  # the process ends, and with it all that it has
        _cores.add(self)

    def watch(self, ended: BurstEnded) -> None:
        """End all waits once the driver is gone, or ends the burst."""
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
        """Keep a bound request informed of pools that are closed; it is held weakly."""
        self._bound.add(weakref.ref(bound, self._bound.discard))

    def has(self, bound: Bindable) -> bool:
        """Whether a bound request is one of this burst's."""
        return weakref.ref(bound) in self._bound

    def locate(self, array: Array, name: str) -> tuple[Memory, int, int]:
        """Pool, offset and slot of a pool-backed array; the pool gets a slot if it has none.

        Raises:
            InvalidArgument: it lies in no pool, or in one of another device.
            MissedDeadline: the driver does not forget pools that were closed before.
        """
        found = find_memory(array)
        if found is None:
            raise InvalidArgument(
                f"{name} does not lie in an open pool, expected an array of Device.allocate(...)"
            )
        memory, offset = found
        if not self.slots.has(memory):
            memory._on_close(self._on_pool_closed)  # first, so that no slot is without it
        slot, new = self.slots.slot_of(memory)
        if memory.closed:
            self.pool_closed(memory._number)
            raise Closed(f"{name}: its pool is closed")
        if new:
            self._releaser.keep_up(_CALL_TIMEOUT)
        return memory, offset, slot

    def check_open(self) -> None:
        """Raise Closed after `close`, GeneralFailure once the two sides have lost each other."""
        self.check_process()
        if self.closed:
            raise Closed("the burst is closed")
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
        """Why a run was stopped."""
        if self.closed:
            return Closed("the burst was closed while it ran")
        return GeneralFailure(self._reason) if self._reason else self.connection.end_error()

    def fail(self, reason: str) -> None:
        """Stop every run now and from now on: the two sides have lost each other."""
        if self._forked_from:
            return
        self._reason = self._reason or reason
        self._stop()

    def abandon_in_child(self) -> None:
        """In a forked child: its queues are not mapped here, so nothing may touch them any more."""
        self._forked_from, self.closed = os.getppid(), True
        self._finalizer.detach()
        self.channels.kicks.abandon_in_child()
        for bound in self._bound_requests():
            bound._fail()

    def raise_for(self, code: int) -> NoReturn:
        """Raise what a code that is not a result stands for."""
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
        """End the burst, since the two sides have lost each other, and raise that."""
        self.fail(reason)
        self.check_open()
        raise self.stopped_error()

    def pool_closed(self, number: int) -> None:
        """A pool is gone: its slot goes, and requests that used it cannot run any more."""
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
        self._finalizer.detach()  # last: after a handler that raised it does what is left to do


class NoRoom(GeneralFailure):
    """The packet cannot be sent, now or ever."""


#: All bursts of this process, for a child that it may fork.
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
