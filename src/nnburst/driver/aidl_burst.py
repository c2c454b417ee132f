"""Serves AIDL's bursts (IBurst): executions over the control channel whose memory has numbers (burst:§12).

A request brings its pools and a number for each. If a number is known, the pool that first came with it is
used, and the one that was sent now is ignored; so mappings are made once.

DEVIATES: a pool whose number is known may come without its descriptor, which saves sending it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

from nnburst.control.channel import Fds
from nnburst.control.messages import BurstExecute, Executed
from nnburst.driver.model.buffers import BufferTracker
from nnburst.driver.model.execution import LatencyEstimate, attributes_of, execute_bound
from nnburst.driver.model.pools import BufferPool, Pool, RequestPool, close_pools
from nnburst.driver.model.prepared_model import PreparedModel
from nnburst.executor.base import Execution
from nnburst.fmq.shared_memory import SharedMemory
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.errors import GeneralFailure, InvalidArgument, ResourceExhausted
from nnburst.hal.model import BufferToken, MemoryPool

#: Numbers that one burst remembers; each costs a descriptor.
MAX_IDENTIFIERS: Final = 256


class AidlBurst:
    """One execution at a time; a second one is GENERAL_FAILURE. `release` comes from any thread.

    Attributes:
        priority: of its model.
        latency: of its executions.
    """

    def __init__(self, model: PreparedModel, buffers: BufferTracker, cleanup: ExitStack) -> None:
        """Execute `model`; `cleanup` lets go of it."""
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
            fds: of the pools that come with one.

        Raises:
            GeneralFailure: an execution is under way.
            InvalidArgument: the numbers do not fit the pools, or one is not known and comes without
                memory; or the request is not valid for the model.
            ResourceExhausted: more numbers than a burst remembers.
            NnburstError: with the status that the client shall see (device:E2 to E9).
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
        """Forget a number; -1 and unknown ones are fine (NNAPI: releaseMemoryResource).

        An execution under way keeps the mapping as long as it needs it.
        """
        with self._lock:
            pool = self._known.pop(identifier, None)
            if pool is not None:
                pool.close()

    def close(self) -> None:
        """Forget all. No execution is under way."""
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
        """The pools of a request; new ones are remembered only if all are fine."""
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
                brought = _take(pool, fds, taken) if pool.fd_index >= 0 else None
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


def _take(pool: MemoryPool, fds: Fds, index: int) -> Pool:
    if pool.fd_index != index:
        raise InvalidArgument(f"fd_index is {pool.fd_index}, expected {index}")
    return Pool(SharedMemory.adopt(fds.take(index), pool.size), pool.size)


def _choose(
    known: Pool | None,
    brought: Pool | None,
    identifier: int,
    new: dict[int, Pool],
    passing: list[RequestPool],
) -> Pool:
    """The pool to use: a remembered one before the one that was sent."""
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
