"""IPreparedModel::executeFenced and IFencedExecutionCallback."""

from __future__ import annotations

import contextlib
import time

from nnburst.control.channel import Fds
from nnburst.control.messages.fenced_execution import ExecuteFenced, GetExecutionInfo
from nnburst.control.service import Answer
from nnburst.driver.calls.fenced_execution import FencedExecution, FencedRun, start_fenced
from nnburst.driver.calls.handlers.registry import answers
from nnburst.driver.model.pools import Pool, adopt_request_pools, close_pools
from nnburst.driver.model.prepared_model import PreparedModel
from nnburst.driver.session.client_session import ClientSession
from nnburst.driver.session.scheduler import Work


@answers(ExecuteFenced, Work.START)
def execute_fenced(session: ClientSession, call: ExecuteFenced, fds: Fds) -> Answer:
    """Start an execution that begins when fences have signalled."""
    called_ns = time.perf_counter_ns()
    with contextlib.ExitStack() as cleanup:
        model = cleanup.enter_context(session.objects.acquire(call.handle, PreparedModel)).target
        pools = adopt_request_pools(call.request.pools, fds, session.buffers)
        cleanup.callback(close_pools, pools)
        execution = model.bind(call.request, pools, allow_unspecified_output=False)
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
