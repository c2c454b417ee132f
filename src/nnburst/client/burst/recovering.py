"""Opens a burst again after its driver has died, with the same arrays in the same pools.

An execution that was under way when the driver died raises DeadObject once and is never repeated, since it
could kill the next driver, too.

NNAPI: utils/common ResilientBurst.cpp. DEVIATES: there a call recovers and repeats itself; here a thread of
its own recovers, so the timeouts of calls hold.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from nnburst.client.arguments import Array, ExecutionResult, Parameter, check_timeout
from nnburst.client.burst.burst import RingBurst
from nnburst.client.burst.interface import (
    DEFAULT_TIMEOUT,
    BoundRequest,
    Burst,
    BurstFunction,
    SubmittedRequest,
    bind_function,
)
from nnburst.client.execution.buffer import Buffer
from nnburst.client.session.recovery import Recovery, nothing_to_clean
from nnburst.hal.errors import Closed, MissedDeadline


class RecoveringBurst(Burst):
    """A burst that is opened again whenever its driver has died; made by `PreparedModel.open_burst`."""

    def __init__(
        self, recovery: Recovery, first: RingBurst, make: Callable[[], RingBurst], waits: bool
    ) -> None:
        """Own `first`.

        Args:
            recovery: the recovery of the device.
            first: the current burst.
            make: opens a new burst after the model was prepared again; forgotten when this is closed.
            waits: whether calls wait for a recovery; else they raise DeadObject.
        """
        self._recovery: Final = recovery
        self._make: Callable[[], RingBurst] | None = make
        self._waits: Final = waits
        self._closed = False
        self.ring = first
        recovery.add(self)

    def _renew(self) -> Callable[[], None]:
        """Open the burst again; see `Mortal`."""
        make = self._make
        if make is None:
            return nothing_to_clean  # `close` was called meanwhile
        old, self.ring = self.ring, make()
        if self._closed:
            self.ring.close()  # meanwhile
        return old._abandon

    @property
    def _ended_ns(self) -> int:
        return self.ring._ended_ns

    def _revive(self, seconds: float | None, began_ns: int | None = None) -> None:
        """Wait until the burst is open again; see `PreparedModel._revive`."""
        if not self.is_alive:
            self._recovery.revive(self, seconds, began_ns, self.ring._ended_ns)

    def _reached(self, deadline_ns: int) -> RingBurst:
        """Return the current burst, after waiting for it if its driver has died.

        Raises:
            NnburstError: it is not open in time; see `Recovery.reach`.
        """
        if not self.ring.is_alive:
            self._check_open()
            self._recovery.reach(self, deadline_ns, waits=self._waits)
        return self.ring

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the burst is closed")

    @property
    def is_alive(self) -> bool:
        """Whether the driver is alive now and this object is open."""
        return self.ring.is_alive

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    @property
    def inputs(self) -> Sequence[Parameter]:
        """Type and shape of each input."""
        return self.ring.inputs

    @property
    def outputs(self) -> Sequence[Parameter]:
        """Type and shape of each output."""
        return self.ring.outputs

    @property
    def max_in_flight(self) -> int:
        """Requests that may be under way at once."""
        return self.ring.max_in_flight

    def bind(
        self,
        inputs: Sequence[Array | None] | None = None,
        outputs: Sequence[Array | None] | None = None,
        *,
        measure: bool = False,
        output_bytes: Sequence[int | None] | None = None,
    ) -> RecoveringRequest:
        """Bind a request; see `Burst.bind`. Its arrays stay the same when the driver is replaced."""
        while True:
            ring = self.ring
            try:
                bound = ring.bind(inputs, outputs, measure=measure, output_bytes=output_bytes)
            except Closed:
                if ring is self.ring:
                    raise
            else:
                return RecoveringRequest(self, ring, bound, measure)

    def execute(
        self,
        inputs: Sequence[Array | Buffer | None],
        outputs: Sequence[Array | Buffer | None] | None = None,
        *,
        measure: bool = False,
        timeout: float = DEFAULT_TIMEOUT,
        copy: bool = True,
    ) -> ExecutionResult:
        """Execute once on numpy arrays; see `Burst.execute`. Buffers are lost with their driver."""
        ring = self.ring
        if not ring.is_alive:
            deadline_ns = time.monotonic_ns() + int(check_timeout(timeout) * 1e9)
            ring = self._reached(deadline_ns)
            timeout = _left(deadline_ns)
        return ring.execute(inputs, outputs, measure=measure, timeout=timeout, copy=copy)

    def function(
        self,
        inputs: Sequence[Array | None] | None = None,
        *,
        copy: bool = False,
        timeout: float = DEFAULT_TIMEOUT,
    ) -> BurstFunction:
        """A function of arrays; see `Burst.function`."""
        self._check_open()
        return bind_function(self, inputs, copy=copy, timeout=timeout)

    def statistics(self) -> dict[str, int]:
        """Counters of the current burst; see `Burst.statistics`."""
        return self.ring.statistics()

    def close(self) -> None:
        """End the burst. Twice is fine, and so is a dead driver. Arrays stay usable."""
        self._closed = True
        self._make = None
        self.ring.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open" if self.is_alive else "its driver has died"
        return f"<nnburst.Burst that recovers: {state}>"


class RecoveringRequest(BoundRequest):
    """A request that is bound again to the same arrays after a recovery; made by `RecoveringBurst.bind`."""

    __slots__ = (
        "_bound",
        "_burst",
        "_connection",
        "_inputs",
        "_measure",
        "_outputs",
        "_run",
        "ring",
    )

    def __init__(
        self, burst: RecoveringBurst, ring: RingBurst, bound: BoundRequest, measure: bool
    ) -> None:
        """Begin with `bound`, a request of `ring`."""
        self._burst = burst
        self._measure = measure
        self._inputs, self._outputs = bound.inputs, bound.outputs
        self._use(ring, bound)

    def _use(self, ring: RingBurst, bound: BoundRequest) -> None:
        self.ring = ring
        self._bound = bound
        self._connection = ring._core.connection
        self._run = bound.run

    def _bind_to(self, ring: RingBurst) -> BoundRequest:
        if ring is not self.ring:
            self._use(ring, ring.bind(self._inputs, self._outputs, measure=self._measure))
        return self._bound

    @property
    def inputs(self) -> tuple[Array, ...]:
        """Views of the pools; see `BoundRequest.inputs`."""
        return self._inputs

    @property
    def outputs(self) -> tuple[Array, ...]:
        """Views of the pools; see `BoundRequest.outputs`."""
        return self._outputs

    @property
    def in_flight(self) -> bool:
        """Whether it was submitted and its result has not been collected yet."""
        return self._connection.is_alive and self._bound.in_flight

    @property
    def closed(self) -> bool:
        """Whether it cannot run any more."""
        burst = self._burst
        return burst.closed or (
            self._bound.closed if self._connection.is_alive else burst._recovery.is_foreign
        )

    def run(self, timeout: float | None = None) -> ExecutionResult:
        """Execute once and wait for the result; see `BoundRequest.run`."""
        if self._connection.is_alive:
            return self._run(timeout)
        deadline_ns = _deadline_ns(timeout)
        self._bind_to(self._burst._reached(deadline_ns))
        return self._run(_left(deadline_ns))

    async def run_async(
        self,
        timeout: float | None = None,  # noqa: ASYNC109 - as for `run`
    ) -> ExecutionResult:
        """Execute once without blocking the event loop, even during a recovery."""
        if self._connection.is_alive:
            return await self._bound.run_async(timeout)
        burst, deadline_ns = self._burst, _deadline_ns(timeout)
        burst._check_open()
        await burst._recovery.reach_async(burst, deadline_ns, waits=burst._waits)
        bound = self._bind_to(burst.ring)
        return await bound.run_async(_left(deadline_ns))

    def submit(self, timeout: float | None = None) -> SubmittedRequest:
        """Send the request without waiting for its result; see `BoundRequest.submit`."""
        if self._connection.is_alive:
            return self._bound.submit(timeout)
        deadline_ns = _deadline_ns(timeout)
        bound = self._bind_to(self._burst._reached(deadline_ns))
        return bound.submit(None if timeout is None else _left(deadline_ns))


def _deadline_ns(timeout: float | None) -> int:
    """The end of a call that begins now, on CLOCK_MONOTONIC."""
    seconds = DEFAULT_TIMEOUT if timeout is None else check_timeout(timeout)
    return time.monotonic_ns() + int(seconds * 1e9)


def _left(deadline_ns: int) -> float:
    """Seconds until `deadline_ns`.

    Raises:
        MissedDeadline: it has passed.
    """
    left = (deadline_ns - time.monotonic_ns()) * 1e-9
    if left <= 0:
        raise MissedDeadline("timeout: it passed while the driver was made again")
    return left
