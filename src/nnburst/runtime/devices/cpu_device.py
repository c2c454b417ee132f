"""Executes by the reference executor in this process, as the device `nnapi-reference`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import numpy as np

from nnburst._version import __version__
from nnburst.client.arguments import boottime_deadline_ns
from nnburst.client.memory import Memory as Pool
from nnburst.executor.base import Argument as ExecutorArgument
from nnburst.executor.base import Execution, Prepared, PrepareOptions
from nnburst.executor.base import Outcome as Computed
from nnburst.executor.reference.executor import ReferenceExecutor
from nnburst.hal.enums import (
    DeviceType,
    ErrorStatus,
    ExecutionPreference,
    FeatureLevel,
    OperandType,
    OperationType,
    Priority,
    ResultCode,
)
from nnburst.hal.errors import MissedDeadline, NnburstError, result_code
from nnburst.hal.extensions import Extension, ExtensionAttribute
from nnburst.hal.limits import DEFAULT_LOOP_TIMEOUT_NS
from nnburst.hal.model import Model, is_extension
from nnburst.hal.types import (
    Capabilities,
    NumberOfCacheFiles,
    OperandPerformance,
    PerformanceInfo,
    has_passed,
)
from nnburst.hal.utils import start_thread
from nnburst.runtime.argument import Argument, Options, Outcome
from nnburst.runtime.devices.device import CacheRequest, Use

CPU_NAME: Final = "nnapi-reference"
_ONE: Final = PerformanceInfo(1.0, 1.0)


#: Runs an execution of the executor with a deadline and a loop timeout.
_Run: TypeAlias = Callable[[Execution, int | None, int], Computed]


def _run_inline(execution: Execution, deadline_ns: int | None, loop_timeout_ns: int) -> Computed:
    return execution.run(deadline_ns, loop_timeout_ns)


def _run_on_a_thread(
    execution: Execution, deadline_ns: int | None, loop_timeout_ns: int
) -> Computed:
    # No ThreadPoolExecutor, which starts no thread once the main thread has ended.
    found: list[Computed | BaseException] = []

    def compute() -> None:
        try:
            found.append(execution.run(deadline_ns, loop_timeout_ns))
        except BaseException as error:  # the caller raises it
            found.append(error)

    thread = threading.Thread(target=compute, name="nnburst cpu")
    try:
        start_thread(thread)
        thread.join()
    finally:
        if thread.is_alive():  # after an interruption; it uses memory of the caller
            thread.join()
    if isinstance(found[0], BaseException):
        raise found[0]
    return found[0]


class CpuDevice:
    """The CPU: always the last device, and the one that speeds are relative to. Thread-safe.

    NNAPI: RT:D3.
    """

    name: Final = CPU_NAME
    type: Final = DeviceType.CPU
    is_cpu: Final = True
    extensions: tuple[Extension, ...] = ()
    cache_files: Final = NumberOfCacheFiles(0, 0)
    capabilities: Final = Capabilities(
        _ONE,
        _ONE,
        tuple(
            OperandPerformance(t, _ONE) for t in sorted(OperandType) if t != OperandType.SUBGRAPH
        ),
        _ONE,
        _ONE,
    )

    def __init__(
        self, feature_level: FeatureLevel = FeatureLevel.AIDL_V4, *, inline: bool = True
    ) -> None:
        """Report the runtime's level; with `inline` compute on the caller's thread instead of a new one."""
        self.feature_level: Final = feature_level
        self._run: Final = _run_inline if inline else _run_on_a_thread
        self._executor: Final = ReferenceExecutor()

    @property
    def version_string(self) -> str:
        """The version of this package."""
        return __version__

    def supports_extension(self, name: str) -> bool:  # noqa: ARG002
        """False: the CPU has no extensions."""
        return False

    def supported_operations(self, model: Model, pools: Sequence[Pool]) -> list[bool]:  # noqa: ARG002
        """True for each operation that is neither OEM nor an extension's, whatever its operands."""
        return [
            operation.type != OperationType.OEM_OPERATION and not is_extension(operation.type)
            for operation in model.main.operations
        ]

    def wait(self, timeout: float = 30.0) -> None:
        """Return at once: the CPU is always there."""

    def prepare(
        self,
        model: Model,
        pools: Sequence[Pool],
        preference: ExecutionPreference = ExecutionPreference.FAST_SINGLE_ANSWER,
        priority: Priority = Priority.MEDIUM,
        deadline_ns: int | None = None,
        cache: CacheRequest | None = None,  # noqa: ARG002 - RT:K2: never given any
        attributes: Sequence[ExtensionAttribute] = (),  # noqa: ARG002 - of extensions, which it lacks
    ) -> CpuPrepared:
        """Prepare a model.

        Raises:
            MissedDeadline: the deadline has passed.
            NnburstError: the executor refuses the model.
        """
        if has_passed(deadline_ns):
            raise MissedDeadline(
                "the deadline passed before the CPU began to prepare",
                status=ErrorStatus.MISSED_DEADLINE_PERSISTENT,
            )
        views = [np.asarray(pool) for pool in pools]
        return CpuPrepared(
            self._executor.prepare(model, views, PrepareOptions(preference, priority)), self._run
        )

    def allocate(self, uses: Sequence[Use], dimensions: Sequence[int]) -> None:  # noqa: ARG002
        """None: the CPU uses plain shared memory."""
        return

    def close(self) -> None:
        """Do nothing."""


