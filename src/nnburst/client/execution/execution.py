"""One `PreparedModel.execute`: arrays to a request, the request over the socket, results to arrays."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nnburst.client.execution.buffer import Buffer
from nnburst.client.execution.prepared import Prepared
from nnburst.client.execution.staged_request import StagedRequest
from nnburst.client.memory.arguments import (
    OMITTED,
    Array,
    ExecutionResult,
    Parameter,
    boottime_deadline_ns,
    check_count,
    complete_shapes,
    head,
)
from nnburst.client.memory.memory import Memory, find_memory
from nnburst.client.memory.staging import Layout
from nnburst.control.channel import Fds
from nnburst.control.messages.prepared_model import Executed, ExecuteSynchronously
from nnburst.hal.errors import (
    GeneralFailure,
    InvalidArgument,
    MissedDeadline,
    NnburstError,
    OutputInsufficientSize,
)
from nnburst.hal.model import BufferToken, DataLocation, MemoryPool
from nnburst.hal.request import Request, RequestArgument
from nnburst.hal.timing import OutputShape


@dataclass(slots=True)
class _Place:
    """Where one input or output lies: in a pool or buffer of the caller's, or (None) in the private pool."""

    parameter: Parameter
    array: Array | None
    length: int
    memory: Memory | Buffer | None = None
    offset: int = 0
    dimensions: tuple[int, ...] = ()
    omitted: bool = False


class SocketExecution:
    """The arguments of one execution, checked; `run` until the outputs fit."""

    def __init__(
        self,
        prepared: Prepared,
        inputs: Sequence[Array | Buffer | None],
        outputs: Sequence[Array | Buffer | None] | None,
    ) -> None:
        """Check all arrays and buffers; without `outputs`, each gets a new array.

        Raises:
            InvalidArgument: one does not fit, or is a buffer of another device.
            Closed: the device or a buffer is closed.
        """
        prepared.session.check_open()  # a closed device counts before anything else
        check_count("inputs", inputs, prepared.inputs)
        given = [None] * len(prepared.outputs) if outputs is None else outputs
        check_count("outputs", given, prepared.outputs)
        self._prepared = prepared
        self._inputs = [
            _input_place(parameter, value)
            for parameter, value in zip(prepared.inputs, inputs, strict=True)
        ]
        self._outputs = [
            _output_place(parameter, value)
            for parameter, value in zip(prepared.outputs, given, strict=True)
        ]
        for place in (*self._inputs, *self._outputs):
            if isinstance(place.memory, Buffer):
                place.memory._check_session(prepared.session, place.parameter.name)

    def grow(self, shapes: Sequence[OutputShape]) -> bool:
        """Offer more room if the driver asked for it; False if that cannot help."""
        short = [
            (place, shape)
            for place, shape in zip(self._outputs, shapes, strict=False)
            if not shape.is_sufficient
        ]
        for place, shape in short:
            more = place.parameter.more_room(place.length, shape)
            if place.array is not None or place.memory is not None or more is None:
                return False
            place.length = more
        return bool(short)

    def run(self, execute: Callable[[Memory | None], ExecutionResult]) -> ExecutionResult:
        """Execute, and once more with more room if the driver asks for it and that can help.

        Args:
            execute: does it, with the private pool that it is given; raises what the caller shall see.
        """
        while True:
            try:
                return self._run(execute)
            except OutputInsufficientSize as error:
                if not self.grow(error.output_shapes):
                    raise

    def _run(self, execute: Callable[[Memory | None], ExecutionResult]) -> ExecutionResult:
        staging = self._prepared.staging
        size = self.lay_out()
        private = staging.take(size) if size else None
        try:
            result = execute(private)
        except NnburstError as error:
            self.fail()
            # After a timeout the driver may still write to the pool, so it is not used again; the
            # same holds for Ctrl-C.
            if private is not None and not isinstance(error, MissedDeadline):
                staging.release(private)
            raise
        if private is not None:
            staging.release(private)
        return result

    def lay_out(self) -> int:
        """Give everything outside of the caller's pools an offset in the private one; its size."""
        layout = Layout()
        for place in (*self._inputs, *self._outputs):
            if place.memory is None and not place.omitted:
                place.offset = layout.place(place.length)
        return layout.size

    def describe(self, private: Memory | None) -> tuple[Request, list[Memory]]:
        """The request, and the memory that goes along with it.

        Args:
            private: of `lay_out` bytes at least.
        """
        pools: list[Memory | Buffer] = []
        inputs = tuple(_argument(place, private, pools) for place in self._inputs)
        outputs = tuple(_argument(place, private, pools) for place in self._outputs)
        memories = [pool for pool in pools if not isinstance(pool, Buffer)]
        return Request(inputs, outputs, _described(pools)), memories

    @property
    def arrays(self) -> tuple[list[Array | None], list[Array | None]]:
        """The inputs' arrays and the outputs', as they were given."""
        return [place.array for place in self._inputs], [place.array for place in self._outputs]

    def staged(self, private: Memory | None) -> StagedRequest | None:
        """What copies its contents, of which alone later executions may differ.

        None if more than that may differ: an output's shape is open, or a buffer is named.
        """
        places = (*self._inputs, *self._outputs)
        if any(isinstance(place.memory, Buffer) for place in places) or not all(
            place.parameter.known for place in self._outputs
        ):
            return None
        inputs = [
            _staged(place, place.array.shape, private).view(place.array.dtype)
            if place.memory is None and place.array is not None
            else None
            for place in self._inputs
        ]
        outputs = [_staged_output(place, private) for place in self._outputs]
        return StagedRequest(self._prepared.outputs, inputs, outputs)

    def stage(self, private: Memory | None) -> None:
        """Copy inputs that lie in no pool to the private one."""
        for place in self._inputs:
            if place.memory is None and place.array is not None:
                staged = _staged(place, place.array.shape, private)
                staged.view(place.array.dtype)[...] = place.array

    def fail(self) -> None:
        """Note that it has failed: buffers that it was to write hold nothing any more."""
        for place in self._outputs:
            if isinstance(place.memory, Buffer):
                place.memory._holds(None)

    def synchronously(
        self, handle: int, private: Memory | None, *, measure: bool, deadline: float
    ) -> ExecutionResult:
        """Execute prepared model `handle` once; raises like `PreparedModel.execute`."""
        request, memories = self.describe(private)
        self.stage(private)
        left = deadline - time.monotonic()
        if left <= 0:
            raise MissedDeadline("timeout: it passed before the request could be sent")
        message = ExecuteSynchronously(handle, request, measure, boottime_deadline_ns(left))
        with Fds() as fds:
            for memory in memories:
                fds.add(memory.duplicate())
            connection = self._prepared.session.connection
            executed, _ = connection.call(message, Executed, list(fds), timeout=left)
        return self.result(executed, private)

    def result(self, executed: Executed, private: Memory | None) -> ExecutionResult:
        """What it gave, with outputs copied from the private pool to where they belong.

        Raises:
            GeneralFailure: the driver reports what cannot be.
        """
        shapes: Sequence[OutputShape | None] = executed.output_shapes or [None] * len(self._outputs)
        if len(shapes) != len(self._outputs):
            raise GeneralFailure(
                f"the driver reports {len(shapes)} shapes for {len(self._outputs)} outputs"
            )
        outputs = [
            _output(place, shape, private)
            for place, shape in zip(self._outputs, shapes, strict=True)
        ]
        complete = complete_shapes(self._prepared.outputs, executed.output_shapes)
        return ExecutionResult(outputs, complete, executed.timing)


