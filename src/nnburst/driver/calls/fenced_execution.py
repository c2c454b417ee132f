"""Answers calls for fenced executions, and for reusable executions, which are bound once and run often.

    fences ─► FenceWaiter ─► scheduler ─► run ─► memory is released ─► information is ready ─► signal

NNAPI: IPreparedModel::executeFenced, IExecution::executeFenced, IFencedExecutionCallback (device:F1 to F10).
DEVIATES: the sample waits and runs before it answers; here the answer is sent at once.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial

import msgspec

from nnburst.control.channel import NO_FDS, Fds
from nnburst.control.fences import FenceStatus, adopt_fence, create_fence, fence_status
from nnburst.control.messages import (
    CreateReusableExecution,
    Executed,
    ExecuteFenced,
    ExecuteReusable,
    ExecuteReusableFenced,
    ExecutionInfo,
    Fenced,
    GetExecutionInfo,
    Opened,
)
from nnburst.control.service import Answer, failure
from nnburst.driver.calls.registry import answers, check_deadline
from nnburst.driver.client_session import ClientSession, IdleWatch, ModelSession
from nnburst.driver.confinement import IDLE_NS
from nnburst.driver.counters import ModelCounters
from nnburst.driver.model.execution import (
    BufferedExecution,
    LatencyEstimate,
    attributes_of,
    execute_bound,
    outcome_of,
    run_in_time,
    times_of,
)
from nnburst.driver.model.pools import (
    RequestPool,
    adopt_request_pools,
    close_descriptors,
    close_pools,
)
from nnburst.driver.model.prepared_model import PreparedModel
from nnburst.driver.scheduler import Work
from nnburst.executor.base import MEASURED, Execution, Outcome
from nnburst.hal.enums import ErrorStatus, Priority
from nnburst.hal.errors import BurstBusy, GeneralFailure, InvalidArgument
from nnburst.hal.limits import DEFAULT_LOOP_TIMEOUT_NS

logger = logging.getLogger(__name__)


@answers(ExecuteFenced, Work.START)
def execute_fenced(session: ClientSession, call: ExecuteFenced, fds: Fds) -> Answer:
    """Start an execution that begins when fences have signalled."""
    called_ns = time.perf_counter_ns()
    with contextlib.ExitStack() as cleanup:
        model = cleanup.enter_context(session.objects.acquire(call.handle, PreparedModel)).target
        pools = adopt_request_pools(call.request.pools, fds, session.buffers)
        cleanup.callback(close_pools, pools)
        execution = model.bind(
            call.request,
            pools,
            allow_unspecified_output=False,
            attributes=attributes_of(call.hints),
        )
        cleanup.callback(execution.close)
        close_descriptors(pools)
        run = FencedRun(
            execution,
            model.counters,
            model.priority,
            call.measure,
            call.deadline_ns,
            call.duration_ns,
            cleanup.pop_all(),
            call.loop_timeout_ns,
        )
    return start_fenced(session, run, fds, call.request.memory_count, called_ns)


@answers(GetExecutionInfo)
def get_execution_info(session: ClientSession, call: GetExecutionInfo, _fds: Fds) -> Answer:
    """Answer with the outcome of a fenced execution."""
    with session.objects.acquire(call.handle, FencedExecution) as fenced:
        return fenced.target.info(), Fds()


class FencedRun(msgspec.Struct, frozen=True):
    """An execution that waits for its fences, with its limits.

    Attributes:
        execution: the bound execution; its outputs have known dimensions (device:F1).
        counters: the counters of its model; executions refused before their launch do not count.
        priority: the priority of its model.
        measure: whether its client wants its timing.
        deadline_ns: time on CLOCK_BOOTTIME.
        duration_ns: longest duration after the last fence.
        loop_timeout_ns: limit of a WHILE.
        cleanup: releases the execution and everything that it uses.
    """

    execution: Execution
    counters: ModelCounters
    priority: Priority
    measure: bool
    deadline_ns: int | None
    duration_ns: int | None
    cleanup: contextlib.ExitStack
    loop_timeout_ns: int = DEFAULT_LOOP_TIMEOUT_NS

    def cancel(self) -> None:
        """Release the execution, which will not run; its output buffers become uninitialised (device:§6)."""
        _note_failure(self.execution)
        self.cleanup.close()


def adopt_fences(fds: Fds, first: int) -> list[socket.socket]:
    """Adopt the fences of a call: its descriptors from `first` on; the caller closes them.

    Raises:
        InvalidArgument: device:F2, one is not a fence; device:F4, one is in the error state.
    """
    fences: list[socket.socket] = []
    try:
        for index in range(first, len(fds)):
            try:
                fences.append(adopt_fence(fds.take(index)))
            except InvalidArgument as error:
                raise InvalidArgument(f"device:F2: waitFor[{index - first}]: {error}") from error
        for number, fence in enumerate(fences):
            if fence_status(fence) == FenceStatus.ERROR:
                raise InvalidArgument(f"device:F4: waitFor[{number}] is in the error state")  # noqa: TRY301
    except BaseException:
        close_fences(fences)
        raise
    return fences


def close_fences(fences: Sequence[socket.socket]) -> None:
    """Close all fences."""
    for fence in fences:
        fence.close()


class FencedExecution:
    """The state and result of one fenced execution (IFencedExecutionCallback). Thread-safe.

    The execution runs to its end even if the client has released this object.
    """

    def __init__(self, session: ClientSession, run: FencedRun, called_ns: int) -> None:
        """Create the execution; `start` begins it.

        Args:
            session: the session of the client that calls.
            run: the execution with its limits.
            called_ns: the time of the call (perf_counter_ns).
        """
        self._session = session
        self._run = run
        self._called_ns = called_ns
        self._fenced_ns = called_ns
        self._deadline_ns = run.deadline_ns
        self._lock = threading.Lock()
        self._info: ExecutionInfo | None = None
        self._fence, self._signaller = create_fence()

    def start(self, fences: Sequence[socket.socket]) -> int:
        """Run when all `fences`, which this owns from here on, have signalled.

        Returns:
            The descriptor of the execution's own fence; the caller owns it.

        Raises:
            ResourceExhausted: too many executions are waiting; the caller must still call `cancel`.
        """
        self._counted = self._run.counters.execution(measure=self._run.measure)
        try:
            self._session.fences.wait(fences, self._run.deadline_ns, self._fences_done)
        except BaseException as error:
            self._counted.note_outcome(failure(error).status)
            raise
        return self._fence.detach()

    def cancel(self) -> None:
        """Release the execution, which will not run."""
        self._run.cancel()
        self._signaller.close()
        self._fence.close()

    def info(self) -> ExecutionInfo:
        """The outcome and the times of the execution (NNAPI: getExecutionInfo).

        Raises:
            GeneralFailure: device:F8: it is not complete.
        """
        with self._lock:
            if self._info is None:
                raise GeneralFailure("device:F8: the execution is not complete")
            return self._info

    def _fences_done(self, status: FenceStatus) -> None:
        self._fenced_ns = time.perf_counter_ns()
        if self._run.duration_ns is not None:
            now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
            ends = now + self._run.duration_ns
            self._deadline_ns = ends if self._deadline_ns is None else min(self._deadline_ns, ends)
        if status == FenceStatus.SIGNALLED:
            try:
                self._session.scheduler.submit(self._execute, self._run.priority)
            except Exception as error:
                outcome = outcome_of(error)
            else:
                return
        elif status == FenceStatus.ERROR:
            reason = "device:F4: a fence that was waited for is in the error state"
            outcome = Outcome(ErrorStatus.GENERAL_FAILURE, (), reason)
        else:
            reason = "device:F5: the fences have not signalled in time"
            outcome = Outcome(ErrorStatus.MISSED_DEADLINE_TRANSIENT, (), reason)
        _note_failure(self._run.execution)
        self._finish(outcome, 0)

    def _execute(self) -> None:
        run, started = self._run, time.perf_counter_ns()
        outcome = run_in_time(run.execution, self._deadline_ns, run.loop_timeout_ns)
        self._finish(outcome, time.perf_counter_ns() - started)

    def _finish(self, outcome: Outcome, took: int) -> None:
        """Release all memory, then signal the fence (device:F10)."""
        run = self._run
        try:
            run.cleanup.close()
        except Exception:
            logger.exception(
                "ending a fenced execution failed: what it held is kept until the worker ends"
            )
        own = outcome.device_ns
        self._counted.device_ns = took if own >= MEASURED else min(own, took)
        self._counted.note_outcome(outcome.status)
        info = ExecutionInfo(outcome.status, reason=outcome.message)
        if run.measure and outcome.status == ErrorStatus.NONE:
            now = time.perf_counter_ns()
            launched, fenced = (
                times_of(outcome, took, now - began) for began in (self._called_ns, self._fenced_ns)
            )
            info = ExecutionInfo(outcome.status, launched, fenced)
        with self._lock:
            self._info = info
        if outcome.status == ErrorStatus.NONE:
            self._signaller.signal()
        else:
            self._signaller.fail()

    def close(self) -> None:
        """Release the client's handle; the execution goes on, and signals its fence."""


