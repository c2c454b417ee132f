"""PlacedRequest: every way to execute over the socket lays out, describes, stages and sends with it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

from nnburst.client.execution.buffer import Buffer
from nnburst.client.execution.prepared import Prepared
from nnburst.client.execution.socket_arguments import ArgumentPlace, SocketArguments
from nnburst.client.execution.staged_request import StagedRequest
from nnburst.client.execution.sync_fence import SyncFence
from nnburst.client.memory.arguments import (
    OMITTED,
    Array,
    ExecutionResult,
    boottime_deadline_ns,
    complete_shapes,
    head,
    time_left,
)
from nnburst.client.memory.memory import Memory
from nnburst.client.memory.request_pools import RequestPools
from nnburst.client.memory.staging import PrivatePool
from nnburst.client.session.upcalls import Interrupted
from nnburst.control.channel import Fds
from nnburst.control.messages.message import Message
from nnburst.control.messages.prepared_model import Executed, ExecuteSynchronously
from nnburst.hal.errors import (
    GeneralFailure,
    InvalidArgument,
    MissedDeadline,
    NnburstError,
    OutputInsufficientSize,
)
from nnburst.hal.extensions.attributes import ExtensionAttribute
from nnburst.hal.model import BufferToken, MemoryPool
from nnburst.hal.request import Request, RequestArgument
from nnburst.hal.timing import OutputShape

M = TypeVar("M", bound=Message)


class PlacedRequest:
    """One execution as it is sent: what lies in no pool has its place in a private one.

    Attributes:
        arguments: checked.
        private: comes from the prepared model, and goes back there once the execution has ended.
        request: what a message has of it.
        memories: the pools that go along with the request.
    """

    def __init__(self, arguments: SocketArguments) -> None:
        """Take a private pool if one is needed, and describe the request."""
        self.arguments = arguments
        self.private = PrivatePool(arguments.prepared.staging, arguments.lay_out())
        pools: RequestPools[Memory | Buffer] = RequestPools()
        self.request = Request(
            tuple(self._argument(place, pools) for place in arguments.inputs),
            tuple(self._argument(place, pools) for place in arguments.outputs),
            _described(pools.used),
        )
        self.memories = [pool for pool in pools.used if not isinstance(pool, Buffer)]

    def _argument(
        self, place: ArgumentPlace, pools: RequestPools[Memory | Buffer]
    ) -> RequestArgument:
        if place.omitted:
            return OMITTED
        pool = place.memory or self.private.memory
        if pool is None:
            raise InvalidArgument(f"{place.parameter.name} has no memory")
        return pools.argument(pool, place.offset, place.length, place.dimensions)

    def stage(self) -> None:
        """Copy inputs that lie in no pool to the private one."""
        for place in self.arguments.inputs:
            if place.memory is None and place.array is not None:
                staged = self._view(place, place.array.shape)
                staged.view(place.array.dtype)[...] = place.array

    def staged(self) -> StagedRequest | None:
        """What copies its contents, of which alone later executions may differ.

        None if more than that may differ: an output's shape is open, or a buffer is named.
        """
        arguments = self.arguments
        places = (*arguments.inputs, *arguments.outputs)
        if any(isinstance(place.memory, Buffer) for place in places) or not all(
            place.parameter.known for place in arguments.outputs
        ):
            return None
        inputs = [
            self._view(place, place.array.shape).view(place.array.dtype)
            if place.memory is None and place.array is not None
            else None
            for place in arguments.inputs
        ]
        outputs = [self._staged_output(place) for place in arguments.outputs]
        return StagedRequest(arguments.prepared.outputs, inputs, outputs)

    def call(
        self,
        message: Message,
        expected: type[M],
        timeout: float,
        wait_for: Sequence[SyncFence] = (),
    ) -> tuple[M, Fds]:
        """Make a call that brings all its memory, and after it the fences; see `Connection.call`."""
        connection = self.arguments.prepared.session.connection
        with Fds.duplicates([*self.memories, *wait_for]) as fds:
            return connection.call(message, expected, list(fds), timeout=timeout)

    def result(self, executed: Executed) -> ExecutionResult:
        """What it gave, with outputs copied from the private pool to where they belong.

        Raises:
            GeneralFailure: the driver reports what cannot be.
        """
        places = self.arguments.outputs
        shapes: Sequence[OutputShape | None] = executed.output_shapes or [None] * len(places)
        if len(shapes) != len(places):
            raise GeneralFailure(
                f"the driver reports {len(shapes)} shapes for {len(places)} outputs"
            )
        outputs = [self._output(place, shape) for place, shape in zip(places, shapes, strict=True)]
        complete = complete_shapes(self.arguments.prepared.outputs, executed.output_shapes)
        return ExecutionResult(outputs, complete, executed.timing)

    def fail(self, error: BaseException) -> None:
        """It ended with `error`: buffers that it was to write hold nothing any more.

        After a timeout or an interruption the driver may still write to the private pool, so it is not used
        again.
        """
        self.arguments.fail()
        known = isinstance(error, NnburstError)
        if not known or isinstance(error, MissedDeadline | Interrupted):
            self.private.keep()
        self.private.release()

    def _view(self, place: ArgumentPlace, shape: tuple[int, ...]) -> Array:
        """A view of what lies in the private pool."""
        if self.private.memory is None:
            raise InvalidArgument(f"{place.parameter.name} has no memory")
        return self.private.memory.array(place.parameter.dtype, shape, place.offset)

    def _staged_output(self, place: ArgumentPlace) -> Array | None:
        if place.memory is not None:
            return None
        staged = self._view(place, place.parameter.dimensions)
        return staged if place.array is None else staged.view(place.array.dtype)

    def _output(self, place: ArgumentPlace, reported: OutputShape | None) -> Array | Buffer:
        """The array or buffer that an output ends up in."""
        parameter, given = place.parameter, place.array
        shape = parameter.shape_of(reported)
        if isinstance(place.memory, Buffer):
            place.memory._holds(shape)
            return place.memory
        if parameter.dtype.itemsize * math.prod(shape) > place.length:
            raise GeneralFailure(
                f"the driver reports shape {shape} for {parameter.name}, which has"
                f" {place.length} bytes"
            )
        if given is None:
            return self._view(place, shape).copy()
        target = given if parameter.known else head(given, shape)
        if place.memory is None:
            target[...] = self._view(place, shape).view(given.dtype)
        return target


def run_placed(
    arguments: SocketArguments, run: Callable[[PlacedRequest], ExecutionResult]
) -> ExecutionResult:
    """Execute and wait; once more with more room if the driver asks for it and that can help.

    Args:
        arguments: of the execution.
        run: stages and sends what it is given; raises what the caller shall see.
    """
    while True:
        placed = PlacedRequest(arguments)
        try:
            result = run(placed)
        except BaseException as error:
            placed.fail(error)
            if not isinstance(error, OutputInsufficientSize) or not arguments.grow(
                error.output_shapes
            ):
                raise
        else:
            placed.private.release()
            return result


def execute_synchronously(
    prepared: Prepared,
    inputs: Sequence[Array | Buffer | None],
    outputs: Sequence[Array | Buffer | None] | None,
    *,
    measure: bool,
    deadline: float,
    attributes: Sequence[ExtensionAttribute] = (),
) -> ExecutionResult:
    """Execute once by a request that is sent whole; see `PreparedModel.execute`.

    Args:
        prepared: what is executed.
        inputs: checked here.
        outputs: likewise.
        measure: whether to time it.
        deadline: on `time.monotonic`.
        attributes: of vendor extensions.
    """
    handle = prepared.handle
    arguments = SocketArguments(prepared, inputs, outputs)
    hints = prepared.session.hints(attributes)

    def execute(placed: PlacedRequest) -> ExecutionResult:
        placed.stage()
        left = time_left(deadline)
        message = ExecuteSynchronously(
            handle, placed.request, measure, boottime_deadline_ns(left), hints=hints
        )
        executed, _ = placed.call(message, Executed, left)
        return placed.result(executed)

    return run_placed(arguments, execute)


def _described(pools: Sequence[Memory | Buffer]) -> tuple[MemoryPool | BufferToken, ...]:
    """The pools as a request names them; descriptors are counted by the memories alone."""
    described: list[MemoryPool | BufferToken] = []
    memories = 0
    for pool in pools:
        if isinstance(pool, Buffer):
            described.append(BufferToken(token=pool._token))
        else:
            described.append(MemoryPool(pool.size, memories))
            memories += 1
    return tuple(described)
