"""Executes, opens bursts (IPreparedModel, IBurstContext), and serves AIDL's bursts (IBurst).

An AIDL burst executes over the control channel, and numbers name its memory (burst:§12). A request has its
pools and a number for each. If a number is known already, the pool that came with it first is used, and the
pool in this request is ignored; so each pool is mapped once.

DEVIATES: a pool whose number is known may be sent without its descriptor.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import ClassVar, Final

from nnburst.control.channel import MAX_BURSTS, Fds
from nnburst.control.messages import (
    BurstClosed,
    BurstExecute,
    Execute,
    Executed,
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
from nnburst.driver.burst import BurstClient, BurstContext, get_memories, start_burst
from nnburst.driver.calls.registry import answers, naming
from nnburst.driver.client_session import ClientSession, start_async_call
from nnburst.driver.model.buffers import BufferTracker
from nnburst.driver.model.execution import LatencyEstimate, attributes_of, execute_bound
from nnburst.driver.model.pools import (
    BufferPool,
    Pool,
    RequestPool,
    adopt_pool,
    adopt_request_pools,
    close_descriptors,
    close_pools,
)
from nnburst.driver.model.prepared_model import PreparedModel
from nnburst.driver.scheduler import Work
from nnburst.executor.base import Execution
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.errors import GeneralFailure, InvalidArgument, ResourceExhausted
from nnburst.hal.model import BufferToken, MemoryPool
from nnburst.hal.validation.values import validate_duration

#: Most numbers that one burst remembers; each needs a descriptor.
MAX_IDENTIFIERS: Final = 256


class AidlBurst:
    """An AIDL burst. One execution at a time; a second one is GENERAL_FAILURE. Any thread may call `release`.

    Attributes:
        priority: the priority of its model.
        latency: the latency of its executions.
    """

    def __init__(self, model: PreparedModel, buffers: BufferTracker, cleanup: ExitStack) -> None:
        """Execute `model`, which `cleanup` releases."""
        self.priority = model.priority
        self._model = model
        self._buffers = buffers
        self._cleanup = cleanup
        self.latency = LatencyEstimate()
        self._busy = threading.Lock()
        self._lock = threading.Lock()  # held while pools are looked up and bound
        self._known: dict[int, Pool] = {}

    def execute(self, call: BurstExecute, fds: Fds) -> Executed:
        """Execute once (NNAPI: IBurst::executeSynchronously); timing in nanoseconds.

        Args:
            call: hostile until checked here.
            fds: the descriptors of the pools that are sent with one.

        Raises:
            GeneralFailure: an execution is under way.
            InvalidArgument: the numbers do not fit the pools, an unknown number comes without memory, or the
                request is not valid for the model.
            ResourceExhausted: there are more numbers than a burst remembers.
            NnburstError: with the status for the client (device:E2 to E9).
        """
        called = time.perf_counter_ns()
        if not self._busy.acquire(blocking=False):
            raise GeneralFailure("the burst has an execution in flight already (burst:§12)")
        try:
            with (
                self._model.counters.execution(measure=call.measure) as counted,
                ExitStack() as cleanup,
            ):
                execution = self._bind(call, fds, cleanup)
                return execute_bound(
                    execution,
                    counted,
                    called if call.measure else None,
                    call.deadline_ns,
                    call.loop_timeout_ns,
                    unit_ns=1,
                )
        finally:
            self._busy.release()

    def release(self, identifier: int) -> None:
        """Forget a number; -1 and unknown numbers are ignored (NNAPI: releaseMemoryResource).

        An execution under way keeps the mapping until it ends.
        """
        with self._lock:
            pool = self._known.pop(identifier, None)
            if pool is not None:
                pool.close()

    def close(self) -> None:
        """Forget all numbers. No execution may be under way."""
        with self._lock:
            close_pools(list(self._known.values()))
            self._known.clear()
        self._cleanup.close()

    def _bind(self, call: BurstExecute, fds: Fds, cleanup: ExitStack) -> Execution:
        with self._lock:
            passing: list[RequestPool] = []  # those that are not remembered
            cleanup.callback(close_pools, passing)
            pools = self._resolve(
                call.request.pools, call.memory_identifiers, fds, passing, cleanup
            )
            execution = self._model.bind(call.request, pools, attributes=attributes_of(call.hints))
            cleanup.callback(execution.close)
            return execution

    def _resolve(
        self,
        described: Sequence[MemoryPool | BufferToken],
        identifiers: Sequence[int],
        fds: Fds,
        passing: list[RequestPool],
        cleanup: ExitStack,
    ) -> list[RequestPool]:
        """Find or adopt the pools of a request; new ones are remembered only if all are valid."""
        if len(identifiers) != len(described):
            raise InvalidArgument(
                f"memory_identifiers: {len(identifiers)} for {len(described)} pools"
            )
        new: dict[int, Pool] = {}
        unfinished = cleanup.enter_context(ExitStack())
        unfinished.callback(lambda: close_pools(list(new.values())))
        pools: list[RequestPool] = []
        taken = 0
        for index, (pool, identifier) in enumerate(zip(described, identifiers, strict=True)):
            try:
                if isinstance(pool, BufferToken):
                    passing.append(BufferPool(self._buffers.acquire(pool.token)))
                    pools.append(passing[-1])
                    continue
                known = self._known.get(identifier) or new.get(identifier)
                brought = adopt_pool(pool, fds, taken) if pool.fd_index >= 0 else None
                taken += brought is not None
                pools.append(_choose(known, brought, identifier, new, passing))
            except InvalidArgument as error:
                raise InvalidArgument(f"validation:R2: pools[{index}]: {error}") from error
        if len(self._known) + len(new) > MAX_IDENTIFIERS:
            raise ResourceExhausted(
                f"a burst remembers {MAX_IDENTIFIERS} memory identifiers",
                status=ErrorStatus.RESOURCE_EXHAUSTED_PERSISTENT,
            )
        unfinished.pop_all()
        self._known.update(new)
        return pools


def _choose(
    known: Pool | None,
    brought: Pool | None,
    identifier: int,
    new: dict[int, Pool],
    passing: list[RequestPool],
) -> Pool:
    """Choose the pool to use: the remembered one, else the one that was sent."""
    if known is not None:
        if brought is not None:
            brought.close()
        return known
    if brought is None:
        raise InvalidArgument(
            f"memory identifier {identifier} is not known, and no memory was sent with it"
        )
    if identifier >= 0:
        new[identifier] = brought
    else:
        passing.append(brought)
    return brought


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
    """A bound request that waits for its turn.

    Attributes:
        priority: the priority of its model.
    """

    def __init__(self, session: ClientSession, call: Execute, fds: Fds) -> None:
        """Check a request and bind it to its memory.

        Args:
            session: the session of the client that calls.
            call: hostile until checked here.
            fds: the request's pools.

        Raises:
            InvalidArgument: the request is not valid for the model (device:E2), its deadline or loop timeout
                is invalid (device:E3), or a buffer was not allocated for its use (device:E6).
            GeneralFailure: device:E5: a pool cannot be mapped.
            NnburstError: the executor cannot bind it.
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
            close_descriptors(pools)
            self.priority = model.target.priority
            self._cleanup = cleanup.pop_all()

    def run(self) -> NotifyExecuted:
        """Execute, and return the notification of success.

        Raises:
            NnburstError: with the status for the client (device:E4, E7 to E9).
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
        """Release the request, which will not run."""
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
    """Forget a slot, and answer after that."""
    with session.objects.acquire(call.handle, _OpenBurst) as burst:
        burst.target.context.free_memory(call.slot)
    return nothing()


class _OpenBurst:
    """A burst; it keeps its prepared model until its thread ends, even if the client releases the model."""

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