def _note_failure(execution: Execution) -> None:
    """Mark the output buffers of a failed execution as uninitialised (device:§6)."""
    if isinstance(execution, BufferedExecution):
        execution.cancel()


def start_fenced(
    session: ClientSession, run: FencedRun, fds: Fds, first_fence: int, called_ns: int
) -> Answer:
    """Launch a bound execution; its fences are the descriptors from `first_fence` on.

    Raises:
        InvalidArgument: device:F2, F4.
        MissedDeadline: device:F3.
        ResourceExhausted: too many executions are waiting for fences, or objects are open.
    """
    try:
        fenced = FencedExecution(session, run, called_ns)
    except BaseException:
        run.cancel()
        raise
    try:
        fences = adopt_fences(fds, first_fence)
        try:
            check_deadline("F3", run.deadline_ns)
            handle = session.objects.add(fenced)
        except BaseException:
            close_fences(fences)
            raise
        try:
            fd = fenced.start(fences)
        except BaseException:
            session.objects.release(handle)
            raise
    except BaseException:
        fenced.cancel()
        raise
    return Fenced(handle), Fds([fd])


# -- Reusable executions, bound once and run often (IExecution) ------------------------------------


@answers(CreateReusableExecution, Work.START)
def create_reusable_execution(
    session: ModelSession, call: CreateReusableExecution, fds: Fds
) -> Answer:
    """Validate and bind a request once."""
    with contextlib.ExitStack() as cleanup:
        model = cleanup.enter_context(session.objects.acquire(call.handle, PreparedModel)).target
        pools = adopt_request_pools(call.request.pools, fds, session.buffers, session.shared_bytes)
        cleanup.callback(close_pools, pools)
        # The pools keep their mappings, so the request can be bound again without their descriptors.
        reusable = ReusableExecution(model, call, pools, session.idle)
        cleanup.callback(reusable.unbind)
        close_descriptors(pools)
        reusable.own(cleanup.pop_all())
    return Opened(session.objects.add(reusable)), Fds()


