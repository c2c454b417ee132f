"""Checks, places, stages and sends the request of an execution over the socket."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

from nnburst.client.arguments import (
    OMITTED,
    Array,
    ExecutionResult,
    Parameter,
    boottime_deadline_ns,
    check_count,
    complete_shapes,
    in_shape,
    settle_truth,
    time_left,
)
from nnburst.client.execution.buffer import Buffer
from nnburst.client.execution.prepared import (
    LARGEST,
    Prepared,
    RememberedRequest,
    StagedRequest,
    request_key,
)
from nnburst.client.execution.sync_fence import SyncFence
from nnburst.client.memory import Memory, find_memory, refuse_overlap
from nnburst.client.session.upcalls import Interrupted
from nnburst.client.staging import Layout, PrivatePool, RequestPools
from nnburst.control.channel import Fds
from nnburst.control.connection import RemoteObject
from nnburst.control.messages import (
    CreateReusableExecution,
    Executed,
    ExecuteReusable,
    ExecuteSynchronously,
    Message,
    Opened,
)
from nnburst.hal.errors import (
    DeadObject,
    GeneralFailure,
    InvalidArgument,
    MissedDeadline,
    NnburstError,
    OutputInsufficientSize,
)
from nnburst.hal.extensions import ExtensionAttribute
from nnburst.hal.model import BufferToken, MemoryPool
from nnburst.hal.types import OutputShape, Request, RequestArgument


@dataclass(slots=True)
class ArgumentPlace:
    """The place of an argument: in a pool or buffer of the caller, or (`memory` None) in the private pool."""

    parameter: Parameter
    array: Array | None
    length: int
    memory: Memory | Buffer | None = None
    offset: int = 0
    dimensions: tuple[int, ...] = ()
    omitted: bool = False


class SocketArguments:
    """The arguments of one execution, and their places. `SocketRequest` gives them memory.

    Attributes:
        prepared: the prepared model that is executed.
        inputs: the place of each input.
        outputs: the place of each output.
    """

    def __init__(
        self,
        prepared: Prepared,
        inputs: Sequence[Array | Buffer | None],
        outputs: Sequence[Array | Buffer | None] | None,
    ) -> None:
        """Check all arrays and buffers; without `outputs`, each output gets a new array.

        Raises:
            InvalidArgument: one does not fit, or is a buffer of another device.
            Closed: the device or a buffer is closed.
        """
        prepared.session.check_open()  # first: a closed device is reported before any other error
        check_count("inputs", inputs, prepared.inputs)
        given = [None] * len(prepared.outputs) if outputs is None else outputs
        check_count("outputs", given, prepared.outputs)
        self.prepared = prepared
        self.inputs = [
            _input_place(parameter, value)
            for parameter, value in zip(prepared.inputs, inputs, strict=True)
        ]
        self.outputs = [
            _output_place(parameter, value)
            for parameter, value in zip(prepared.outputs, given, strict=True)
        ]
        refuse_overlap(inputs, given)
        for place in (*self.inputs, *self.outputs):
            if isinstance(place.memory, Buffer):
                place.memory._check_session(prepared.session, place.parameter.name)

    def grow(self, shapes: Sequence[OutputShape]) -> bool:
        """Offer more room for outputs that the driver found too small; False if a repetition cannot help."""
        short = [
            (place, shape)
            for place, shape in zip(self.outputs, shapes, strict=False)
            if not shape.is_sufficient
        ]
        for place, shape in short:
            more = place.parameter.more_room(place.length, shape)
            if place.array is not None or place.memory is not None or more is None:
                return False
            place.length = more
        return bool(short)

    def lay_out(self) -> int:
        """Place each argument that lies in no pool of the caller in the private one; returns its size."""
        layout = Layout()
        for place in (*self.inputs, *self.outputs):
            if place.memory is None and not place.omitted:
                place.offset = layout.place(place.length)
        return layout.size

    @property
    def arrays(self) -> tuple[list[Array | None], list[Array | None]]:
        """The arrays of the inputs and of the outputs, as they were given."""
        return [place.array for place in self.inputs], [place.array for place in self.outputs]

    def fail(self) -> None:
        """Note that the execution has failed: its output buffers are empty."""
        for place in self.outputs:
            if isinstance(place.memory, Buffer):
                place.memory._holds(None)


def _input_place(parameter: Parameter, value: Array | Buffer | None) -> ArgumentPlace:
    if value is None:
        parameter.check_omitted()
        return ArgumentPlace(parameter, None, 0, omitted=True)
    if isinstance(value, Buffer):
        return ArgumentPlace(parameter, None, 0, value, dimensions=value._input_extents(parameter))
    array = parameter.check_input(value)
    memory, offset = find_memory(array) or (None, 0)
    return ArgumentPlace(parameter, array, array.nbytes, memory, offset, parameter.extents(array))


def _output_place(parameter: Parameter, value: Array | Buffer | None) -> ArgumentPlace:
    if value is None:
        return ArgumentPlace(parameter, None, parameter.first_room)
    if isinstance(value, Buffer):
        value._open_handle  # noqa: B018 - refuses a closed buffer before anything is sent
        return ArgumentPlace(parameter, None, 0, value)
    array = parameter.check_output(value)
    memory, offset = find_memory(array) or (None, 0)
    return ArgumentPlace(parameter, array, array.nbytes, memory, offset)


# -- placed request --------------------------------------------------------------------------------


M = TypeVar("M", bound=Message)


class SocketRequest:
    """One execution as it is sent; arguments that lie in no pool are copied through a private one.

    Attributes:
        arguments: the checked arguments.
        private: taken from the prepared model's pools, and returned when the execution has ended.
        request: the request for a message.
        memories: the pools that are sent with the request.
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
        """The `StagedRequest` for later executions that differ only in the contents of their arrays.

        None if more may differ: the shape of an output is open, or an argument is a buffer, or an array is
        larger than the model declares.
        """
        arguments = self.arguments
        places = (*arguments.inputs, *arguments.outputs)
        if any(isinstance(place.memory, Buffer) for place in places) or not all(
            place.parameter.known and place.length == place.parameter.size
            for place in arguments.outputs
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
        remote: RemoteObject | None = None,
    ) -> tuple[M, Fds]:
        """Make a call that sends the request's memory, then the fences; see `Connection.call`."""
        connection = self.arguments.prepared.session.connection
        with Fds.duplicates([*self.memories, *wait_for]) as fds:
            return connection.call(message, expected, list(fds), timeout=timeout, remote=remote)

    def result(self, executed: Executed) -> ExecutionResult:
        """Copy outputs from the private pool to the caller's or new arrays, and return the result.

        Raises:
            GeneralFailure: the driver reports an impossible shape.
        """
        places = self.arguments.outputs
        shapes: Sequence[OutputShape | None] = executed.output_shapes or [None] * len(places)
        if len(shapes) != len(places):
            raise GeneralFailure(
                f"the driver reports {len(shapes)} shapes for {len(places)} outputs"
            )
        outputs = [self._output(place, shape) for place, shape in zip(places, shapes, strict=True)]
        complete = complete_shapes(self.arguments.prepared.outputs, executed.output_shapes)
        return ExecutionResult(cast("list[Array]", outputs), complete, executed.timing)

    def fail(self, error: BaseException) -> None:
        """End a failed execution: its output buffers are empty, and its private pool is released.

        After a timeout or an interruption the driver may still write to the pool, so it is not used again.
        """
        self.arguments.fail()
        known = isinstance(error, NnburstError)
        if not known or isinstance(error, MissedDeadline | Interrupted):
            self.private.keep()
        self.private.release()

    def _view(self, place: ArgumentPlace, shape: tuple[int, ...]) -> Array:
        """A view of an argument in the private pool."""
        if self.private.memory is None:
            raise InvalidArgument(f"{place.parameter.name} has no memory")
        return self.private.memory.array(place.parameter.dtype, shape, place.offset)

    def _staged_output(self, place: ArgumentPlace) -> Array | None:
        if place.memory is not None:
            return None
        staged = self._view(place, place.parameter.dimensions)
        return staged if place.array is None else staged.view(place.array.dtype)

    def _output(self, place: ArgumentPlace, reported: OutputShape | None) -> Array | Buffer:
        """Copy an output to the caller's or a new array, and return that, or the output's buffer."""
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
            return settle_truth(self._view(place, shape).copy())
        target = in_shape(parameter.name, given, shape)
        if place.memory is None:
            target[...] = self._view(place, shape).view(given.dtype)
        return settle_truth(target)


