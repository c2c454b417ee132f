"""IPreparedModel::createReusableExecution and IExecution."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence

from nnburst.control.channel import NO_FDS, Fds
from nnburst.control.messages.reusable_execution import (
    CreateReusableExecution,
    ExecuteReusable,
    ExecuteReusableFenced,
)
from nnburst.control.messages.session import Opened
from nnburst.control.service import Answer
from nnburst.driver.calls.fenced_execution import FencedRun, start_fenced
from nnburst.driver.calls.handlers.registry import answers
from nnburst.driver.model.bound_execution import ReusableExecution
from nnburst.driver.model.pools import Pool, RequestPool, adopt_request_pools, close_pools
from nnburst.driver.model.prepared_model import PreparedModel
from nnburst.driver.session.client_session import ClientSession
from nnburst.driver.session.scheduler import Work
from nnburst.hal.errors import InvalidArgument
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
        execution = model.bind(call.request, pools)
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


def _is_specified(model: PreparedModel, request: Request, pools: Sequence[RequestPool]) -> bool:
    """Whether a valid request leaves no dimension of an output open (validation:R10)."""
    strict = RequestValidator(model.model, allow_unspecified_output=False)
    try:
        strict.validate(request, [pool.size for pool in pools])
    except InvalidArgument:
        return False
    return True
