"""IPreparedModel: executions over the socket."""

from __future__ import annotations

from nnburst.control.channel import Fds
from nnburst.control.messages.prepared_model import Execute, ExecuteSynchronously, NotifyExecuted
from nnburst.control.protocol import Reply
from nnburst.control.service import Answer
from nnburst.driver.calls.async_call import start
from nnburst.driver.calls.async_execution import AsyncExecution
from nnburst.driver.calls.handlers.registry import answers
from nnburst.driver.model.pools import adopt_request_pools, close_pools
from nnburst.driver.model.prepared_model import PreparedModel
from nnburst.driver.session.client_session import ClientSession
from nnburst.driver.session.scheduler import Work
from nnburst.hal.errors import InvalidArgument


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

    return start(session, Work.EXECUTION, lambda: AsyncExecution(session, call, fds), failed)
