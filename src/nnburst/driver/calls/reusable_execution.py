"""IPreparedModel::createReusableExecution and IExecution: a request that was bound once."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence

from nnburst.control.channel import NO_FDS, Fds
from nnburst.control.messages.prepared_model import Executed
from nnburst.control.messages.reusable_execution import (
    CreateReusableExecution,
    ExecuteReusable,
    ExecuteReusableFenced,
)
from nnburst.control.messages.session import Opened
from nnburst.control.service import Answer
from nnburst.driver.calls.fenced_execution import FencedRun, start_fenced
from nnburst.driver.calls.registry import answers
from nnburst.driver.counting.model_counters import ModelCounters
from nnburst.driver.model.bound_execution import execute_bound
from nnburst.driver.model.hints import attributes_of
from nnburst.driver.model.pace import Pace
from nnburst.driver.model.pools import Pool, RequestPool, adopt_request_pools, close_pools
from nnburst.driver.model.prepared_model import PreparedModel
from nnburst.driver.session.client_session import ClientSession
from nnburst.driver.session.scheduler import Work
from nnburst.executor.base import Execution
from nnburst.hal.enums import Priority
from nnburst.hal.errors import BurstBusy, InvalidArgument
from nnburst.hal.request import Request
from nnburst.hal.validation import RequestValidator


@answers(CreateReusableExecution, Work.START)
def create_reusable_execution(
    session: ClientSession, call: CreateReusableExecution, fds: Fds
) -> Answer:
    """Validate and bind a request once."""
    with contextlib.ExitStack() as cleanup:
        model = cleanup.enter_context(session.objects.acquire(call.handle, PreparedModel)).target
        pools = adopt_request_pools(call.request.pools, fds, session.buffers)
        cleanup.callback(close_pools, pools)
        execution = model.bind(call.request, pools, attributes=attributes_of(call.hints))
        fenced_too = _is_specified(model, call.request, pools)
        cleanup.callback(execution.close)
        close_pools([pool for pool in pools if isinstance(pool, Pool)])  # the mappings stay
        reusable = ReusableExecution(
            execution,
            call,
            model.priority,
            model.counters,
            cleanup.pop_all(),
            fenced_too=fenced_too,
        )
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
            reusable.execution,
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
    """IExecution: one run at a time; a second one is refused. Mappings are kept from run to run.

    NNAPI: IPreparedModel::createReusableExecution (AIDL v4; device:§5.4).

    Attributes:
        execution: bound.
        priority: of its model.
        measure: whether runs are timed, in nanoseconds.
        loop_timeout_ns: limit of a WHILE.
        fenced_too: no output has unknown dimensions, so that it can be fenced (device:F1).
        counters: of its model.
        pace: of its runs.
    """

    def __init__(
        self,
        execution: Execution,
        call: CreateReusableExecution,
        priority: Priority,
        counters: ModelCounters,
        cleanup: contextlib.ExitStack,
        *,
        fenced_too: bool,
    ) -> None:
        """Own what `cleanup` lets go of."""
        self.fenced_too = fenced_too
        self.execution = execution
        self.priority = priority
        self.counters = counters
        self.measure = call.measure
        self.loop_timeout_ns = call.loop_timeout_ns
        self._cleanup = cleanup
        self.pace = Pace()
        self._busy = threading.Lock()

    @contextlib.contextmanager
    def alone(self) -> Iterator[contextlib.ExitStack]:
        """Keep other runs out; what is left on the stack does so for longer.

        Raises:
            BurstBusy: a run is under way.
        """
        self._enter()
        with contextlib.ExitStack() as held:
            held.callback(self._busy.release)
            yield held

    def _enter(self) -> None:
        if not self._busy.acquire(blocking=False):
            raise BurstBusy("the execution object is in use: one run at a time (device:§5.4)")

    def run(self, deadline_ns: int | None) -> Executed:
        """Execute once (NNAPI: IExecution::executeSynchronously); timing in nanoseconds.

        Raises:
            BurstBusy: a run is under way.
            NnburstError: with the status that the client shall see (device:E4, E7 to E9).
        """
        called = time.perf_counter_ns() if self.measure else None
        with self.counters.execution(measure=self.measure) as counted:
            self._enter()
            try:
                return execute_bound(
                    self.execution, counted, called, deadline_ns, self.loop_timeout_ns, unit_ns=1
                )
            finally:
                self._busy.release()

    def close(self) -> None:
        """Let go of the memory. No run is under way."""
        self._cleanup.close()


def _is_specified(model: PreparedModel, request: Request, pools: Sequence[RequestPool]) -> bool:
    """Whether a valid request leaves no dimension of an output open (validation:R10)."""
    strict = RequestValidator(model.model, allow_unspecified_output=False)
    try:
        strict.validate(request, [pool.size for pool in pools])
    except InvalidArgument:
        return False
    return True
