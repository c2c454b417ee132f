"""Repeats computations over the bursts of a plan's devices."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from weakref import WeakKeyDictionary

from nnburst.client.session.gate import entries, leave
from nnburst.hal.errors import BadState, BurstBusy, NnburstError
from nnburst.hal.utils import Closing
from nnburst.runtime.argument import Argument
from nnburst.runtime.devices.driver_device import PATIENCE
from nnburst.runtime.execution.background import Background
from nnburst.runtime.execution.bound_plan import BoundPlan, Bursts
from nnburst.runtime.execution.executable import Executable
from nnburst.runtime.runtime_object import RuntimeObject


class Burst(RuntimeObject):
    """Bursts for the steps of a compilation (NNAPI: ANeuralNetworksBurst); made by `Compilation.burst`.

    One execution at a time; a second one raises BadState. Steps of devices without bursts execute over the
    socket or in this process.

    NNAPI: RT:B1, B2.

    Attributes:
        bursts: the bursts of the plan's parts.
    """

    def __init__(self, executable: Executable) -> None:
        """Open a burst for each part."""
        super().__init__()
        self._executable: Final = executable
        self.bursts: Final = executable.open_bursts()

    @contextmanager
    def _alone(self) -> Iterator[Bursts]:
        """Enter the bursts of the parts, which admit one execution at a time.

        Raises:
            BadState: another execution computes on the burst.
        """
        self._check_open()
        gate, me = self.bursts.gate, next(entries)
        try:
            try:
                gate.enter(me)
            except BurstBusy:
                raise BadState("burst: another execution computes on it") from None
            yield self.bursts
        finally:
            leave(gate.struct, me)

    def _release(self) -> None:
        self.bursts.close()


logger = logging.getLogger("nnburst.runtime")


class Bindings(Closing):
    """The bound plans of an execution, one for each burst that it has used. One thread at a time."""

    def __init__(self, executable: Executable) -> None:
        """Bind executions of `executable`."""
        self._executable: Final = executable
        #: The tuple is empty for a burst that the execution cannot be bound to.
        self._bound: Final[WeakKeyDictionary[Bursts, tuple[BoundPlan, ...]]] = WeakKeyDictionary()
        self._own: Burst | None = None
        self._opening: Final = Background()
        self._closed = False
        self._lock: Final = threading.Lock()

    def bound_to(
        self, burst: Burst, arguments: tuple[list[Argument], list[Argument]], timeout: float | None
    ) -> BoundPlan | None:
        """The arguments bound to the present burst; None if they cannot be bound.

        Args:
            burst: a burst of the same compilation.
            arguments: inputs and outputs, which are the same for each burst.
            timeout: seconds that each run may take; None if the application sets no limit.
        """
        self.close_stale(burst)
        known = self._bound.get(burst.bursts)
        if known is None:
            try:
                seconds = PATIENCE if timeout is None else timeout
                bound = self._executable.bind(*arguments, burst.bursts, seconds)
            except NnburstError as error:
                logger.info("an execution is not bound to its burst: %s", error)
                return None
            known = (bound,) if bound is not None and bound.is_known else ()
            self._bound[burst.bursts] = known
        return known[0] if known else None

    def close_stale(self, burst: Burst) -> None:
        """Close the bound plan of a burst if it cannot be run again."""
        known = self._bound.get(burst.bursts)
        if known and not known[0].is_current:
            del self._bound[burst.bursts]
            known[0].close()

    def own_burst(self, *, waits: bool) -> Burst | None:
        """The burst for computations without a given one; opened once, in the background.

        Args:
            waits: whether to wait until it is open; otherwise None is returned until then.
        """
        if self._own is None:
            errand = self._opening.begin("burst", "a burst is opened", self._open)
            if waits:
                errand.wait(None)
        return self._own

    def _open(self) -> None:
        if self._own is not None:
            return
        burst = Burst(self._executable)
        with self._lock:
            if not self._closed:
                self._own = burst
                return
        burst.close()

    def close(self) -> None:
        """Close the bound plans and the burst."""
        with self._lock:
            self._closed = True
        for bound in self._bound.values():
            for plan in bound:
                plan.close()
        if self._own is not None:
            self._own.close()


def executable_of(burst: Burst) -> Executable:
    """The executable that a burst belongs to."""
    return burst._executable
