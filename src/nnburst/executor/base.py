"""Declares the interface between a driver and an executor, with optional caching and shared weights.

    Executor.supported(model)  -> which operations of the main subgraph it can run
    Executor.prepare(model, …) -> Prepared       once per model, heavy work belongs here
    Prepared.bind(arguments)   -> Execution      once per distinct request
    Execution.run(deadlines)   -> Outcome        again and again

All but four members have defaults: docs/tutorial/own_executor.md has an executor of sixteen lines. An
executor never gets queues or slots, only numpy views of memory that the driver has mapped. The only
descriptors that it gets are those of packed weights, which are files that it made itself.
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

#: Stands for a duration in an `Outcome` that the driver measures around the call.
MEASURED: Final = UINT64_MAX - 1


class DeviceMemory(ABC):
    """Memory on a device, which no client can map. Freed with the last reference to it.

    Attributes:
        nbytes: number of bytes.
    """

    nbytes: int

    @abstractmethod
    def copy_in(self, source: memoryview) -> None:
        """Fill the first bytes.

        Raises:
            NnburstError: the device refuses; the content of the memory is then undefined.
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
        device_memory: the device's memory with the argument, which then has no bytes in the host's memory;
            else None.
    """

    __slots__ = ("_array", "_memory", "device_memory", "dimensions")

    def __init__(
        self, buffer: Bytes | memoryview | DeviceMemory | None, dimensions: tuple[int, ...]
    ) -> None:
        """An argument in memory that must outlive the argument.

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
        """The bytes as plain memory, for executors that need no array."""
        if self._memory is None and self._array is not None:
            self._memory = self._array.data
        return self._memory


class Pools(Sequence["Bytes"]):
    """A model's pools as arrays, each made when it is first read. Immutable.

    Attributes:
        memories: the pools' bytes as plain memory, for executors that need no arrays.
    """

    def __init__(self, memories: Sequence[memoryview]) -> None:
        """Pools in memory that must outlive this object."""
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
        message: the reason of a failure, for logs and for callers that can get it.
        device_ns: time on the device alone, by any clock, in nanoseconds; MEASURED for the time of the call,
            which the driver measures; NO_TIMING (2**64 - 1) if it is not available, which clients then get.
        driver_ns: time from the start of the call, at least `device_ns`; or MEASURED or NO_TIMING. The driver
            never reports more than it measures itself.
    """

    status: ErrorStatus = ErrorStatus.NONE
    output_shapes: tuple[OutputShape, ...] = ()
    message: str = ""
    device_ns: int = MEASURED
    driver_ns: int = MEASURED


class NativeCall(msgspec.Struct, frozen=True):
    """An execution that the burst loop can run without Python: a function as `run` of nnburst/executor.h.

    Attributes:
        run: address of the function.
        execution: its first argument. The Execution keeps both alive.
        output_shapes: the shapes that every success reports if the model leaves an output's shape open; None
            if they may differ from run to run.
        reports_shapes: whether the function itself reports open shapes in each run; if not, only `run` of the
            Execution does.
    """

    run: int
    execution: int
    output_shapes: tuple[OutputShape, ...] | None = None
    reports_shapes: bool = False


class PrepareOptions(msgspec.Struct, frozen=True):
    """The options with which a model is prepared.

    Attributes:
        preference: the goal of optimisation.
        priority: relative priority among the client's models.
        num_threads: the most threads that an execution may use, the calling one included; 0 for the
            executor's choice.
        attributes: attributes of vendor extensions; each code of an extension once. An executor ignores
            unknown ones.
        deadline_ns: deadline on CLOCK_BOOTTIME; None for no limit.
    """

    preference: ExecutionPreference = ExecutionPreference.FAST_SINGLE_ANSWER
    priority: Priority = Priority.MEDIUM
    num_threads: int = 0
    attributes: tuple[ExtensionAttribute, ...] = ()
    deadline_ns: int | None = None


#: The default options of `prepare`.
DEFAULT_OPTIONS: Final = PrepareOptions()


class Execution(ABC):
    """A request bound to its memory. One thread runs it at a time.

    Attributes:
        keeps_memory: whether it holds memory between its runs, so that a driver closes an idle execution, and
            binds the request again for the next run.
        finds_shapes: whether only a run finds out the shapes of its outputs although the model declares them.
    """

    keeps_memory: bool = True
    finds_shapes: bool = False

    @property
    def native(self) -> NativeCall | None:
        """The call that runs the request without Python; None if only `run` can."""
        return None

    @abstractmethod
    def run(
        self,
        deadline_ns: int | None = None,
        loop_timeout_ns: int = DEFAULT_LOOP_TIMEOUT_NS,
    ) -> Outcome:
        """Execute once. Invalid data give an outcome and never raise.

        Args:
            deadline_ns: deadline on CLOCK_BOOTTIME; None for no limit.
            loop_timeout_ns: nanoseconds after which a WHILE ends.
        """

    def close(self) -> None:
        """Free the binding's memory; the buffers must not be accessed afterwards."""
        return


