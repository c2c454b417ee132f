"""IPreparedModel: executions over the socket, waited for by their callers or notified of."""

from __future__ import annotations

import contextlib
import time

from nnburst.control.channel import Fds
from nnburst.control.messages.prepared_model import Execute, ExecuteSynchronously, NotifyExecuted
from nnburst.control.protocol import Reply
from nnburst.control.service import Answer
from nnburst.driver.calls.checks import naming
from nnburst.driver.calls.registry import answers
from nnburst.driver.model.bound_execution import execute_bound
from nnburst.driver.model.hints import attributes_of
from nnburst.driver.model.pools import Pool, adopt_request_pools, close_pools
from nnburst.driver.model.prepared_model import PreparedModel
from nnburst.driver.session.client_session import ClientSession
from nnburst.driver.session.outbox import start_async_call
from nnburst.driver.session.scheduler import Work
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.validation.values import validate_duration


@answers(ExecuteSynchronously, Work.EXECUTION)
def execute_synchronously(session: ClientSession, call: ExecuteSynchronously, fds: Fds) -> Answer:
    """Execute once and answer with the outcome."""
    pools = adopt_request_pools(call.request.pools, fds, session.buffers)
    try:
        with session.objects.acquire(call.handle, PreparedModel) as model:
            executed = model.target.execute_synchronously(
                call.request,
                pools,
                measure=call.measure,
                deadline_ns=call.deadline_ns,
                loop_timeout_ns=call.loop_timeout_ns,
                attributes=attributes_of(call.hints),
            )
    finally:
        close_pools(pools)
    return executed, Fds()


@answers(Execute, Work.START)
def execute(session: ClientSession, call: Execute, fds: Fds) -> Answer:
    """Start an execution; `NotifyExecuted` reports the outcome."""
    if not call.callback:
        raise InvalidArgument("device:E1: callback: missing")

    def failed(reply: Reply) -> NotifyExecuted:
        return NotifyExecuted(call.callback, reply.status, reply.message, reply.output_shapes)

    def check() -> AsyncExecution:
        return AsyncExecution(session, call, fds)

    return start_async_call(session.outbox, session.scheduler, Work.EXECUTION, check, failed)


class AsyncExecution:
    """A request that is bound and waits for its turn.

    Attributes:
        priority: its model's.
    """

    def __init__(self, session: ClientSession, call: Execute, fds: Fds) -> None:
        """Check a request and bind it to its memory.

        Args:
            session: whose call it is.
            call: hostile until checked here.
            fds: the request's pools.

        Raises:
            InvalidArgument: the request is not valid for the model (device:E2), its deadline or loop timeout
                makes no sense (device:E3), or a buffer was not allocated for its use (device:E6).
            GeneralFailure: device:E5: a pool cannot be mapped.
            NnburstError: the executor's reason not to bind it.
        """
        self._called = time.perf_counter_ns()
        self._call = call
        with contextlib.ExitStack() as cleanup:
            with naming("E2"):
                model = cleanup.enter_context(session.objects.acquire(call.handle, PreparedModel))
                pools = adopt_request_pools(call.request.pools, fds, session.buffers)
                cleanup.callback(close_pools, pools)
                self._counted = cleanup.enter_context(
                    model.target.counters.execution(measure=call.measure)
                )
            with naming("E3"):
                validate_duration("deadline", call.deadline_ns)
                validate_duration("loop timeout", call.loop_timeout_ns)
            with naming("E2"):
                self._execution = model.target.bind(
                    call.request, pools, attributes=attributes_of(call.hints)
                )
            cleanup.callback(self._execution.close)
            # What is mapped stays so; many executions may wait, and descriptors are few.
            close_pools([pool for pool in pools if isinstance(pool, Pool)])
            self.priority = model.target.priority
            self._cleanup = cleanup.pop_all()

    def run(self) -> NotifyExecuted:
        """Execute; the notification of success.

        Raises:
            NnburstError: with the status that the client shall see (device:E4, E7 to E9).
        """
        call = self._call
        with self._cleanup:
            executed = execute_bound(
                self._execution,
                self._counted,
                self._called if call.measure else None,
                call.deadline_ns,
                call.loop_timeout_ns,
            )
        return NotifyExecuted(
            call.callback,
            ErrorStatus.NONE,
            output_shapes=executed.output_shapes,
            timing=executed.timing,
        )

    def cancel(self) -> None:
        """It will not run."""
        self._cleanup.close()
