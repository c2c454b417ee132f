"""Bursts: those of a plan's parts, open together."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from nnburst.client.session.gate import Gate
from nnburst.fmq.cores import each_may_spin
from nnburst.hal.closing import Closing
from nnburst.hal.errors import NnburstError
from nnburst.runtime.argument import (
    BurstController,
    PreparedPart,
)
from nnburst.runtime.devices.driver_part import DriverPart

logger = logging.getLogger("nnburst.runtime")


class Bursts(Closing):
    """The burst of each part of a plan; None for those that have none.

    Attributes:
        of_parts: in the order of the execution steps.
        gate: what runs on them enters it.
    """

    def __init__(self, of_parts: Sequence[BurstController | None]) -> None:
        """Own them."""
        self.of_parts: Final = tuple(of_parts)
        self.gate: Final = Gate()

    def close(self) -> None:
        """Close each, whatever comes of the others."""
        for burst in self.of_parts:
            if burst is not None:
                try:
                    burst.close()
                except NnburstError:
                    continue


def open_bursts(parts: Sequence[PreparedPart]) -> Bursts:
    """A burst for each part that has any.

    Drivers spin only if there is a core for each of them and one for this process: a spinning driver would
    keep the next step's from running.
    """
    drivers = [part for part in parts if isinstance(part, DriverPart)]
    spins = len(drivers) == 1 or each_may_spin(part.prepared.pid for part in drivers)
    bursts: list[BurstController | None] = []
    for part in parts:
        try:
            if isinstance(part, DriverPart):
                bursts.append(part.open_burst(driver_spins=spins))
            else:
                bursts.append(part.open_burst())
        except NnburstError as error:
            logger.warning("a step has no burst (%s): it executes the ordinary way", error)
            bursts.append(None)
    return Bursts(bursts)
