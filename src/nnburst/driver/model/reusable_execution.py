"""IExecution: a request that is validated and bound once, and run as often as its client likes.

NNAPI: IPreparedModel::createReusableExecution (AIDL v4; device:§5.4).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

from nnburst.control.messages.prepared_model import Executed
from nnburst.control.messages.reusable_execution import CreateReusableExecution
from nnburst.driver.model.pace import Pace
from nnburst.driver.model.prepared_model import execute_bound
from nnburst.executor.base import Execution
from nnburst.hal.enums import Priority
from nnburst.hal.errors import BurstBusy


class ReusableExecution:
    """One run at a time; a second one is refused. Mappings are kept from run to run.

    Attributes:
        execution: bound.
        priority: of its model.
        measure: whether runs are timed, in nanoseconds.
        loop_timeout_ns: limit of a WHILE.
        fenced_too: no output has unknown dimensions, so that it can be fenced (device:F1).
        pace: of its runs.
    """

    def __init__(
        self,
        execution: Execution,
        call: CreateReusableExecution,
        priority: Priority,
        cleanup: contextlib.ExitStack,
        *,
        fenced_too: bool,
    ) -> None:
        """Own what `cleanup` lets go of."""
        self.fenced_too = fenced_too
        self.execution = execution
        self.priority = priority
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
        self._enter()
        try:
            return execute_bound(
                self.execution, called, deadline_ns, self.loop_timeout_ns, unit_ns=1
            )
        finally:
            self._busy.release()

    def close(self) -> None:
        """Let go of the memory. No run is under way."""
        self._cleanup.close()
