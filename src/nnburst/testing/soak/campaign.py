"""Mixed load on one driver: clients of every kind that stay, deaths on both sides, connections."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
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
from nnburst.testing.soak.report import SoakReport
from nnburst.testing.soak.samples import Samples

#: Samples of a whole soak, at most; seconds between two, at least; and samples of a soak of a moment.
_SAMPLES: Final = 1000
_SHORTEST: Final = 0.25
_FEWEST: Final = 40
#: Seconds until clients and their workers have made what they make once; a supervisor has at its start.
_WARM_UP: Final = 60.0
#: Seconds until a supervisor must have given back what its clients had.
_SETTLE: Final = 30.0


def soak(executor: str, seconds: float, seed: int = 0) -> SoakReport:
    """Load a driver with `executor` for so long.

    Raises:
        NnburstError: it does not start.
    """
    report = SoakReport()
    with DriverUnderTest.start(executor) as driver, ExitStack() as stack:
        if driver.pid is None:
            raise GeneralFailure(
                f"executor: {executor} is a driver that runs; a soak starts its own"
            )
        supervisor, idle = driver.pid, footprint(driver.pid)
        staying = []
        for activity in STAYING:
            staying.append(Process(driver.address, f"stand_by:{activity}"))
            stack.callback(staying[-1].close)
        for process in staying:  # they start side by side
            process.wait_until_busy()
        passing = [
            deaths_of_clients(driver.address, seed),
            deaths_of_workers(driver.address),
            connections(driver.address),
        ]
        began = time.monotonic()
        try:
            _watch(supervisor, staying, passing, seconds, report)
        finally:
            for each in passing:
                each.close()
        report.seconds = time.monotonic() - began
        _collect(report, staying, passing)
        _check_given_back(report, supervisor, idle)
    return report


def _watch(
    supervisor: int,
    staying: list[Process],
    passing: list[Repeated],
    seconds: float,
    report: SoakReport,
) -> None:
    processes = {"supervisor": supervisor}
    for process in staying:
        name = _name(process)
        processes[f"client {name}"], processes[f"worker of {name}"] = process.pid, process.worker
    warm_up = {name: _WARM_UP for name in processes if name != "supervisor"}
    samples = Samples(processes, warm_up)
    step = min(max(_SHORTEST, seconds / _SAMPLES), seconds / _FEWEST)
    report.series = samples.series
    end = time.monotonic() + seconds
    while not any(each.error for each in passing):
        try:
            samples.take()
        except (FileNotFoundError, ProcessLookupError) as error:
            report.errors.append(f"a process has gone: {error}")
            break
        if time.monotonic() >= end and samples.say_something("supervisor"):
            break  # a short soak of a busy machine lasts longer
        threading.Event().wait(step)


def _collect(report: SoakReport, staying: list[Process], passing: list[Repeated]) -> None:
    for each in passing:
        report.counts[each.name] = each.count
        if each.error:
            report.errors.append(each.error)
    for process in staying:
        process.release()
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


def _check_given_back(report: SoakReport, supervisor: int, idle: Footprint) -> None:
    if not wait_until(lambda: not footprint(supervisor).excess(idle), _SETTLE):
        excess = footprint(supervisor).excess(idle)
        report.errors.append(f"the supervisor holds {excess} when all clients are gone")
