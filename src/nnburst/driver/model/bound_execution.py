"""What a prepared model has bound to memory: run once, or kept for as many runs as its client likes."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

from nnburst.control.messages.prepared_model import Executed
from nnburst.control.messages.reusable_execution import CreateReusableExecution
from nnburst.driver.counting.model_counters import CountedExecution, ModelCounters
from nnburst.driver.model.buffered_execution import BufferedExecution
from nnburst.driver.model.pace import Pace
from nnburst.driver.model.raised import outcome_of
from nnburst.executor.base import Execution, Outcome
from nnburst.hal.enums import ErrorStatus, Priority
from nnburst.hal.errors import BurstBusy, error_for
from nnburst.hal.limits import DEFAULT_LOOP_TIMEOUT_NS, MAX_LOOP_TIMEOUT_NS
from nnburst.hal.timing import Timing


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
    if deadline_ns is not None and time.clock_gettime_ns(time.CLOCK_BOOTTIME) > deadline_ns:
        if isinstance(execution, BufferedExecution):
            execution.cancel()
        status = ErrorStatus.MISSED_DEADLINE_PERSISTENT
        return Outcome(status, (), "device:E4: the deadline has passed")
    try:
        return execution.run(deadline_ns, min(loop_timeout_ns, MAX_LOOP_TIMEOUT_NS))
    except BaseException as error:
        return outcome_of(error)


class ReusableExecution:
    """IExecution: one run at a time; a second one is refused. Mappings are kept from run to run.

    NNAPI: IPreparedModel::createReusableExecution (AIDL v4; device:§5.4).

    Attributes:
        execution: bound.
        priority: of its model.
        measure: whether runs are timed, in nanoseconds.
        loop_timeout_ns: limit of a WHILE.
        fenced_too: no output has unknown dimensions, so that it can be fenced (device:F1).
        counters: of its model.
        pace: of its runs.
    """

    def __init__(
        self,
        execution: Execution,
        call: CreateReusableExecution,
        priority: Priority,
        counters: ModelCounters,
        cleanup: contextlib.ExitStack,
        *,
        fenced_too: bool,
    ) -> None:
        """Own what `cleanup` lets go of."""
        self.fenced_too = fenced_too
        self.execution = execution
        self.priority = priority
        self.counters = counters
        self.measure = call.measure
        self.loop_timeout_ns = call.loop_timeout_ns
        self._cleanup = cleanup
        self.pace = Pace()
        self._busy = threading.Lock()

    @contextlib.contextmanager
    def alone(self) -> Iterator[contextlib.ExitStack]:
        """Keep other runs out; what is left on the stack does so for longer.

        Raises:
            BurstBusy: a run is under way.
        """
        self._enter()
        with contextlib.ExitStack() as held:
            held.callback(self._busy.release)
            yield held

    def _enter(self) -> None:
        if not self._busy.acquire(blocking=False):
            raise BurstBusy("the execution object is in use: one run at a time (device:§5.4)")

    def run(self, deadline_ns: int | None) -> Executed:
        """Execute once (NNAPI: IExecution::executeSynchronously); timing in nanoseconds.

        Raises:
            BurstBusy: a run is under way.
            NnburstError: with the status that the client shall see (device:E4, E7 to E9).
        """
        called = time.perf_counter_ns() if self.measure else None
        with self.counters.execution(measure=self.measure) as counted:
            self._enter()
            try:
                return execute_bound(
                    self.execution, counted, called, deadline_ns, self.loop_timeout_ns, unit_ns=1
                )
            finally:
                self._busy.release()

    def close(self) -> None:
        """Let go of the memory. No run is under way."""
        self._cleanup.close()


def _raise_for(outcome: Outcome) -> None:
    if outcome.status == ErrorStatus.NONE:
        return
    shapes = outcome.output_shapes if outcome.status == ErrorStatus.OUTPUT_INSUFFICIENT_SIZE else ()
    raise error_for(outcome.status, outcome.message or outcome.status.name, shapes)


def _rounded_up(nanoseconds: int, unit_ns: int) -> int:
    """A duration in another unit, as a burst does it (NNAPI: canonical to HIDL)."""
    return -(-nanoseconds // unit_ns)
