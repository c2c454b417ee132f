"""Device: a driver as its client sees it."""

from __future__ import annotations

import builtins
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any, Final, TypeVar

from nnburst.client.allocation import Use, allocate_buffer
from nnburst.client.compilation_cache import CachedCompilation, CacheFiles
from nnburst.client.execution.buffer import Buffer
from nnburst.client.memory.arguments import check_timeout
from nnburst.client.memory.carried_pools import CarriesPools, unpacked
from nnburst.client.memory.memory import Memory
from nnburst.client.preparation import Preparation
from nnburst.client.prepared_model import PreparedModel
from nnburst.client.session.handshake import Session
from nnburst.client.session.process import DriverProcess
from nnburst.control.channel import Fds
from nnburst.control.messages.device import (
    DeviceCapabilities,
    GetCapabilities,
    GetNumberOfCacheFilesNeeded,
    GetSupportedOperations,
    PrepareModel,
    PrepareModelFromCache,
    SupportedOperations,
)
from nnburst.control.messages.device import NumberOfCacheFiles as CacheFileCounts
from nnburst.control.messages.message import Message
from nnburst.hal.capabilities import Capabilities
from nnburst.hal.closing import Closing
from nnburst.hal.configs import NumberOfCacheFiles
from nnburst.hal.diagnostics import vlog
from nnburst.hal.diagnostics.graph_files import dump_model
from nnburst.hal.enums import DeviceType, ExecutionPreference, FeatureLevel, Priority
from nnburst.hal.errors import GeneralFailure, InvalidArgument
from nnburst.hal.extensions import Extension
from nnburst.hal.extensions.attributes import ExtensionAttribute
from nnburst.hal.model import MemoryPool, Model
from nnburst.hal.validation.values import validate_capabilities
from nnburst.tracing.slices import Layer, Phase, trace

logger = logging.getLogger(__name__)

#: More threads than that cannot be asked for.
_MOST_THREADS: Final = 1024

#: Seconds that a driver gets to take a call whose outcome comes later.
_START_TIMEOUT: Final = 30.0
#: Seconds that a wait has at least: an outcome that is there already counts.
_SHORTEST: Final = 1e-3