def _output(place: _Place, reported: OutputShape | None, private: Memory | None) -> Array | Buffer:
    """The array or buffer that an output ends up in."""
    parameter, given = place.parameter, place.array
    shape = parameter.shape_of(reported)
    if isinstance(place.memory, Buffer):
        place.memory._holds(shape)
        return place.memory
    if parameter.dtype.itemsize * math.prod(shape) > place.length:
        raise GeneralFailure(
            f"the driver reports shape {shape} for {parameter.name}, which has {place.length} bytes"
        )
    if given is None:
        return _staged(place, shape, private).copy()
    target = given if parameter.known else head(given, shape)
    if place.memory is None:
        target[...] = _staged(place, shape, private).view(given.dtype)
    return target


def _staged(place: _Place, shape: tuple[int, ...], private: Memory | None) -> Array:
    """A view of what lies in the private pool."""
    if private is None:
        raise InvalidArgument(f"{place.parameter.name} has no memory")
    return private.array(place.parameter.dtype, shape, place.offset)


def _staged_output(place: _Place, private: Memory | None) -> Array | None:
    if place.memory is not None:
        return None
    staged = _staged(place, place.parameter.dimensions, private)
    return staged if place.array is None else staged.view(place.array.dtype)


def _input_place(parameter: Parameter, value: Array | Buffer | None) -> _Place:
    if value is None:
        return _Place(parameter, None, 0, omitted=True)
    if isinstance(value, Buffer):
        return _Place(parameter, None, 0, value, dimensions=value._input_extents(parameter))
    array = parameter.check_input(value)
    memory, offset = find_memory(array) or (None, 0)
    return _Place(parameter, array, array.nbytes, memory, offset, parameter.extents(array))


def _output_place(parameter: Parameter, value: Array | Buffer | None) -> _Place:
    if value is None:
        return _Place(parameter, None, parameter.first_room)
    if isinstance(value, Buffer):
        value._open_handle  # noqa: B018 - one that is closed is refused before anything is sent
        return _Place(parameter, None, 0, value)
    array = parameter.check_output(value)
    memory, offset = find_memory(array) or (None, 0)
    return _Place(parameter, array, array.nbytes, memory, offset)


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


def _argument(
    place: _Place, private: Memory | None, pools: list[Memory | Buffer]
) -> RequestArgument:
    """How the request refers to a place; adds its pool if the request has none of it yet."""
    if place.omitted:
        return OMITTED
    memory = place.memory or private
    if memory is None:
        raise InvalidArgument(f"{place.parameter.name} has no memory")
    index = next((i for i, pool in enumerate(pools) if pool is memory), len(pools))
    if index == len(pools):
        pools.append(memory)
    location = DataLocation(index, place.offset, place.length)
    return RequestArgument(location=location, dimensions=place.dimensions)
