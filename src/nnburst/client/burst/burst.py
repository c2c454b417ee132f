"""Burst: executions over shared memory, one C call each.

    with prepared.open_burst() as burst:
        bound = burst.bind()                  # pool-backed arrays for every input and output
        bound.inputs[0][...] = x
        y = bound.run().outputs[0]            # a view of the pool, or `burst.execute([x]).outputs[0]`

NNAPI: ExecutionBurstController.cpp. DEVIATES: every wait has a deadline, a dead driver is DeadObject, and a
second thread on one burst is refused instead of queued.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Self

from nnburst._native import ffi, lib
from nnburst.client.burst.arrays import ArrayExecutor
from nnburst.client.burst.binding import bind, bind_with_private, check_integer
from nnburst.client.burst.bound_request import BoundRequest
from nnburst.client.burst.core import BurstCore
from nnburst.client.burst.function import BurstFunction, arrays_like
from nnburst.client.burst.slots import SlotTable
from nnburst.client.burst.transport.channels import BurstChannels
from nnburst.client.burst.transport.ending import BurstEnded
from nnburst.client.execution.buffer import Buffer
from nnburst.client.execution.prepared import Prepared
from nnburst.client.memory.arguments import (
    Array,
    ExecutionResult,
    Parameter,
    check_timeout,
)
from nnburst.client.session.upcalls import BurstCallback
from nnburst.hal.closing import Closing
from nnburst.hal.enums import ExecutionPreference
from nnburst.hal.environment import CLIENT_POLLING_WINDOW
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.limits import MAX_BURST_CHANNEL_LENGTH
from nnburst.tracing.slices import Layer, Phase, trace


@functools.cache
def _default_spin_window() -> float:
    """Seconds: longer than the driver's, since a kernel wake-up costs more than the spin; read once.

    Raises:
        InvalidArgument: NNBURST_BURST_CONTROLLER_POLLING_WINDOW is not a number of its range.
    """
    return CLIENT_POLLING_WINDOW.read() * 1e-6


class Burst(Closing):
    """Executions on one prepared model over shared memory; made by `PreparedModel.open_burst`.

    One thread at a time; a second one gets BurstBusy. A context manager that closes itself.
    """

    _instead = "open one in the other process; arrays and results can be pickled"

    def __init__(self, core: BurstCore) -> None:
        """Use `PreparedModel.open_burst`."""
        self._core = core
        self._arrays = ArrayExecutor(core)

    @classmethod
    def _open(
        cls,
        prepared: Prepared,
        *,
        max_in_flight: int,
        channel_length: int,
        result_channel_length: int | None,
        spin_window: float | None,
        driver_spins: bool,
    ) -> Self:
        """Open a burst on a prepared model, which is open; see `PreparedModel.open_burst`."""
        if result_channel_length is None:
            result_channel_length = channel_length
        lengths = (channel_length, result_channel_length)
        check_integer("max_in_flight", max_in_flight, 1, 1024)
        check_integer("channel_length", channel_length, 2, MAX_BURST_CHANNEL_LENGTH)
        check_integer("result_channel_length", result_channel_length, 2, MAX_BURST_CHANNEL_LENGTH)
        if spin_window is None:
            low_power = prepared.preference == ExecutionPreference.LOW_POWER
            spin_window = 0.0 if low_power else _default_spin_window()
        if not isinstance(spin_window, int | float) or not 0 <= spin_window < 60:
            raise InvalidArgument(f"spin_window is {spin_window!r}, expected 0 to 60 seconds")
        spins = spin_window > 0 and driver_spins
        preference = prepared.preference if spins else ExecutionPreference.LOW_POWER
        slots = SlotTable()
        ended = BurstEnded()
        channels = BurstChannels(
            prepared,
            BurstCallback(slots.memories, ended.set),
            lengths,
            max_in_flight=max_in_flight,
            preference=preference,
        )
        core = BurstCore(prepared, channels, slots)
        core.client.max_in_flight = max_in_flight
        spin = channels.may_spin and spin_window > 0
        lib.nnb_waiter_init(ffi.addressof(core.client, "waiter"), spin, int(spin_window * 1e9))
        core.watch(ended)
        return cls(core)

    @property
    def is_alive(self) -> bool:
        """Whether the driver is there and this object is open."""
        return not self._core.closed and self._core.connection.is_alive

    @property
    def _ended_ns(self) -> int:
        """When the driver's end was noticed, on CLOCK_MONOTONIC; 0 before."""
        return self._core.connection.ended_ns

    @property
    def inputs(self) -> Sequence[Parameter]:
        """What each input must look like."""
        return self._core.inputs

    @property
    def outputs(self) -> Sequence[Parameter]:
        """What each output must look like."""
        return self._core.outputs

    @property
    def max_in_flight(self) -> int:
        """Requests that may be under way at once."""
        return self._core.max_in_flight

    def bind(
        self,
        inputs: Sequence[Array | None] | None = None,
        outputs: Sequence[Array | None] | None = None,
        *,
        measure: bool = False,
        output_bytes: Sequence[int | None] | None = None,
    ) -> BoundRequest:
        """Bind a request: arrays are used in place, the packet is made once.

        Args:
            inputs: arrays in pools (`Device.allocate(...).array(...)`), None for an omitted one; new arrays
                in one new pool unless given.
            outputs: arrays in pools, None for a new one; all new unless given. If the model leaves a shape
                open, an array is room, and the result is a view of its beginning.
            measure: whether to time every execution.
            output_bytes: for each output the bytes of a new array whose shape the model leaves open, or None.

        Raises:
            InvalidArgument: an array does not fit the model, or does not lie in a pool.
            ResourceExhausted: there is not so much memory.
            MissedDeadline: the driver does not release pools that were closed before.
            Closed: the burst, its device or a pool is closed. A dead driver shows in the first run.
        """
        with trace(Layer.RUNTIME, Phase.INPUTS_AND_OUTPUTS, "burst: bind"):
            return bind(self._core, inputs, outputs, measure=measure, output_bytes=output_bytes)

    def _has(self, bound: BoundRequest) -> bool:
        """Whether a bound request is one of this burst's."""
        return self._core.has(bound)

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

        Arrays that lie in a pool of this device are used in place; others are copied through a
        private pool. Requests are remembered, so the same arrays again cost only their run. A request with
        buffers goes over the socket: bursts cannot carry their tokens.

        Args:
            inputs: one for each input; None if the operation allows to omit it.
            outputs: arrays or buffers to write to; None for results of the burst's own.
            measure: whether to time it.
            timeout: seconds that it may take.
            copy: with `outputs` None: whether results are copies, or views that the next `execute` with
                private results overwrites.

        Returns:
            Outputs, shapes and timing.

        Raises:
            InvalidArgument: an argument does not fit the model; nothing was sent.
            OutputInsufficientSize, MissedDeadline, DeadObject, BurstBusy, Closed: see these classes.
        """
        return self._arrays.execute(inputs, outputs, measure, timeout, copy)

    def function(
        self,
        inputs: Sequence[Array | None] | None = None,
        *,
        copy: bool = False,
        timeout: float = 30.0,
    ) -> BurstFunction:
        """A function of arrays, for which a request is bound once: the quickest way from array to array.

        Args:
            inputs: arrays like those that it will be called with, needed if the model leaves shapes open or
                inputs are omitted (None); of the model's shapes unless given.
            copy: whether results are copies, or views that the next call overwrites.
            timeout: seconds that each call may take.

        Raises:
            InvalidArgument: an array does not fit the model, or is not given for a shape that is open.
            Closed: the burst or its device is closed.
        """
        seconds = check_timeout(timeout)
        self._core.check_open()
        likes = arrays_like(self.inputs, inputs)
        sizes = [parameter.first_room for parameter in self.outputs]
        bound = bind_with_private(self._core, likes, [None] * len(sizes), sizes, measure=False)
        executing = self._arrays.executing
        return BurstFunction(bound, self.inputs, executing, copy=copy, timeout=seconds)

    async def run_async(
        self,
        bound: BoundRequest,
        timeout: float | None = None,  # noqa: ASYNC109 - as for `BoundRequest.run`
    ) -> ExecutionResult:
        """Run a request of this burst while the event loop goes on; see `BoundRequest.run_async`.

        Raises:
            InvalidArgument: it is another burst's.
        """
        if not self._has(bound):
            raise InvalidArgument("bound: a request of another burst")
        return await bound.run_async(timeout)

    def statistics(self) -> dict[str, int]:
        """Counters of the client's side since the burst was opened, by name.

        * `executions`, and late results that were `dropped`.
        * How it waited: `sleeps`, nanoseconds of spinning (`spun_ns`), times that a spinner lost its core
          (`descheduled`) and that spinning stopped because cores were scarce (`crowded`).
        * The learned period of the results: `period_ns` (0 if there is no period), results met awake and
          asleep (`met_awake`, `met_asleep`; those that come within two microseconds do not count),
          `outliers` that did not change the period, and how often one was `rhythm_found` and
          `rhythm_lost`.
        """
        waiter = self._core.client.waiter
        rhythm = waiter.rhythm
        return {
            "executions": int(self._core.client.executions),
            "dropped": int(self._core.client.dropped),
            "sleeps": int(waiter.sleeps),
            "spun_ns": int(waiter.spun_ns),
            "descheduled": int(waiter.descheduled),
            "crowded": int(waiter.crowd.pauses),
            "period_ns": int(rhythm.period_ns) if rhythm.steady else 0,
            "met_awake": int(rhythm.met_awake),
            "met_asleep": int(rhythm.met_asleep),
            "outliers": int(rhythm.outliers),
            "rhythm_found": int(rhythm.found),
            "rhythm_lost": int(rhythm.lost),
        }

    def close(self) -> None:
        """End the burst. Twice is fine, and so is a dead driver. Arrays stay usable.

        A run on another thread ends with Closed.
        """
        with trace(Layer.RUNTIME, Phase.TERMINATION, "burst: close"):
            self._core.close()
            self._arrays.close()

    def __repr__(self) -> str:
        state = "closed" if self._core.closed else "open"
        return f"<nnburst.Burst on {self._core.prepared.session.name}: {state}>"
