"""Binds a request to memory once; runs it by one C call, or submits it and waits for the result later."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from functools import partial
from operator import is_
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import numpy as np

from nnburst._native import ffi, lib
from nnburst.client.arguments import (
    OMITTED,
    Array,
    ExecutionResult,
    Parameter,
    check_timeout,
    complete_shapes,
    in_shape,
)
from nnburst.client.burst.beside_loop import call_on_a_thread
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
from nnburst.client.burst.interface import BoundRequest, SubmittedRequest
from nnburst.client.execution.socket_request import execute_synchronously
from nnburst.client.memory import Memory, refuse_overlap
from nnburst.client.session.gate import entries, leave
from nnburst.client.staging import RequestPools
from nnburst.control.connection import Connection
from nnburst.hal.enums import ErrorStatus, MeasureTiming
from nnburst.hal.errors import (
    BurstBusy,
    Closed,
    GeneralFailure,
    MalformedPacket,
    MissedDeadline,
    NnburstError,
    error_for,
)
from nnburst.hal.types import OutputShape, Request, RequestArgument, Timing
from nnburst.serialize import DATUM_BYTES, deserialize_result, serialize_request

if TYPE_CHECKING:
    from nnburst._native import nnb_bound


_LOST: Final = "an interruption took the result"
#: A result packet has a status and no text.
_HAVE_REASONS: Final = (ErrorStatus.GENERAL_FAILURE, ErrorStatus.INVALID_ARGUMENT)
_WHERE_REASONS_ARE: Final = (
    "; bursts carry no reason, `execute` of a model with bursts=False has it"
)


def _too_small(shapes: Sequence[OutputShape]) -> str:
    """The outputs whose arrays lack room, for the message of an error."""
    found = [
        f"outputs[{at}] has shape {shape.dimensions}, which its array has no room for"
        for at, shape in enumerate(shapes)
        if not shape.is_sufficient
    ]
    return f": {'; '.join(found)}" if found else ""


#: Later than the end of any wait, on CLOCK_MONOTONIC.
_NO_DEADLINE_NS: Final = 2**63 - 1
_clock: Final = time.monotonic_ns


class Collected(Protocol):
    """A bound request, for code that waits for its result."""

    in_flight: bool

    def _collect(self, deadline_ns: int) -> ExecutionResult:
        """Wait for its result, which must be the oldest one under way."""


class SubmittedRingRequest(SubmittedRequest):
    """A request that was sent over a ring; made by `RingRequest.submit`."""

    __slots__ = ("_abandoned", "_bound", "_core", "_deadline_ns", "_outcome", "_taken")

    def __init__(
        self, core: BurstCore, bound: Collected, deadline_ns: int = _NO_DEADLINE_NS
    ) -> None:
        """Use `RingRequest.submit`; every wait ends at `deadline_ns`, on CLOCK_MONOTONIC."""
        self._core = core
        self._bound = bound
        self._deadline_ns = deadline_ns
        #: Whether the program gave the result up.
        self._abandoned = False
        #: Whether no wait is needed: the result was taken out of the ring, or is overdue.
        self._taken = False
        self._outcome: ExecutionResult | BaseException | None = None

    @property
    def settled(self) -> bool:
        """Whether the outcome is known, so that `result` does not wait."""
        return self._outcome is not None or self._taken

    def result(self, timeout: float = 30.0) -> ExecutionResult:
        """Wait for the result; see `SubmittedRequest.result`."""
        deadline_ns = self._until(timeout)
        try:
            return self._wait(deadline_ns)
        except MissedDeadline as error:
            self._missed(error)
            raise

    def _missed(self, error: MissedDeadline) -> None:
        """Handle a wait without a result: after the submission's own deadline, give the request up."""
        if _clock() >= self._deadline_ns and self._outcome is None:
            self.abandon()
            self._outcome = error

    def _until(self, timeout: float) -> int:
        """The end of a wait that begins now, on CLOCK_MONOTONIC."""
        return min(time.monotonic_ns() + int(check_timeout(timeout) * 1e9), self._deadline_ns)

    def _wait(self, deadline_ns: int) -> ExecutionResult:
        """Wait like `result`, until `deadline_ns` on CLOCK_MONOTONIC."""
        pending, me = self._core.pending, next(entries)
        try:
            pending.gate.enter(me)
            while self._outcome is None:
                if self._abandoned and self not in pending:
                    raise Closed("the request was abandoned")
                pending[0]._collect(deadline_ns)
        finally:
            leave(pending.gate.struct, me)
        if isinstance(self._outcome, BaseException):
            raise self._outcome
        return self._outcome

    async def result_async(
        self,
        timeout: float = 30.0,  # noqa: ASYNC109 - as for `result`
    ) -> ExecutionResult:
        """Wait like `result`, without blocking the event loop. May be called again after a cancellation."""
        deadline_ns = self._until(timeout)
        try:
            await waiter_of(self._core).settle(self, deadline_ns)
            return self._wait(deadline_ns)
        except MissedDeadline as error:
            self._missed(error)
            raise

    def abandon(self) -> None:
        """Give up the result: it is dropped when it comes. Does not wait; twice is fine."""
        self._abandoned = self._outcome is None
        pending, me = self._core.pending, next(entries)
        try:
            with contextlib.suppress(BurstBusy):
                pending.gate.enter(me)
                pending.skip_abandoned()
        finally:
            leave(pending.gate.struct, me)

    def _collect(self, deadline_ns: int) -> None:
        """Fetch this request's result, which must be the oldest one under way.

        Args:
            deadline_ns: on CLOCK_MONOTONIC.
        """
        if self._taken:  # a second signal handler raised before the outcome could be stored
            self._settle(GeneralFailure(_LOST))
            return
        client = self._core.client
        before = client.collected
        try:
            self._settle(self._bound._collect(deadline_ns))
        except BaseException as error:
            if client.collected != before:  # first, and without a call: a second handler may raise
                self._taken = True
            waiting = isinstance(error, MissedDeadline | BurstBusy)
            # An exception of another class comes from a signal handler, and does not concern the request.
            interrupted = not isinstance(error, NnburstError)
            if (waiting or interrupted) and not self._taken:
                raise
            self._settle(GeneralFailure(_LOST) if interrupted else error)
            if interrupted:
                raise

    def _settle(self, outcome: ExecutionResult | BaseException) -> None:
        """Store the first outcome, and leave the queue. May be interrupted and repeated."""
        pending = self._core.pending
        if self._outcome is None:
            self._outcome = outcome
        self._bound.in_flight = False
        if pending and pending[0] is self:
            pending.popleft()
        pending.skip_abandoned()