class Prepared(ABC):
    """A model that is ready to be executed. `bind` may be called from several threads at once.

    Attributes:
        num_threads: threads that an execution uses, the calling one included.
    """

    num_threads: int = 1

    @abstractmethod
    def bind(self, inputs: Sequence[Argument], outputs: Sequence[Argument]) -> Execution:
        """Bind memory for a request that has passed validation (validation:R1 to R15).

        Args:
            inputs: one argument for each input of the model.
            outputs: one argument for each output; written by each run.

        Raises:
            NnburstError: the request cannot be executed; `.status` has the reason.
        """

    def bind_with(
        self,
        inputs: Sequence[Argument],
        outputs: Sequence[Argument],
        attributes: Sequence[ExtensionAttribute],  # noqa: ARG002 - for executors that know some
    ) -> Execution:
        """Bind memory for executions with attributes of vendor extensions; by default these are ignored."""
        return self.bind(inputs, outputs)

    def close(self) -> None:
        """Free the model's memory. Called when none of its executions runs."""
        return


class Executor(ABC):
    """Computes models, and describes the device for its driver. Thread-safe.

    An executor must have `name` and `prepare`; its prepared model must have `bind`, and an execution `run`.
    Everything else has a default.

    Attributes:
        name: the name under which it is registered in the entry-point group `nnburst.executors`.
        engine_version: version of its engine, or of its package; a part of the device's version string, so
            that caches of another version are not used.
        device_type: the kind of hardware that it computes on (NNAPI: getType).
        feature_level: the newest version whose models it accepts (NNAPI: getVersion); V1_2 at least.
        extensions: the vendor extensions whose types and operations it can all run.
        capabilities_file: file with its performance, measured on one machine for all others, as
            `nnburst bench capabilities` writes it; None if it ships no file.
        capabilities: its own figures of performance, used if no file applies; None if it has no figures.
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
            pools: bytes of the model's pools. Another process may change them: copy all bytes that you keep.
            options: preference, priority and threads.

        Raises:
            NnburstError: it cannot be prepared; `.status` has the reason.
        """


class MemoryUse(msgspec.Struct, frozen=True):
    """A use of memory that a device is to allocate.

    Attributes:
        prepared: the prepared model.
        is_output: whether the memory is for an output, not for an input.
        index: number of the input or output.
    """

    prepared: Prepared
    is_output: bool
    index: int


@runtime_checkable
class ReadsConstants(Protocol):
    """An executor whose answer depends on the values of constants in pools."""

    def supported_with(self, model: Model, pools: Sequence[Bytes]) -> list[bool]:
        """See `Executor.supported`; `pools` are the model's, which another process may change at any time."""


def supported_with(executor: Executor, model: Model, pools: Sequence[Bytes]) -> list[bool]:
    """The operations of a main subgraph that an executor can run, whether or not it reads pools."""
    if isinstance(executor, ReadsConstants):
        return executor.supported_with(model, pools)
    return executor.supported(model)


