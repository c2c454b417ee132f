"""Runs what a prepared model has bound to memory: within its deadline, timed and counted."""

from __future__ import annotations

import time

from nnburst.control.messages.prepared_model import Executed
from nnburst.driver.counting.model_counters import CountedExecution
from nnburst.driver.model.buffered_execution import BufferedExecution
from nnburst.driver.model.raised import outcome_of
from nnburst.executor.base import Execution, Outcome
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.errors import error_for
from nnburst.hal.limits import DEFAULT_LOOP_TIMEOUT_NS, MAX_LOOP_TIMEOUT_NS
from nnburst.hal.timing import Timing, has_passed


def execute_bound(
    execution: Execution,
    counted: CountedExecution,
    called: int | None,
    deadline_ns: int | None,
    loop_timeout_ns: int,
    *,
    unit_ns: int = 1000,
) -> Executed:
    """Run what `PreparedModel.bind` gave.

    Args:
        execution: bound.
        counted: gets to know how long the executor took.
        called: when the client's call came (perf_counter_ns), if it is to be timed.
        deadline_ns: on CLOCK_BOOTTIME.
        loop_timeout_ns: limit of a WHILE.
        unit_ns: of the timing: microseconds in HIDL; 1 for nanoseconds, as AIDL has them.

    Raises:
        NnburstError: with the status that the client shall see (device:E4, E7, E8).
    """
    started = time.perf_counter_ns()
    outcome = run_in_time(execution, deadline_ns, loop_timeout_ns)
    ended = time.perf_counter_ns()
    counted.device_ns = ended - started
    _raise_for(outcome)
    if called is None:
        return Executed(outcome.output_shapes)
    in_driver = time.perf_counter_ns() - called
    timing = Timing(_rounded_up(ended - started, unit_ns), _rounded_up(in_driver, unit_ns))
    return Executed(outcome.output_shapes, timing)


def run_in_time(
    execution: Execution,
    deadline_ns: int | None = None,
    loop_timeout_ns: int = DEFAULT_LOOP_TIMEOUT_NS,
) -> Outcome:
    """Run what `PreparedModel.bind` gave, unless its deadline has passed (device:E4). Never raises.

    Every way to execute ends here, bursts excepted, which carry neither deadlines nor buffers.

    Args:
        execution: bound.
        deadline_ns: on CLOCK_BOOTTIME.
        loop_timeout_ns: limit of a WHILE; more than MAX_LOOP_TIMEOUT_NS counts as that.
    """
    if has_passed(deadline_ns):
        if isinstance(execution, BufferedExecution):
            execution.cancel()
        status = ErrorStatus.MISSED_DEADLINE_PERSISTENT
        return Outcome(status, (), "device:E4: the deadline has passed")
    try:
        return execution.run(deadline_ns, min(loop_timeout_ns, MAX_LOOP_TIMEOUT_NS))
    except BaseException as error:
        return outcome_of(error)


def _raise_for(outcome: Outcome) -> None:
    if outcome.status == ErrorStatus.NONE:
        return
    shapes = outcome.output_shapes if outcome.status == ErrorStatus.OUTPUT_INSUFFICIENT_SIZE else ()
    raise error_for(outcome.status, outcome.message or outcome.status.name, shapes)


def _rounded_up(nanoseconds: int, unit_ns: int) -> int:
    """A duration in another unit, as a burst does it (NNAPI: canonical to HIDL)."""
    return -(-nanoseconds // unit_ns)
