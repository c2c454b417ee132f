"""Prepares models on a driver and allocates buffers there."""

from __future__ import annotations

import builtins
import os
import time
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from nnburst.client.arguments import (
    check_callable,
    check_deadline,
    check_member,
    check_thread_count,
    check_timeout,
    wait_left,
)
from nnburst.client.burst.interface import Recover, check_recover
from nnburst.client.compilation_cache import CachedCompilation, CacheFiles, check_files
from nnburst.client.execution.buffer import Buffer
from nnburst.client.memory import Memory, share
from nnburst.client.prepared_model import Preparation, PreparedModel, without_own_bursts
from nnburst.client.served_model import NetworkOpener, ServedModel, ServedName, served_models
from nnburst.client.session.closing import (
    close_at_end,
    close_collected,
    close_device,
    close_lost,
)
from nnburst.client.session.handshake import Session
from nnburst.client.session.process import DriverProcess
from nnburst.client.session.recovery import Recovery, check_same
from nnburst.client.staging import CarriesPools, check_pools, unpacked
from nnburst.control.channel import Fds
from nnburst.control.connection import RemoteObject
from nnburst.control.messages import (
    Allocate,
    Allocated,
    DeviceCapabilities,
    GetCapabilities,
    GetNumberOfCacheFilesNeeded,
    GetSupportedOperations,
    Message,
    PrepareModel,
    PrepareModelFromCache,
    SupportedOperations,
)
from nnburst.control.messages import NumberOfCacheFiles as CacheFileCounts
from nnburst.hal import vlog
from nnburst.hal.enums import DeviceType, ExecutionPreference, FeatureLevel, Priority
from nnburst.hal.errors import Closed, DeadObject, GeneralFailure, InvalidArgument
from nnburst.hal.extensions import Extension, ExtensionAttribute
from nnburst.hal.graph_dump import dump_model
from nnburst.hal.limits import INT32_MAX, UINT32_MAX
from nnburst.hal.model import DTYPES, MemoryPool, Model
from nnburst.hal.types import BufferDesc, BufferRole, Capabilities, NumberOfCacheFiles
from nnburst.hal.utils import (
    Closing,
    check_integer,
    check_integers,
    check_path,
    lasting_path,
    listed,
    warn_of_reference,
)
from nnburst.hal.validation import validate_memory_desc
from nnburst.hal.validation.values import validate_capabilities
from nnburst.tracing.slices import Layer, Phase, trace

#: A use of a buffer: a prepared model, and the number of one of its inputs or outputs.
Use = tuple[PreparedModel, int]


def allocate_buffer(
    session: Session,
    inputs: Sequence[Use],
    outputs: Sequence[Use],
    dimensions: Sequence[int],
    timeout: float,
) -> Buffer:
    """Allocate a buffer; see `Device.allocate_buffer`."""
    seconds = check_timeout(timeout)
    inputs, outputs = _checked_uses("inputs", inputs), _checked_uses("outputs", outputs)
    dimensions = check_integers("dimensions", dimensions, 0, UINT32_MAX)
    models = list({id(model): model for model, _ in (*inputs, *outputs)}.values())
    places = {id(model): index for index, model in enumerate(models)}
    read, written = (
        tuple(BufferRole(places[id(model)], index) for model, index in uses)
        for uses in (inputs, outputs)
    )
    operand = validate_memory_desc(
        dimensions,
        models,
        read,
        written,
        lambda prepared: prepared.model if prepared._prepared.session is session else None,
    )
    if operand.type not in DTYPES:
        raise GeneralFailure(
            f"buffers hold operands of core types only, not of type {operand.type}"
        )
    remote = RemoteObject(session.connection)
    user, used = object(), [model._prepared for model in models]
    try:
        # The models stay valid in the driver meanwhile, even if another thread closes them.
        handles = tuple(prepared.hold(user) for prepared in used)
        message = Allocate(BufferDesc(dimensions), handles, read, written)
        allocated, _ = session.connection.call(message, Allocated, timeout=seconds, remote=remote)
    finally:
        for prepared in used:
            prepared.release(user)
    return Buffer(session, allocated.token, remote, operand)


