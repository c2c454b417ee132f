"""Runs a bound request within its deadline, times it, and turns executors' exceptions into errors.

Every execution ends in `run_in_time`, except those that a burst's loop runs without Python.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from nnburst.control.messages import Executed
from nnburst.control.service import text_of
from nnburst.driver.counters import CountedExecution
from nnburst.driver.model.answers import checked_object, checked_outcome
from nnburst.driver.model.buffers import DeviceBuffer
from nnburst.executor.base import MEASURED, Argument, Execution, Outcome, Prepared
from nnburst.hal.enums import FAILURES, ErrorStatus
from nnburst.hal.errors import GeneralFailure, InvalidArgument, NnburstError, error_for
from nnburst.hal.extensions import ExtensionAttribute, Hints, number_of, prefix_of
from nnburst.hal.limits import DEFAULT_LOOP_TIMEOUT_NS, MAX_LOOP_TIMEOUT_NS, NO_TIMING
from nnburst.hal.types import OutputShape, Timing, has_passed
from nnburst.hal.validation.values import (
    Broken,
    validate_extension_prefixes,
    validate_unique_tokens,
)

# -- Exceptions of executors -----------------------------------------------------------------------


logger = logging.getLogger(__name__)


def outcome_of(error: BaseException, method: str = "") -> Outcome:
    """Convert an executor's exception to an outcome for the client.

    SystemExit, too: an executor must not end the thread of a burst or of a lane.

    Args:
        error: the exception.
        method: the executor's method that raised it; empty if it is unknown.
    """
    if isinstance(error, NnburstError) and error.status in FAILURES:
        return Outcome(error.status, error.output_shapes, text_of(error))
    if isinstance(error, MemoryError):
        return Outcome(ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT, (), "out of memory")
    logger.error(
        "an execution raised instead of returning an error: answered with GENERAL_FAILURE",
        exc_info=error,
    )
    where = f"{method} raised " if method else ""
    text = f"{where}{type(error).__name__}: {text_of(error)}"
    return Outcome(ErrorStatus.GENERAL_FAILURE, (), text)


# -- Executions whose requests name buffers --------------------------------------------------------
# The states of the buffers are checked before each run, and updated after it.

Shape = tuple[int, ...]


def bind_arguments(
    prepared: Prepared,
    inputs: Sequence[Argument],
    outputs: Sequence[Argument],
    attributes: Sequence[ExtensionAttribute],
) -> Execution:
    """Let an executor bind memory.

    Raises:
        GeneralFailure: it returned no execution.
        NnburstError: it refuses the request.
    """
    if attributes:
        found = prepared.bind_with(inputs, outputs, attributes)
        return checked_object(prepared, "bind_with", found, "an Execution", "run")
    found = prepared.bind(inputs, outputs)
    return checked_object(prepared, "bind", found, "an Execution", "run")


class BufferArgument(NamedTuple):
    """An argument that is a whole buffer, and its dimensions according to model and request."""

    buffer: DeviceBuffer
    dimensions: Shape


class BufferedExecution(Execution):
    """A request bound to memory and buffers. It can run many times, on one thread at a time.

    Buffers may change between runs, so each run binds their memory anew.
    """

    keeps_memory = False

    def __init__(
        self,
        model: object,
        prepared: Prepared,
        inputs: Sequence[Argument | BufferArgument],
        outputs: Sequence[Argument | BufferArgument],
        attributes: Sequence[ExtensionAttribute] = (),
    ) -> None:
        """Check everything that does not change from run to run.

        Args:
            model: the model in whose roles the buffers are used.
            prepared: the executor's prepared model.
            inputs: the validated inputs.
            outputs: the validated outputs.
            attributes: of vendor extensions, for the executor.

        Raises:
            InvalidArgument: device:§6: a buffer is used in a role that it was not allocated for, or twice.
        """
        self._prepared = prepared
        self._inputs = inputs
        self._outputs = outputs
        self._attributes = attributes
        for kind, arguments in (("input", inputs), ("output", outputs)):
            for index, argument in enumerate(arguments):
                if isinstance(argument, BufferArgument):
                    argument.buffer.check_role(model, kind, index)
        used = [id(a.buffer) for a in inputs if isinstance(a, BufferArgument)]
        for output in self._written():
            if id(output.buffer) in used:
                raise InvalidArgument(
                    f"device:E6: buffer {output.buffer.token} is an output and also something else"
                )
            used.append(id(output.buffer))

    def run(
        self,
        deadline_ns: int | None = None,
        loop_timeout_ns: int = DEFAULT_LOOP_TIMEOUT_NS,
    ) -> Outcome:
        """Execute once; see `nnburst.executor.base.Execution`.

        An uninitialised input, or a buffer that is too small for an output, is GENERAL_FAILURE (device:§5.1,
        §6). Output buffers are initialised only by a success.
        """
        try:
            outcome = self._run(deadline_ns, loop_timeout_ns)
        except BaseException as error:
            outcome = outcome_of(error)
        if outcome.status != ErrorStatus.NONE:
            self.cancel()
        return outcome

    def cancel(self) -> None:
        """Mark the output buffers as uninitialised, because the execution will not run."""
        invalidate(output.buffer for output in self._written())

    def _run(self, deadline_ns: int | None, loop_timeout_ns: int) -> Outcome:
        inputs = [
            Argument(a.buffer.content(a.dimensions), a.dimensions)
            if isinstance(a, BufferArgument)
            else a
            for a in self._inputs
        ]
        wanted = [
            a.buffer.check_output(a.dimensions) if isinstance(a, BufferArgument) else a.dimensions
            for a in self._outputs
        ]
        while True:
            outputs = [
                Argument(a.buffer.space(dimensions), dimensions)
                if isinstance(a, BufferArgument)
                else a
                for a, dimensions in zip(self._outputs, wanted, strict=True)
            ]
            execution = bind_arguments(self._prepared, inputs, outputs, self._attributes)
            try:
                # Here, too: what it reports grows buffers before the caller's `run_in_time` checks it.
                outcome = run_in_time(execution, deadline_ns, loop_timeout_ns)
            finally:
                execution.close()
            if outcome.status != ErrorStatus.OUTPUT_INSUFFICIENT_SIZE or not self._grow(outcome):
                break
        if outcome.status == ErrorStatus.NONE:
            self._fill(outcome.output_shapes, wanted)
        return outcome

    def _grow(self, outcome: Outcome) -> bool:
        """Enlarge buffers that were too small; False if no buffer was: then only the client can help."""
        grown = False
        for output, shape in zip(self._outputs, outcome.output_shapes, strict=False):
            if isinstance(output, BufferArgument) and not shape.is_sufficient:
                if not output.buffer.grow(shape.dimensions):
                    raise GeneralFailure(
                        f"device:E7: buffer {output.buffer.token} is too small"
                        f" for an output of {list(shape.dimensions)}"
                    )
                grown = True
        return grown

    def _fill(self, shapes: Sequence[OutputShape], wanted: Sequence[Shape]) -> None:
        """Mark the buffers as initialised, with the actual dimensions of the outputs."""
        found = [shape.dimensions for shape in shapes] or wanted
        for output, dimensions in zip(self._outputs, found, strict=False):
            if isinstance(output, BufferArgument):
                output.buffer.fill(dimensions)

    def _written(self) -> list[BufferArgument]:
        return [output for output in self._outputs if isinstance(output, BufferArgument)]

    def close(self) -> None:
        """Do nothing: memory and buffers belong to the caller that bound them."""


def invalidate(buffers: Iterable[DeviceBuffer]) -> None:
    """Mark the output buffers of a failed execution as uninitialised."""
    for buffer in buffers:
        buffer.invalidate()


# -- Running within a deadline ---------------------------------------------------------------------


def execute_bound(
    execution: Execution,
    counted: CountedExecution,
    called: int | None,
    deadline_ns: int | None,
    loop_timeout_ns: int,
    *,
    unit_ns: int = 1000,
) -> Executed:
    """Run an execution that `PreparedModel.bind` returned.

    Args:
        execution: the bound execution.
        counted: receives the duration in the executor.
        called: the time of the client's call (perf_counter_ns), if the execution is timed.
        deadline_ns: time on CLOCK_BOOTTIME.
        loop_timeout_ns: limit of a WHILE.
        unit_ns: unit of the timing in nanoseconds: 1,000 for HIDL, 1 for AIDL.

    Raises:
        NnburstError: with the status for the client (device:E4, E7, E8).
    """
    started = time.perf_counter_ns()
    outcome = run_in_time(execution, deadline_ns, loop_timeout_ns)
    took = time.perf_counter_ns() - started
    counted.device_ns = took if outcome.device_ns >= MEASURED else min(outcome.device_ns, took)
    _raise_for(outcome)
    if called is None:
        return Executed(outcome.output_shapes)
    in_driver = time.perf_counter_ns() - called
    device_ns, driver_ns = times_of(outcome, took, in_driver)
    timing = Timing(_rounded_up(device_ns, unit_ns), _rounded_up(driver_ns, unit_ns))
    return Executed(outcome.output_shapes, timing)


def times_of(outcome: Outcome, took: int, in_driver: int) -> tuple[int, int]:
    """The times on the device and in the driver to report, in nanoseconds; NO_TIMING if one is unknown.

    No time is longer than the measured one, and the device's time is never longer than the driver's.

    Args:
        outcome: the outcome of the execution.
        took: the measured duration of the executor's call.
        in_driver: the measured duration in the driver.
    """
    driver_ns = outcome.driver_ns
    if driver_ns != NO_TIMING:
        driver_ns = min(driver_ns, in_driver)
    device_ns = took if outcome.device_ns == MEASURED else outcome.device_ns
    if device_ns != NO_TIMING:
        device_ns = min(device_ns, driver_ns, in_driver)
    return device_ns, driver_ns


def run_in_time(
    execution: Execution,
    deadline_ns: int | None = None,
    loop_timeout_ns: int = DEFAULT_LOOP_TIMEOUT_NS,
    *,
    with_shapes: bool = True,
) -> Outcome:
    """Run a bound execution, unless its deadline has passed (device:E4). Never raises.

    Every execution ends here, except those that a burst's loop runs without Python.

    Args:
        execution: the bound execution.
        deadline_ns: time on CLOCK_BOOTTIME.
        loop_timeout_ns: limit of a WHILE, cut to MAX_LOOP_TIMEOUT_NS.
        with_shapes: whether the shapes of a success are used.
    """
    if has_passed(deadline_ns):
        if isinstance(execution, BufferedExecution):
            execution.cancel()
        status = ErrorStatus.MISSED_DEADLINE_PERSISTENT
        return Outcome(status, (), "device:E4: the deadline has passed")
    try:
        outcome = execution.run(deadline_ns, min(loop_timeout_ns, MAX_LOOP_TIMEOUT_NS))
    except BaseException as error:
        outcome = outcome_of(error, f"{type(execution).__name__}.run")
    return checked_outcome(execution, outcome, with_shapes)


def _raise_for(outcome: Outcome) -> None:
    if outcome.status == ErrorStatus.NONE:
        return
    shapes = outcome.output_shapes if outcome.status == ErrorStatus.OUTPUT_INSUFFICIENT_SIZE else ()
    raise error_for(outcome.status, outcome.message or outcome.status.name, shapes)


def _rounded_up(nanoseconds: int, unit_ns: int) -> int:
    """Convert a duration to another unit, rounded up as for bursts (NNAPI: canonical to HIDL)."""
    if nanoseconds == NO_TIMING:
        return NO_TIMING
    return -(-nanoseconds // unit_ns)


# -- How long executions take ----------------------------------------------------------------------


#: Longest quick execution: for these, the cost of a change of threads would be noticeable.
QUICK_NS: Final = 500_000
#: Factor by which the estimate decreases with each shorter execution.
_FORGETTING: Final = 7 / 8


class LatencyEstimate:
    """Estimates the longest of the latest executions, from the start of a call to its answer. Thread-safe."""

    __slots__ = ("_longest_ns",)

    def __init__(self) -> None:
        """Create an estimate without executions."""
        self._longest_ns: float | None = None

    @property
    def is_quick(self) -> bool:
        """Whether the latest executions were quick; False before the first one."""
        return self._longest_ns is not None and self._longest_ns <= QUICK_NS

    def note(self, nanoseconds: float) -> None:
        """Include an execution. The effect of a long one decreases with each shorter one after it."""
        self._longest_ns = max(nanoseconds, (self._longest_ns or 0) * _FORGETTING)


def attributes_of(hints: Hints | msgspec.UnsetType) -> tuple[ExtensionAttribute, ...]:
    """Convert hints to attributes, without those that belong to no extension, which no executor could read.

    Args:
        hints: hostile until checked here.

    Raises:
        InvalidArgument: a token repeats (validation:S7), or the names or prefixes are not one-to-one
            (validation:M6).
    """
    if isinstance(hints, msgspec.UnsetType):
        return ()
    validate_unique_tokens("hints", (pair.token for pair in hints.pairs))
    validate_extension_prefixes(hints.extension_name_to_prefix)
    names = {entry.prefix: entry.name for entry in hints.extension_name_to_prefix}
    for pair in hints.pairs:
        if not 0 <= pair.token < 1 << 31:
            raise Broken("S7", f"token is {pair.token}, expected 31 bits").at("hints")
    return tuple(
        ExtensionAttribute(names[prefix_of(pair.token)], number_of(pair.token), pair.value)
        for pair in hints.pairs
        if prefix_of(pair.token) in names
    )
