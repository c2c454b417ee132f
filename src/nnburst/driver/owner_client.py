"""Implements a worker's executor for a device that another process owns (`nnburst serve --exclusive`).

    worker (one per client)                                   owner (`nnburst.driver.owner_server`)
      OwnedExecutor  ── model, constants as sealed copies ──►   executor.prepare
      OwnedPrepared  ── request, descriptors of its pools ──►   bind
      OwnedExecution ── run, deadline ──────────────────────►   waits for its turn, runs

The worker parses and validates everything first; the owner does so again, since a client may have taken over
its worker. Most messages are those of the control channel.
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
#: Seconds that a preparation, or an execution with its wait for others, may take. A request's own deadline
#: ends its wait in the owner. This limit is for requests without a deadline, such as those of bursts, and for
#: an owner that runs but does not answer; the end of an owner is noticed at once. It is long, since the owner
#: uses the memory of a run until it has answered.
_LONG: Final = 3600.0
#: Seconds that other calls may take.
_SHORT: Final = 30.0
#: Each argument that is copied begins at a multiple of this.
_ALIGNMENT: Final = 64


class Attach(Message, frozen=True):
    """The first call of a worker; answered by a Welcome when the device is ready."""


class RunBound(Message, frozen=True):
    """Run a request that `CreateReusableExecution` has bound; answered by an Executed.

    Attributes:
        handle: the handle of the bound request.
        deadline_ns: time on CLOCK_BOOTTIME after which the result is useless.
        loop_timeout_ns: limit of a WHILE.
    """

    handle: Handle
    deadline_ns: Nanoseconds | None = None
    loop_timeout_ns: Nanoseconds = DEFAULT_LOOP_TIMEOUT_NS


class _Owner:
    """The connection to the owner. Thread-safe."""

    def __init__(self, connected: socket.socket, ended: Callable[[], None]) -> None:
        """Own `connected`; `ended` is called when the owner has ended, on any thread, perhaps repeatedly."""
        self._ended = ended
        self._channel = Channel(connected)
        self._connection = Connection(self._channel, "the owner of the device")
        self._connection.on_end(ended)
        self._death_watch: DeathWatch | None = None

    @property
    def is_alive(self) -> bool:
        """Whether the owner is running; checks its socket now."""
        poller = select.poll()
        poller.register(self._channel.fileno(), 0)  # its end is shown without being asked for
        return self._connection.is_alive and not poller.poll(0)

    def attach(self) -> Welcome:
        """Wait until the device is ready. Call it once."""
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
        """Call the owner; see `Connection.call`. Descriptors in the answer are ignored.

        If the owner has died, `ended` is called before the error is raised. It ends a worker that has a
        client; so the client gets DeadObject instead of the failure of one call.
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
        """Ask the owner to drop a handle, without waiting."""
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

    DEVIATES: it does not support compilation caches, and buffers lie in the worker's memory.
    """

    def __init__(self, connected: socket.socket, ended: Callable[[], None]) -> None:
        """Wait until the device is ready.

        Args:
            connected: a socket to the owner; owned from here on.
            ended: called when the owner has ended.

        Raises:
            DeviceUnavailable: the owner could not open the device; the message has the reason.
            MissedDeadline: the device is not ready in time.
            DeadObject: the owner has ended.
        """
        self._owner = _Owner(connected, ended)
        try:
            self._introduce()
        except BaseException:
            self._owner.close()
            raise

    def _introduce(self) -> None:
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
        """Whether the owner is running; checks its socket now."""
        return self._owner.is_alive

    def close(self) -> None:
        """Leave the owner, which drops all that this was given; `ended` is not called any more."""
        self._owner.close()

    @property
    def extensions(self) -> tuple[Extension, ...]:
        """The vendor extensions of the device."""
        return self._extensions

    def supported_with(self, model: Model, pools: Sequence[Bytes]) -> list[bool]:
        """For each operation, whether the device can run it; see `executor.base.ReadsConstants`."""
        with contextlib.ExitStack() as stack:
            described, fds = _copies(pools, stack)
            message = GetSupportedOperations(msgspec.structs.replace(model, pools=described))
            found = self._owner.call(message, SupportedOperations, fds, _LONG)
        return list(found.supported)

    def prepare(
        self, model: Model, pools: Sequence[Bytes], options: PrepareOptions = DEFAULT_OPTIONS
    ) -> OwnedPrepared:
        """Prepare a model in the owner; see `nnburst.executor.base.Executor`."""
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
        """Bind the request in the owner, which gets its memory; see `prepared_model.RequestBinder`."""
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
        """Bind arguments in memory of this process, which is copied at each run."""
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
        """Release the model in the owner."""
        self._owner.release(self._handle)


class OwnedExecution(Execution):
    """A request that is bound in the owner, which checks by itself whether it is idle."""

    keeps_memory = False
    finds_shapes = True  # those that the owner reports

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

        The owner reports the time on the device; the time in the driver includes the wait.
        """
        message = RunBound(self._handle, deadline_ns, loop_timeout_ns)
        executed = self._owner.call(message, Executed, timeout=_LONG)
        timing = executed.timing
        in_driver = NO_TIMING if timing.time_in_driver == NO_TIMING else MEASURED
        return Outcome(
            ErrorStatus.NONE, executed.output_shapes, "", timing.time_on_device, in_driver
        )

    def close(self) -> None:
        """Release the request in the owner, which unmaps its memory."""
        self._owner.release(self._handle)


class CopiedExecution(Execution):
    """A request over memory of the worker (device buffers), or over more pools than a message carries."""

    finds_shapes = True  # those of `execution`

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
            outputs: the same for outputs.
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
    """Copy a model's pools, so that no client can change them any more; `stack` closes the copies."""
    described: list[MemoryPool] = []
    fds: list[int] = []
    for index in range(len(pools)):
        source = memory_of(pools, index)
        memory = stack.enter_context(SharedMemory.create(source.nbytes, "nnburst constants"))
        memory.map_memory(writable=True)[:] = source
        described.append(MemoryPool(source.nbytes, index))
        fds.append(memory.fd)
    return tuple(described), fds
