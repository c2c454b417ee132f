"""Burst: repeated computations of one compilation, a burst of each device that has any."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from nnburst.client.session.gate import entries, leave
from nnburst.hal.errors import BadState, BurstBusy
from nnburst.runtime.argument import BurstController
from nnburst.runtime.execution.executable import Executable
from nnburst.runtime.runtime_object import RuntimeObject


class Burst(RuntimeObject):
    """Bursts for the steps of a compilation (NNAPI: ANeuralNetworksBurst); made by `Compilation.burst`.

    One execution at a time; a second one gets BadState. Steps of devices without bursts execute the ordinary
    way.

    NNAPI: RT:B1, B2.

    Attributes:
        bursts: those of the plan's parts.
    """

    def __init__(self, executable: Executable) -> None:
        """Open a burst for each part."""
        super().__init__()
        self._executable: Final = executable
        self.bursts: Final = executable.open_bursts()

    @contextmanager
    def _alone(self) -> Iterator[Sequence[BurstController | None]]:
        """The bursts of the parts, for one execution at a time.

        Raises:
            BadState: another execution computes on it.
        """
        self._check_open()
        gate, me = self.bursts.gate, next(entries)
        try:
            try:
                gate.enter(me)
            except BurstBusy:
                raise BadState("burst: another execution computes on it") from None
            yield self.bursts.of_parts
        finally:
            leave(gate.struct, me)

    def _release(self) -> None:
        self.bursts.close()