R = TypeVar("R", bound=Message)
E = TypeVar("E", bound=IntEnum)


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
        self._capabilities: Capabilities | None = None
        self._cache_files: NumberOfCacheFiles | None = None
        self._finalizer = weakref.finalize(self, _collected, session, process, self._owner)

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
        """Version that both sides speak."""
        return self._session.feature_level

    @property
    def pidfd(self) -> int:
        """Descriptor of the driver's process (pidfd); borrowed, valid until `close`, and -1 afterwards."""
        return self._session.pidfd

    @property
    def is_alive(self) -> bool:
        """Whether the driver is there and this object is open."""
        return self._session.is_alive

    @property
    def _ended_ns(self) -> int:
        """When the driver's end was noticed, on CLOCK_MONOTONIC; 0 before."""
        return self._session.ended_ns

    def on_death(self, callback: Callable[[], None]) -> None:
        """Run `callback` once when the driver dies or the device is closed, on a thread for such callbacks.

        If that has happened already, it runs at once on the calling thread, which gets what it raises. Of
        several callbacks the one added last runs first; what one raises is logged, and the others follow.
        """
        self._session.notices.add(callback)

    def remove_callback(self, callback: Callable[[], None]) -> None:
        """Do not run `callback` any more; unknown ones are ignored."""
        self._session.notices.remove(callback)

    def allocate(self, size: int) -> Memory:
        """A new pool of `size` bytes, zeroed; the caller closes it.

        Raises:
            InvalidArgument: `size` is not a positive integer.
            ResourceExhausted: there is not so much memory.
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
            inputs: pairs of a prepared model of this device and the number of one of its inputs: the buffer
                will be used as these.
            outputs: the same for outputs.
            dimensions: of the content, if the models leave them open; what is still open then, the first
                content decides.
            timeout: seconds that the driver has to answer.

        Raises:
            InvalidArgument: validation:D1 to D12: models, roles or dimensions do not fit each other.
            GeneralFailure: the driver does not keep such operands.
            ResourceExhausted: there is not so much memory, or the client has too many buffers.
            DeadObject, Closed, MissedDeadline: see these classes.
        """
        buffer = allocate_buffer(self._session, inputs, outputs, dimensions, timeout)
        vlog.write("memory", "%s: a buffer, token %d", self.name, buffer._token)
        return buffer

    def supported_operations(
        self,
        model: Model | CarriesPools,
        *,
        pools: Sequence[Memory] = (),
        timeout: float = 30.0,
    ) -> list[bool]:
        """Which operations of the model's main subgraph the driver can run, in the model's order.

        Args:
            model: valid, but not necessarily supported; what `nnburst.load` returns is taken as it is.
            pools: those that its CONSTANT_REFERENCE operands lie in, in the model's order.
            timeout: seconds that the driver has to answer.

        Raises:
            InvalidArgument: the model is not valid, or the pools do not fit it.
            GeneralFailure: the driver's answer does not fit the model.
            DeadObject, Closed, MissedDeadline: see these classes.
        """
        with unpacked(model, pools) as (bare, memories):
            described = self._describe(bare, memories)
            answer, _ = self._call(
                GetSupportedOperations(described), SupportedOperations, memories, timeout
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
        """How many files a compilation is cached in (NNAPI: getNumberOfCacheFilesNeeded).

        Asked for once and remembered.

        Raises:
            DeadObject: the driver has died, or its answer was invalid: more than 32 files of a kind.
            Closed, MissedDeadline: see these classes.
        """
        if self._cache_files is None:
            call = GetNumberOfCacheFilesNeeded()
            answer, _ = self._call(call, CacheFileCounts, (), _START_TIMEOUT)
            self._cache_files = NumberOfCacheFiles(answer.model_cache, answer.data_cache)
        return self._cache_files

    def supported_extensions(self, *, timeout: float = 30.0) -> tuple[Extension, ...]:
        """The extensions whose types and operations the driver has (NNAPI: getSupportedExtensions).

        Args:
            timeout: seconds that the driver has to answer; the answer is remembered.

        Raises:
            GeneralFailure: the driver's answer breaks validation:S4.
            DeadObject, Closed, MissedDeadline: see these classes.
        """
        return self._session.supported_extensions(check_timeout(timeout))

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
    ) -> PreparedModel:
        """Prepare a model for execution.

        With a `cache_dir`, the driver keeps what it has compiled there, and the next start of the program
        compiles nothing; `PreparedModel.from_cache` and a log line show it. If anything is wrong with the
        files, the model is compiled and cached anew.

        Args:
            model: validated by the driver; what `nnburst.load` returns is taken as it is.
            preference: what to optimise for; LOW_POWER also keeps bursts from spinning.
            priority: among the models of this client.
            pools: those that its CONSTANT_REFERENCE operands lie in, in the model's order.
            num_threads: most threads that an execution may use; 0 leaves it to the driver. How many
                they are is `PreparedModel.num_threads`: never more than `thread_budget`.
            cache_dir: directory for this device's compilations; made (mode 0700) if it is missing.
            token: 32 bytes that name the model in `cache_dir`; by default a hash of its content.
                Two models with the same token cannot be told apart.
            attributes: of vendor extensions, for the device; unknown ones are ignored.
            timeout: seconds that preparing may take.

        Returns:
            The prepared model, which the caller closes.

        Raises:
            InvalidArgument: the model is not valid or not supported, the pools do not fit it, or another
                argument makes no sense.
            ResourceExhausted, GeneralFailure: the driver's reason.
            MissedDeadline: it took too long.
            DeadObject: the driver has died.
            Closed: the device or a pool is closed.
        """
        seconds = check_timeout(timeout)
        options: dict[str, Any] = {
            "preference": _member(ExecutionPreference, preference, "preference"),
            "priority": _member(Priority, priority, "priority"),
            "num_threads": _thread_count(num_threads),
            "attributes": tuple(attributes),
        }
        with trace(Layer.RUNTIME, Phase.COMPILATION, "prepare"):
            if cache_dir is not None:
                compilation = CachedCompilation(self, model, cache_dir, token, pools, options)
                return compilation.prepare(seconds)
            return self._prepare_within(seconds, model, pools=pools, **options)

    def _prepare_within(
        self,
        seconds: float,
        model: Model | CarriesPools,
        **options: Any,  # noqa: ANN401 - those of `prepare_async`
    ) -> PreparedModel:
        """`prepare_async` and its result, sent and done within so many seconds."""
        deadline = time.monotonic() + seconds
        preparation = self.prepare_async(model, timeout=seconds, **options)
        return preparation._wait(max(deadline - time.monotonic(), _SHORTEST))

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
        """Have a model prepared while this program goes on.

        Args:
            model: as for `prepare`, and so are `preference`, `priority`, `pools` and `num_threads`.
            preference: what to optimise for.
            priority: among the models of this client; those of a higher one are prepared first.
            pools: may be closed as soon as this returns.
            num_threads: most threads that an execution may use.
            cache: files that the driver is to keep the compilation in. If anything is wrong with them, the
                driver logs it and prepares the model all the same.
            deadline_ns: moment on CLOCK_BOOTTIME, in nanoseconds, at which the driver is to give up; None
                for no limit.
            attributes: as for `prepare`.
            callback: called once with what this returns, also if it fails; see `Pending.add_done_callback`.
            timeout: seconds that the driver has to take the call, 30 at most.

        Returns:
            A preparation, whose result is the prepared model; it can be awaited.

        Raises:
            InvalidArgument: an argument makes no sense. What the driver finds wrong, `result` raises.
            MissedDeadline: the driver does not take the call.
            DeadObject: the driver has died.
            Closed: the device or a pool is closed.
        """
        seconds = check_timeout(timeout)
        preference = _member(ExecutionPreference, preference, "preference")
        priority = _member(Priority, priority, "priority")
        threads = _thread_count(num_threads)
        hints = self._session.hints(attributes)
        with (
            trace(Layer.RUNTIME, Phase.PREPARATION, "describe and send a model"),
            unpacked(model, pools) as (bare, memories),
        ):
            dump_model(bare, f"prepared by {self.name}")
            described = self._describe(bare, memories)
            preparation = Preparation(self._session, bare, preference)
            if callback is not None:
                preparation.add_done_callback(callback)
            files = CacheFiles() if cache is None else cache
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
        """Prepare a model from the files that it was cached in (NNAPI: prepareModelFromCache).

        What is executed is the model that was cached; preference, priority and threads are those that it was
        prepared with. `prepare` with a `cache_dir` does all that is needed around this.

        Args:
            model: the model that was cached; only types and shapes of its arguments are used.
            cache: files and token that it was cached with.
            preference: that it was prepared with, for its bursts.
            deadline_ns: moment on CLOCK_BOOTTIME, in nanoseconds, at which the driver is to give up; None
                for no limit.
            attributes: those that it was prepared with; the token stands for them, too.
            timeout: seconds that it may take.

        Returns:
            The prepared model, which the caller closes.

        Raises:
            InvalidArgument: device:P5: the number of files is wrong, one is not a regular file opened to be
                read and written, or the token does not have 32 bytes.
            GeneralFailure: the driver caches nothing, or the files are not what it wrote for this token.
            MissedDeadline: it took too long.
            DeadObject: the driver has died.
            Closed: the device is closed.
        """
        seconds = check_timeout(timeout)
        preference = _member(ExecutionPreference, preference, "preference")
        deadline = time.monotonic() + seconds
        hints = self._session.hints(attributes)
        preparation = Preparation(self._session, model, preference, from_cache=True)
        preparation._start(
            lambda number: PrepareModelFromCache(
                number, len(cache.model), len(cache.data), cache.token, deadline_ns, hints
            ),
            [*cache.model, *cache.data],
            min(seconds, _START_TIMEOUT),
        )
        return preparation._wait(max(deadline - time.monotonic(), _SHORTEST))

    def _describe(self, model: Model, pools: Sequence[Memory]) -> Model:
        """The model with its pools as the message carries them."""
        if model.pools and len(model.pools) != len(pools):
            raise InvalidArgument(f"pools: {len(pools)} given, the model has {len(model.pools)}")
        declared = [pool.size for pool in model.pools] or [pool.size for pool in pools]
        for index, (memory, size) in enumerate(zip(pools, declared, strict=True)):
            if not 0 < size <= memory.size:
                raise InvalidArgument(
                    f"pools[{index}] has {memory.size} bytes, the model declares {size}"
                )
        described = tuple(MemoryPool(size, index) for index, size in enumerate(declared))
        return Model(
            main=model.main,
            referenced=model.referenced,
            operand_values=model.operand_values,
            pools=described,
            relax_computation_float32_to_float16=model.relax_computation_float32_to_float16,
            extension_name_to_prefix=model.extension_name_to_prefix,
        )

    def _call(
        self,
        message: Message,
        expected: builtins.type[R],
        pools: Sequence[Memory],
        timeout: float,
    ) -> tuple[R, Fds]:
        seconds = check_timeout(timeout)
        with Fds.duplicates(pools) as fds:
            return self._session.connection.call(message, expected, list(fds), timeout=seconds)

    def close(self) -> None:
        """End the connection; a driver that was launched ends, too. Twice is fine.

        Arrays in pools stay usable.
        """
        self._session.closed = True
        if self._finalizer.detach() is not None:
            with trace(Layer.RUNTIME, Phase.TERMINATION, "close a device"):
                _close(self._session, self._process, self._owner)

    def __repr__(self) -> str:
        state = "alive" if self.is_alive else "closed" if self._session.closed else "dead"
        return f"<nnburst.Device {self.name} (pid {self.pid}): {state}>"


