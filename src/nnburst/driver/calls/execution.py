"""Answers calls that execute or open a burst (IPreparedModel, IBurstContext, IBurst)."""

from __future__ import annotations

import contextlib
import time
from contextlib import ExitStack
from functools import partial
from typing import ClassVar

from nnburst.control.channel import MAX_BURSTS, Fds
from nnburst.control.messages import (
    BurstClosed,
    BurstExecute,
    Execute,
    ExecuteSynchronously,
    FreeMemory,
    NotifyExecuted,
    OpenAidlBurst,
    OpenBurst,
    Opened,
    ReleaseMemoryResource,
    Reply,
)
from nnburst.control.service import Answer, nothing
from nnburst.driver.aidl_burst import AidlBurst
from nnburst.driver.burst import BurstClient, BurstContext, get_memories, start_burst
from nnburst.driver.calls.registry import answers, naming
from nnburst.driver.client_session import ClientSession
from nnburst.driver.model.execution import attributes_of, execute_bound
from nnburst.driver.model.pools import Pool, adopt_request_pools, close_pools
from nnburst.driver.model.prepared_model import PreparedModel
from nnburst.driver.outbox import start_async_call
from nnburst.driver.scheduler import Work
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
            # Mappings stay without their descriptors; many executions may wait, and descriptors are few.
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


@answers(OpenBurst)
def open_burst(session: ClientSession, call: OpenBurst, fds: Fds) -> Answer:
    """Open a burst on a prepared model."""
    ticket = session.outbox.ticket()

    def closed(reason: str) -> None:
        ticket.post(BurstClosed(call.callback, reason))

    try:
        model = session.objects.acquire(call.handle, PreparedModel)
    except BaseException:
        ticket.cancel()
        raise

    def released() -> None:
        model.close()
        ticket.cancel()

    try:
        ask = partial(get_memories, session.upcalls, call.callback)
        client = BurstClient(ask, closed, released)
        context = start_burst(model.target, call, fds, client)
    except BaseException:
        released()
        raise
    return Opened(session.objects.add(_OpenBurst(context)), context.reply), Fds()


@answers(FreeMemory)
def free_memory(session: ClientSession, call: FreeMemory, _fds: Fds) -> Answer:
    """Forget a slot; answered when it is forgotten."""
    with session.objects.acquire(call.handle, _OpenBurst) as burst:
        burst.target.context.free_memory(call.slot)
    return nothing()


class _OpenBurst:
    """A burst; it holds its prepared model, which may be released before it, until its thread ends."""

    per_client: ClassVar = MAX_BURSTS

    def __init__(self, context: BurstContext) -> None:
        self.context = context

    def close(self) -> None:
        self.context.close()


@answers(OpenAidlBurst)
def open_aidl_burst(session: ClientSession, call: OpenAidlBurst, _fds: Fds) -> Answer:
    """Open a burst on a prepared model."""
    with ExitStack() as cleanup:
        model = cleanup.enter_context(session.objects.acquire(call.handle, PreparedModel)).target
        burst = AidlBurst(model, session.buffers, cleanup.pop_all())
    return Opened(session.objects.add(burst)), Fds()


@answers(BurstExecute, Work.EXECUTION)
def burst_execute(session: ClientSession, call: BurstExecute, fds: Fds) -> Answer:
    """Execute once and answer with the outcome."""
    with session.objects.acquire(call.handle, AidlBurst) as burst:
        return burst.target.execute(call, fds), Fds()


@answers(ReleaseMemoryResource)
def release_memory_resource(
    session: ClientSession, call: ReleaseMemoryResource, _fds: Fds
) -> Answer:
    """Forget a memory identifier."""
    with session.objects.acquire(call.handle, AidlBurst) as burst:
        burst.target.release(call.memory_identifier)
    return nothing()
