"""Loads a driver for hours and checks that nothing grows: `python -m nnburst.testing.load.soak`.

A figure grows if a least-squares line through 20 blocks of its series rises by more than five standard
errors.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from nnburst.client.connect import connect
from nnburst.hal.errors import GeneralFailure
from nnburst.hal.utils import driver_environment
from nnburst.testing.driver_under_test import DriverUnderTest
from nnburst.testing.faults.activities import ACTIVITIES, STUCK, BrokenLife, outlive
from nnburst.testing.faults.footprint import Footprint, footprint, resident_bytes

# -- the report ------------------------------------------------------------------------------------
#: Share of the time at the start in which one-time allocations are allowed: caches, threads, arenas.
WARM_UP: Final = 0.25
#: Blocks that the rest is divided into if there are enough samples; the fewest samples of a block.
BLOCKS: Final = 20
_OF_A_BLOCK: Final = 3
#: The fewest samples after the warm-up, and the fewest blocks, for a verdict.
FEWEST: Final = 8
#: Share of the smallest and of the largest samples of a block that is dropped, at least one of three.
_TRIMMED: Final = 0.1
#: Standard errors that a rise must exceed.
_SURE: Final = 5.0
#: Upper limit of the estimated autocorrelation: a line through 20 blocks cannot show more.
_MOST_ALIKE: Final = 0.9

_Numbers = npt.NDArray[np.float64]


class Trend(NamedTuple):
    """A straight line through a series, after the warm-up.

    Attributes:
        first: value of the line at its start.
        growth: rise of the line from start to end; negative if it falls.
        uncertainty: the largest rise that may be chance: five standard errors.
        allowance: growth that is allowed in any case.
    """

    first: float
    growth: float
    uncertainty: float
    allowance: float

    @property
    def is_flat(self) -> bool:
        """Whether the growth may be chance or is allowed."""
        return self.growth <= max(self.uncertainty, self.allowance)


@dataclass
class Series:
    """Samples of one figure over time.

    Attributes:
        allowance: growth that is allowed in any case.
        warm_up: seconds at the start that are ignored, if they are more than a quarter of the time; a verdict
            needs at least as many seconds after them.
        times: time of each sample in seconds.
        values: value of each sample.
    """

    allowance: float
    warm_up: float = 0.0
    times: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def add(self, time: float, value: float) -> None:
        """Add a sample, later than those before."""
        self.times.append(time)
        self.values.append(value)

    def trend(self) -> Trend | None:
        """Fit the line; None if there are too few samples, or too little time."""
        times, values = np.array(self.times), np.array(self.values)
        if not times.size:
            return None
        times -= times[0]
        warm = times >= max(self.warm_up, WARM_UP * times[-1])
        if times[-1] < 2 * self.warm_up or warm.sum() < FEWEST:
            return None
        return _line(times[warm], values[warm], self.allowance)


def _line(times: _Numbers, values: _Numbers, allowance: float) -> Trend:
    duration = times[-1] - times[0]
    blocks = min(BLOCKS, max(FEWEST, times.size // _OF_A_BLOCK))
    parts = np.array_split(np.arange(times.size), blocks)
    at = np.array([times[part].mean() for part in parts])
    level = np.array([_trimmed_mean(values[part]) for part in parts])
    middle = at.mean()
    at -= middle
    rate = (at @ level) / (at @ at)
    rest = level - level.mean() - rate * at
    variance = (rest @ rest) / (rest.size - 2) / (at @ at)
    error = np.sqrt(variance * _widening(rest)) * duration
    first = level.mean() + rate * (times[0] - middle)
    return Trend(float(first), float(rate * duration), float(_SURE * error), allowance)


def _trimmed_mean(values: _Numbers) -> float:
    left_out = max(1, int(values.size * _TRIMMED)) if values.size >= _OF_A_BLOCK else 0
    return float(np.sort(values)[left_out : values.size - left_out].mean())


def _widening(rest: _Numbers) -> float:
    """Factor for a variance because neighbouring blocks are correlated, which a fitted line partly hides."""
    size, power = rest.size, float(rest @ rest)
    alike = float(rest[1:] @ rest[:-1]) / power if power else 0.0
    alike = min(max((size * alike + 2) / (size - 4), 0.0), _MOST_ALIKE)
    return (1 + alike) / (1 - alike)


def as_facts(series: dict[str, Series]) -> dict[str, Any]:
    """The series as JSON values, with all that a verdict needs."""
    return {
        name: {
            "allowance": each.allowance,
            "warm_up": each.warm_up,
            "times": each.times,
            "values": each.values,
        }
        for name, each in series.items()
    }


def from_facts(facts: dict[str, Any]) -> dict[str, Series]:
    """The series that `as_facts` was called with.

    Raises:
        TypeError: the values are not from `as_facts`.
    """
    return {name: Series(**each) for name, each in facts.items()}


#: Fields that are stored; the rest of a report follows from its series.
_COUNTED: Final = ("seconds", "rounds", "counts", "errors")


@dataclass
class SoakReport:
    """The results of a soak.

    Attributes:
        seconds: duration of the soak.
        rounds: rounds of each client that stayed.
        counts: numbers of short-lived clients and calls.
        errors: descriptions of everything that must not happen.
        series: all samples; complete before `trends` is first read.
    """

    seconds: float = 0.0
    rounds: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    series: dict[str, Series] = field(default_factory=dict)

    @cached_property
    def trends(self) -> dict[str, Trend]:
        """The line of every series that is long enough."""
        found = {name: series.trend() for name, series in self.series.items()}
        return {name: trend for name, trend in found.items() if trend is not None}

    @property
    def growing(self) -> list[str]:
        """Names of series that are not flat."""
        return [name for name, trend in self.trends.items() if not trend.is_flat]

    @property
    def not_judged(self) -> list[str]:
        """Names of series that allow no statement: the soak was too short for them."""
        return [name for name in self.series if name not in self.trends]

    @property
    def passed(self) -> bool:
        """Whether nothing failed, and none of the series that could be judged grew."""
        return not self.errors and not self.growing and bool(self.trends)

    def text(self) -> str:
        """The report as text for people."""
        lines = [f"{self.seconds:.0f} s"]
        lines += [f"  {count:9} {name}" for name, count in self.counts.items()]
        lines += [f"  {count:9} rounds of {name}" for name, count in self.rounds.items()]
        lines.append(f"  {'first':>9} {'growth':>8} {'chance':>8} {'allowed':>8}")
        for name, trend in self.trends.items():
            mark = "" if trend.is_flat else "   GROWS"
            lines.append(
                f"  {trend.first:9.1f} {trend.growth:+8.2f} {trend.uncertainty:8.2f}"
                f" {trend.allowance:8.1f} {name}{mark}"
            )
        if self.not_judged:
            lines.append(f"too short to judge {len(self.not_judged)} of {len(self.series)} series")
        lines += [f"error: {error}" for error in self.errors]
        lines.append("passed" if self.passed else "FAILED")
        return "\n".join(lines) + "\n"

    def facts(self) -> dict[str, Any]:
        """The report as JSON values: the findings, and all samples."""
        return {
            **{name: getattr(self, name) for name in _COUNTED},
            "growing": self.growing,
            "not_judged": self.not_judged,
            "trends": {
                name: {key: round(value, 6) for key, value in trend._asdict().items()}
                | {"is_flat": trend.is_flat}
                for name, trend in self.trends.items()
            },
            "passed": self.passed,
            "series": as_facts(self.series),
        }

    @classmethod
    def of(cls, facts: dict[str, Any]) -> Self:
        """Restore a report from its facts; the verdict is computed from the samples again.

        Raises:
            KeyError: a fact is missing.
        """
        counted = {name: facts[name] for name in _COUNTED}
        return cls(**counted, series=from_facts(facts["series"]))


# -- Processes and threads that generate load ------------------------------------------------------


#: Seconds until a process must have answered.
_HANG: Final = 60.0
#: Activities of clients that stay: all those whose rounds end by themselves.
STAYING: Final = tuple(name for name in ACTIVITIES if name != "idle")
#: Seconds between two kills.
_BETWEEN_DEATHS: Final = 0.5
#: The longest time from the start of a victim's activity until it is killed, in seconds.
_LATEST: Final = 0.2


class Process:
    """A client process of `nnburst.testing.faults.client`.

    Attributes:
        activity: name of its activity.
        pid: pid of the client.
        worker: pid of its worker; 0 until its activity runs.
    """

    def __init__(self, address: str, activity: str) -> None:
        """Start the process; call `wait_until_busy` next."""
        command = [sys.executable, "-m", "nnburst.testing.faults.client", address, activity]
        self.activity = activity
        self._process = subprocess.Popen(  # noqa: S603 - this interpreter, this package, a list of words
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=driver_environment(),
            process_group=0,  # Ctrl-C is for the command
        )
        self.pid, self.worker = self._process.pid, 0

    @classmethod
    def busy(cls, address: str, activity: str) -> Self:
        """Start a client and wait until its activity runs."""
        process = cls(address, activity)
        process.wait_until_busy()
        return process

    def wait_until_busy(self) -> None:
        """Wait until its activity runs; `worker` is known from then on.

        Raises:
            BrokenLife: the process has ended instead.
        """
        self.worker = int(self._line()["worker"])

    def _line(self) -> Any:  # noqa: ANN401 - JSON
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise BrokenLife(f"client {self.activity} ended with {self._process.wait(_HANG)}")
        return json.loads(line)

    def release(self) -> None:
        """Make a `stand_by` process end; `finish` waits for the end."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def finish(self) -> Any:  # noqa: ANN401 - JSON
        """Make a `stand_by` process end and wait; its rounds, errors and latencies."""
        self.release()
        facts = self._line()
        self._process.wait(_HANG)
        return facts

    def kill(self) -> None:
        """Send SIGKILL in the middle of its work.

        Raises:
            BrokenLife: it had ended before; the reason is on stderr, which it shares with this process.
        """
        status = self.close()
        if status != -signal.SIGKILL:
            raise BrokenLife(f"client {self.activity} had ended with {status} before it was killed")

    def close(self) -> int:
        """Send SIGKILL unless it has ended; its exit status."""
        self._process.kill()
        status = self._process.wait(_HANG)
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()
        return status