@runtime_checkable
class AllocatingExecutor(Protocol):
    """An executor whose device has memory of its own (NNAPI: IDevice::allocate)."""

    def allocate(
        self, operand: Operand, dimensions: Sequence[int], size: int, uses: Sequence[MemoryUse]
    ) -> DeviceMemory | None:
        """Allocate memory for one operand, which is used by executions with these uses, and by copies.

        Args:
            operand: type of the operand; its name in the models does not matter.
            dimensions: its dimensions as far as known; 0 is unknown.
            size: number of bytes, above 0.
            uses: uses of the memory.

        Returns:
            The memory; None if the driver's memory is the better place.

        Raises:
            NnburstError: the device has not enough memory left.
        """


# -- caching ---------------------------------------------------------------------------------------


Octets = bytes | bytearray


class Cached(msgspec.Struct, frozen=True):
    """The data from which an executor prepares a model again without compiling it.

    Attributes:
        model: the model for the validation of requests, with all parts that the executor needs again.
        program: the executor's own bytes. They steer it (NNAPI calls their file security-sensitive), so the
            driver returns them unchanged or not at all.
        constants: values only: other bytes of the same length may change results of executions, and nothing
            else, since no driver can protect their file any better.
    """

    model: Model
    program: bytes = b""
    constants: Octets = b""


@runtime_checkable
class CachingPrepared(Protocol):
    """A prepared model that can be cached."""

    def to_cache(self) -> Cached | None:
        """The data to cache; None if this model cannot be cached. Called once, before `bind`."""


@runtime_checkable
class CachingExecutor(Protocol):
    """An executor whose prepared models can be cached. Thread-safe."""

    @property
    def cache_files(self) -> NumberOfCacheFiles:
        """(1, 0) if there are never constants, else (1, 1); the same at every start."""

    def prepare_from_cache(self, cached: Cached, options: PrepareOptions) -> Prepared:
        """Prepare a model that `to_cache` returned, in this or an earlier process of the same version.

        Args:
            cached: see `Cached`; the executor may keep its bytes and overwrite `constants`.
            options: the options that the model was prepared with.

        Raises:
            NnburstError: the model cannot be prepared from these data; the client will compile it.
        """


class FallbackExecutor(CachingExecutor, Protocol):
    """An executor for the models, or parts of models, that another executor's engine does not run."""

    @property
    def extensions(self) -> tuple[Extension, ...]:
        """The vendor extensions that this executor runs; see `Executor.extensions`."""

    def supported(self, model: Model) -> list[bool]:
        """See `Executor.supported`."""

    def prepare(
        self, model: Model, pools: Sequence[Bytes], options: PrepareOptions = DEFAULT_OPTIONS
    ) -> Prepared:
        """See `Executor.prepare`."""


def without_constants(model: Model) -> Model:
    """Remove a model's constants; the rest can validate requests as long as no constant is read."""
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
            model: the model; see `Executor.prepare`.
            pools: its pools, which do not change.
            options: its options; see `Executor.prepare`.

        Returns:
            Descriptors of memfds that can be sealed, at most `MAX_FILES`; the caller owns them, and they must
            not be mapped. Empty if the model has nothing to share.

        Raises:
            NnburstError: the model cannot be prepared.
        """

    def prepare_packed(
        self, model: Model, files: Sequence[int], options: PrepareOptions
    ) -> Prepared:
        """Prepare a model that `pack` has packed with the same options in another process.

        Args:
            model: the same model.
            files: the files that `pack` returned, sealed against writing; the caller closes them.
            options: the same options.

        Raises:
            NnburstError: the model cannot be prepared from these files; the driver then calls `prepare`.
        """


#: The most memory files of one model.
MAX_FILES = 4


def memory_file(name: str, *parts: bytes | bytearray | memoryview) -> int:
    """Make a memfd that can be sealed and holds `parts` one after the other; the caller owns it.

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
