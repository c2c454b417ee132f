"""Declares the contract between a driver and an executor, with optional caching and shared weights.

    Executor.supported(model)  -> which operations of the main subgraph it can run
    Executor.prepare(model, …) -> Prepared       once per model, heavy work belongs here
    Prepared.bind(arguments)   -> Execution      once per distinct request
    Execution.run(deadlines)   -> Outcome        again and again

All but four members have defaults: docs/tutorial/own_executor.md has an executor of sixteen lines. An
executor never sees queues or slots: only numpy views of memory that the driver has mapped. The only
descriptors that it sees are those of packed weights, which are files of its own making.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, overload, runtime_checkable

import msgspec

from nnburst.hal import late_numpy as np
from nnburst.hal.enums import DeviceType, ErrorStatus, ExecutionPreference, FeatureLevel, Priority
from nnburst.hal.extensions import Extension, ExtensionAttribute
from nnburst.hal.limits import DEFAULT_LOOP_TIMEOUT_NS, UINT64_MAX
from nnburst.hal.model import Model, Operand
from nnburst.hal.types import Capabilities, NumberOfCacheFiles, OutputShape

if TYPE_CHECKING:
    import numpy.typing as npt


Bytes: TypeAlias = "npt.NDArray[np.uint8]"

#: A duration in an `Outcome` that the driver is to measure around the call.
MEASURED: Final = UINT64_MAX - 1


class DeviceMemory(ABC):
    """Memory that stays on a device, and that no client can map. Freed with the last reference to it.

    Attributes:
        nbytes: how much there is.
    """

    nbytes: int

    @abstractmethod
    def copy_in(self, source: memoryview) -> None:
        """Fill the first bytes.

        Raises:
            NnburstError: the device refuses; what it holds is then not asked for.
        """

    @abstractmethod
    def copy_out(self, target: memoryview) -> None:
        """Copy the first bytes to `target`.

        Raises:
            NnburstError: the device refuses.
        """


class Argument:
    """One input or output of a bound request, whose bytes are given as an array and as plain memory.

    Attributes:
        dimensions: the model's dimensions merged with the request's; 0 is unknown (outputs only),
            and an empty tuple is a scalar or, for a tensor, an unknown rank (outputs only).
        device_memory: where it lies, if that is memory of the device; it then has no bytes here.
    """

    __slots__ = ("_array", "_memory", "device_memory", "dimensions")

    def __init__(
        self, buffer: Bytes | memoryview | DeviceMemory | None, dimensions: tuple[int, ...]
    ) -> None:
        """An argument in memory that outlives it.

        Args:
            buffer: one-dimensional bytes, read-only for inputs; or memory that the executor has allocated;
                None if the argument is omitted.
            dimensions: see the attributes.
        """
        self.device_memory = buffer if isinstance(buffer, DeviceMemory) else None
        self._memory: memoryview | None = None
        self._array: Bytes | None = None
        if isinstance(buffer, memoryview):
            self._memory = buffer
        elif self.device_memory is None:
            self._array = buffer  # type: ignore[assignment]
        self.dimensions = dimensions

    @property
    def buffer(self) -> Bytes | None:
        """The bytes, a one-dimensional uint8 view of shared memory (read-only for inputs).

        None if the argument is omitted. Another process may change the bytes at any time.
        """
        if self._array is None and self._memory is not None:
            self._array = np.frombuffer(self._memory, np.uint8)
        return self._array

    @property
    def memory(self) -> memoryview | None:
        """The same bytes, for executors that need no array of them."""
        if self._memory is None and self._array is not None:
            self._memory = self._array.data
        return self._memory


class Pools(Sequence["Bytes"]):
    """A model's pools as arrays, each made when it is first read. Immutable.

    Attributes:
        memories: the same bytes, for executors that need no arrays of them.
    """

    def __init__(self, memories: Sequence[memoryview]) -> None:
        """Pools in memory that outlives this."""
        self.memories: Final = tuple(memories)
        self._arrays: dict[int, Bytes] = {}

    def __len__(self) -> int:
        return len(self.memories)

    @overload
    def __getitem__(self, index: int) -> Bytes: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Bytes]: ...
    def __getitem__(self, index: int | slice) -> Bytes | Sequence[Bytes]:
        if isinstance(index, slice):
            return Pools(self.memories[index])
        at = range(len(self.memories))[index]
        if at not in self._arrays:
            self._arrays[at] = np.frombuffer(self.memories[at], np.uint8)
        return self._arrays[at]


def memory_of(pools: Sequence[Bytes], index: int) -> memoryview:
    """The bytes of pool `index`; no array is made for it."""
    return pools.memories[index] if isinstance(pools, Pools) else pools[index].data


class Outcome(msgspec.Struct, frozen=True):
    """The result of an execution.

    Attributes:
        status: NONE, OUTPUT_INSUFFICIENT_SIZE, GENERAL_FAILURE, INVALID_ARGUMENT, MISSED_DEADLINE_* or
            RESOURCE_EXHAUSTED_* (out of memory is TRANSIENT).
        output_shapes: one per output with NONE and OUTPUT_INSUFFICIENT_SIZE; may be empty with NONE
            if every output is fully specified; empty with any other status.
        message: why it failed, for logs and for callers that can get it.
        device_ns: time on the device alone, by whatever clock, in nanoseconds; MEASURED to have the driver
            take the time of the call; NO_TIMING (2**64 - 1) if it is not available, as clients are then told.
        driver_ns: from the call on, at least `device_ns`; or the same. Never more than what the driver
            measures is reported.
    """

    status: ErrorStatus = ErrorStatus.NONE
    output_shapes: tuple[OutputShape, ...] = ()
    message: str = ""
    device_ns: int = MEASURED
    driver_ns: int = MEASURED


class NativeCall(msgspec.Struct, frozen=True):
    """An execution that the burst loop can run without entering Python: `run` of nnburst/executor.h.

    Attributes:
        run: address of the function.
        execution: its first argument. The Execution keeps both alive.
        output_shapes: of every success, which results carry if the model leaves an output's shape open; None
            if they may differ from run to run.
        reports_shapes: whether each run reports them itself, if the model leaves one open; else only `run` of
            the Execution can.
    """

    run: int
    execution: int
    output_shapes: tuple[OutputShape, ...] | None = None
    reports_shapes: bool = False


class PrepareOptions(msgspec.Struct, frozen=True):
    """Settings with which a model is prepared.

    Attributes:
        preference: what to optimise for.
        priority: relative priority among the client's models.
        num_threads: most threads that an execution may use, the calling one included; 0 leaves it to the
            executor.
        attributes: of vendor extensions; each code of an extension once. What an executor does not know, it
            ignores.
        deadline_ns: moment on CLOCK_BOOTTIME at which to give up; None for no limit.
    """

    preference: ExecutionPreference = ExecutionPreference.FAST_SINGLE_ANSWER
    priority: Priority = Priority.MEDIUM
    num_threads: int = 0
    attributes: tuple[ExtensionAttribute, ...] = ()
    deadline_ns: int | None = None


#: The options of `prepare` if it is given none.
DEFAULT_OPTIONS: Final = PrepareOptions()


class Execution(ABC):
    """A request bound to its memory. One thread runs it at a time.

    Attributes:
        keeps_memory: whether it has memory between its runs, so that a driver closes it when it idles, and
            binds the request again for the next run.
    """

    keeps_memory: bool = True

    @property
    def native(self) -> NativeCall | None:
        """The call that runs it without Python; None if only `run` can."""
        return None

    @abstractmethod
    def run(
        self,
        deadline_ns: int | None = None,
        loop_timeout_ns: int = DEFAULT_LOOP_TIMEOUT_NS,
    ) -> Outcome:
        """Execute once. Bad data are an outcome and never raise.

        Args:
            deadline_ns: moment on CLOCK_BOOTTIME at which to give up; None for no limit.
            loop_timeout_ns: nanoseconds after which a WHILE ends.
        """

    def close(self) -> None:
        """Free the binding's memory; the buffers are not touched any more afterwards."""
        return


