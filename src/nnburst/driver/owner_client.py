"""Makes a worker's executor of a device that another process owns (`nnburst serve --exclusive`).

    worker (one per client)                                   owner (`nnburst.driver.owner_server`)
      OwnedExecutor  ── model, constants as sealed copies ──►   executor.prepare
      OwnedPrepared  ── request, descriptors of its pools ──►   bind
      OwnedExecution ── run, deadline ──────────────────────►   waits for its turn, runs

The worker has parsed and validated everything before; the owner does so again, since a client may have taken
its worker over. Most messages are those of the control channel.
"""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import msgspec

from nnburst._version import __version__
from nnburst.control.channel import Channel, Fds
from nnburst.control.connection import Connection
from nnburst.control.death_word import DeathWatch
from nnburst.control.messages import (
    CreateReusableExecution,
    DeviceCapabilities,
    Executed,
    GetCapabilities,
    GetSupportedExtensions,
    GetSupportedOperations,
    Handle,
    Message,
    Nanoseconds,
    Opened,
    PrepareModel,
    Release,
    SupportedExtensions,
    SupportedOperations,
    Welcome,
)
from nnburst.driver.model.pools import Pool
from nnburst.executor.base import (
    DEFAULT_OPTIONS,
    MEASURED,
    Argument,
    Bytes,
    Execution,
    Executor,
    Outcome,
    Prepared,
    PrepareOptions,
    memory_of,
)
from nnburst.fmq.shared_memory import SharedMemory
from nnburst.hal.enums import ErrorStatus, FeatureLevel
from nnburst.hal.errors import DeadObject
from nnburst.hal.extensions import Extension, ExtensionAttribute, hints_of
from nnburst.hal.limits import DEFAULT_LOOP_TIMEOUT_NS, NO_TIMING
from nnburst.hal.model import DataLocation, MemoryPool, Model
from nnburst.hal.types import Request, RequestArgument

R = TypeVar("R", bound=Message)

#: Seconds that a device may take to warm up.
_WARM_UP: Final = 120.0
#: Seconds that a preparation, or an execution with all that wait before it, may take. A request's deadline
#: ends its wait in the owner. This one is for requests without a deadline, as all of bursts are, and for an
#: owner that is there and does not answer; the end of an owner is noticed at once. It is long because the
#: memory of a run is the owner's until it has answered.
_LONG: Final = 3600.0
#: Seconds that other calls may take.
_SHORT: Final = 30.0
#: Each argument that is copied begins at a multiple of this.
_ALIGNMENT: Final = 64


class Attach(Message, frozen=True):
    """The first call of a worker; answered by a Welcome once the device is warm."""


class RunBound(Message, frozen=True):
    """Run what `CreateReusableExecution` has bound; answered by an Executed.

    Attributes:
        handle: of it.
        deadline_ns: CLOCK_BOOTTIME at which the result is useless.
        loop_timeout_ns: limit of a WHILE.
    """

    handle: Handle
    deadline_ns: Nanoseconds | None = None
    loop_timeout_ns: Nanoseconds = DEFAULT_LOOP_TIMEOUT_NS


class _Owner:
    """The connection to the owner. Thread-safe."""

    def __init__(self, connected: socket.socket, ended: Callable[[], None]) -> None:
        """Own `connected`; `ended` is called when the owner is gone, on any thread, maybe more than once."""
        self._ended = ended
        self._channel = Channel(connected)
        self._connection = Connection(self._channel, "the owner of the device")
        self._connection.on_end(ended)
        self._death_watch: DeathWatch | None = None

    @property
    def is_alive(self) -> bool:
        """Whether the owner is there, looked at now."""
        poller = select.poll()
        poller.register(self._channel.fileno(), 0)  # its end is shown without being asked for
        return self._connection.is_alive and not poller.poll(0)

    def attach(self) -> Welcome:
        """Wait until the device is warm. Once."""
        welcome, fds = self._call(Attach(), Welcome, timeout=_WARM_UP)
        with fds:
            if welcome.death_word:
                self._death_watch = DeathWatch(fds.take(1), self._died)
        return welcome

    def _died(self) -> None:
        self._ended()
        self._connection.peer_died()

    def call(
        self, message: Message, expected: type[R], fds: Sequence[int] = (), timeout: float = _SHORT
    ) -> R:
        """Call the owner; see `Connection.call`. An answer brings no descriptors that are of use.

        If the owner has died, `ended` is called before the error is raised. It ends a worker that has a
        client, which then gets DeadObject, not the failure of one call.
        """
        answer, received = self._call(message, expected, fds, timeout)
        received.close()
        return answer

    def _call(
        self, message: Message, expected: type[R], fds: Sequence[int] = (), timeout: float = _SHORT
    ) -> tuple[R, Fds]:
        try:
            return self._connection.call(message, expected, fds, timeout=timeout)
        except DeadObject:
            self._ended()
            raise

    def release(self, handle: int) -> None:
        """Have the owner drop a handle; does not wait for that."""
        self._connection.post(Release(handle))

    def close(self) -> None:
        """Leave the owner, which drops all that this was given; `ended` is not called any more."""
        self._connection.remove_callback(self._ended)
        self._ended = _nothing
        if self._death_watch is not None:
            self._death_watch.close()
        self._connection.close()


