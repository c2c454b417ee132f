"""A request bound to its memory: the packet is made once, a run is one C call."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from operator import is_
from typing import TYPE_CHECKING, Any, Final, cast

from nnburst._native import ffi, lib
from nnburst.client.burst.core import (
    BUSY_CODE,
    IN_FLIGHT,
    MALFORMED,
    NO_ROOM,
    TIMED_OUT,
    BurstCore,
    NoRoom,
)
from nnburst.client.burst.event_loop import waiter_of
from nnburst.client.burst.submitted_request import SubmittedRequest
from nnburst.client.execution.placed_request import execute_synchronously
from nnburst.client.memory.arguments import (
    OMITTED,
    Array,
    ExecutionResult,
    Parameter,
    check_timeout,
    complete_shapes,
    head,
)
from nnburst.client.memory.memory import Memory
from nnburst.client.memory.request_pools import RequestPools
from nnburst.client.session.gate import entries, leave
from nnburst.hal.enums import ErrorStatus, MeasureTiming
from nnburst.hal.errors import (
    BurstBusy,
    GeneralFailure,
    InvalidArgument,
    MalformedPacket,
    error_for,
)
from nnburst.hal.process.of_one_process import OfOneProcess
from nnburst.hal.request import Request, RequestArgument
from nnburst.hal.timing import OutputShape, Timing
from nnburst.serialize import DATUM_BYTES, deserialize_result, serialize_request

if TYPE_CHECKING:
    from nnburst._native import nnb_bound

_DEFAULT_TIMEOUT_NS: Final = 30_000_000_000
#: Longer waits are cut to this, about 146 years.
_LONGEST_NS: Final = 2**62
_run: Final = lib.nnb_client_run
_abandon: Final = lib.nnb_client_abandon
_run_at_once: Final = lib.nnb_client_run_at_once
_forsake: Final = lib.nnb_client_forsake
_clock: Final = time.monotonic_ns

_SAME: Final = int(lib.NNB_CLIENT_SAME)
_RESULT: Final = int(lib.NNB_CLIENT_RESULT)
_INTERRUPTED: Final = int(lib.NNB_CLIENT_INTERRUPTED)
_SENT: Final = int(lib.NNB_CLIENT_SENT)
_SAME_BUT_TIMING: Final = int(lib.NNB_CLIENT_SAME_BUT_TIMING)


class BoundRequest(OfOneProcess):
    """A request that is bound to its arrays; made by `Burst.bind`. Usable by the thread that uses the burst.

    Attributes:
        inputs: views of the pools; None if omitted. Write them before a run, not during it.
        outputs: views of the pools, written by every run; if the model leaves the shape open, an array is
            room, and results are views of its beginning.
        in_flight: whether it was submitted and its result has not been collected yet.
    """

    _instead = "bind one in the other process; results can be pickled"

    __slots__ = (
        "__weakref__",
        "_bound",
        "_core",
        "_last",
        "_measured",
        "_packet",
        "_pools",
        "_result",
        "_timeout_ns",
        "in_flight",
        "inputs",
        "outputs",
    )

    def __init__(
        self,
        core: BurstCore,
        inputs: Sequence[Array | None],
        outputs: Sequence[Array | None],
        measure: MeasureTiming,
    ) -> None:
        """Check the arrays, find their slots, and serialise the packet."""
        places = _Places(core)
        request = Request(
            tuple(places.input(p, a) for p, a in zip(core.inputs, inputs, strict=True)),
            tuple(places.output(p, a) for p, a in zip(core.outputs, outputs, strict=True)),
        )
        self.inputs = cast("tuple[Array, ...]", tuple(inputs))
        self.outputs = cast("tuple[Array, ...]", tuple(outputs))
        self.in_flight = False
        self._core = core
        self._pools = frozenset(memory._number for memory in places.pools.used)
        self._measured = bool(measure)
        self._last: ExecutionResult | None = None
        self._timeout_ns = _DEFAULT_TIMEOUT_NS
        self._packet = serialize_request(request, places.slots, measure)
        self._result = ffi.new("uint8_t[]", core.result_bytes)
        self._bound: nnb_bound = ffi.new(
            "struct nnb_bound *",
            {
                "client": core.client,
                "timeout_ns": _DEFAULT_TIMEOUT_NS,
                "measured": measure,
                "request": ffi.from_buffer("uint8_t[]", self._packet),
                "request_count": len(self._packet),
                "result": self._result,
            },
        )

    @property
    def closed(self) -> bool:
        """Whether it cannot run any more: a pool of its arrays was closed, or this is a forked child."""
        return bool(self._bound.closed)

    def run(self, timeout: float | None = None) -> ExecutionResult:
        """Execute once and wait for the result.

        Args:
            timeout: seconds, 30 unless given.

        Returns:
            The outputs (views of the pools, overwritten by the next run), shapes and timing.

        Raises:
            MissedDeadline: no result in time. The burst stays usable: the next run first waits for the
                late result and drops it.
            OutputInsufficientSize: an array is too small; `output_shapes` has what is needed.
            InvalidArgument, GeneralFailure, ResourceExhausted: what the driver answered.
            BurstBusy: this request was submitted and is under way, or another thread is using the burst.
            DeadObject: the driver has died.
            Closed: the burst, or a pool, was closed.
        """
        timeout_ns = _DEFAULT_TIMEOUT_NS if timeout is None else int(check_timeout(timeout) * 1e9)
        if timeout_ns != self._timeout_ns:
            self._set_timeout(timeout_ns)
        code = _SAME
        try:
            code = _run(self._bound)
            if not code:  # SAME: there was a result before
                return self._last  # type: ignore[return-value]
            return self._conclude(code)
        except BaseException:  # also KeyboardInterrupt, which can come right after the C call
            # Let go of the burst if this thread's run holds it; its result is overdue then. The next
            # one is read in full, since the last may not have been. Nothing of Python's is called: on
            # entry to it a second handler could raise. After BUSY the request may be another thread's.
            if code != BUSY_CODE:
                self._bound.result_count = 0
                _abandon(self._bound)
            raise

    @property
    def native(self) -> Any:  # noqa: ANN401 - a pointer of cffi's
        """The `struct nnb_bound` (csrc/burst_client.h) behind it, for code in C; valid as long as it is."""
        return self._bound

    def _check_running(self) -> None:
        """Raise why no run is possible any more, if that is so: Closed, DeadObject."""
        self._core.check_running()

    def conclude(self, code: int) -> ExecutionResult:
        """The result of a run that C made by calling `nnb_client_run`.

        Args:
            code: what that call returned.

        Raises:
            NnburstError: as for `run`.
        """
        try:
            return self._conclude(code)
        except BaseException:  # as in `run`
            if code != BUSY_CODE:
                self._bound.result_count = 0
                _abandon(self._bound)
            raise

    async def run_async(
        self,
        timeout: float | None = None,  # noqa: ASYNC109 - as for `run`
    ) -> ExecutionResult:
        """Execute once; the event loop goes on meanwhile.

        A result that comes within two microseconds is taken at once, without a turn of the loop. If
        `max_in_flight` requests are out, this one waits for its turn. Cancelling it is fine: the burst
        stays usable, and the result is dropped when it comes.

        Args:
            timeout: seconds, waiting for its turn included; 30 unless given.

        Returns:
            As `run`.

        Raises:
            BurstBusy: this request is under way, or another thread is using the burst.
            MissedDeadline, OutputInsufficientSize, InvalidArgument, GeneralFailure, DeadObject, Closed: as
                for `run`.
        """
        timeout_ns = _DEFAULT_TIMEOUT_NS if timeout is None else int(check_timeout(timeout) * 1e9)
        core = self._core
        waiter = core.waiter or waiter_of(core)
        began_ns = _clock()
        pending: SubmittedRequest | None = None
        try:
            if not core.pending:
                result, pending = self._run_at_once()
                if result is not None:
                    if began_ns > waiter.turn_due_ns:
                        await waiter.take_turn()
                    return result
            else:
                self._check_idle()
            return await waiter.run(self, pending, began_ns + timeout_ns)
        except NoRoom:
            import asyncio

            return await asyncio.to_thread(self._fall_back, began_ns + timeout_ns)

    def _run_at_once(self) -> tuple[ExecutionResult | None, SubmittedRequest | None]:
        """The result if it comes within two microseconds, else the submission; neither if others are out."""
        core, me, code = self._core, next(entries), BUSY_CODE
        queue, client = core.pending, core.client
        before = client.submitted
        try:
            queue.gate.enter(me)
            code = _SAME
            code = _run_at_once(self._bound)
            if not code:
                return self._last, None
            if code == IN_FLIGHT:
                return None, None
            if code != _SENT:
                return self._finish(code), None
            pending = SubmittedRequest(core, self)
            self.in_flight = True
            queue.append(pending)
        except BaseException:
            if code != BUSY_CODE:
                self._bound.result_count = 0
                if queue:  # it was sent, and no caller has its outcome
                    queue[0]._abandoned = True
                elif client.submitted != before:
                    _forsake(client)
            raise
        else:
            return None, pending
        finally:
            leave(queue.gate.struct, me)

    def submit(self) -> SubmittedRequest:
        """Send the request without waiting; results come in the order of submission.

        Inputs must not change, and outputs mean nothing, until its result was collected.

        Raises:
            BurstBusy: `max_in_flight` requests are out, this one is, or another thread is using the burst.
            GeneralFailure: the request does not fit the channel.
            DeadObject, Closed: as for `run`.
        """
        self._check_idle()
        queue, me = self._core.pending, next(entries)
        try:
            queue.gate.enter(me)
            pending, client = SubmittedRequest(self._core, self), self._core.client
            before = client.submitted
            try:
                code = lib.nnb_client_submit(self._bound)
                if code != _RESULT:
                    self._core.raise_for(code)
                self.in_flight = True
                queue.append(pending)
            except BaseException:
                # It is in the queue if and only if it was sent, whatever a handler raised in between. One
                # call of C's at the end: a second handler may raise right after it.
                if client.submitted != before and pending not in queue:
                    pending._abandoned = True
                    queue.append(pending)
                raise
            return pending
        finally:
            leave(queue.gate.struct, me)

    def _is_of(
        self, inputs: Sequence[Array | None], outputs: Sequence[Array | None], measure: bool
    ) -> bool:
        """Whether exactly these array objects were bound; their memory and shape cannot have changed."""
        return (
            measure == self._measured
            and all(map(is_, self.inputs, inputs))
            and all(map(is_, self.outputs, outputs))
            and not self.closed
        )

    def _pool_closed(self, number: int) -> None:
        """A pool is gone; if an array lies in it, no run is possible any more."""
        if number in self._pools:
            self._fail()

    def _fail(self) -> None:
        """Refuse runs from now on; what is out may still be waited for. Any thread, reentrant."""
        self._bound.closed = 1

    def _collect(self, deadline_ns: int) -> ExecutionResult:
        """Wait for the result of the oldest submission, which is this one's."""
        self._core.check_process()
        code = _SAME
        try:
            while True:
                left = max(deadline_ns - time.monotonic_ns(), 1)
                code = lib.nnb_client_collect(self._bound, min(left, _LONGEST_NS))
                if code != _INTERRUPTED:
                    return self._finish(code)
        except BaseException:  # as in `run`
            if code != BUSY_CODE:
                self._bound.result_count = 0
                _abandon(self._bound)
            raise

    def _check_idle(self) -> None:
        if self.in_flight:
            self._core.check_running()  # once the driver is dead, no waiting makes the request free
            raise BurstBusy("this request is under way: its memory is in use")

    def _set_timeout(self, timeout_ns: int) -> None:
        self._bound.timeout_ns = min(timeout_ns, _LONGEST_NS)
        # Last: a signal handler that raises before makes the next run set both.
        self._timeout_ns = timeout_ns

    def _conclude(self, code: int) -> ExecutionResult:
        """Turn the outcome of a run into a result or an exception, waiting on if it was cut short."""
        if code == _INTERRUPTED:
            code = self._resume(self._bound.deadline_ns)
        elif code == IN_FLIGHT:
            return self._run_later(self._bound.deadline_ns)
        elif code == NO_ROOM:
            return self._fall_back(self._bound.deadline_ns)
        return self._finish(code)

    def _finish(self, code: int) -> ExecutionResult:
        if code in (_SAME, _SAME_BUT_TIMING) and self._last is not None:
            return self._timed(self._last)
        if code in (_SAME, _SAME_BUT_TIMING, _RESULT):
            return self._read()
        return self._core.raise_for(code)

    def _resume(self, deadline_ns: int) -> int:
        """Go on waiting in slices, so that signals are handled in between."""
        # Both clocks are CLOCK_MONOTONIC.
        while True:
            left = max(deadline_ns - time.monotonic_ns(), 1)
            code = int(lib.nnb_client_resume(self._bound, min(left, _LONGEST_NS)))
            if code != _INTERRUPTED:
                return code

    def _run_later(self, deadline_ns: int) -> ExecutionResult:
        """Submitted requests are out, or an overdue result is still awaited."""
        core = self._core
        if core.pending:
            me = next(entries)
            try:
                core.pending.gate.enter(me)
                while len(core.pending) >= core.max_in_flight:
                    core.pending[0]._collect(deadline_ns)
            finally:
                leave(core.pending.gate.struct, me)
            try:
                pending = self.submit()
            except NoRoom:
                return self._fall_back(deadline_ns)
            try:
                return pending._wait(deadline_ns)
            except BaseException:
                pending.abandon()  # it is unreachable, and this request is to be run again
                raise
        code = IN_FLIGHT
        while code == IN_FLIGHT:
            left = deadline_ns - time.monotonic_ns()
            if left <= 0:
                return self._core.raise_for(TIMED_OUT)
            self._set_timeout(left)
            code = int(_run(self._bound))
        return self._conclude(code)

    def _fall_back(self, deadline_ns: int) -> ExecutionResult:
        """The packet cannot be sent, so the ordinary path is taken (burst:§8)."""
        return execute_synchronously(
            self._core.prepared,
            self.inputs,
            self.outputs,
            measure=self._measured,
            deadline=deadline_ns * 1e-9,
        )

    def _timed(self, last: ExecutionResult) -> ExecutionResult:
        """The last result with the timing of this one."""
        if not self._measured:
            return last
        summary = self._bound.summary
        timing = Timing(summary.time_on_device, summary.time_in_driver)
        return ExecutionResult(last.outputs, last.output_shapes, timing)

    def _read(self) -> ExecutionResult:
        """The result packet, as it differs from the one before."""
        data = ffi.buffer(self._result, self._bound.result_count * DATUM_BYTES)[:]
        try:
            status, shapes, _ = deserialize_result(data)
        except MalformedPacket:
            return self._core.raise_for(MALFORMED)
        if status != ErrorStatus.NONE:
            self._last = None
            raise error_for(status, f"the driver answered {status.name}", shapes)
        arrays = self._shaped(shapes)
        complete = complete_shapes(self._core.outputs, shapes)
        self._last = ExecutionResult(arrays, complete, Timing())
        return self._timed(self._last)

    def _shaped(self, shapes: Sequence[OutputShape]) -> list[Array]:
        if shapes and len(shapes) != len(self.outputs):
            raise GeneralFailure(
                f"the driver reports {len(shapes)} shapes for {len(self.outputs)} outputs"
            )
        shaped = []
        for index, (parameter, array) in enumerate(
            zip(self._core.outputs, self.outputs, strict=True)
        ):
            shape = parameter.shape_of(shapes[index] if shapes else None)
            if not parameter.known and math.prod(shape) > array.size:
                raise GeneralFailure(
                    f"the driver reports {parameter.name} of shape {shape} in {array.size} elements"
                )
            shaped.append(array if parameter.known else head(array, shape))
        return shaped


class _Places:
    """Where the arrays of one request lie: collects its pools in order of their first use.

    Attributes:
        pools: the request's.
        slots: the slot of each.
    """

    def __init__(self, core: BurstCore) -> None:
        self._core = core
        self.pools: RequestPools[Memory] = RequestPools()
        self.slots: list[int] = []

    def input(self, parameter: Parameter, array: Array | None) -> RequestArgument:
        """The argument for an input, checked."""
        if array is None:
            return OMITTED
        parameter.check_input(array)
        return self._argument(parameter, array, parameter.extents(array))

    def output(self, parameter: Parameter, array: Array | None) -> RequestArgument:
        """The argument for an output, checked."""
        if array is None:
            raise InvalidArgument(f"{parameter.name} has no array")
        parameter.check_output(array)
        return self._argument(parameter, array, ())

    def _argument(
        self, parameter: Parameter, array: Array, dimensions: tuple[int, ...]
    ) -> RequestArgument:
        memory, offset, slot = self._core.locate(array, parameter.name)
        argument = self.pools.argument(memory, offset, array.nbytes, dimensions)
        if len(self.slots) < len(self.pools.used):
            self.slots.append(slot)
        return argument
