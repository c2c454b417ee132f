"""Executes a prepared model over shared memory, by one C call for each execution.

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
from nnburst.client.arguments import Array, ExecutionResult, Parameter, check_timeout
from nnburst.client.burst.arrays import ArrayExecutor, bind, bind_with_private
from nnburst.client.burst.bound_request import RingRequest
from nnburst.client.burst.core import BurstCore, SlotTable
from nnburst.client.burst.interface import Burst, BurstFunction, arrays_like
from nnburst.client.burst.transport import BurstChannels, BurstEnded
from nnburst.client.execution.buffer import Buffer
from nnburst.client.execution.prepared import Prepared
from nnburst.client.session.upcalls import BurstCallback
from nnburst.hal.enums import ExecutionPreference
from nnburst.hal.environment import CLIENT_POLLING_WINDOW
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.limits import BURST_CHANNEL_LENGTH, MAX_BURST_CHANNEL_LENGTH, MAX_RANK
from nnburst.hal.utils import check_integer, is_number
from nnburst.tracing.slices import Layer, Phase, trace


@functools.cache
def _default_spin_window() -> float:
    """Seconds that the client spins by default: longer than the driver, since a wake-up costs more.

    Read once from the environment.

    Raises:
        InvalidArgument: NNBURST_BURST_CONTROLLER_POLLING_WINDOW is not a number of its range.
    """
    return CLIENT_POLLING_WINDOW.read() * 1e-6


def _result_elements(outputs: Sequence[Parameter]) -> int:
    """Elements of the largest result packet: the shapes of all outputs are in it if one of them is open."""
    if all(parameter.known for parameter in outputs):
        return 2
    ranks = [0 if p.scalar else len(p.dimensions) or MAX_RANK for p in outputs]
    return 2 + len(ranks) + sum(ranks)


class RingBurst(Burst):
    """A burst over the rings of one driver, which ends with the driver; see `PreparedModel.open_burst`."""

    def __init__(self, core: BurstCore) -> None:
        """Use `PreparedModel.open_burst`."""
        self._core = core
        self._arrays = ArrayExecutor(core)

    @classmethod
    def _open(
        cls,
        prepared: Prepared,
        *,
        max_in_flight: int = 1,
        channel_length: int = BURST_CHANNEL_LENGTH,
        result_channel_length: int | None = None,
        spin_window: float | None = None,
        driver_spins: bool = True,
        holds_model: bool = False,
    ) -> Self:
        """Open a burst on a prepared model that is open; see `PreparedModel.open_burst`.

        With `holds_model` the driver keeps the model itself until the burst ends, for `PendingExecution`.
        """
        max_in_flight = check_integer("max_in_flight", max_in_flight, 1, 1024)
        most = MAX_BURST_CHANNEL_LENGTH
        channel_length = check_integer("channel_length", channel_length, 2, most)
        if result_channel_length is None:
            result_channel_length = max(
                channel_length, min(_result_elements(prepared.outputs), most)
            )
        lengths = (
            channel_length,
            check_integer("result_channel_length", result_channel_length, 2, most),
        )
        if spin_window is None:
            low_power = prepared.preference == ExecutionPreference.LOW_POWER
            spin_window = 0.0 if low_power else _default_spin_window()
        is_real = is_number(spin_window) and not isinstance(spin_window, bool)
        if not is_real or not 0 <= spin_window < 60:
            raise InvalidArgument(
                f"spin_window is {spin_window!r}, expected 0 to less than 60 seconds"
            )
        spins = spin_window > 0 and driver_spins
        preference = prepared.preference if spins else ExecutionPreference.LOW_POWER
        slots = SlotTable()
        ended = BurstEnded()
        user = object()
        try:
            if holds_model:
                prepared.hold(user)
            channels = BurstChannels(
                prepared,
                BurstCallback(slots.memories, ended.set),
                lengths,
                max_in_flight=max_in_flight,
                preference=preference,
            )
            try:
                core = BurstCore(prepared, channels, slots, user)
            except BaseException:
                channels.close()
                raise
        except BaseException:
            prepared.release(user)
            raise
        core.client.max_in_flight = max_in_flight
        spin = channels.may_spin and spin_window > 0
        lib.nnb_waiter_init(
            ffi.addressof(core.client, "waiter"), spin, int(float(spin_window) * 1e9)
        )
        core.watch(ended)
        return cls(core)

    @property
    def is_alive(self) -> bool:
        """Whether the driver is alive and this object is open."""
        return not self._core.closed and self._core.connection.is_alive

    @property
    def _ended_ns(self) -> int:
        """The time at which the driver's end was noticed, on CLOCK_MONOTONIC; 0 before."""
        return self._core.connection.ended_ns

    @property
    def inputs(self) -> Sequence[Parameter]:
        """Type and shape of each input."""
        return self._core.inputs

    @property
    def outputs(self) -> Sequence[Parameter]:
        """Type and shape of each output."""
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
    ) -> RingRequest:
        """Bind a request; see `Burst.bind`."""
        with trace(Layer.RUNTIME, Phase.INPUTS_AND_OUTPUTS, "burst: bind"):
            return bind(self._core, inputs, outputs, measure=measure, output_bytes=output_bytes)

    def _has(self, bound: RingRequest) -> bool:
        """Whether a bound request belongs to this burst."""
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
        """Execute once on numpy arrays or buffers; see `Burst.execute`."""
        return self._arrays.execute(inputs, outputs, measure, timeout, copy)

    def function(
        self,
        inputs: Sequence[Array | None] | None = None,
        *,
        copy: bool = False,
        timeout: float = 30.0,
    ) -> BurstFunction:
        """A function of arrays; see `Burst.function`."""
        seconds = check_timeout(timeout)
        self._core.check_open()
        likes = arrays_like(self.inputs, inputs)
        sizes = [parameter.first_room for parameter in self.outputs]
        bound = bind_with_private(self._core, likes, [None] * len(sizes), sizes, measure=False)
        executing = self._arrays.executing
        return BurstFunction(
            bound, bound.native, self.inputs, executing, copy=copy, timeout=seconds
        )

    def statistics(self) -> dict[str, int]:
        """Counters of the client's side; see `Burst.statistics`."""
        waiter = self._core.client.waiter
        rhythm = waiter.rhythm
        return {
            "executions": int(self._core.client.executions),
            "dropped": int(self._core.client.dropped),
            "sleeps": int(waiter.sleeps),
            "spun_ns": int(waiter.spun_ns),
            "descheduled": int(waiter.descheduled),
            "crowded": int(waiter.contention.pauses),
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

    def _abandon(self) -> None:
        """Close this burst because another one replaces it; threads that still use it get DeadObject."""
        self._core.lost = True
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._core.closed else "open"
        return f"<nnburst.Burst on {self._core.prepared.session.name}: {state}>"


def check_usable(burst: Burst) -> None:
    """Raise the error that any run on a burst would raise now.

    Raises:
        Closed: the burst was closed.
        DeadObject: its driver is dead.
        GeneralFailure: client and driver have lost track of each other.
    """
    assert isinstance(burst, RingBurst)
    burst._core.check_open()
