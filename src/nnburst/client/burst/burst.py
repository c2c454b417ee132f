"""Burst: executions over shared memory, one C call each.

    with prepared.open_burst() as burst:
        bound = burst.bind()                  # pool-backed arrays for every input and output
        bound.inputs[0][...] = x
        y = bound.run().outputs[0]            # a view of the pool, or `burst.execute([x]).outputs[0]`

NNAPI: ExecutionBurstController.cpp. DEVIATES: every wait has a deadline, a dead driver is DeadObject, and a
second thread on one burst is refused instead of queued.
"""

from __future__ import annotations

import operator
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from nnburst._native import ffi, lib
from nnburst.client.burst.bound_request import BoundRequest
from nnburst.client.burst.channels import BurstChannels
from nnburst.client.burst.ending import BurstEnded, BurstStop, abandon_burst, weakly
from nnburst.client.burst.slots import SlotReleaser, SlotTable
from nnburst.client.burst.submitted_request import SubmissionQueue
from nnburst.client.memory.arguments import (
    Array,
    ExecutionResult,
    Parameter,
    check_count,
    check_timeout,
)
from nnburst.client.memory.buffer import Buffer, refuse_buffers
from nnburst.client.memory.memory import Memory, find_memory
from nnburst.client.memory.staging import Layout
from nnburst.client.session.one_thread import OneThread
from nnburst.client.session.upcalls import BurstCallback
from nnburst.fmq.message_queue import MessageQueue
from nnburst.hal.closing import Closing
from nnburst.hal.enums import ExecutionPreference, MeasureTiming
from nnburst.hal.errors import Closed, GeneralFailure, InvalidArgument, NnburstError
from nnburst.hal.limits import BURST_CHANNEL_LENGTH, MAX_BURST_CHANNEL_LENGTH, UINT32_MAX
from nnburst.serialize import DATUM_BYTES

if TYPE_CHECKING:
    from nnburst.client.burst.event_loop import ResultWaiter
    from nnburst.client.prepared_model import PreparedModel

#: Spin window for a result: longer than the driver's, since a kernel wake-up costs more than the spin.
_SPIN_WINDOW: Final = 200e-6
#: Seconds that a control call about the burst may take.
_CALL_TIMEOUT: Final = 30.0
#: Requests of `execute` that stay bound, the ones used last.
_REMEMBERED: Final = 64