@answers(ExecuteReusable, Work.EXECUTION)
def execute_reusable(session: ClientSession, call: ExecuteReusable, _fds: Fds) -> Answer:
    """Execute once and answer with the outcome."""
    with session.objects.acquire(call.handle, ReusableExecution) as reusable:
        return reusable.target.run(call.deadline_ns), NO_FDS


@answers(ExecuteReusableFenced, Work.START)
def execute_reusable_fenced(
    session: ClientSession, call: ExecuteReusableFenced, fds: Fds
) -> Answer:
    """Start a run that begins when fences have signalled."""
    called_ns = time.perf_counter_ns()
    with contextlib.ExitStack() as cleanup:
        reusable = cleanup.enter_context(
            session.objects.acquire(call.handle, ReusableExecution)
        ).target
        if not reusable.fenced_too:
            raise InvalidArgument("device:F1: validation:R10: an output has open dimensions")
        with reusable.alone() as held:
            cleanup.push(held.pop_all())
        run = FencedRun(
            reusable.execution(),
            reusable.counters,
            reusable.priority,
            reusable.measure,
            call.deadline_ns,
            call.duration_ns,
            cleanup.pop_all(),
            reusable.loop_timeout_ns,
        )
    return start_fenced(session, run, fds, 0, called_ns)