class Prepared(ABC):
    """A model ready to be executed. `bind` may be called from several threads at once.

    Attributes:
        num_threads: threads that an execution uses, the calling one included.
    """

    num_threads: int = 1

    @abstractmethod
    def bind(self, inputs: Sequence[Argument], outputs: Sequence[Argument]) -> Execution:
        """Bind memory. The request has passed validation (validation:R1 to R15) before.

        Args:
            inputs: one for each input of the model.
            outputs: one for each output; written by each run.

        Raises:
            NnburstError: the request cannot be executed; `.status` has the reason.
        """

    def bind_with(
        self,
        inputs: Sequence[Argument],
        outputs: Sequence[Argument],
        attributes: Sequence[ExtensionAttribute],  # noqa: ARG002 - for executors that know some
    ) -> Execution:
        """As `bind`, for executions with attributes of vendor extensions; by default those are ignored."""
        return self.bind(inputs, outputs)

    def close(self) -> None:
        """Free the model's memory. Called when no execution runs any more."""
        return


class Executor(ABC):
    """A way to compute models, and what its driver reports of the device. Thread-safe.

    An executor must have `name` and `prepare`; its prepared model must have `bind`, and an execution `run`.
    Everything else has a default.

    Attributes:
        name: the name under which it is registered in the entry-point group `nnburst.executors`.
        engine_version: of the engine behind it, or of the package that it comes from; a part of the
            device's version string, so that caches of another version are not used.
        device_type: the kind of hardware that it computes on (NNAPI: getType).
        feature_level: the newest version whose models it takes (NNAPI: getVersion); V1_2 at least.
        extensions: the vendor extensions whose types and operations it can all run.
        capabilities_file: how fast it was on the machine where it was measured for all others, as
            `nnburst bench capabilities` writes it; None if it ships nothing.
        capabilities: how fast it is by its own account, if no file counts; None if it gives none.
    """

    name: str
    engine_version: str = ""
    device_type: DeviceType = DeviceType.CPU
    feature_level: FeatureLevel = FeatureLevel.AIDL_V4
    capabilities_file: Path | None = None
    capabilities: Capabilities | None = None

    @property
    def extensions(self) -> tuple[Extension, ...]:
        """The vendor extensions whose types and operations it can all run; by default an empty tuple."""
        return ()

    def supported(self, model: Model) -> list[bool]:
        """Whether each operation of the main subgraph can be run; False in doubt. By default True for all."""
        return [True] * len(model.main.operations)

    @abstractmethod
    def prepare(
        self, model: Model, pools: Sequence[Bytes], options: PrepareOptions = DEFAULT_OPTIONS
    ) -> Prepared:
        """Prepare a validated model.

        Args:
            model: the model; its `pools` describe `pools`.
            pools: bytes of the model's pools. Another process may change them: copy any that you keep.
            options: preference, priority and threads.

        Raises:
            NnburstError: it cannot be prepared; `.status` has the reason.
        """