def _checked_uses(kind: str, uses: Sequence[Use]) -> list[Use]:
    found = []
    for at, use in enumerate(listed(kind, uses)):
        pair = isinstance(use, tuple | list) and len(use) == 2
        if not pair or not isinstance(use[0], PreparedModel):
            raise InvalidArgument(f"{kind}[{at}]: {use!r}, expected a prepared model and a number")
        found.append((use[0], check_integer(f"{kind}[{at}][1]", use[1])))
    return found


# -- device ----------------------------------------------------------------------------------------


#: Seconds that a driver has to accept a call whose outcome comes later.
_START_TIMEOUT: Final = 30.0

R = TypeVar("R", bound=Message)
T = TypeVar("T")
P = TypeVar("P", bound=PreparedModel)


class Device(Closing):
    """A connected driver. Thread-safe. A context manager that closes itself.

    Made by `nnburst.launch` and `nnburst.connect`. In a process forked from the one that made it, its
    calls raise Closed.
    """

    _instead = "let the other process call nnburst.connect with the name of a served driver"

    def __init__(self, session: Session, process: DriverProcess | None = None) -> None:
        """Own `session`, and the driver's process if this client started it."""
        self._session = session
        self._process = process
        self._owner = os.getpid()
        self._facts: dict[str, object] = {}
        self._capabilities: Capabilities | None = None
        self._cache_files: NumberOfCacheFiles | None = None
        self._recovery: Recovery | None = None
        self._make: Callable[[], Device] | None = None
        self._finalizer = close_at_end(self, session, process, self._owner)

    def _renew(self) -> Callable[[], None]:
        """Connect again to the same device.

        Raises:
            InvalidDevice: the device has other facts than before (device:§7).
        """
        recovery = self._recovery
        assert self._make is not None
        assert recovery is not None
        new = self._make()
        try:
            check_same(self._facts, _facts(new))
        except BaseException:
            new.close()
            raise
        clean_up = partial(close_lost, self._session, self._process, self._owner)
        self._finalizer.detach()
        new._finalizer.detach()
        session = new._session
        self._process, self._session = new._process, session
        self._finalizer = close_at_end(self, session, self._process, self._owner)
        if recovery.is_closed:
            self.close()  # `close` was called meanwhile; end the new connection, too
        else:
            session.connection.on_end_weakly(recovery.connection_ended)
        return clean_up

    def _twin(self) -> Device:
        """A device over the same session, for the recovery's thread: its calls never wait for a recovery."""
        twin = Device(self._session)
        twin._finalizer.detach()
        return twin

    def _reached(self, timeout: float) -> tuple[Session, float]:
        """Wait for a session with a live driver; returns it, and the seconds that the call has left.

        Raises:
            NnburstError: the driver is not recovered in time; see `Recovery.reach`.
        """
        seconds = check_timeout(timeout)
        if self._recovery is None or self._session.is_alive:
            return self._session, seconds
        deadline = time.monotonic() + seconds
        self._recovery.reach(self, int(deadline * 1e9))
        return self._session, wait_left(deadline)

    @property
    def recoveries(self) -> int:
        """Number of new connections after a death of the driver; 0 without `recover=`."""
        return 0 if self._recovery is None else self._recovery.count

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._session.closed

    @property
    def name(self) -> str:
        """The device's name."""
        return self._session.name

    @property
    def pid(self) -> int:
        """Number of the process that serves this client."""
        return self._session.pid

    @property
    def version_string(self) -> str:
        """The driver's version, opaque (NNAPI: getVersionString)."""
        return self._session.welcome.version_string

    @property
    def type(self) -> DeviceType:
        """Kind of hardware (NNAPI: getType)."""
        return self._session.welcome.type

    @property
    def thread_budget(self) -> int:
        """Threads that the driver can run at once: its allowed cores, or fewer by a cgroup's quota."""
        return self._session.welcome.thread_budget

    @property
    def feature_level(self) -> FeatureLevel:
        """Feature level that both sides speak."""
        return self._session.feature_level

    @property
    def pidfd(self) -> int:
        """Descriptor of the driver's process (pidfd); borrowed, valid until `close`, and -1 afterwards."""
        return self._session.pidfd

    @property
    def is_alive(self) -> bool:
        """Whether the driver is alive and this object is open."""
        return self._session.is_alive

    @property
    def _ended_ns(self) -> int:
        """The time at which the driver's end was noticed, on CLOCK_MONOTONIC; 0 before."""
        return self._session.ended_ns

    def on_death(self, callback: Callable[[], None]) -> None:
        """Run `callback` once when the driver dies or the device is closed, on a thread for such callbacks.

        If that has happened already, it runs at once on the calling thread, which gets its exception. The
        callback added last runs first; an exception of a callback is logged, and the others still run.

        Raises:
            InvalidArgument: `callback` cannot be called.
        """
        check_callable("callback", callback)
        self._session.notices.add(callback)

    def remove_callback(self, callback: Callable[[], None]) -> None:
        """Do not run `callback` any more; unknown ones are ignored."""
        self._session.notices.remove(callback)

    def allocate(self, size: int) -> Memory:
        """A new pool of `size` bytes, zeroed; the caller closes it.

        Raises:
            InvalidArgument: `size` is not a positive integer.
            ResourceExhausted: there is not enough memory.
            Closed: the device is closed.
        """
        pool = self._session.allocate(size)
        vlog.write("memory", "%s: a pool of %d bytes", self.name, size)
        return pool

    def allocate_buffer(
        self,
        inputs: Sequence[Use] = (),
        outputs: Sequence[Use] = (),
        *,
        dimensions: Sequence[int] = (),
        timeout: float = 30.0,
    ) -> Buffer:
        """A buffer that the driver keeps, for arguments of executions over the socket (NNAPI: allocate).

        It is lost with the driver, unlike pools. The caller closes it.

        Args:
            inputs: the inputs for which the buffer will be used, as pairs of a prepared model of this device
                and the number of an input.
            outputs: the same for outputs.
            dimensions: dimensions of the content, if the models leave them open; the first content decides
                those that are still open.
            timeout: seconds that the driver has to answer.

        Raises:
            InvalidArgument: validation:D1 to D12: models, roles or dimensions do not fit each other.
            GeneralFailure: the driver does not keep operands of this type.
            ResourceExhausted: there is not enough memory, or the client has too many buffers.
            DeadObject, Closed, MissedDeadline: see these classes.
        """
        session, seconds = self._reached(timeout)
        buffer = allocate_buffer(session, inputs, outputs, dimensions, seconds)
        vlog.write("memory", "%s: a buffer, token %d", self.name, buffer._token)
        return buffer

    def supported_operations(
        self,
        model: Model | CarriesPools,
        *,
        pools: Sequence[Memory] = (),
        timeout: float = 30.0,
    ) -> list[bool]:
        """For each operation of the model's main subgraph, in its order, whether the driver can run it.

        Args:
            model: a valid model, not necessarily supported; also the result of `nnburst.load`.
            pools: the pools of its CONSTANT_REFERENCE operands, in the model's order.
            timeout: seconds that the driver has to answer.

        Raises:
            InvalidArgument: the model is not valid, or the pools do not fit it.
            GeneralFailure: the driver's answer does not fit the model.
            DeadObject, Closed, MissedDeadline: see these classes.
        """
        deadline = time.monotonic() + check_timeout(timeout)
        with unpacked(model, pools) as (bare, memories):
            described = GetSupportedOperations(self._describe(bare, memories))
            answer, _ = self._repeated(
                lambda: self._call(described, SupportedOperations, memories, wait_left(deadline))
            )
        if len(answer.supported) != len(bare.main.operations):
            raise GeneralFailure(
                f"the driver answered for {len(answer.supported)} operations,"
                f" the model has {len(bare.main.operations)}"
            )
        return list(answer.supported)

    @property
    def capabilities(self) -> Capabilities:
        """The driver's reported speed, as ratios to the reference executor (NNAPI: getCapabilities).

        Asked for once and remembered.

        Raises:
            GeneralFailure: the driver's answer breaks validation:S3.
            DeadObject, Closed, MissedDeadline: see these classes.
        """
        if self._capabilities is None:
            answer, _ = self._call(GetCapabilities(), DeviceCapabilities, (), _START_TIMEOUT)
            try:
                validate_capabilities(answer.capabilities)
            except InvalidArgument as error:
                raise GeneralFailure(f"the driver sent invalid capabilities: {error}") from error
            self._capabilities = answer.capabilities
        return self._capabilities

    @property
    def number_of_cache_files_needed(self) -> NumberOfCacheFiles:
        """Numbers of files that a compilation is cached in (NNAPI: getNumberOfCacheFilesNeeded).

        Asked for once and remembered.

        Raises:
            DeadObject: the driver has died, or its answer was invalid: more than 32 files of a kind.
            Closed, MissedDeadline: see these classes.
        """
        return self._number_of_cache_files_needed(_START_TIMEOUT)

    def _number_of_cache_files_needed(self, seconds: float) -> NumberOfCacheFiles:
        if self._cache_files is None:
            call = GetNumberOfCacheFilesNeeded()
            timeout = min(seconds, _START_TIMEOUT)
            answer, _ = self._call(call, CacheFileCounts, (), timeout)
            self._cache_files = NumberOfCacheFiles(answer.model_cache, answer.data_cache)
        return self._cache_files

    def supported_extensions(self, *, timeout: float = 30.0) -> tuple[Extension, ...]:
        """The extensions whose types and operations the driver supports (NNAPI: getSupportedExtensions).

        Args:
            timeout: seconds that the driver has to answer; the answer is remembered.

        Raises:
            GeneralFailure: the driver's answer breaks validation:S4.
            DeadObject, Closed, MissedDeadline: see these classes.
        """
        session, seconds = self._reached(timeout)
        return session.supported_extensions(seconds)

    def prepare(
        self,
        model: Model | CarriesPools,
        *,
        preference: ExecutionPreference = ExecutionPreference.FAST_SINGLE_ANSWER,
        priority: Priority = Priority.MEDIUM,
        pools: Sequence[Memory] = (),
        num_threads: int = 0,
        cache_dir: str | os.PathLike[str] | None = None,
        token: bytes | None = None,
        attributes: Sequence[ExtensionAttribute] = (),
        timeout: float = 60.0,
        bursts: bool = True,
    ) -> PreparedModel:
        """Prepare a model for execution.

        With a `cache_dir`, the driver stores the compiled model there, and the next start of the program
        compiles nothing; `PreparedModel.from_cache` and a log line show it. If anything is wrong with the
        files, the model is compiled and cached anew.

        Args:
            model: the model, which the driver validates; also the result of `nnburst.load`.
            preference: the goal of the optimisation; LOW_POWER also keeps bursts from spinning.
            priority: among the models of this client.
            pools: the pools of its CONSTANT_REFERENCE operands, in the model's order; they may be closed as
                soon as this returns.
            num_threads: most threads that an execution may use; 0 leaves it to the driver.
                `PreparedModel.num_threads` is the actual number, never more than `thread_budget`.
            cache_dir: directory for this device's compilations; made (mode 0700) if it is missing.
            token: 32 bytes that name the model in `cache_dir`; by default a hash of its content.
                Two models with the same token cannot be told apart.
            attributes: of vendor extensions, for the device; unknown ones are ignored.
            timeout: seconds that preparing may take.
            bursts: whether `PreparedModel.execute` may open bursts by itself.

        Returns:
            The prepared model, which the caller closes.

        Raises:
            InvalidArgument: the model is not valid or not supported, the pools do not fit it, or another
                argument is invalid.
            ResourceExhausted, GeneralFailure: the driver reports this error.
            MissedDeadline: it took too long.
            DeadObject: the driver has died.
            Closed: the device or a pool is closed.
        """
        seconds = check_timeout(timeout)
        options: dict[str, Any] = {
            "preference": check_member(ExecutionPreference, preference, "preference"),
            "priority": check_member(Priority, priority, "priority"),
            "num_threads": check_thread_count(num_threads),
            "attributes": listed("attributes", attributes),
        }
        deadline = time.monotonic() + seconds
        folder = None if cache_dir is None else lasting_path(check_path("cache_dir", cache_dir))
        if self._recovery is not None:  # which maps them again, even if the caller closes them
            pools = [share(pool) for pool in check_pools(pools)]

        def prepare(device: Device) -> PreparedModel:
            again = device is not self
            left = seconds if again else wait_left(deadline)
            if folder is not None:
                return CachedCompilation(
                    device, model, folder, token, pools, options, left
                ).prepare()
            return device._prepare_within(left, model, pools=pools, **options)

        with trace(Layer.RUNTIME, Phase.COMPILATION, "prepare"):
            made = prepare_by(self, prepare)
            return made if bursts else without_own_bursts(made)

    def _repeated(self, work: Callable[[], T]) -> T:
        """Call the driver; if it dies meanwhile and calls wait, call the next one. Not for executions."""
        try:
            return work()
        except DeadObject:
            if self._recovery is None or not self._recovery.waits:
                raise
            return work()

    def _prepare_within(
        self,
        seconds: float,
        model: Model | CarriesPools,
        **options: Any,  # noqa: ANN401 - those of `prepare_async`
    ) -> PreparedModel:
        """Prepare a model with `prepare_async`, and wait for the result; all within `seconds`."""
        deadline = time.monotonic() + seconds
        preparation = self.prepare_async(model, timeout=seconds, **options)
        return preparation._wait(wait_left(deadline))

    def prepare_async(
        self,
        model: Model | CarriesPools,
        *,
        preference: ExecutionPreference = ExecutionPreference.FAST_SINGLE_ANSWER,
        priority: Priority = Priority.MEDIUM,
        pools: Sequence[Memory] = (),
        num_threads: int = 0,
        cache: CacheFiles | None = None,
        deadline_ns: int | None = None,
        attributes: Sequence[ExtensionAttribute] = (),
        callback: Callable[[Preparation], object] | None = None,
        timeout: float = _START_TIMEOUT,
    ) -> Preparation:
        """Start to prepare a model, without waiting for the result.

        Args:
            model: as for `prepare`, and so are `preference`, `priority`, `pools` and `num_threads`.
            preference: the goal of the optimisation.
            priority: among the models of this client; models of a higher priority are prepared first.
            pools: may be closed as soon as this returns.
            num_threads: most threads that an execution may use.
            cache: files in which the driver stores the compilation. If anything is wrong with them, the
                driver logs it and prepares the model all the same.
            deadline_ns: time on CLOCK_BOOTTIME, in nanoseconds, at which the driver is to give up; None for
                no limit.
            attributes: as for `prepare`.
            callback: called once with the returned preparation, also after a failure; see
                `Pending.add_done_callback`.
            timeout: seconds that the driver has to accept the call, 30 at most.

        Returns:
            A preparation, whose result is the prepared model; it can be awaited.

        Raises:
            InvalidArgument: an argument is invalid. Errors that the driver finds are raised by `result`.
            MissedDeadline: the driver does not accept the call.
            DeadObject: the driver has died.
            Closed: the device or a pool is closed.
        """
        session, seconds = self._reached(timeout)
        preference = check_member(ExecutionPreference, preference, "preference")
        priority = check_member(Priority, priority, "priority")
        threads, deadline_ns = check_thread_count(num_threads), check_deadline(deadline_ns)
        files = check_files(CacheFiles() if cache is None else cache)
        if callback is not None:
            check_callable("callback", callback)
        hints = session.hints(attributes)
        with (
            trace(Layer.RUNTIME, Phase.PREPARATION, "describe and send a model"),
            unpacked(model, pools) as (bare, memories),
        ):
            dump_model(bare, f"prepared by {self.name}")
            if self.version_string.endswith(" reference"):
                warn_of_reference(model)
            described = self._describe(bare, memories)
            note = session.own_bursts.note_priority(priority)
            preparation = Preparation(session, bare, preference, note)
            if callback is not None:
                preparation.add_done_callback(callback)
            counts = len(files.model), len(files.data)
            with Fds.duplicates(memories) as fds:
                preparation._start(
                    lambda number: PrepareModel(
                        described,
                        number,
                        preference,
                        priority,
                        deadline_ns,
                        threads,
                        *counts,
                        files.token,
                        hints,
                    ),
                    [*fds, *files.model, *files.data],
                    min(seconds, _START_TIMEOUT),
                )
        return preparation

    def prepare_from_cache(
        self,
        model: Model,
        cache: CacheFiles,
        *,
        preference: ExecutionPreference = ExecutionPreference.FAST_SINGLE_ANSWER,
        deadline_ns: int | None = None,
        attributes: Sequence[ExtensionAttribute] = (),
        timeout: float = 60.0,
    ) -> PreparedModel:
        """Prepare a model from its cache files (NNAPI: prepareModelFromCache).

        The cached model is executed, with the preference, priority and threads of its compilation. `prepare`
        with a `cache_dir` calls this and manages the files.

        Args:
            model: the model that was cached; only types and shapes of its arguments are used.
            cache: the files and the token of the compilation.
            preference: the preference of the compilation; bursts follow it.
            deadline_ns: time on CLOCK_BOOTTIME, in nanoseconds, at which the driver is to give up; None for
                no limit.
            attributes: the attributes of the compilation; the token covers them, too.
            timeout: seconds that preparing may take.

        Returns:
            The prepared model, which the caller closes.

        Raises:
            InvalidArgument: device:P5: the number of files is wrong, one is not a regular file opened to be
                read and written, or the token does not have 32 bytes.
            GeneralFailure: the driver does not cache, or it did not write these files for this token.
            MissedDeadline: it took too long.
            DeadObject: the driver has died.
            Closed: the device is closed.
        """
        session, seconds = self._reached(timeout)
        preference = check_member(ExecutionPreference, preference, "preference")
        deadline, deadline_ns = time.monotonic() + seconds, check_deadline(deadline_ns)
        cache = check_files(cache)
        hints = session.hints(attributes)
        preparation = Preparation(session, model, preference, from_cache=True)
        preparation._start(
            lambda number: PrepareModelFromCache(
                number, len(cache.model), len(cache.data), cache.token, deadline_ns, hints
            ),
            [*cache.model, *cache.data],
            min(seconds, _START_TIMEOUT),
        )
        return preparation._wait(wait_left(deadline))

    def models(self, *, timeout: float = 30.0) -> list[ServedName]:
        """The networks that the service serves by name, sorted; none if the driver was launched.

        Args:
            timeout: seconds that the driver has to answer.

        Raises:
            DeadObject, Closed, MissedDeadline: see these classes.
        """
        session, seconds = self._reached(timeout)
        return served_models(session, seconds)

    def model(self, name: str, version: int = 0, *, timeout: float = 60.0) -> ServedModel:
        """Open a network that the service serves by name (`nnburst serve --model NAME=FILE`).

        The service has read the network already; it prepares it soon after its start. A recovery opens the
        same version again, or fails if that has other inputs, outputs or states than before.

        Args:
            name: the network's name.
            version: the network's version; 0 is the newest.
            timeout: seconds that the driver has to answer, and to prepare the network if it has not yet.

        Returns:
            A prepared model with the network's names and states, which the caller closes.

        Raises:
            InvalidArgument: no such network is served, or the executor does not support it.
            NnburstError: the executor could not prepare it.
            DeadObject, Closed, MissedDeadline: see these classes.
        """
        seconds = check_timeout(timeout)
        if not isinstance(name, str):
            raise InvalidArgument(f"name: of type {type(name).__name__}, expected a text")
        version = check_integer("version", version, 0, INT32_MAX)
        with trace(Layer.RUNTIME, Phase.COMPILATION, "open a served model"):
            deadline, opener = time.monotonic() + seconds, NetworkOpener(name, version)

            def open_it(device: Device) -> ServedModel:
                left = wait_left(deadline) if device is self else seconds
                session, left = device._reached(left)
                return opener.open(session, left)

            return prepare_by(self, open_it)

    def _describe(self, model: Model, pools: Sequence[Memory]) -> Model:
        """Describe the model and its pools for a message."""
        if model.pools and len(model.pools) != len(pools):
            raise InvalidArgument(f"pools: {len(pools)} given, the model has {len(model.pools)}")
        declared = [pool.size for pool in model.pools] or [pool.size for pool in pools]
        for index, (memory, size) in enumerate(zip(pools, declared, strict=True)):
            if not 0 < size <= memory.size:
                raise InvalidArgument(
                    f"pools[{index}] has {memory.size} bytes, the model declares {size}"
                )
        described = tuple(MemoryPool(size, index) for index, size in enumerate(declared))
        return replace(model, pools=described)

    def _call(
        self,
        message: Message,
        expected: builtins.type[R],
        pools: Sequence[Memory],
        timeout: float,
    ) -> tuple[R, Fds]:
        session, seconds = self._reached(timeout)
        with Fds.duplicates(pools) as fds:
            return session.connection.call(message, expected, list(fds), timeout=seconds)

    def close(self) -> None:
        """End the connection; a driver that was launched ends, too. Twice is fine.

        Arrays in pools stay usable.
        """
        if self._recovery is not None and os.getpid() == self._owner:
            self._recovery.close()
        self._session.closed = True
        if self._finalizer.detach() is not None:
            with trace(Layer.RUNTIME, Phase.TERMINATION, "close a device"):
                try:
                    close_device(self._session, self._process, self._owner)
                except BaseException:  # an interruption: the closer's thread does the rest
                    close_collected(self._session, self._process, self._owner)
                    raise

    def __repr__(self) -> str:
        state = "alive" if self.is_alive else "closed" if self._session.closed else "dead"
        return f"<nnburst.Device {self.name} (pid {self.pid}): {state}>"


