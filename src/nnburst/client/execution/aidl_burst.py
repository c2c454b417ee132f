"""Executes by AIDL's burst over the socket, and makes results with timing in nanoseconds.

It carries what HIDL's burst over message queues cannot: deadlines, buffers, timing in nanoseconds.
"""

from __future__ import annotations

import itertools
import time
import weakref
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from nnburst.client.arguments import (
    Array,
    ExecutionResult,
    boottime_deadline_ns,
    check_timeout,
    time_left,
)
from nnburst.client.execution.buffer import Buffer
from nnburst.client.execution.prepared import Prepared
from nnburst.client.execution.socket_request import SocketArguments, SocketRequest, run_placed
from nnburst.client.memory import Memory
from nnburst.client.session.gate import Gate, entries, leave
from nnburst.compat.timing import to_hal
from nnburst.control.channel import Fds
from nnburst.control.connection import Connection, RemoteObject
from nnburst.control.messages import (
    BurstExecute,
    Executed,
    Nothing,
    OpenAidlBurst,
    Opened,
    ReleaseMemoryResource,
)
from nnburst.hal.enums import FeatureLevel
from nnburst.hal.errors import Closed, InvalidArgument
from nnburst.hal.extensions import ExtensionAttribute, Hints
from nnburst.hal.limits import NO_TIMING
from nnburst.hal.model import BufferToken, MemoryPool
from nnburst.hal.types import ExecutionTiming, OutputShape, Request, Timing
from nnburst.hal.utils import Closing, weakly

_NOT_MEASURED: Final = Timing()
_NO_NANOSECONDS: Final = ExecutionTiming(None, None)


def precise(device: int, driver: int) -> ExecutionTiming:
    """A timing in nanoseconds from a message's fields; 2**64 - 1 means unknown."""
    both = (None if value == NO_TIMING else value for value in (device, driver))
    return ExecutionTiming(*both)


def rounded(timing: ExecutionTiming) -> Timing:
    """Convert a timing to HIDL's microseconds."""
    hidl = to_hal(timing, FeatureLevel.V1_3)
    return hidl if isinstance(hidl, Timing) else Timing()


def with_timing(
    outputs: list[Any], shapes: tuple[OutputShape, ...], timing: Timing
) -> ExecutionResult:
    """Make a result from a timing in nanoseconds; it has both units."""
    if timing == _NOT_MEASURED:
        return ExecutionResult(outputs, shapes, _NOT_MEASURED, _NO_NANOSECONDS)
    nanoseconds = precise(timing.time_on_device, timing.time_in_driver)
    return ExecutionResult(outputs, shapes, rounded(nanoseconds), nanoseconds)


def in_microseconds(placed: SocketRequest, executed: Executed) -> ExecutionResult:
    """Make the result of an execution whose timing came in nanoseconds; it has both units."""
    result = placed.result(executed)
    return with_timing(result.outputs, result.output_shapes, result.timing)


#: Seconds that a control call about the burst may take.
_CALL_TIMEOUT: Final = 30.0
#: Most pools that get a number in the driver; others are sent with each request.
_REMEMBERED: Final = 64
_NO_IDENTITY: Final = -1


class _Identities:
    """Maps pools to the numbers that name them in the driver, each used only once. Takes no locks."""

    def __init__(self, connection: Connection, handle: int) -> None:
        self._connection = connection
        self._handle = handle
        self._numbers = itertools.count()
        self._identifiers: dict[int, int] = {}  # by the pool's number in this process
        self._memories: dict[int, weakref.ref[Memory]] = {}  # by the same number
        self._sent: set[int] = set()
        self._on_close = weakly(self.pool_closed)  # a pool outlives many bursts

    def identifier_of(self, memory: Memory) -> tuple[int, bool]:
        """The number of a pool, and whether the driver has its memory already."""
        found = self._identifiers.get(memory._number)
        if found is None:
            if len(self._identifiers) >= _REMEMBERED:
                return _NO_IDENTITY, False
            found = self._identifiers[memory._number] = next(self._numbers)
            self._memories[memory._number] = weakref.ref(memory)
            memory._on_close(self._on_close)
        return found, found in self._sent

    def sent(self, identifiers: Sequence[int]) -> None:
        """Note that the driver has the memory of these numbers, since it has answered their request."""
        self._sent.update(i for i in identifiers if i != _NO_IDENTITY)

    def take(self, number: int) -> int | None:
        """Forget a pool; returns its number in the driver, if it has one."""
        found = self._identifiers.pop(number, None)
        self._memories.pop(number, None)
        if found is not None:
            self._sent.discard(found)
        return found

    def release(self, memory: Memory) -> int | None:
        """Forget a pool that is open; returns its number in the driver, if it has one."""
        memory._remove_callback(self._on_close)
        return self.take(memory._number)

    def close(self) -> None:
        """Remove the callbacks from all pools."""
        for reference in list(self._memories.values()):
            memory = reference()
            if memory is not None:
                memory._remove_callback(self._on_close)

    def pool_closed(self, number: int) -> None:
        """Forget a closed pool; the driver is asked to release it before the next call. May run anywhere."""
        found = self.take(number)
        if found is not None and self._connection.is_alive:
            self._connection.post_later(ReleaseMemoryResource(self._handle, found))