# -- bound request ---------------------------------------------------------------------------------


_DEFAULT_TIMEOUT_NS: Final = 30_000_000_000
#: Longer waits are cut to this, about 146 years.
_LONGEST_NS: Final = 2**62
_run: Final = lib.nnb_client_run
_abandon: Final = lib.nnb_client_abandon
_run_at_once: Final = lib.nnb_client_run_at_once
_forsake: Final = lib.nnb_client_forsake

_SAME: Final = int(lib.NNB_CLIENT_SAME)
_RESULT: Final = int(lib.NNB_CLIENT_RESULT)
_INTERRUPTED: Final = int(lib.NNB_CLIENT_INTERRUPTED)
_SENT: Final = int(lib.NNB_CLIENT_SENT)
_SAME_BUT_TIMING: Final = int(lib.NNB_CLIENT_SAME_BUT_TIMING)


class RingRequest(BoundRequest):
    """A request that is serialised once and sent over the rings of one burst; see `RingBurst.bind`."""

    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    in_flight: bool

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
        "_truths",
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
        deadline_ns: int | None = None,
    ) -> None:
        """Check the arrays, find their slots, and serialise the packet.

        Args:
            core: of the burst.
            inputs: arrays in pools.
            outputs: arrays in pools.
            measure: whether to time every run.
            deadline_ns: end of the wait for the driver to drop closed pools, on CLOCK_MONOTONIC; None for
                the timeout of a control call.
        """
        places = _Places(core, deadline_ns)
        request = Request(
            tuple(places.input(p, a) for p, a in zip(core.inputs, inputs, strict=True)),
            tuple(places.output(p, a) for p, a in zip(core.outputs, outputs, strict=True)),
        )
        refuse_overlap(inputs, outputs)
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
        self._truths = _truths(outputs)
        self._bound: nnb_bound = ffi.new(
            "struct nnb_bound *",
            {
                "client": core.client,
                "timeout_ns": _DEFAULT_TIMEOUT_NS,
                "measured": measure,
                "request": ffi.from_buffer("uint8_t[]", self._packet),
                "request_count": len(self._packet),
                "result": self._result,
                "truths": self._truths or ffi.NULL,
                "truth_count": len(self._truths),
            },
        )

    @property
    def closed(self) -> bool:
        """Whether it cannot run any more; see `BoundRequest.closed`."""
        return bool(self._bound.closed or self._core.closed)

    def run(self, timeout: float | None = None) -> ExecutionResult:
        """Execute once and wait for the result; see `BoundRequest.run`."""
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
            # Release the burst if this thread's run holds it; its result is overdue then. The next result is
            # read in full, since this one may not have been. No Python function is called: a second handler
            # could raise on its entry. After BUSY the request may be another thread's.
            if code != BUSY_CODE:
                self._bound.result_count = 0
                _abandon(self._bound)
            raise

    @property
    def native(self) -> Any:  # noqa: ANN401 - a pointer of cffi's
        """The `struct nnb_bound` (csrc/burst_client.h) for code in C; valid as long as this object."""
        return self._bound

    def _check_running(self) -> None:
        """Raise Closed or DeadObject if no run is possible any more."""
        self._core.check_running()

    def conclude(self, code: int) -> ExecutionResult:
        """Return the result of a run that C code has made with `nnb_client_run`.

        Args:
            code: the code that `nnb_client_run` returned.

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
        """Execute once without blocking the event loop; see `BoundRequest.run_async`.

        A result that comes within two microseconds is returned at once, without a turn of the loop.
        """
        timeout_ns = _DEFAULT_TIMEOUT_NS if timeout is None else int(check_timeout(timeout) * 1e9)
        core = self._core
        waiter = core.waiter or waiter_of(core)
        began_ns = _clock()
        pending: SubmittedRingRequest | None = None
        try:
            if not core.pending:
                result, pending = self._run_at_once()
                if result is not None:
                    if began_ns > waiter.turn_due_ns:
                        await waiter.take_turn()
                    return result
            elif not self._is_given_up:
                self._check_idle()
            return await waiter.run(self, pending, began_ns + timeout_ns)
        except NoRoom:
            return await call_on_a_thread(partial(self._fall_back, began_ns + timeout_ns))

    def _run_at_once(self) -> tuple[ExecutionResult | None, SubmittedRingRequest | None]:
        """Send; returns a result that comes within 2 µs, or the submission, or neither if not sent."""
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
            pending = SubmittedRingRequest(core, self)
            self.in_flight = True
            queue.append(pending)
        except BaseException:
            if code != BUSY_CODE:
                self._bound.result_count = 0
                if queue:  # it was sent, but no caller gets its outcome
                    queue[0]._abandoned = True
                elif client.submitted != before:
                    _forsake(client)
            raise
        else:
            return None, pending
        finally:
            leave(queue.gate.struct, me)

    def submit(self, timeout: float | None = None) -> SubmittedRingRequest:
        """Send the request without waiting; see `BoundRequest.submit`."""
        deadline_ns = _NO_DEADLINE_NS
        if timeout is not None:
            deadline_ns = _clock() + int(check_timeout(timeout) * 1e9)
        queue, me = self._core.pending, next(entries)
        pending = SubmittedRingRequest(self._core, self, deadline_ns)
        try:
            try:
                queue.gate.enter(me)
                queue.skip_abandoned()
                self._check_idle()
                self._send(pending)
            finally:
                leave(queue.gate.struct, me)
        except BaseException:
            pending._abandoned = True  # no caller gets it, whether it was sent or not
            raise
        return pending

    def _send(self, pending: SubmittedRingRequest) -> None:
        """Send the request, and queue the submission if it was sent. The caller has entered the gate."""
        queue, client = self._core.pending, self._core.client
        before = client.submitted
        try:
            code = lib.nnb_client_submit(self._bound)
            if code != _RESULT:
                self._core.raise_for(code)
            self.in_flight = True
            queue.append(pending)
        except BaseException:
            # One C call at the end: a second signal handler may raise right after it.
            if client.submitted != before and pending not in queue:
                pending._abandoned = True
                queue.append(pending)
            raise

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
        """Refuse runs from now on if an array of the request lies in the closed pool."""
        if number in self._pools:
            self._fail()

    def _fail(self) -> None:
        """Refuse runs from now on; results under way can still be waited for. Any thread, reentrant."""
        self._bound.closed = 1

    def _collect(self, deadline_ns: int) -> ExecutionResult:
        """Wait for the result of the oldest submission, which is one of this request."""
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

    @property
    def _is_given_up(self) -> bool:
        """Whether it is under way behind others, and its result was given up: it will be dropped."""
        if not self.in_flight:
            return False
        return any(s._abandoned for s in tuple(self._core.pending) if s._bound is self)

    def _check_idle(self) -> None:
        if self.in_flight:
            self._core.check_running()  # a dead driver never frees the request: raise DeadObject instead
            raise BurstBusy("this request is under way: its memory is in use")

    def _set_timeout(self, timeout_ns: int) -> None:
        self._bound.timeout_ns = min(timeout_ns, _LONGEST_NS)
        # Last: a signal handler that raises before makes the next run set both.
        self._timeout_ns = timeout_ns

    def _conclude(self, code: int) -> ExecutionResult:
        """Turn the code of a run into a result or an exception; wait on if only the time slice has ended."""
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
        """Wait further in time slices, so that signals are handled between them."""
        # Both clocks are CLOCK_MONOTONIC.
        while True:
            left = max(deadline_ns - time.monotonic_ns(), 1)
            code = int(lib.nnb_client_resume(self._bound, min(left, _LONGEST_NS)))
            if code != _INTERRUPTED:
                return code

    def _run_later(self, deadline_ns: int) -> ExecutionResult:
        """Run after submitted requests that are under way, or after an overdue result."""
        core = self._core
        if core.pending:
            me = next(entries)
            try:
                core.pending.gate.enter(me)
                while len(core.pending) >= core.max_in_flight or self._is_given_up:
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
                pending.abandon()  # no caller can, and this request must be free for the next run
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
        """Execute over the socket, since the packet cannot be sent (burst:§8)."""
        return execute_synchronously(
            self._core.prepared,
            self.inputs,
            self.outputs,
            measure=self._measured,
            deadline=deadline_ns * 1e-9,
        )

    def _timed(self, last: ExecutionResult) -> ExecutionResult:
        """The last result, with the timing of this run."""
        if not self._measured:
            return last
        summary = self._bound.summary
        timing = Timing(summary.time_on_device, summary.time_in_driver)
        return ExecutionResult(last.outputs, last.output_shapes, timing)

    def _read(self) -> ExecutionResult:
        """Read the result packet, which differs from the last one."""
        data = ffi.buffer(self._result, self._bound.result_count * DATUM_BYTES)[:]
        try:
            status, shapes, _ = deserialize_result(data)
        except MalformedPacket:
            return self._core.raise_for(MALFORMED)
        if status != ErrorStatus.NONE:
            self._last = None
            where = _WHERE_REASONS_ARE if status in _HAVE_REASONS else _too_small(shapes)
            raise error_for(status, f"the driver answered {status.name}{where}", shapes)
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
            shaped.append(in_shape(parameter.name, array, shape))
        return shaped


def _truths(outputs: Sequence[Array | None]) -> Any:  # noqa: ANN401 - a cffi struct nnb_truth[]
    """The places of outputs of bool, whose bytes C makes 0 or 1."""
    found = [a for a in outputs if a is not None and a.dtype == np.bool_]
    made = ffi.new("struct nnb_truth[]", len(found))
    for truth, array in zip(made, found, strict=True):
        truth.values = ffi.cast("uint8_t *", array.ctypes.data)
        truth.count = array.nbytes
    return made


class _Places:
    """Finds pool and offset of each array of a request, and collects the pools in order of their first use.

    Attributes:
        pools: the pools of the request.
        slots: the slot of each pool.
    """

    def __init__(self, core: BurstCore, deadline_ns: int | None) -> None:
        self._core = core
        self._deadline_ns = deadline_ns
        self.pools: RequestPools[Memory] = RequestPools()
        self.slots: list[int] = []

    def input(self, parameter: Parameter, array: Array | None) -> RequestArgument:
        """Check an input, and return the request's argument for it."""
        if array is None:
            parameter.check_omitted()
            return OMITTED
        parameter.check_input(array)
        return self._argument(parameter, array, parameter.extents(array))

    def output(self, parameter: Parameter, array: Array | None) -> RequestArgument:
        """Check an output, and return the request's argument for it."""
        return self._argument(parameter, parameter.check_output(array), ())

    def _argument(
        self, parameter: Parameter, array: Array, dimensions: tuple[int, ...]
    ) -> RequestArgument:
        memory, offset, slot = self._core.locate(array, parameter.name, self._deadline_ns)
        argument = self.pools.argument(memory, offset, array.nbytes, dimensions)
        if len(self.slots) < len(self.pools.used):
            self.slots.append(slot)
        return argument


def connection_of(request: RingRequest) -> Connection:
    """The connection to the driver that runs a request."""
    return request._core.connection
