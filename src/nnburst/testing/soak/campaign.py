"""Mixed load on one driver: clients of every kind that stay, deaths on both sides, connections."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final

from nnburst.hal.errors import GeneralFailure
from nnburst.testing.driver_under_test import DriverUnderTest
from nnburst.testing.faults.footprint import Footprint, footprint
from nnburst.testing.soak.crowd import (
    STAYING,
    Process,
    Repeated,
    connections,
    deaths_of_clients,
    deaths_of_workers,
    wait_until,
)
from nnburst.testing.soak.samples import Samples
from nnburst.testing.soak.series import Trend

#: Samples of a whole soak, at most; and seconds between two, at least.
_SAMPLES: Final = 1000
_SHORTEST: Final = 0.25
#: Seconds until a supervisor must have given back what its clients had.
_SETTLE: Final = 30.0


@dataclass
class Report:
    """How a soak went.

    Attributes:
        seconds: that it took.
        rounds: of each client that stayed.
        counts: of what came and went.
        trends: of every series.
        errors: whatever should not have happened.
    """

    seconds: float = 0.0
    rounds: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    trends: dict[str, Trend] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    @property
    def growing(self) -> list[str]:
        """Names of series that are not flat."""
        return [name for name, trend in self.trends.items() if not trend.is_flat]

    @property
    def passed(self) -> bool:
        """Whether nothing grew and nothing failed."""
        return not self.errors and not self.growing and bool(self.trends)


def soak(executor: str, seconds: float, seed: int = 0) -> Report:
    """Load a driver with `executor` for so long.

    Raises:
        NnburstError: it does not start.
    """
    report = Report()
    with DriverUnderTest.start(executor) as driver, ExitStack() as stack:
        if driver.pid is None:
            raise GeneralFailure(
                f"executor: {executor} is a driver that runs; a soak starts its own"
            )
        supervisor, idle = driver.pid, footprint(driver.pid)
        staying = []
        for activity in STAYING:
            staying.append(Process(driver.address, f"stand_by:{activity}"))
            stack.callback(staying[-1].kill)
        passing = [
            deaths_of_clients(driver.address, seed),
            deaths_of_workers(driver.address),
            connections(driver.address),
        ]
        began = time.monotonic()
        try:
            report.trends = _watch(supervisor, staying, passing, seconds, report)
        finally:
            for each in passing:
                each.stop()
        report.seconds = time.monotonic() - began
        _collect(report, staying, passing)
        _check_given_back(report, supervisor, idle)
    return report


def _watch(
    supervisor: int,
    staying: list[Process],
    passing: list[Repeated],
    seconds: float,
    report: Report,
) -> dict[str, Trend]:
    processes = {"supervisor": supervisor}
    for process in staying:
        name = _name(process)
        processes[f"client {name}"], processes[f"worker of {name}"] = process.pid, process.worker
    samples, step = Samples(processes), max(_SHORTEST, seconds / _SAMPLES)
    end = time.monotonic() + seconds
    while time.monotonic() < end and not any(each.error for each in passing):
        try:
            samples.take()
        except (FileNotFoundError, ProcessLookupError) as error:
            report.errors.append(f"a process has gone: {error}")
            break
        threading.Event().wait(min(step, max(end - time.monotonic(), 0.0)))
    found = {name: series.trend() for name, series in samples.series.items()}
    return {name: trend for name, trend in found.items() if trend is not None}


def _collect(report: Report, staying: list[Process], passing: list[Repeated]) -> None:
    for each in passing:
        report.counts[each.name] = each.count
        if each.error:
            report.errors.append(each.error)
    for process in staying:
        try:
            facts = process.finish()
        except Exception as error:
            report.errors.append(f"client {_name(process)}: {error}")
            continue
        report.rounds[_name(process)] = facts["rounds"]
        if facts["error"]:
            report.errors.append(f"client {_name(process)}: {facts['error']}")


def _name(process: Process) -> str:
    return process.activity.removeprefix("stand_by:")


def _check_given_back(report: Report, supervisor: int, idle: Footprint) -> None:
    if not wait_until(lambda: not footprint(supervisor).excess(idle), _SETTLE):
        excess = footprint(supervisor).excess(idle)
        report.errors.append(f"the supervisor holds {excess} when all clients are gone")