class AidlBurst(Closing):
    """Executions over the socket in which pools are numbers; made by `nnburst.hal.open_aidl_burst`.

    One execution at a time: a second one gets BurstBusy. A context manager that closes itself.
    """

    def __init__(self, prepared: Prepared) -> None:
        """Open the burst in the driver.

        Raises:
            NnburstError: the driver refuses.
        """
        self._prepared = prepared
        self._connection = prepared.session.connection
        self._remote = RemoteObject(self._connection)
        user = object()
        try:
            # The model stays valid in the driver meanwhile, even if another thread closes it.
            message = OpenAidlBurst(prepared.hold(user))
            opened, _ = self._connection.call(
                message, Opened, timeout=_CALL_TIMEOUT, remote=self._remote
            )
        finally:
            prepared.release(user)
        self._identities = _Identities(self._connection, opened.handle)
        self._under_way = Gate("the burst has an execution in flight: one at a time")

    def execute(
        self,
        inputs: Sequence[Array | Buffer | None],
        outputs: Sequence[Array | Buffer | None] | None = None,
        *,
        measure: bool = False,
        timeout: float = 30.0,
        attributes: Sequence[ExtensionAttribute] = (),
    ) -> ExecutionResult:
        """Execute once; arguments and errors are those of `PreparedModel.execute`.

        Returns:
            Outputs, shapes and timing, also in nanoseconds as `timing_ns`.

        Raises:
            BurstBusy: an execution is under way.
            Closed: the burst is closed.
        """
        deadline = time.monotonic() + check_timeout(timeout)
        self._check_open()
        arguments = SocketArguments(self._prepared, inputs, outputs)
        hints = self._prepared.session.hints(attributes)
        me = next(entries)
        try:
            self._under_way.enter(me)
            return run_placed(
                arguments,
                lambda placed: in_microseconds(
                    placed, self._execute(placed, measure, deadline, hints)
                ),
            )
        finally:
            leave(self._under_way.struct, me)

    def _execute(
        self,
        placed: SocketRequest,
        measure: bool,
        deadline: float,
        hints: Hints | msgspec.UnsetType,
    ) -> Executed:
        placed.stage()
        left = time_left(deadline)
        request, identifiers, unknown = self._identified(placed)
        message = BurstExecute(
            self._remote.number,
            request,
            measure,
            boottime_deadline_ns(left),
            hints=hints,
            memory_identifiers=identifiers,
        )
        with Fds.duplicates(unknown) as fds:
            executed, _ = self._connection.call(message, Executed, list(fds), timeout=left)
        self._identities.sent(identifiers)
        return executed

    def _identified(self, placed: SocketRequest) -> tuple[Request, tuple[int, ...], list[Memory]]:
        """The request, the number of each of its pools, and the memories that the driver still lacks."""
        identifiers: list[int] = []
        unknown: list[Memory] = []
        pools: list[MemoryPool | BufferToken] = []
        remaining = iter(placed.memories)
        for pool in placed.request.pools:
            if isinstance(pool, BufferToken):
                identifiers.append(_NO_IDENTITY)
                pools.append(pool)
                continue
            memory = next(remaining)
            identifier, known = self._identities.identifier_of(memory)
            identifiers.append(identifier)
            pools.append(MemoryPool(pool.size, -1 if known else len(unknown)))
            if not known:
                unknown.append(memory)
        request = msgspec.structs.replace(placed.request, pools=tuple(pools))
        return request, tuple(identifiers), unknown

    def release_memory_resource(self, memory: Memory) -> None:
        """Have the driver release a pool now; it does so anyway once the pool is closed.

        Args:
            memory: the pool; one that the burst has not used is ignored.

        Raises:
            InvalidArgument: `memory` is no pool.
            MissedDeadline: the driver does not answer.
            DeadObject: the driver has died.
            Closed: the burst is closed.
        """
        self._check_open()
        if not isinstance(memory, Memory):
            raise InvalidArgument(f"memory is of type {type(memory).__name__}, expected a Memory")
        found = self._identities.release(memory)
        if found is None:
            return
        message = ReleaseMemoryResource(self._remote.number, found)
        self._connection.call(message, Nothing, timeout=_CALL_TIMEOUT)

    def _check_open(self) -> None:
        if not self._remote.is_open:
            raise Closed("the burst is closed")

    def close(self) -> None:
        """End the burst; twice is fine, and so is a dead driver."""
        self._identities.close()
        self._remote.release()

    def __repr__(self) -> str:
        state = "open" if self._remote.is_open else "closed"
        return f"<nnburst.hal.AidlBurst on {self._prepared.session.name}: {state}>"