def _nothing() -> None:
    pass


class OwnedExecutor(Executor):
    """The executor of a worker whose device another process owns. Thread-safe.

    DEVIATES: nothing is cached, and buffers lie in the worker's memory.
    """

    def __init__(self, connected: socket.socket, ended: Callable[[], None]) -> None:
        """Wait until the device is warm.

        Args:
            connected: to its owner; owned from here on.
            ended: called when the owner is gone.

        Raises:
            DeviceUnavailable: the owner cannot have the device; the message has the reason.
            MissedDeadline: it does not get warm.
            DeadObject: the owner is gone.
        """
        self._owner = _Owner(connected, ended)
        welcome = self._owner.attach()
        self.name = welcome.name
        self.engine_version = welcome.version_string.removeprefix(
            f"nnburst {__version__} {self.name}"
        ).strip()
        self.device_type = welcome.type
        self.feature_level = FeatureLevel(welcome.feature_level)
        self.capabilities = self._owner.call(GetCapabilities(), DeviceCapabilities).capabilities
        extensions = self._owner.call(GetSupportedExtensions(), SupportedExtensions)
        self._extensions = extensions.extensions

    @property
    def is_alive(self) -> bool:
        """Whether the owner is there, looked at now."""
        return self._owner.is_alive

    def close(self) -> None:
        """Leave the owner, which drops all that this was given; `ended` is not called any more."""
        self._owner.close()

    @property
    def extensions(self) -> tuple[Extension, ...]:
        """The vendor extensions of the device."""
        return self._extensions

    def supported_with(self, model: Model, pools: Sequence[Bytes]) -> list[bool]:
        """Which operations of the main subgraph the device can run; see `executor.base.ReadsConstants`."""
        with contextlib.ExitStack() as stack:
            described, fds = _copies(pools, stack)
            message = GetSupportedOperations(msgspec.structs.replace(model, pools=described))
            found = self._owner.call(message, SupportedOperations, fds, _LONG)
        return list(found.supported)

    def prepare(
        self, model: Model, pools: Sequence[Bytes], options: PrepareOptions = DEFAULT_OPTIONS
    ) -> OwnedPrepared:
        """Have the owner prepare a model; see `nnburst.executor.base.Executor`."""
        with contextlib.ExitStack() as stack:
            described, fds = _copies(pools, stack)
            message = PrepareModel(
                msgspec.structs.replace(model, pools=described),
                1,  # no upcall follows; a number has to be there
                options.preference,
                options.priority,
                options.deadline_ns,
                options.num_threads,
                hints=hints_of(options.attributes),
            )
            opened = self._owner.call(message, Opened, fds, _LONG)
        return OwnedPrepared(self._owner, opened)


