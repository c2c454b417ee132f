"""Bindings: the bursts that an execution's arguments are bound to."""

from __future__ import annotations

import logging
from typing import Final
from weakref import WeakKeyDictionary

from nnburst.hal.closing import Closing
from nnburst.hal.errors import NnburstError
from nnburst.runtime.argument import Argument
from nnburst.runtime.devices.driver_part import PATIENCE
from nnburst.runtime.execution.bound_plan import BoundPlan
from nnburst.runtime.execution.bursts import Bursts
from nnburst.runtime.execution.executable import Executable
from nnburst.runtime.objects.burst import Burst

logger = logging.getLogger("nnburst.runtime")


class Bindings(Closing):
    """One bound plan for each burst that an execution has computed on. Used by one thread at a time."""

    def __init__(self, executable: Executable) -> None:
        """Bind executions of `executable`."""
        self._executable: Final = executable
        #: Empty for a burst that the execution cannot be bound to.
        self._bound: Final[WeakKeyDictionary[Bursts, tuple[BoundPlan, ...]]] = WeakKeyDictionary()
        self._own: Burst | None = None

    def bound_to(
        self, burst: Burst, arguments: tuple[list[Argument], list[Argument]], timeout: float | None
    ) -> BoundPlan | None:
        """Arguments bound to a burst as it is now; None if they cannot be.

        Args:
            burst: of the same compilation.
            arguments: inputs and outputs, which are the same for each burst.
            timeout: seconds of each run; None for no limit of the application's.
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
        """Give up what is bound to a burst if it cannot be run again."""
        known = self._bound.get(burst.bursts)
        if known and not known[0].is_current:
            del self._bound[burst.bursts]
            known[0].close()

    def own_burst(self) -> Burst:
        """A burst for computations that are given none; opened once."""
        if self._own is None:
            self._own = Burst(self._executable)
        return self._own

    def close(self) -> None:
        """Give up what is bound, and the burst."""
        for bound in self._bound.values():
            for plan in bound:
                plan.close()
        if self._own is not None:
            self._own.close()