def run_placed(
    arguments: SocketArguments, run: Callable[[SocketRequest], ExecutionResult]
) -> ExecutionResult:
    """Execute and wait; repeat with more room for outputs if the driver asks for it and that can help.

    Args:
        arguments: the execution's arguments.
        run: stages and sends the request, and returns the result; its exceptions reach the caller.
    """
    while True:
        placed = SocketRequest(arguments)
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
    """Execute once, sending the whole request; see `PreparedModel.execute`.

    Args:
        prepared: the prepared model.
        inputs: checked here.
        outputs: checked here.
        measure: whether to time the execution.
        deadline: time on `time.monotonic`.
        attributes: of vendor extensions.
    """
    taker = object()
    try:
        handle = prepared.hold(taker)
        arguments = SocketArguments(prepared, inputs, outputs)
        hints = prepared.session.hints(attributes)

        def execute(placed: SocketRequest) -> ExecutionResult:
            placed.stage()
            left = time_left(deadline)
            message = ExecuteSynchronously(
                handle, placed.request, measure, boottime_deadline_ns(left), hints=hints
            )
            executed, _ = placed.call(message, Executed, left)
            return placed.result(executed)

        return run_placed(arguments, execute)
    finally:
        prepared.release(taker)


def _described(pools: Sequence[Memory | Buffer]) -> tuple[MemoryPool | BufferToken, ...]:
    """Describe the pools for a request; only memories count as descriptors, buffers have tokens."""
    described: list[MemoryPool | BufferToken] = []
    memories = 0
    for pool in pools:
        if isinstance(pool, Buffer):
            described.append(BufferToken(token=pool._token))
        else:
            described.append(MemoryPool(pool.size, memories))
            memories += 1
    return tuple(described)