class ReusableExecution:
    """A request that is bound once and run often (IExecution). One run at a time; a second one is refused.

    Its memory stays mapped between runs. After some seconds without runs, the executor's bound form is
    released, and the next run binds the request again (D21 in docs/features.md).

    NNAPI: IPreparedModel::createReusableExecution (AIDL v4; device:§5.4).

    Attributes:
        priority: the priority of its model.
        measure: whether runs are timed, in nanoseconds.
        loop_timeout_ns: limit of a WHILE.
        fenced_too: whether all outputs have known dimensions, so that fenced runs are possible (device:F1).
        counters: the counters of its model.
        latency: the latency of its runs.
    """

    def __init__(
        self,
        model: PreparedModel,
        call: CreateReusableExecution,
        pools: Sequence[RequestPool],
        watch: IdleWatch,
    ) -> None:
        """Bind a request, and add it to the watch that unbinds idle ones.

        Args:
            model: the model to execute.
            call: hostile until checked here.
            pools: the pools of the request.
            watch: unbinds the request when it is idle.

        Raises:
            NnburstError: see `PreparedModel.bind`.
        """
        self._bind = partial(model.bind, call.request, pools, attributes=attributes_of(call.hints))
        self._watch = watch
        self._cleanup = contextlib.ExitStack()
        self._lock = threading.Lock()  # of the three below
        self._busy = False
        self._used_ns = time.monotonic_ns()
        self._execution: Execution | None = self._bind()
        self.fenced_too = model.is_specified(call.request, pools)
        self.priority = model.priority
        self.counters = model.counters
        self.measure = call.measure
        self.loop_timeout_ns = call.loop_timeout_ns
        self.latency = LatencyEstimate()
        self._be_watched(self._execution)

    def own(self, cleanup: contextlib.ExitStack) -> None:
        """Own `cleanup`, which `close` closes."""
        self._cleanup = cleanup

    @contextlib.contextmanager
    def alone(self) -> Iterator[contextlib.ExitStack]:
        """Refuse other runs until this context ends, or, if its stack is moved elsewhere, until that closes.

        Raises:
            BurstBusy: a run is under way.
        """
        self._enter()
        with contextlib.ExitStack() as held:
            held.callback(self._leave)
            yield held

    def _enter(self) -> None:
        with self._lock:
            busy, self._busy = self._busy, True
        if busy:
            raise BurstBusy("the execution object is in use: one run at a time (device:§5.4)")

    def _leave(self) -> None:
        with self._lock:
            self._used_ns = time.monotonic_ns()
            self._busy = False

    def execution(self) -> Execution:
        """The bound request; only for a caller inside `alone`.

        Raises:
            NnburstError: it was unbound while it was idle, and cannot be bound again.
        """
        execution = self._execution
        if execution is None:
            execution = self._execution = self._bind()
            self._be_watched(execution)
        return execution

    def _be_watched(self, execution: Execution) -> None:
        if execution.keeps_memory:
            self._watch.add(self)

    def run(self, deadline_ns: int | None, loop_timeout_ns: int | None = None) -> Executed:
        """Execute once (NNAPI: IExecution::executeSynchronously); timing in nanoseconds.

        Args:
            deadline_ns: time on CLOCK_BOOTTIME.
            loop_timeout_ns: limit of a WHILE; the object's own limit unless given.

        Raises:
            BurstBusy: a run is under way.
            NnburstError: with the status for the client (device:E4, E7 to E9).
        """
        called = time.perf_counter_ns() if self.measure else None
        loops_ns = self.loop_timeout_ns if loop_timeout_ns is None else loop_timeout_ns
        with self.counters.execution(measure=self.measure) as counted:
            self._enter()
            try:
                return execute_bound(
                    self.execution(), counted, called, deadline_ns, loops_ns, unit_ns=1
                )
            finally:
                self._leave()

    def idles_at_ns(self) -> int:
        """The time (time.monotonic_ns) at which it may be unbound if no run comes until then."""
        with self._lock:
            return (time.monotonic_ns() if self._busy else self._used_ns) + IDLE_NS

    def unbind_if_idle(self) -> bool:
        """Unbind the request if it was idle for long; returns whether it is unbound now."""
        with self._lock:
            if self._busy or time.monotonic_ns() < self._used_ns + IDLE_NS:
                return False
            self._unbind()
        return True

    def unbind(self) -> None:
        """Release the executor's bound form. No run may be under way."""
        self._watch.release(self)
        with self._lock:  # the watch may be closing it
            self._unbind()

    def _unbind(self) -> None:
        execution, self._execution = self._execution, None
        if execution is not None:
            execution.close()

    def close(self) -> None:
        """Release the memory. No run may be under way."""
        self._cleanup.close()