class Burst(Closing):
    """An open burst. One thread at a time; a second one gets BurstBusy. A context manager.

    Attributes:
        prepared_model: what it executes; may be released before the burst.
        max_in_flight: requests that may be under way at once.
    """

    def __init__(
        self,
        prepared_model: PreparedModel,
        channels: BurstChannels,
        slots: SlotTable,
    ) -> None:
        """Use `Burst.open`."""
        self.prepared_model = prepared_model
        self.device = prepared_model.device
        self.inputs, self.outputs = prepared_model.inputs, prepared_model.outputs
        self.slots = slots
        self.client = _new_client(channels.requests, channels.results)
        self._channels = channels
        self._buffer = ffi.new("uint8_t[]", channels.results.capacity * DATUM_BYTES)
        self.client.packet = self._buffer
        self._connection = self.device.connection
        self._closed = False
        self._forked_from = 0
        self._reason: str = ""
        # A plain set: it is looked through, in one step, while other threads bind.
        self._bound: set[weakref.ref[BoundRequest]] = set()
        self._remembered: OrderedDict[object, BoundRequest] = OrderedDict()
        self.last_executed: BoundRequest | None = None
        self.pending = SubmissionQueue(self.client)
        self._waiter: ResultWaiter | None = None
        self._lock = threading.Lock()
        self._executing = OneThread()
        # Whoever is told something about this burst must not keep it alive: one that nobody can reach any
        # more is given up like a closed one.
        self._stop = BurstStop(self.client, channels)
        self._on_pool_closed = weakly(self._pool_closed)
        self._releaser = SlotReleaser(channels.free_memory, slots)
        clean_up = partial(abandon_burst, self._connection, channels, self._stop)
        self._finalizer = weakref.finalize(self, self._releaser.abandon, clean_up)
        self._finalizer.atexit = False  # the process ends, and with it all that it has
        _bursts.add(self)

    @classmethod
    def open(
        cls,
        prepared_model: PreparedModel,
        *,
        max_in_flight: int = 1,
        channel_length: int = BURST_CHANNEL_LENGTH,
        result_channel_length: int | None = None,
        spin_window: float | None = None,
    ) -> Self:
        """Open a burst on a prepared model; see `PreparedModel.open_burst`.

        Args:
            prepared_model: an open one.
            max_in_flight: requests that may be under way at once (`BoundRequest.submit`).
            channel_length: elements of the request ring; a request needs 2 + inputs + outputs + pools +
                given dimensions.
            result_channel_length: elements of the result ring; the same unless given.
            spin_window: seconds to spin for a result before sleeping; 0 never spins. By default what
                the preference suggests (LOW_POWER: 0).

        Raises:
            InvalidArgument: a number is out of range.
            NnburstError: the driver refuses.
        """
        if result_channel_length is None:
            result_channel_length = channel_length
        lengths = (channel_length, result_channel_length)
        _check_integer("max_in_flight", max_in_flight, 1, 1024)
        _check_integer("channel_length", channel_length, 2, MAX_BURST_CHANNEL_LENGTH)
        _check_integer("result_channel_length", result_channel_length, 2, MAX_BURST_CHANNEL_LENGTH)
        if spin_window is None:
            low_power = prepared_model.preference == ExecutionPreference.LOW_POWER
            spin_window = 0.0 if low_power else _SPIN_WINDOW
        if not isinstance(spin_window, int | float) or not 0 <= spin_window < 60:
            raise InvalidArgument(f"spin_window is {spin_window!r}, expected 0 to 60 seconds")
        preference = prepared_model.preference if spin_window else ExecutionPreference.LOW_POWER
        slots = SlotTable()
        ended = BurstEnded()
        channels = BurstChannels(
            prepared_model,
            BurstCallback(slots.memories, ended.set),
            lengths,
            max_in_flight=max_in_flight,
            preference=preference,
        )
        burst = cls(prepared_model, channels, slots)
        burst.client.max_in_flight = max_in_flight
        spin = channels.may_spin and spin_window > 0
        lib.nnb_waiter_init(ffi.addressof(burst.client, "waiter"), spin, int(spin_window * 1e9))
        burst._connection.on_end(burst._stop)
        ended.tell(weakly(burst.end))
        return burst

    @property
    def is_alive(self) -> bool:
        """Whether the driver is there and this object is open."""
        return not self._closed and self._connection.is_alive

    @property
    def result_bytes(self) -> int:
        """Bytes of the largest result packet."""
        return len(self._buffer)

    @property
    def max_in_flight(self) -> int:
        """Requests that may be under way at once."""
        return int(self.client.max_in_flight)

    def bind(
        self,
        inputs: Sequence[Array | None] | None = None,
        outputs: Sequence[Array | None] | None = None,
        *,
        measure: bool = False,
        output_bytes: Sequence[int | None] | None = None,
    ) -> BoundRequest:
        """Bind a request: arrays stay where they are, the packet is made once.

        Args:
            inputs: pool-backed arrays (`Device.allocate(...).array(...)`), None for an omitted one; all
                new arrays in one new pool where not given.
            outputs: likewise; an array is a buffer where the model leaves the shape open.
            measure: whether to time every execution.
            output_bytes: room for outputs that get new arrays and whose shape the model leaves open.

        Raises:
            InvalidArgument: an array does not fit the model, or lies in no pool of this device.
            Closed: the burst, its device or a pool is closed. A dead driver is told by the first run.
        """
        self.check_open()
        self.device.connection  # noqa: B018 - arrays in pools can be bound without it, and never run
        given = inputs if inputs is not None else [None] * len(self.inputs)
        check_count("inputs", given, self.inputs)
        taken = outputs if outputs is not None else [None] * len(self.outputs)
        check_count("outputs", taken, self.outputs)
        refuse_buffers("inputs", given)
        refuse_buffers("outputs", taken)
        rooms = output_bytes if output_bytes is not None else [None] * len(self.outputs)
        check_count("output_bytes", rooms, self.outputs)
        for index, room in enumerate(rooms):
            if room is not None:
                _check_integer(f"output_bytes[{index}]", room, 1, UINT32_MAX)
        plan = Layout()
        spots = [
            *(
                _spot(plan, p, a, p.size) if inputs is None else None
                for p, a in zip(self.inputs, given, strict=True)
            ),
            *(
                _spot(plan, p, a, p.size or room or 0)
                for p, a, room in zip(self.outputs, taken, rooms, strict=True)
            ),
        ]
        return self._bind([*given, *taken], spots, plan.size, measure)

    def bind_with_private(
        self,
        inputs: Sequence[Array | None],
        outputs: Sequence[Array | None],
        sizes: Sequence[int],
        *,
        measure: bool,
    ) -> BoundRequest:
        """Bind with private memory for every array that lies in no pool; inputs None stay omitted.

        Args:
            inputs: as in `execute`; private copies get the same shapes.
            outputs: as in `execute`.
            sizes: bytes of each output.
            measure: whether to time it.
        """
        plan = Layout()
        spots: list[_Spot | None] = []
        arrays: list[Array | None] = []
        for array in inputs:
            private = array is not None and find_memory(array) is None
            arrays.append(None if private else array)
            shape = array.shape if array is not None else ()
            spots.append(
                _Spot(plan.place(array.nbytes), shape) if private and array is not None else None
            )
        for parameter, array, size in zip(self.outputs, outputs, sizes, strict=True):
            private = array is None or find_memory(array) is None
            arrays.append(None if private else array)
            spots.append(_spot(plan, parameter, None, size) if private else None)
        return self._bind(arrays, spots, plan.size, measure)

    def _bind(
        self,
        given: Sequence[Array | None],
        spots: Sequence[_Spot | None],
        size: int,
        measure: bool,
    ) -> BoundRequest:
        """Make arrays for the spots in one new pool and bind them with the given ones."""
        memory = self.device.allocate(size) if size else None
        parameters = (*self.inputs, *self.outputs)
        arrays = [
            array
            if spot is None or memory is None
            else memory.array(parameter.dtype, spot.shape, spot.offset)
            for parameter, array, spot in zip(parameters, given, spots, strict=True)
        ]
        split = len(self.inputs)
        timed = MeasureTiming.YES if measure else MeasureTiming.NO
        bound = BoundRequest(self, arrays[:split], arrays[split:], timed)
        self._bound.add(weakref.ref(bound, self._bound.discard))
        return bound

    def execute(
        self,
        inputs: Sequence[Array | Buffer | None],
        outputs: Sequence[Array | Buffer | None] | None = None,
        *,
        measure: bool = False,
        timeout: float = 30.0,
        copy: bool = True,
    ) -> ExecutionResult:
        """Execute once on numpy arrays.

        Arrays that lie in a pool of this device are used where they are; others are copied through a
        private pool. Requests are remembered, so the same arrays again cost only their run. A request with
        buffers goes over the socket: bursts cannot carry their tokens.

        Args:
            inputs: one for each input; None where the operation allows to omit it.
            outputs: arrays or buffers to write to; None for results of the burst's own.
            measure: whether to time it.
            timeout: seconds.
            copy: with `outputs` None: whether results are copies, or views that the next `execute` with
                private results overwrites.

        Raises:
            InvalidArgument: an argument does not fit the model; nothing was sent.
            OutputInsufficientSize, MissedDeadline, DeadObject, BurstBusy, Closed: as they say.
        """
        seconds = check_timeout(timeout)
        self.check_open()
        check_count("inputs", inputs, self.inputs)
        if outputs is not None:
            check_count("outputs", outputs, self.outputs)
        from nnburst.client.burst.arrays import execute_arrays

        # Private inputs of a remembered request are written before its run can find out that another
        # thread's run of it is under way.
        me = object()
        try:
            self._executing.enter(me)
            return execute_arrays(self, inputs, outputs, measure, seconds, copy)
        finally:
            self._executing.pop(me, None)

    async def run_async(
        self,
        bound: BoundRequest,
        timeout: float | None = None,  # noqa: ASYNC109 - as for `BoundRequest.run`
    ) -> ExecutionResult:
        """Run a request of this burst while the event loop goes on; see `BoundRequest.run_async`.

        Raises:
            InvalidArgument: it is another burst's.
        """
        if weakref.ref(bound) not in self._bound:
            raise InvalidArgument("bound: a request of another burst")
        return await bound.run_async(timeout)

    @property
    def waiter(self) -> ResultWaiter:
        """What waits for results in an event loop, made when it is first needed."""
        if self._waiter is None:
            from nnburst.client.burst.event_loop import ResultWaiter

            self._waiter = ResultWaiter(self.client, self.pending, self._channels.kicks)
        return self._waiter

    def remembered(self, key: object) -> BoundRequest | None:
        """The request remembered under `key`."""
        bound = self._remembered.get(key)
        if bound is not None:
            if bound.closed:
                del self._remembered[key]
                return None
            self._remembered.move_to_end(key)
        return bound

    def remember(self, key: object, bound: BoundRequest) -> None:
        """Keep a request under `key`; the one used longest ago goes where there are many."""
        self._remembered[key] = bound
        if len(self._remembered) > _REMEMBERED:
            self._remembered.popitem(last=False)

    def locate(self, array: Array, name: str) -> tuple[Memory, int, int]:
        """Pool, offset and slot of a pool-backed array; the pool gets a slot where it has none.

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
            memory.on_close(self._on_pool_closed)  # first, so that no slot is without it
        slot, new = self.slots.slot_of(memory)
        if memory.closed:
            self._pool_closed(memory.number)
            raise Closed(f"{name}: its pool is closed")
        if new:
            self._releaser.keep_up(_CALL_TIMEOUT)
        return memory, offset, slot

    def check_open(self) -> None:
        """Raise Closed after `close`, GeneralFailure once the two sides have lost each other."""
        self.check_process()
        if self._closed:
            raise Closed("the burst is closed")
        if self._reason:
            raise GeneralFailure(self._reason)

    def check_running(self) -> None:
        """`check_open`, and DeadObject once the driver is dead."""
        self.check_open()
        if not self._connection.is_alive:
            raise self.stopped_error()

    def check_process(self) -> None:
        """Raise Closed in a forked child: the queues are not mapped there."""
        if self._forked_from:
            raise Closed(f"the burst belongs to process {self._forked_from}, which forked")

    def stopped_error(self) -> NnburstError:
        """Why a run was stopped."""
        if self._closed:
            return Closed("the burst was closed while it ran")
        return GeneralFailure(self._reason) if self._reason else self._connection.end_error()

    def end(self, reason: str) -> None:
        """Stop every run now and from now on: the two sides have lost each other."""
        if self._forked_from:
            return
        self._reason = self._reason or reason
        self._stop()

    def leave_to_parent(self) -> None:
        """In a forked child: its queues are not mapped here, so nothing may touch them any more."""
        self._forked_from, self._closed = os.getppid(), True
        self._finalizer.detach()
        self._channels.kicks.disown()
        for bound in self._bound_requests():
            bound.forbid()

    def statistics(self) -> dict[str, int]:
        """Counters: executions, results dropped, sleeps, time spun (ns), rhythm (period, ns)."""
        waiter = self.client.waiter
        return {
            "executions": int(self.client.executions),
            "dropped": int(self.client.dropped),
            "sleeps": int(waiter.sleeps),
            "spun_ns": int(waiter.spun_ns),
            "descheduled": int(waiter.descheduled),
            "period_ns": int(waiter.rhythm.period_ns) if waiter.rhythm.steady else 0,
        }

    def _pool_closed(self, number: int) -> None:
        """A pool is gone: its slot goes, and requests that used it cannot run any more."""
        for bound in self._bound_requests():
            bound.pool_closed(number)
        slot = self.slots.retire(number)
        if slot is not None and not self._closed:
            self._releaser.release(slot)

    def _bound_requests(self) -> list[BoundRequest]:
        return [bound for held in tuple(self._bound) if (bound := held()) is not None]

    def close(self) -> None:
        """End the burst; idempotent, and fine with a dead driver. Arrays stay usable.

        A run on another thread ends with Closed.
        """
        if self._forked_from:
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._stop()
        lib.nnb_client_drain_unlocked(self.client, int(_CALL_TIMEOUT * 1e9))
        self._connection.forget(self._stop)
        for memory in self.slots.pools():
            memory.forget(self._on_pool_closed)
        self._releaser.close()
        self._channels.close()
        self._finalizer.detach()  # last: after a handler that raised it does what is left to do
        self._remembered.clear()
        self.last_executed = None  # refers to this burst: without it counting references frees both

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open"
        return f"<nnburst.Burst on {self.device.name}: {state}>"


def _check_integer(name: str, value: int, least: int, most: int) -> None:
    try:
        fits = least <= operator.index(value) <= most
    except TypeError:
        fits = False
    if not fits:
        raise InvalidArgument(f"{name} is {value!r}, expected {least} to {most}")


#: All bursts of this process, for a child that it may fork.
_bursts: Final[weakref.WeakSet[Burst]] = weakref.WeakSet()


def _leave_all_to_parent() -> None:
    for burst in list(_bursts):
        burst.leave_to_parent()


os.register_at_fork(after_in_child=_leave_all_to_parent)


class _Spot(NamedTuple):
    """A place in a new pool."""

    offset: int
    shape: tuple[int, ...]


def _spot(plan: Layout, parameter: Parameter, array: Array | None, size: int) -> _Spot | None:
    """Room of `size` bytes for a parameter that has no array; None where it has one."""
    if array is not None:
        return None
    if not size:
        raise InvalidArgument(
            f"{parameter.name} has no fixed shape: give bind an array (or output_bytes)"
        )
    shape = parameter.dimensions if parameter.known else (size // parameter.dtype.itemsize,)
    return _Spot(plan.place(size), shape)


def _new_client(requests: MessageQueue, results: MessageQueue) -> Any:  # noqa: ANN401
    """A struct nnb_client over the two channels."""
    if requests.event_flag is None or results.event_flag is None:
        raise InvalidArgument("both channels need an event flag")
    client = ffi.new("struct nnb_client *")
    client.requests = requests.ring[0]
    client.results = results.ring[0]
    client.request_flag = requests.event_flag.word
    client.result_flag = results.event_flag.word
    lib.nnb_client_share_interpreter(client)
    return client
