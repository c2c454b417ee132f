"""Two driver processes that each refuse half: what makes plans of many steps."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import Final

from nnburst.client.launch import launch
from nnburst.runtime import Manager
from nnburst.runtime.devices.driver_device import DriverDevice
from nnburst.runtime.devices.manager import Settings
from nnburst.testing.framework.framework_runner import FrameworkRunner
from nnburst.testing.framework.quiet_log import quiet_log
from nnburst.testing.partitioning.device import uniform

#: Name and cost of each.
COSTS: Final = (("sample_a", 0.5), ("sample_b", 0.6))


class PricedDriver(DriverDevice):
    """A driver with given costs."""

    def __init__(self, executor: str, name: str, cost: float) -> None:
        """Launch it."""
        super().__init__(lambda: launch(executor), name=name)
        self.capabilities = uniform(cost)


def two_drivers(executor: str) -> Manager:
    """A manager over two drivers of an executor, each of which refuses a pseudo-random half."""
    drivers = [PricedDriver(executor, name, cost) for name, cost in COSTS]
    return Manager(drivers, settings=Settings(refuses_half=True))


class PlansRunner(FrameworkRunner):
    """`--via plans`: every model over two drivers and the CPU, each step over the socket."""

    over_bursts = False

    def __init__(self, executor: str) -> None:
        """Launch the drivers."""
        super().__init__(two_drivers(executor), burst=self.over_bursts)
        self._quiet = ExitStack()
        self._quiet.enter_context(quiet_log())

    def close(self) -> None:
        """Close the drivers, and report what there was."""
        counted = ", ".join(f"{count} {what}" for what, count in sorted(self.counts.items()))
        sys.stderr.write(f"plans: {counted}\n")
        super().close()
        self._quiet.close()


class PlansBurstRunner(PlansRunner):
    """`--via plans-burst`: the same, each step over its burst."""

    over_bursts = True