def _member(kind: type[E], value: int, name: str) -> E:
    """`value` as a member of an enumeration; InvalidArgument if it is not (device:P3, P4)."""
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(f"{member.name} ({int(member)})" for member in kind)
        raise InvalidArgument(f"{name}: {value!r}, expected one of {known}") from None


def _thread_count(value: int) -> int:
    if not isinstance(value, int) or not 0 <= value <= _MOST_THREADS:
        raise InvalidArgument(f"num_threads: {value!r}, expected 0 to {_MOST_THREADS}")
    return value


def _collected(session: Session, process: DriverProcess | None, owner: int) -> None:
    """`_close` for the garbage collector, which runs on any thread, be it one that `_close` waits for.

    Whatever that thread holds a lock of, this neither takes one nor waits: the rest is another thread's.
    """
    if os.getpid() != owner:
        return
    if threading.main_thread().is_alive():
        session.abandon()
        try:
            threading.Thread(
                target=_close, args=(session, process, owner), name="nnburst device closer"
            ).start()
        except RuntimeError:
            logger.warning(
                "unclosed device leaks its descriptors: cannot start the thread that closes them"
            )
        return
    _close(session, process, owner)  # the end of the program, which waits


def _close(session: Session, process: DriverProcess | None, owner: int) -> None:
    if os.getpid() != owner:
        return  # a forked child must not end its parent's connection
    session.close()
    if process is not None:
        process.close()