class CpuPrepared:
    """A model that the CPU has prepared. Thread-safe."""

    def __init__(self, prepared: Prepared, run: _Run) -> None:
        """Own the model that the executor has prepared; `run` computes."""
        self._prepared = prepared
        self._run = run

    died_ns: Final = None

    def revive(self) -> None:
        """Do nothing: the CPU cannot die."""

    def execute(
        self, inputs: Sequence[Argument], outputs: Sequence[Argument], options: Options
    ) -> Outcome:
        """Execute on the memory of the arguments, without a copy."""
        if has_passed(options.deadline_ns):
            return Outcome(
                ResultCode.MISSED_DEADLINE_PERSISTENT,
                message="the deadline passed before the CPU began to compute",
            )
        if any(argument.buffer is not None for argument in (*inputs, *outputs)):
            return Outcome(ResultCode.OP_FAILED, message="the CPU has no buffers of drivers")
        try:
            request = self.bind(inputs, outputs)
        except NnburstError as error:
            return Outcome.of(error)
        try:
            return request.execute(options.deadline_ns, options.loop_timeout_ns)
        finally:
            request.close()

    def open_burst(self) -> CpuBurst:
        """A substitute for a burst, for plans that also have steps on drivers."""
        return CpuBurst(self)

    def bind(self, inputs: Sequence[Argument], outputs: Sequence[Argument]) -> CpuRequest:
        """Bind arguments once for many computations; their memory must stay valid.

        Raises:
            NnburstError: the executor refuses the arguments.
        """
        return CpuRequest(
            self._prepared.bind(
                [ExecutorArgument(a.bytes, a.dimensions) for a in inputs],
                [ExecutorArgument(a.bytes, a.dimensions) for a in outputs],
            ),
            self._run,
        )

    def close(self) -> None:
        """Free constants and layouts."""
        self._prepared.close()


class CpuRequest:
    """Arguments that are bound to a model on the CPU. One thread at a time.

    Attributes:
        closed: always False, since the memory is kept alive.
    """

    closed: Final = False

    def __init__(self, execution: Execution, run: _Run) -> None:
        """Own `execution`, which `run` computes."""
        self._execution: Final = execution
        self._run: Final = run
        self._result: Outcome = Outcome()

    def execute(self, deadline_ns: int | None, loop_timeout_ns: int) -> Outcome:
        """Compute once and wait."""
        found = self._run(self._execution, deadline_ns, loop_timeout_ns)
        return Outcome(result_code(found.status), found.output_shapes, message=found.message)

    def compute(self, seconds: float) -> bool:
        """Compute once; True if that succeeded."""
        self._result = self.execute(boottime_deadline_ns(seconds), DEFAULT_LOOP_TIMEOUT_NS)
        return self._result.code == ResultCode.NO_ERROR

    def result(self) -> Outcome:
        """The outcome of the latest computation that was not interrupted."""
        return self._result

    def run(self, timeout: float) -> Outcome:
        """Compute once and wait."""
        self.compute(timeout)
        return self.result()

    def close(self) -> None:
        """Release the arguments."""
        self._execution.close()


class CpuBurst:
    """A step of the CPU among bursts of drivers."""

    has_known_outputs: Final = True  # only plans with known shapes are bound

    def __init__(self, part: CpuPrepared) -> None:
        """Execute `part`, which the plan owns."""
        self._part: Final = part

    died_ns: Final = None

    def revive(self) -> None:
        """Do nothing: the CPU cannot die."""

    def execute(
        self, inputs: Sequence[Argument], outputs: Sequence[Argument], options: Options
    ) -> Outcome:
        """Execute once."""
        return self._part.execute(inputs, outputs, options)

    def bind(self, inputs: Sequence[Argument], outputs: Sequence[Argument]) -> CpuRequest:
        """Bind arguments; see `CpuPrepared.bind`."""
        return self._part.bind(inputs, outputs)

    def holds(self, request: object) -> bool:  # noqa: ARG002
        """True: a request can always be run."""
        return True

    def has_replaced(self, request: object) -> bool:  # noqa: ARG002
        """False: a request's burst is never replaced."""
        return False

    def outcome(self, result: Outcome, outputs: Sequence[Argument]) -> Outcome:  # noqa: ARG002
        """The outcome of a run of a bound request."""
        return result

    def close(self) -> None:
        """Do nothing: the plan owns the part."""
