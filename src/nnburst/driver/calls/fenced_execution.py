"""executeFenced: a bound request that runs when its sync fences have signalled, and signals its own.

    fences ─► FenceWaiter ─► scheduler ─► run ─► memory is let go ─► information is there ─► signal

NNAPI: IPreparedModel::executeFenced, IExecution::executeFenced, IFencedExecutionCallback (device:F1 to F10).
DEVIATES: the sample waits and runs before it answers; here the answer comes at once.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Sequence

import msgspec

from nnburst.control.channel import Fds
from nnburst.control.fences import FenceStatus, adopt_fence, create_fence, fence_status
from nnburst.control.messages.fenced_execution import (
    ExecuteFenced,
    ExecutionInfo,
    Fenced,
    GetExecutionInfo,
)
from nnburst.control.service import Answer, failure
from nnburst.driver.calls.checks import check_deadline
from nnburst.driver.calls.registry import answers
from nnburst.driver.counting.model_counters import ModelCounters
from nnburst.driver.model.bound_execution import run_in_time
from nnburst.driver.model.buffered_execution import BufferedExecution
from nnburst.driver.model.hints import attributes_of
from nnburst.driver.model.pools import Pool, adopt_request_pools, close_pools
from nnburst.driver.model.prepared_model import PreparedModel
from nnburst.driver.session.client_session import ClientSession
from nnburst.driver.session.scheduler import Work
from nnburst.executor.base import Execution, Outcome
from nnburst.hal.enums import ErrorStatus, Priority
from nnburst.hal.errors import GeneralFailure, InvalidArgument, MissedDeadline
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
        # What is mapped stays so; many executions may wait, and descriptors are few.
        close_pools([pool for pool in pools if isinstance(pool, Pool)])
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
    """How a fenced execution went."""
    with session.objects.acquire(call.handle, FencedExecution) as fenced:
        return fenced.target.info(), Fds()


class FencedRun(msgspec.Struct, frozen=True):
    """What is to run.

    Attributes:
        execution: bound; outputs have known dimensions (device:F1).
        counters: of its model; what is refused before it is launched does not count.
        priority: of its model.
        measure: whether its client asks how long it takes.
        deadline_ns: on CLOCK_BOOTTIME.
        duration_ns: how long it may take from the last fence on.
        loop_timeout_ns: limit of a WHILE.
        cleanup: lets go of the execution and everything that it uses.
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
        """It will not run: buffers that it was to write hold nothing any more (device:§6)."""
        _note_failure(self.execution)
        self.cleanup.close()


def adopt_fences(fds: Fds, first: int) -> list[socket.socket]:
    """The fences of a call, which are its descriptors from `first` on; the caller closes them.

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
    """Close each."""
    for fence in fences:
        fence.close()


class FencedExecution:
    """IFencedExecutionCallback: what is known of one such execution. Thread-safe.

    It runs to its end also when this is not held any more.
    """

    def __init__(self, session: ClientSession, run: FencedRun, called_ns: int) -> None:
        """Not begun yet: use `start`.

        Args:
            session: whose call it is.
            run: what is to run.
            called_ns: when the call came (perf_counter_ns).
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
        """Run when all `fences`, which are its own from here on, have signalled.

        Returns:
            The descriptor of the execution's own fence, which is the caller's.

        Raises:
            ResourceExhausted: too many are waiting; `cancel` is still to be called.
        """
        self._counted = self._run.counters.execution(measure=self._run.measure)
        try:
            self._session.fences.wait(fences, self._run.deadline_ns, self._fences_done)
        except BaseException as error:
            self._counted.note_outcome(failure(error).status)
            raise
        return self._fence.detach()

    def cancel(self) -> None:
        """It will not run."""
        self._run.cancel()
        self._signaller.close()
        self._fence.close()

    def info(self) -> ExecutionInfo:
        """How it went (NNAPI: getExecutionInfo).

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
        try:
            if status == FenceStatus.ERROR:
                raise GeneralFailure("device:F4: a fence that was waited for is in the error state")  # noqa: TRY301
            if status == FenceStatus.ACTIVE:
                raise MissedDeadline("device:F5: the fences have not signalled in time")  # noqa: TRY301
            self._session.scheduler.submit(self._execute, self._run.priority)
        except Exception as error:
            _note_failure(self._run.execution)
            reply = failure(error)
            self._finish(Outcome(reply.status, (), reply.message), 0)

    def _execute(self) -> None:
        run, started = self._run, time.perf_counter_ns()
        try:
            outcome = run_in_time(run.execution, self._deadline_ns, run.loop_timeout_ns)
        except Exception as error:
            reply = failure(error)
            outcome = Outcome(reply.status, (), reply.message)
        self._finish(outcome, time.perf_counter_ns() - started)

    def _finish(self, outcome: Outcome, device_ns: int) -> None:
        """Let go of all memory, then notify (device:F10)."""
        run = self._run
        try:
            run.cleanup.close()
        except Exception:
            logger.exception(
                "ending a fenced execution failed: what it held is kept until the worker ends"
            )
        self._counted.device_ns = device_ns
        self._counted.note_outcome(outcome.status)
        info = ExecutionInfo(outcome.status, reason=outcome.message)
        if run.measure and outcome.status == ErrorStatus.NONE:
            now = time.perf_counter_ns()
            launched, fenced = now - self._called_ns, now - self._fenced_ns
            info = ExecutionInfo(outcome.status, (device_ns, launched), (device_ns, fenced))
        with self._lock:
            self._info = info
        if outcome.status == ErrorStatus.NONE:
            self._signaller.signal()
        else:
            self._signaller.fail()

    def close(self) -> None:
        """It will not be asked any more. It goes on, and signals."""


def _note_failure(execution: Execution) -> None:
    """Buffers that it was to write hold nothing any more (device:§6)."""
    if isinstance(execution, BufferedExecution):
        execution.cancel()


def start_fenced(
    session: ClientSession, run: FencedRun, fds: Fds, first_fence: int, called_ns: int
) -> Answer:
    """Launch what is bound; its fences are the descriptors from `first_fence` on.

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
