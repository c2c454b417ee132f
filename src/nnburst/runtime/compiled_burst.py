"""Executes a compiled model repeatedly over bursts, and submits executions whose results come later."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
import weakref
from collections.abc import Hashable, Sequence
from typing import Any, Final, TypeVar, cast

import numpy as np

from nnburst.client.arguments import (
    Array,
    ExecutionResult,
    Parameter,
    check_count,
    check_timeout,
)
from nnburst.client.burst.arrays import LastRequest
from nnburst.client.burst.bound_request import RingRequest, connection_of
from nnburst.client.burst.core import BUSY_CODE
from nnburst.client.burst.interface import (
    DEFAULT_TIMEOUT,
    BoundRequest,
    Burst,
    BurstFunction,
    SubmittedRequest,
    bind_function,
)
from nnburst.client.burst.steps import run_steps
from nnburst.client.execution.buffer import Buffer
from nnburst.client.execution.prepared import request_key
from nnburst.client.request_cache import RequestCache
from nnburst.client.session.gate import Gate, entries, leave
from nnburst.client.session.pending import wake_waiter
from nnburst.client.staging import in_new_pool
from nnburst.control.connection import Connection
from nnburst.hal.enums import ResultCode
from nnburst.hal.errors import (
    BurstBusy,
    Closed,
    MissedDeadline,
    NnburstError,
    OutputInsufficientSize,
    error_for_code,
)
from nnburst.hal.limits import UINT32_MAX
from nnburst.hal.utils import check_integer
from nnburst.runtime.argument import Options
from nnburst.runtime.array_execution import (
    CallTime,
    arguments_of,
    execute_arrays,
    execute_order,
    result_of,
)
from nnburst.runtime.execution.background import TaskThread, wait_for_future
from nnburst.runtime.execution.bound_plan import BoundPlan
from nnburst.runtime.execution.executable import Executable
from nnburst.runtime.execution.pipeline import Pipeline, PlanInFlight
from nnburst.runtime.records import ExecutionMode
from nnburst.runtime.runtime_object import RuntimeObject

T = TypeVar("T")

#: Seconds between two checks of a pipeline for room, and the timeout for taking a finished result.
_STEP: Final = 1e-3


class SubmittedPlan(SubmittedRequest):
    """An execution of a plan that was begun by `CompiledRequest.submit`. Thread-safe."""

    __slots__ = ("_burst", "_is_abandoned", "_outputs", "_request")

    _instead = "wait for it here; results can be pickled"

    def __init__(
        self,
        burst: CompiledBurst,
        outputs: Sequence[Array],
        request: PlanInFlight | ExecutionResult,
    ) -> None:
        """Use `CompiledRequest.submit`.

        Args:
            burst: the burst that executes.
            outputs: the output arrays of the request.
            request: the request in flight, or its result if it was executed at once.
        """
        self._burst = burst
        self._outputs = outputs
        self._request = request
        self._is_abandoned = False

    @property
    def settled(self) -> bool:
        """Whether `result` returns at once: the outcome is known, or was given up."""
        if self._is_abandoned or isinstance(self._request, ExecutionResult):
            return True
        return self._request.is_done

    def result(self, timeout: float = 30.0) -> ExecutionResult:
        """Wait for the result; the execution goes on after `timeout`. See `SubmittedRequest.result`."""
        seconds = check_timeout(timeout)
        self._check_wanted()
        if isinstance(self._request, ExecutionResult):
            return self._request
        outcome = self._request.wait(seconds)
        if outcome is None:
            raise MissedDeadline("timeout: the result is not there in time")
        return result_of(self._burst.outputs, self._outputs, outcome)

    async def result_async(
        self,
        timeout: float = 30.0,  # noqa: ASYNC109 - as for `result`
    ) -> ExecutionResult:
        """Wait as `result` does while the event loop goes on. After a cancellation it may be called again."""
        deadline_ns = time.monotonic_ns() + int(check_timeout(timeout) * 1e9)
        self._check_wanted()
        request = self._request
        if not isinstance(request, ExecutionResult):
            loop = asyncio.get_running_loop()
            future: asyncio.Future[None] = loop.create_future()

            def wake() -> None:
                with contextlib.suppress(RuntimeError):  # the loop was closed with its task
                    loop.call_soon_threadsafe(wake_waiter, future)

            request.settled_callbacks.append(wake)
            if not request.is_done:
                await wait_for_future(future, deadline_ns)
        return self.result(_STEP)

    def abandon(self) -> None:
        """Discard the result; the execution still runs to its end. Twice is fine."""
        if not self.settled:
            self._is_abandoned = True
        if isinstance(self._request, PlanInFlight):
            self._request.is_abandoned = True

    def _check_wanted(self) -> None:
        self._burst._check_process()
        if self._is_abandoned:
            raise Closed("the request was abandoned")


# -- compiled burst --------------------------------------------------------------------------------


logger = logging.getLogger("nnburst.runtime")

#: Greatest number of requests that stay bound, and the number of the execution of equal shapes that binds.
_MOST: Final = 8
_BINDS_AT: Final = 3
#: Greatest number of bytes in the private pools of these requests.
_MOST_BYTES: Final = 256 << 20
_DEFAULT_TIMEOUT_NS: Final = 30_000_000_000
#: Status of a run that Python must execute, because the plan is not bound.
_BY_PYTHON: Final = -1


class CompiledBurst(RuntimeObject, Burst):
    """Bursts for all steps of a plan; made by `CompiledModel.open_burst`."""

    _instead = "open one in the other process; arrays and results can be pickled"

    def __init__(
        self,
        executable: Executable,
        inputs: Sequence[Parameter],
        outputs: Sequence[Parameter],
        max_in_flight: int = 1,
        *,
        waits: bool | None = None,
        mode: ExecutionMode = ExecutionMode.BURST,
        keeps_parts: bool = True,
    ) -> None:
        """Use `CompiledModel.open_burst`.

        Executions that are not bound are recorded with `mode`. Only with `keeps_parts` does the burst work on
        when its model has been closed.
        """
        super().__init__()
        self._mode: Final = mode
        self._inputs: Final = inputs
        self._outputs: Final = outputs
        self._max_in_flight: Final = max_in_flight
        self._waits: Final = waits
        self._tasks: Final = TaskThread()
        self._executable: Final = executable
        try:
            if keeps_parts:
                executable.hold(self)
            self._bursts: Final = executable.open_bursts()
            self._pipeline: Final = Pipeline(self._bursts, max_in_flight, executable.go_on)
        except BaseException:
            executable.release(self)
            raise
        self._executing: Final = Gate()
        self.can_bind: Final = executable.can_bind(self._bursts) and all(p.known for p in outputs)
        self._last: LastRequest | None = None
        self._remembered: Final[RequestCache[Hashable, LastRequest]] = RequestCache(
            _MOST, most_bytes=_MOST_BYTES, bind_at=_BINDS_AT
        )
        for end in (self._pipeline.close_soon, self._tasks.close):
            weakref.finalize(self, end).atexit = False
        _living_bursts.add(self)

    @property
    def is_alive(self) -> bool:
        """Whether the burst is open. Dead drivers do not matter: each run replaces them."""
        return not self.closed

    @property
    def inputs(self) -> Sequence[Parameter]:
        """The parameters that inputs must fit."""
        return self._inputs

    @property
    def outputs(self) -> Sequence[Parameter]:
        """The parameters that outputs must fit."""
        return self._outputs

    @property
    def max_in_flight(self) -> int:
        """Requests that may be in flight at once, each in a different step."""
        return self._max_in_flight

    def execute(
        self,
        inputs: Sequence[Array | Buffer | None],
        outputs: Sequence[Array | Buffer | None] | None = None,
        *,
        measure: bool = False,
        timeout: float = 30.0,
        copy: bool = True,
    ) -> ExecutionResult:
        """Execute once; see `Burst.execute`.

        From the third execution on arrays of equal shapes on, all steps run by one C call, with copies of the
        arrays before and after it, if the plan can be bound and nothing is measured or recorded.
        """
        self._check_open()
        # Only one thread may be in here: the last request's memory is written before its run would notice
        # another thread's run, and read after that run.
        executing, me = self._executing, next(entries)
        try:
            executing.enter(me)
            binds = self.can_bind and not measure and not self._executable.recorder.is_on
            last = self._last if binds else None
            call: CallTime | None = None
            try:
                if last is not None:
                    result = last.execute(inputs, outputs, check_timeout(timeout), copy)
                    if result is not None:
                        return result
                call = CallTime.of(timeout)
                # A buffer is refused by all of these.
                if binds and (last := self._recall(inputs, outputs)) is not None:  # type: ignore[arg-type]
                    result = last.execute(inputs, outputs, call.check_left(), copy)
                    if result is not None:
                        return result
            except OutputInsufficientSize:  # more is computed than is declared
                call = call or CallTime.of(timeout)
            return self._execute_anew(inputs, outputs, measure, call)  # type: ignore[arg-type]
        finally:
            leave(executing.struct, me)

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return f"<nnburst.Burst on {', '.join(self._executable.plan.devices)}: {state}>"

    def _recall(
        self, inputs: Sequence[Array | None], outputs: Sequence[Array | None] | None
    ) -> LastRequest | None:
        """The bound request for such arrays, made when they come for the third time; None before."""
        key = request_key(inputs, outputs, False)
        if key is None:
            return None
        found = self._remembered.find(key)
        if found is None and self._remembered.is_wanted(key):
            found = self._bind_like(key, inputs, outputs)
        if found is not None:
            self._last = found
        return found

    def _bind_like(
        self,
        key: Hashable,
        inputs: Sequence[Array | None],
        outputs: Sequence[Array | None] | None,
    ) -> LastRequest | None:
        """Bind a new request for such arrays; None if they cannot be bound."""
        arrays = [array for array in inputs if array is not None and array.nbytes]
        if len(arrays) < len(inputs):
            self._remembered.refuse(key)
            return None
        wanted = [(array.dtype, array.shape) for array in arrays]
        wanted += [(parameter.dtype, parameter.dimensions) for parameter in self.outputs]
        taken = [None] * len(self.outputs) if outputs is None else outputs
        try:
            check_count("inputs", arrays, self.inputs)
            check_count("outputs", taken, self.outputs)
            for parameter, array in zip(self.inputs, arrays, strict=True):
                parameter.check_input(array)
            places = in_new_pool(wanted)
            ins, outs = places[: len(arrays)], places[len(arrays) :]
            bound = CompiledRequest(weakref.proxy(self), ins, outs)  # this burst holds the request
        except NnburstError as error:
            logger.info("arrays are not bound, they are executed step by step: %s", error)
            self._remembered.refuse(key)
            return None
        found = LastRequest.of(self.outputs, bound, inputs, taken)
        if found is None:
            self._remembered.refuse(key)
        else:
            self._remembered.add(key, found, sum(place.nbytes for place in places))
        return found

    def _execute_anew(
        self,
        inputs: Sequence[Array | None],
        outputs: Sequence[Array | None] | None,
        measure: bool,
        call: CallTime,
        *,
        revives: bool = True,
    ) -> ExecutionResult:
        """Execute once, step by step."""
        gate, me = self._bursts.gate, next(entries)
        try:
            self._wait_for_abandoned(call)
            gate.enter(me)
            if revives:
                self._executable.revive(
                    call.deadline_ns, call.began_ns, self._bursts, waits=self._waits
                )
            return execute_arrays(
                self._executable,
                self.inputs,
                self.outputs,
                inputs,
                outputs,
                call,
                measure=measure,
                bursts=self._bursts,
                mode=self._mode,
            )
        finally:
            leave(gate.struct, me)

    def _order(self, inputs: Sequence[Array | None], timeout: float) -> None:
        """Have the device open or close a slot, over its socket; see `SocketExecution`."""
        call, executable = CallTime.of(timeout), self._executable
        executable.revive(call.deadline_ns, call.began_ns, self._bursts, waits=self._waits)
        execute_order(executable.parts[0], self.inputs, self.outputs, inputs, call)

    def _wait_for_abandoned(self, call: CallTime) -> bool:
        """Wait for the end of requests under way, if all of them were abandoned.

        Returns:
            Whether there were such requests, and they have ended.

        Raises:
            MissedDeadline: they have not ended in time.
            Closed, BadState: the burst was closed, or this is a forked child.
        """
        found = False
        while abandoned := [
            *[request.is_abandoned for request in self._pipeline.under_way],
            *self._tasks.under_way,
        ]:
            if not all(abandoned):
                return False
            self._check_open()
            call.check_left()
            time.sleep(_STEP)
            found = True
        return found

    def bind(
        self,
        inputs: Sequence[Array | None] | None = None,
        outputs: Sequence[Array | None] | None = None,
        *,
        measure: bool = False,
        output_bytes: Sequence[int | None] | None = None,
    ) -> CompiledRequest:
        """Bind arrays once, for many runs; see `Burst.bind`.

        Arrays in a pool are used without a copy, each run copies others. A measured request is executed step
        by step.
        """
        self._check_open()
        given = [None] * len(self.inputs) if inputs is None else inputs
        taken = [None] * len(self.outputs) if outputs is None else outputs
        check_count("inputs", given, self.inputs)
        check_count("outputs", taken, self.outputs)
        rooms = [None] * len(self.outputs) if output_bytes is None else output_bytes
        check_count("output_bytes", rooms, self.outputs)
        new = [p for p, a in zip(self.inputs, given, strict=True) if a is None and inputs is None]
        wanted = [_fixed(parameter) for parameter in new]
        for at, (parameter, array) in enumerate(zip(self.outputs, taken, strict=True)):
            if array is None:
                wanted.append(_fixed(parameter, rooms[at], f"output_bytes[{at}]"))
        made = iter(in_new_pool(wanted))
        ins = [next(made) if a is None and inputs is None else a for a in given]
        outs = [next(made) if a is None else a for a in taken]
        return CompiledRequest(self, ins, outs, measure=measure)

    def function(
        self,
        inputs: Sequence[Array | None] | None = None,
        *,
        copy: bool = False,
        timeout: float = 30.0,
    ) -> BurstFunction:
        """Make a function of arrays; see `Burst.function`."""
        self._check_open()
        return bind_function(self, inputs, copy=copy, timeout=timeout)

    def _release(self) -> None:
        self._last = None
        self._remembered.close()
        self._tasks.close()
        self._bursts.close()
        self._pipeline.close()
        self._executable.release(self)


class CompiledRequest(BoundRequest):
    """A request that is bound to a plan; made by `CompiledBurst.bind`.

    If each step's device has bursts and all shapes are known, a run is one C call for all steps: each step
    reads the values where the step before wrote them.
    """

    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    in_flight: bool

    __slots__ = (
        "__weakref__",
        "_arguments",
        "_bound",
        "_burst",
        "_close_bound",
        "_is_repeated",
        "_last",
        "_measure",
        "_steps",
        "_timeout_ns",
        "_watched",
        "in_flight",
        "inputs",
        "outputs",
    )

    def __init__(
        self,
        burst: CompiledBurst,
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
        *,
        measure: bool = False,
    ) -> None:
        """Bind now. A dead driver is no error here; the first run deals with it.

        Nor is a closed device for which the CPU may compute.
        """
        self._burst = burst
        self._measure = measure
        self.inputs = cast("tuple[Array, ...]", tuple(inputs))
        self.outputs = tuple(outputs)
        self.in_flight = False
        self._arguments = arguments_of(burst.inputs, burst.outputs, inputs, outputs)
        self._bound: BoundPlan | None = None
        self._close_bound: weakref.finalize[..., Any] | None = None
        self._watched: weakref.WeakSet[Connection] = weakref.WeakSet()
        self._last: ExecutionResult | None = None
        self._timeout_ns = 0
        self._is_repeated = False
        self._steps: Any = None  # a cffi pointer if no array is copied
        _living_requests.add(self)
        try:
            self._bind()
        except NnburstError as error:
            falls_back = isinstance(error, Closed) and burst._executable.allows_fallback
            if error.code != ResultCode.DEAD_OBJECT and not falls_back:
                raise

    def _bind(self) -> None:
        """Bind to the bursts that are open now."""
        burst = self._burst
        self._steps = self._bound = None
        if self._close_bound is not None:
            self._close_bound()
        if self._measure:
            return
        bound = burst._executable.bind(*self._arguments, burst._bursts)
        if bound is not None:
            self._close_bound = weakref.finalize(self, bound.close)
            self._close_bound.atexit = False
            self._bound = bound
            for request in bound.steps.requests:
                if isinstance(request, RingRequest):
                    self._watch(connection_of(request))
            if not bound.inputs and not bound.outputs:
                self._steps = bound.steps.struct

    def _watch(self, connection: Connection) -> None:
        """Learn of the connection's end; another bind to a driver that lives on changes nothing."""
        if connection not in self._watched:
            self._watched.add(connection)
            connection.on_end_weakly(self._driver_died)

    def _driver_died(self) -> None:
        """Make the next run check whether the plan must be bound anew."""
        self._timeout_ns = 0

    @property
    def is_bound(self) -> bool:
        """Whether a run is one C call: not if a driver is dead or only Python can execute the plan."""
        return self._bound is not None

    @property
    def closed(self) -> bool:
        """Whether it cannot run any more; see `BoundRequest.closed`."""
        return self._burst.closed

    def run(self, timeout: float | None = None) -> ExecutionResult:
        """Execute once and wait for the result; see `BoundRequest.run`.

        Args:
            timeout: seconds for all steps together, 30 unless given.

        Raises:
            DeadObject: a driver of an explicit list has died; the next run prepares again.
            NnburstError: the error of a device of an explicit list.
        """
        timeout_ns = _DEFAULT_TIMEOUT_NS if timeout is None else int(check_timeout(timeout) * 1e9)
        call = None if timeout_ns == self._timeout_ns else self._begin_run(timeout_ns)
        code = 0
        try:
            steps = self._steps
            code = self._run_staged() if steps is None else run_steps(steps)
            if not code:
                return self._last  # type: ignore[return-value]
            return self._conclude(code, timeout_ns, call)
        except BaseException:  # KeyboardInterrupt, too, even right after the C call
            if self._bound is not None and code != BUSY_CODE:
                self._bound.steps.abandon()
                self._timeout_ns = 0  # so that the next run checks whether to bind anew
            raise

    def _run_staged(self) -> int:
        """Run the bound plan with copies of the arrays that lie in no pool; return the status."""
        bound = self._bound
        if bound is None:
            return _BY_PYTHON
        code = bound.run()
        if not code:
            bound.copy_out()
        return code

    async def run_async(
        self,
        timeout: float | None = None,  # noqa: ASYNC109 - as for `run`
    ) -> ExecutionResult:
        """Execute once; the event loop goes on meanwhile. See `BoundRequest.run_async`.

        If a dead driver must be replaced first, or the plan cannot be bound, a thread of the burst runs it.
        """
        seconds = DEFAULT_TIMEOUT if timeout is None else check_timeout(timeout)
        deadline_ns = time.monotonic_ns() + int(seconds * 1e9)
        burst = self._burst
        burst._check_open()
        while self.in_flight and self._is_abandoned:
            _left(deadline_ns)
            await asyncio.sleep(_STEP)
        self._check_idle()
        pipeline, tasks = burst._pipeline, burst._tasks
        while True:
            burst._check_open()  # it may have been closed meanwhile
            if self._bound is not None and self._bound.is_current:
                if pipeline.has_room and not tasks.under_way:
                    submitted = self.submit(_left(deadline_ns))
                    try:
                        return await submitted.result_async(_left(deadline_ns))
                    except BaseException:  # mostly because the task was cancelled
                        submitted.abandon()
                        raise
            elif not pipeline.under_way:
                return await tasks.call(lambda: self.run(_left(deadline_ns)), deadline_ns)
            _left(deadline_ns)
            await asyncio.sleep(_STEP)

    def submit(self, timeout: float | None = None) -> SubmittedPlan:
        """Begin an execution without waiting for it; see `BoundRequest.submit`.

        While one execution is in its second step, the next one can be in its first. A plan that cannot be
        bound is executed at once.

        Args:
            timeout: seconds that the execution may take, 30 unless given.

        Raises:
            NnburstError: a driver of an explicit list cannot be reached, or the plan was executed at
                once and failed.
        """
        call = CallTime.of(DEFAULT_TIMEOUT if timeout is None else timeout)
        self._check_idle()
        if self._bound is None or self._timeout_ns == 0:
            self._make_current(call)
        bound = self._bound
        if bound is None:
            result = self._execute(call)
            return SubmittedPlan(self._burst, self.outputs, result)
        request = PlanInFlight(bound, call.deadline_ns, self._settled)
        self.in_flight = True
        try:
            self._burst._pipeline.submit(request)
            return SubmittedPlan(self._burst, self.outputs, request)
        except BaseException:
            request.is_abandoned = True  # no caller gets it, if a signal handler has raised
            if request.cancel():
                self.in_flight = False
            raise

    def _settled(self) -> None:
        """Take the result of a run in the pipeline, and note whether the next run must bind anew."""
        bound = self._bound
        if bound is None or not bound.is_current:
            self._timeout_ns = 0
        else:
            with contextlib.suppress(NnburstError):  # an output had too little room
                self._last = result_of(self._burst.outputs, self.outputs, bound.outcome)
        self.in_flight = False

    @property
    def _is_abandoned(self) -> bool:
        """Whether it is under way, and no one waits for the result."""
        under_way = self._burst._pipeline.under_way
        return any(request.is_abandoned and request.bound is self._bound for request in under_way)

    def _check_idle(self) -> None:
        self._burst._check_open()
        if self.in_flight:
            raise BurstBusy("this request is under way: its memory is in use")

    def _begin_run(self, timeout_ns: int) -> CallTime | None:
        """Prepare a run that has another timeout than the last one, or that must bind anew.

        Returns:
            The times of the run if they were taken here, else None.
        """
        call = CallTime.of(timeout_ns * 1e-9)
        self._burst._wait_for_abandoned(call)
        self._check_idle()
        if self._bound is not None and self._bound.is_current:
            self._bound.steps.set_timeout(timeout_ns)
            self._timeout_ns = timeout_ns
            return None
        if not self._make_current(call):
            return call
        if self._bound is None:
            self._timeout_ns = timeout_ns  # nothing can be bound
        else:
            self._bound.steps.set_timeout(int(call.check_left() * 1e9))
        return call

    def _make_current(self, call: CallTime) -> bool:
        """Replace dead drivers, within the time of `call`, and bind to the new bursts.

        Returns:
            Whether all drivers are there.

        Raises:
            MissedDeadline: a driver is not there in time, or abandoned requests have not ended.
            DeadObject: a driver is not there, and there is no fallback.
        """
        executable = self._burst._executable
        if self._bound is not None and self._bound.is_current:
            return True
        self._burst._wait_for_abandoned(call)  # one that no task awaits may be binding this request
        executable.revive(
            call.deadline_ns, call.began_ns, self._burst._bursts, waits=self._burst._waits
        )
        self._timeout_ns = 0
        try:
            self._bind()
        except NnburstError as error:
            if call.left <= 0:
                raise MissedDeadline(
                    f"timeout: it passed before a driver was there: {error}"
                ) from error
            if not executable.allows_fallback:
                raise
            logger.info("a plan is executed without being bound: %s", error)
            return False
        return True

    def _execute(self, call: CallTime, *, revives: bool = False) -> ExecutionResult:
        """Execute step by step, without the bound plan."""
        return self._burst._execute_anew(
            self.inputs, self.outputs, self._measure, call, revives=revives
        )

    def _conclude(self, code: int, timeout_ns: int, call: CallTime | None) -> ExecutionResult:
        """Finish a run whose C call returned a status other than 0."""
        burst, bound = self._burst, self._bound
        burst._check_open()
        if code == BUSY_CODE:
            call = call or CallTime.of(timeout_ns * 1e-9)
            if burst._wait_for_abandoned(call):
                return self.run(call.check_left())
            if not self._is_repeated:  # an abandoned request may have ended just before that look
                self._is_repeated = True
                try:
                    return self.run(call.check_left())
                finally:
                    self._is_repeated = False
        if bound is None:
            if call is None:
                return self._execute(CallTime.of(timeout_ns * 1e-9), revives=True)
            return self._execute(call)
        if call is None:
            deadline_ns = CallTime.of(max(bound.steps.seconds_left, 1e-9)).deadline_ns
        else:
            deadline_ns = call.deadline_ns
        options = Options(deadline_ns=deadline_ns, is_final=True)
        outcome = burst._executable.conclude(bound, code, options, burst._bursts)
        if bound.is_stale:
            self._timeout_ns = 0
        self._last = result_of(burst.outputs, self.outputs, outcome)
        return self._last