class MemoryUse(msgspec.Struct, frozen=True):
    """A use that memory is allocated for.

    Attributes:
        prepared: the model, as its executor prepared it.
        is_output: whether it is an output.
        index: which.
    """

    prepared: Prepared
    is_output: bool
    index: int


@runtime_checkable
class ReadsConstants(Protocol):
    """An executor whose answer depends on the values of constants in pools."""

    def supported_with(self, model: Model, pools: Sequence[Bytes]) -> list[bool]:
        """As `Executor.supported`, with the model's pools, which another process may change at any time."""


def supported_with(executor: Executor, model: Model, pools: Sequence[Bytes]) -> list[bool]:
    """Which operations of a model's main subgraph an executor can run, whether it reads pools or not."""
    if isinstance(executor, ReadsConstants):
        return executor.supported_with(model, pools)
    return executor.supported(model)


@runtime_checkable
class AllocatingExecutor(Protocol):
    """An executor whose device has memory of its own (NNAPI: IDevice::allocate)."""

    def allocate(
        self, operand: Operand, dimensions: Sequence[int], size: int, uses: Sequence[MemoryUse]
    ) -> DeviceMemory | None:
        """Memory for one operand, which only executions with these uses, and copies, are given.

        Args:
            operand: its type; what it is called in the models does not count.
            dimensions: as far as known; 0 is unknown.
            size: bytes, above 0.
            uses: which it is allocated for.

        Returns:
            None if it is better off in the driver's memory.

        Raises:
            NnburstError: the device has no such memory left.
        """


# -- caching ---------------------------------------------------------------------------------------