def recovering_device(make: Callable[[], Device], recover: Recover) -> Device:
    """Make a device whose connection is made again by `make` whenever its driver has died.

    Args:
        make: makes a device; called now, and after each death of a driver on a thread of the recovery.
        recover: whether calls wait meanwhile or raise; see `nnburst.launch`.

    Raises:
        InvalidArgument: `recover` is not one of the allowed values.
        NnburstError: `make` raised it.
    """
    waits = check_recover(recover)
    device = make()
    try:
        device._facts = _facts(device)
    except BaseException:
        device.close()
        raise
    device._make = make
    recovery = device._recovery = Recovery(waits)
    recovery.add(device)
    device._session.connection.on_end_weakly(recovery.connection_ended)
    return device


def prepare_by(device: Device, prepare: Callable[[Device], P], *, waits: bool | None = None) -> P:
    """Prepare a model now, and again, on the recovery's thread, for each driver that replaces this one.

    Args:
        device: the device that prepares it.
        prepare: prepares the model on its argument: `device`, or a device over the same session.
        waits: whether calls of the model wait for the next driver; as for the device unless given.
    """
    prepared = device._repeated(lambda: prepare(device))
    recovery = device._recovery
    if recovery is not None:
        held = weakref.ref(device)

        def again() -> PreparedModel:
            mine = held()
            if mine is None:
                raise Closed("the device is gone")
            return prepare(mine._twin())

        prepared._recover_by(recovery, again, waits=recovery.waits if waits is None else waits)
    return prepared


def _facts(device: Device) -> dict[str, object]:
    """The facts that must be the same when a service is restarted."""
    return {
        "name": device.name,
        "version_string": device.version_string,
        "feature_level": device.feature_level,
        "type": device.type,
        "extensions": device.supported_extensions(),
        "capabilities": device.capabilities,
        "number_of_cache_files_needed": device.number_of_cache_files_needed,
    }