class OwnedPrepared(Prepared):
    """A model that the owner has prepared."""

    def __init__(self, owner: _Owner, opened: Opened) -> None:
        """Own the handle in `opened`."""
        self._owner = owner
        self._handle = opened.handle
        self.num_threads = opened.fields["num_threads"]

    def bind_request(
        self, request: Request, pools: Sequence[Pool], attributes: Sequence[ExtensionAttribute]
    ) -> OwnedExecution:
        """Hand the request and its memory over; see `driver.model.prepared_model.RequestBinder`."""
        described = tuple(MemoryPool(pool.size or 0, index) for index, pool in enumerate(pools))
        message = CreateReusableExecution(
            self._handle,
            msgspec.structs.replace(request, pools=described),
            measure=True,
            hints=hints_of(attributes),
        )
        fds = [pool.fd for pool in pools]
        opened = self._owner.call(message, Opened, fds)
        return OwnedExecution(self._owner, opened.handle)

    def bind(self, inputs: Sequence[Argument], outputs: Sequence[Argument]) -> CopiedExecution:
        """Bind memory of this process, which is copied at each run."""
        return self.bind_with(inputs, outputs, ())

    def bind_with(
        self,
        inputs: Sequence[Argument],
        outputs: Sequence[Argument],
        attributes: Sequence[ExtensionAttribute],
    ) -> CopiedExecution:
        """As `bind`, with attributes of vendor extensions."""
        places: list[RequestArgument] = []
        end = 0
        for argument in (*inputs, *outputs):
            if argument.memory is None:
                places.append(RequestArgument(has_no_value=True))
                continue
            location = DataLocation(0, end, argument.memory.nbytes)
            places.append(RequestArgument(False, location, argument.dimensions))
            end += argument.memory.nbytes + -argument.memory.nbytes % _ALIGNMENT
        request = Request(tuple(places[: len(inputs)]), tuple(places[len(inputs) :]))
        with SharedMemory.create(max(end, 1), "nnburst arguments") as memory:
            room = memory.map_memory(writable=True)
            pool = Pool(memory.duplicate())
        with contextlib.closing(pool):
            execution = self.bind_request(request, [pool], attributes)
        spaces = [
            None
            if place.has_no_value
            else room[place.location.offset : place.location.offset + place.location.length]
            for place in places
        ]
        arguments = [argument.memory for argument in (*inputs, *outputs)]
        pairs = [
            (own, space)
            for own, space in zip(arguments, spaces, strict=True)
            if own is not None and space is not None
        ]
        count = sum(argument.memory is not None for argument in inputs)
        return CopiedExecution(execution, pairs[:count], pairs[count:])

    def close(self) -> None:
        """Have the owner forget the model."""
        self._owner.release(self._handle)


class OwnedExecution(Execution):
    """A request that is bound in the owner, which looks by itself whether it idles."""

    keeps_memory = False

    def __init__(self, owner: _Owner, handle: int) -> None:
        """Own `handle`."""
        self._owner = owner
        self._handle = handle

    def run(
        self,
        deadline_ns: int | None = None,
        loop_timeout_ns: int = DEFAULT_LOOP_TIMEOUT_NS,
    ) -> Outcome:
        """Execute when it is this client's turn; see `nnburst.executor.base.Execution`.

        The time on the device is the owner's word, the driver's includes the wait.
        """
        message = RunBound(self._handle, deadline_ns, loop_timeout_ns)
        executed = self._owner.call(message, Executed, timeout=_LONG)
        timing = executed.timing
        in_driver = NO_TIMING if timing.time_in_driver == NO_TIMING else MEASURED
        return Outcome(
            ErrorStatus.NONE, executed.output_shapes, "", timing.time_on_device, in_driver
        )

    def close(self) -> None:
        """Have the owner forget the request, and unmap its memory."""
        self._owner.release(self._handle)


class CopiedExecution(Execution):
    """A request over memory that stays in the worker: device buffers, and more pools than a message takes."""

    def __init__(
        self,
        execution: OwnedExecution,
        inputs: Sequence[tuple[memoryview, memoryview]],
        outputs: Sequence[tuple[memoryview, memoryview]],
    ) -> None:
        """Run `execution` on copies.

        Args:
            execution: bound to the copies; owned from here on.
            inputs: each argument, and its place in the copies.
            outputs: likewise.
        """
        self._execution = execution
        self._inputs = inputs
        self._outputs = outputs

    def run(
        self,
        deadline_ns: int | None = None,
        loop_timeout_ns: int = DEFAULT_LOOP_TIMEOUT_NS,
    ) -> Outcome:
        """Copy, execute, copy back; see `OwnedExecution.run`."""
        for own, copy in self._inputs:
            copy[:] = own
        outcome = self._execution.run(deadline_ns, loop_timeout_ns)
        for own, copy in self._outputs:
            own[:] = copy
        return outcome

    def close(self) -> None:
        """See `OwnedExecution.close`."""
        self._execution.close()


def _copies(
    pools: Sequence[Bytes], stack: contextlib.ExitStack
) -> tuple[tuple[MemoryPool, ...], list[int]]:
    """Copies of a model's pools, which no client can change any more; `stack` closes them."""
    described: list[MemoryPool] = []
    fds: list[int] = []
    for index in range(len(pools)):
        source = memory_of(pools, index)
        memory = stack.enter_context(SharedMemory.create(source.nbytes, "nnburst constants"))
        memory.map_memory(writable=True)[:] = source
        described.append(MemoryPool(source.nbytes, index))
        fds.append(memory.fd)
    return tuple(described), fds
