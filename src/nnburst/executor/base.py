"""The contract between a driver and whatever computes.

    Executor.supported(model)  -> which operations of the main subgraph it can run
    Executor.prepare(model, …) -> Prepared       once per model, heavy work belongs here
    Prepared.bind(arguments)   -> Execution      once per distinct request
    Execution.run(deadlines)   -> Outcome        again and again

All but four members have defaults: docs/tutorial/own_executor.md has an executor of sixteen lines. An
executor never sees queues, slots or fds: only numpy views of memory that the driver has mapped.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias, overload

import msgspec

from nnburst.hal.enums import (
    DeviceType,
    ErrorStatus,
    ExecutionPreference,
    FeatureLevel,
    Priority,
)
from nnburst.hal.extensions import Extension
from nnburst.hal.extensions.attributes import ExtensionAttribute
from nnburst.hal.imports import late_numpy as np
from nnburst.hal.limits import DEFAULT_LOOP_TIMEOUT_NS
from nnburst.hal.model import Model
from nnburst.hal.timing import OutputShape

if TYPE_CHECKING:
    import numpy.typing as npt

Bytes: TypeAlias = "npt.NDArray[np.uint8]"


class Argument:
    """One input or output of a bound request. Its bytes are there twice: as an array, and without numpy.

    Attributes:
        dimensions: the model's dimensions merged with the request's; 0 is unknown (outputs only),
            and an empty tuple is a scalar or, for a tensor, an unknown rank (outputs only).
    """

    __slots__ = ("_array", "_memory", "dimensions")

    def __init__(self, buffer: Bytes | memoryview | None, dimensions: tuple[int, ...]) -> None:
        """An argument in memory that outlives it.

        Args:
            buffer: one-dimensional bytes, read-only for inputs; None if the argument is omitted.
            dimensions: see the attributes.
        """
        self._memory: memoryview | None = None
        self._array: Bytes | None = None
        if isinstance(buffer, memoryview):
            self._memory = buffer
        else:
            self._array = buffer
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
    """A model's pools as arrays, each made when it is first asked for. Immutable.

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
    """What an execution reports.

    Attributes:
        status: NONE, OUTPUT_INSUFFICIENT_SIZE, GENERAL_FAILURE, INVALID_ARGUMENT, MISSED_DEADLINE_* or
            RESOURCE_EXHAUSTED_* (out of memory is TRANSIENT).
        output_shapes: one per output with NONE and OUTPUT_INSUFFICIENT_SIZE; may be empty with NONE
            if every output is fully specified; empty with any other status.
        message: why it failed, for logs and for callers that can get it.
    """

    status: ErrorStatus = ErrorStatus.NONE
    output_shapes: tuple[OutputShape, ...] = ()
    message: str = ""


class NativeCall(msgspec.Struct, frozen=True):
    """An execution that the burst loop can run without entering Python.

    Attributes:
        function: address of `int32_t (*)(void *context)` that returns an ErrorStatus.
        context: its argument. The Execution keeps both alive.
        output_shapes: of every success, which results carry if the model leaves an output's shape open; None
            if they may differ from run to run, which only `run` can report.
    """

    function: int
    context: int
    output_shapes: tuple[OutputShape, ...] | None = None


class PrepareOptions(msgspec.Struct, frozen=True):
    """How a model is to be prepared.

    Attributes:
        preference: what to optimise for.
        priority: relative priority among the client's models.
        num_threads: most threads that an execution may use, the calling one included; 0 leaves it to the
            executor.
        attributes: of vendor extensions; each code of an extension once. What an executor does not know, it
            ignores.
    """

    preference: ExecutionPreference = ExecutionPreference.FAST_SINGLE_ANSWER
    priority: Priority = Priority.MEDIUM
    num_threads: int = 0
    attributes: tuple[ExtensionAttribute, ...] = ()


#: What `prepare` does unless it is given anything else.
DEFAULT_OPTIONS: Final = PrepareOptions()


class Execution(ABC):
    """A request bound to its memory. One thread runs it at a time."""

    @property
    def native(self) -> NativeCall | None:
        """How to run it without Python; None if only `run` can."""
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
        """Free what the binding holds; the buffers are not touched any more afterwards."""
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
        """Free what the model holds. Called when no execution runs any more."""
        return


class Executor(ABC):
    """A way to compute models, and what its driver reports of the device. Thread-safe.

    The least that an executor is: `name`, `prepare`, and `bind` and `run` of what that returns. Everything
    else has a default.

    Attributes:
        name: the name under which it is registered in the entry-point group `nnburst.executors`.
        engine_version: of the engine behind it, or of the package that it comes from; a part of the
            device's version string, so that caches of another version are not used.
        device_type: the kind of hardware that it computes on (NNAPI: getType).
        feature_level: the newest version whose models it takes (NNAPI: getVersion); V1_2 at least.
        extensions: the vendor extensions whose types and operations it can all run.
        capabilities_file: how fast it was on the machine where it was measured for all others, as
            `nnburst bench capabilities` writes it; None if it ships nothing.
    """

    name: str
    engine_version: str = ""
    device_type: DeviceType = DeviceType.CPU
    feature_level: FeatureLevel = FeatureLevel.AIDL_V4
    capabilities_file: Path | None = None

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
            pools: bytes of the model's pools. Another process may change them: copy what is kept.
            options: preference, priority and threads.

        Raises:
            NnburstError: it cannot be prepared; `.status` has the reason.
        """