class Repeated:
    """Work that a thread repeats until it is stopped or fails.

    Attributes:
        count: number of rounds.
        error: the error that ended it; empty without an error.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[threading.Event], None],
        clean_up: Callable[[], None] = lambda: None,
    ) -> None:
        """Start the thread.

        Args:
            name: name for reports.
            work: one round; gets an event that is set when it should return early.
            clean_up: called at the end.
        """
        self.name = name
        self._clean_up = clean_up
        self.count = 0
        self.error = ""
        self._stop = threading.Event()
        self._work = work
        self._thread = threading.Thread(target=self._run, name=f"soak {name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._work(self._stop)
                self.count += 1
            self._clean_up()
        except Exception as error:
            self.error = f"{self.name}: {type(error).__name__}: {error}"

    def close(self) -> None:
        """Stop, and wait for the end of the present round."""
        self._stop.set()
        self._thread.join(_HANG)
        if self._thread.is_alive():
            self.error = self.error or f"{self.name}: no end within {_HANG:g} s"


def deaths_of_clients(address: str, seed: int) -> Repeated:
    """Repeat: kill a client in the middle of its work."""
    chance = random.Random(seed)  # noqa: S311 - decides when to kill

    def kill_one(stop: threading.Event) -> None:
        victim = Process.busy(address, chance.choice([*ACTIVITIES, "connect", *STUCK]))
        stop.wait(chance.uniform(0, _LATEST))
        victim.kill()
        stop.wait(_BETWEEN_DEATHS)

    return Repeated("deaths of clients", kill_one)


def deaths_of_workers(address: str) -> Repeated:
    """Repeat: kill the worker of a client that recovers from it."""
    steps = outlive(address)

    def kill_one(stop: threading.Event) -> None:
        next(steps)
        stop.wait(_BETWEEN_DEATHS)

    return Repeated("deaths of workers", kill_one, steps.close)


def connections(address: str) -> Repeated:
    """Repeat: connect and disconnect."""

    def connect_once(stop: threading.Event) -> None:
        connect(address).close()
        stop.wait(_BETWEEN_DEATHS / 10)

    return Repeated("connections", connect_once)


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Wait until `condition` holds; whether it did within `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        threading.Event().wait(0.01)
    return True


# -- Samples of memory, descriptors and threads ----------------------------------------------------


_MIB: Final = 1 << 20
#: Growth that is allowed in any case: an arena, and resources that a running call holds for a moment.
ALLOWANCES: Final = {"MiB": 1.0, "fds": 2.0, "maps": 2.0, "threads": 2.0}


class Samples:
    """Takes samples of several processes. Not thread-safe."""

    def __init__(
        self, processes: Mapping[str, int], warm_up: Mapping[str, float] | None = None
    ) -> None:
        """Begin without samples.

        Args:
            processes: pid of each name.
            warm_up: seconds until a process has made its one-time allocations; 0 if it is not named.
        """
        self._processes = dict(processes)
        self.series: Final[dict[str, Series]] = {
            f"{name}: {what}": Series(allowance, (warm_up or {}).get(name, 0.0))
            for name in processes
            for what, allowance in ALLOWANCES.items()
        }

    def say_something(self, name: str) -> bool:
        """Whether there are enough samples of process `name` for a verdict."""
        return all(self.series[f"{name}: {what}"].trend() for what in ALLOWANCES)

    def take(self) -> None:
        """Take a sample of every process.

        Raises:
            FileNotFoundError: a process does not exist any more.
            ProcessLookupError: a process has just ended.
        """
        for name, pid in self._processes.items():
            now, held = round(time.monotonic(), 3), footprint(pid)
            values = {
                "MiB": round(resident_bytes(pid) / _MIB, 3),
                "fds": sum(held.fds.values()),
                "maps": held.maps,
                "threads": held.threads,
            }
            for what, value in values.items():
                self.series[f"{name}: {what}"].add(now, value)


# -- The campaign ----------------------------------------------------------------------------------


#: The most samples of a soak; the fewest seconds between two; and the fewest samples of a short soak.
_SAMPLES: Final = 1000
_SHORTEST: Final = 0.25
_FEWEST: Final = 40
#: Seconds until clients and workers have made their one-time allocations; a supervisor makes them at start.
_WARM_UP: Final = 60.0
#: Seconds until a supervisor must have released its clients' resources.
_SETTLE: Final = 30.0


def soak(executor: str, seconds: float, seed: int = 0) -> SoakReport:
    """Load a driver with `executor` for this many seconds.

    Raises:
        NnburstError: the driver does not start.
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
        for process in staying:  # the processes start at the same time
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
            break  # a short soak takes longer on a busy machine
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


# -- The command line ------------------------------------------------------------------------------


def main(argv: list[str] | None = None) -> int:
    """Run the command; returns 0 only if nothing grew and nothing failed."""
    parser = argparse.ArgumentParser(
        prog="python -m nnburst.testing.load.soak",
        description="`python -m nnburst.testing.load.soak`: load a driver for hours, and see "
        "whether anything grows.",
    )
    parser.add_argument("--seconds", type=float, default=3600.0, help="default: %(default)s")
    parser.add_argument("--executor", default="reference", help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="of the deaths (default: %(default)s)")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write what was found there, with all samples"
    )
    parser.add_argument(
        "--again", type=Path, metavar="FILE", help="judge the samples of such a file, and load none"
    )
    args = parser.parse_args(argv)
    if args.json:
        args.json.touch()  # fails now, not after hours, if the file cannot be written
    if args.again:
        report = SoakReport.of(json.loads(args.again.read_text()))
    else:
        report = soak(args.executor, args.seconds, args.seed)
    if args.json:
        args.json.write_text(json.dumps(report.facts()) + "\n")
    sys.stdout.write(report.text())
    return 0 if report.passed else 1


if __name__ == "__main__":
    sys.exit(main())