Octets = bytes | bytearray


class Cached(msgspec.Struct, frozen=True):
    """All that an executor needs to prepare a model again without compiling it.

    Attributes:
        model: for the validation of requests, with those parts that the executor needs again.
        program: the executor's own bytes. They steer it (NNAPI calls their file security-sensitive), so
            they come back exactly as they were or not at all.
        constants: values only: other bytes of the same length may change what executions compute, and
            nothing else, since no driver can promise more about the file that they lie in.
    """

    model: Model
    program: bytes = b""
    constants: Octets = b""


@runtime_checkable
class CachingPrepared(Protocol):
    """A prepared model that can be kept."""

    def to_cache(self) -> Cached | None:
        """The parts to keep; None if this model cannot be cached. Called once, before `bind`."""


@runtime_checkable
class CachingExecutor(Protocol):
    """An executor whose prepared models can be kept. Thread-safe."""

    @property
    def cache_files(self) -> NumberOfCacheFiles:
        """(1, 0) if there are never constants, else (1, 1); the same at every start."""

    def prepare_from_cache(self, cached: Cached, options: PrepareOptions) -> Prepared:
        """Prepare a model that `to_cache` returned, in this or an earlier process of the same version.

        Args:
            cached: see `Cached`; the executor may keep its bytes and overwrite `constants`.
            options: those that the model was prepared with.

        Raises:
            NnburstError: it cannot be prepared from these; its client will have it compiled.
        """


class FallbackExecutor(CachingExecutor, Protocol):
    """An executor that takes the models, or parts of models, that the engine of another one does not run."""

    @property
    def extensions(self) -> tuple[Extension, ...]:
        """The vendor extensions that it runs; see `Executor.extensions`."""

    def supported(self, model: Model) -> list[bool]:
        """See `Executor.supported`."""

    def prepare(
        self, model: Model, pools: Sequence[Bytes], options: PrepareOptions = DEFAULT_OPTIONS
    ) -> Prepared:
        """See `Executor.prepare`."""


def without_constants(model: Model) -> Model:
    """The model without constants: enough to validate requests, as long as no constant is read."""
    return msgspec.structs.replace(model, operand_values=b"", pools=())


# -- Optional: share packed weights between processes of several clients ---------------------------
#     PackingExecutor.pack(model, …)            -> memory files    where no client's message was read
#     PackingExecutor.prepare_packed(files, …)  -> Prepared        in a worker, instead of `prepare`
#
# Engines read weights in a form of their own. It is made once, in memory files that are sealed and only
# read from then on, so that further clients of a service that prepare the same model save the time and the
# memory. The driver decides which clients may share and which models are the same
# (`nnburst.driver.weights_server`).


@runtime_checkable
class PackingExecutor(Protocol):
    """An executor whose packed weights can be shared. Thread-safe."""

    def pack(
        self, model: Model, pools: Sequence[Bytes], options: PrepareOptions
    ) -> tuple[int, ...]:
        """Pack the weights of a validated model; called in a process that does nothing else.

        Args:
            model: as for `Executor.prepare`.
            pools: likewise; they do not change.
            options: likewise.

        Returns:
            Descriptors of memfds that can be sealed, at most `MAX_FILES`; the caller owns them, and they
            are mapped nowhere. Empty if the model has nothing to share.

        Raises:
            NnburstError: it cannot be prepared.
        """

    def prepare_packed(
        self, model: Model, files: Sequence[int], options: PrepareOptions
    ) -> Prepared:
        """Prepare a model that `pack` has packed with the same options in another process.

        Args:
            model: the same.
            files: those that `pack` returned, sealed against writing; the caller closes them.
            options: the same.

        Raises:
            NnburstError: it cannot be prepared from these; the driver then calls `prepare`.
        """


#: Memory files of one model.
MAX_FILES = 4


def memory_file(name: str, *parts: bytes | bytearray | memoryview) -> int:
    """A new memfd that can be sealed, with `parts` in it one behind the other; the caller owns it.

    Raises:
        OSError: memory is short.
    """
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        for part in parts:
            left = memoryview(part)
            while left:
                left = left[os.write(fd, left) :]
    except BaseException:
        os.close(fd)
        raise
    return fd