# -- requests that stay bound -----------------------------------------------------------------------


def _bind(
    arguments: SocketArguments, key: Hashable, taker: object, measure: bool, deadline: float
) -> RememberedRequest | None:
    """Make the driver bind a request, and take it; None if it cannot be bound or is too large for that.

    Raises:
        DeadObject: the driver has died.
        MissedDeadline: the driver did not answer in time.
    """
    remembered = arguments.prepared.remembered
    if arguments.lay_out() > LARGEST:
        remembered.refuse(key)
        return None
    placed = SocketRequest(arguments)
    staged = placed.staged()
    if staged is None:
        remembered.refuse(key)
    remote = None if staged is None else _bound(placed, measure, deadline)
    if staged is None or remote is None:
        placed.private.release()
        return None
    request = RememberedRequest(remote, staged, measure, placed.private)
    return request if remembered.add(key, request, taker=taker) else None


def _bound(placed: SocketRequest, measure: bool, deadline: float) -> RemoteObject | None:
    """A request that the driver has bound; None if refused: sent whole, it then fails with the reason."""
    model = placed.arguments.prepared.handle
    message = CreateReusableExecution(model, placed.request, measure)
    remote = RemoteObject(placed.arguments.prepared.session.connection)
    try:
        placed.call(message, Opened, max(deadline - time.monotonic(), 0.0), remote=remote)
    except (DeadObject, MissedDeadline):
        raise
    except NnburstError:
        return None
    return remote


def execute_again(
    prepared: Prepared,
    inputs: Sequence[Array | Buffer | None],
    outputs: Sequence[Array | Buffer | None] | None,
    measure: bool,
    deadline: float,
) -> ExecutionResult | None:
    """Execute a request that the driver has bound: copy the inputs to its pool, send its handle (ADR 25).

    When arrays of the same shapes come for the second time, the driver is asked to bind a request for them.
    Returns None if the whole request must be sent.
    """
    taker = object()
    try:
        prepared.hold(taker)
        key = request_key(inputs, outputs, measure)
        if key is None:
            return None
        prepared.session.check_open()  # first: a closed device is reported before any other error
        remembered = prepared.remembered
        try:
            request = remembered.take(key, taker)
            if request is None and remembered.is_wanted(key):
                arguments = SocketArguments(prepared, inputs, outputs)
                request = _bind(arguments, key, taker, measure, deadline)
            if request is None:
                return None
            given = [None] * len(prepared.outputs) if outputs is None else outputs
            request.staged.stage(inputs)
            left = time_left(deadline)
            message = ExecuteReusable(request.remote.number, boottime_deadline_ns(left))
            try:
                executed, _ = prepared.session.connection.call(message, Executed, timeout=left)
            except OutputInsufficientSize:  # more is computed than is declared
                remembered.put(key, request)
                return None
            result = request.result(executed, given)
            remembered.put(key, request)
        except BaseException:
            # The execution may still be under way, so its pool is not used again.
            for taken in remembered.remove_taken(key, taker):
                taken.remote.release_later()
            raise
        return result
    finally:
        prepared.release(taker)  # last: bound requests are released before their model