#: The bursts and bound requests of this process; a forked child may use none of them.
_living_bursts: Final[weakref.WeakSet[CompiledBurst]] = weakref.WeakSet()
_living_requests: Final[weakref.WeakSet[CompiledRequest]] = weakref.WeakSet()


def _refuse_all_in_child() -> None:
    """Refuse every run in a forked child before it copies an argument: pools are not mapped there."""
    for burst in list(_living_bursts):
        burst._closed = True
    for request in list(_living_requests):
        request._timeout_ns = 0  # so that the next run checks the process


os.register_at_fork(after_in_child=_refuse_all_in_child)


def _left(deadline_ns: int) -> float:
    """Seconds until a deadline on CLOCK_MONOTONIC.

    Raises:
        MissedDeadline: the deadline has passed.
    """
    left = (deadline_ns - time.monotonic_ns()) * 1e-9
    if left <= 0:
        raise MissedDeadline("timeout: no result came in time")
    return left


def _fixed(
    parameter: Parameter, room: int | None = None, name: str = ""
) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Dtype and shape of a parameter's arrays.

    `room` gives the bytes if the shape is not known; `name` is what messages call it.
    """
    if not parameter.known and room is not None:
        room = check_integer(name, room, 1, UINT32_MAX)
        return parameter.dtype, (room // parameter.dtype.itemsize,)
    if not parameter.size:
        raise error_for_code(
            ResultCode.BAD_DATA,
            f"{parameter.name} has no fixed shape: give bind an array (or output_bytes)",
        )
    return parameter.dtype, parameter.dimensions
