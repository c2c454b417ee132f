"""Loads a driver for hours and checks that nothing grows: `python -m nnburst.testing.load.soak`.

Whether a figure grows is decided by a line of least squares through 20 blocks of its series, and five
standard errors of the line's rise.
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
from nnburst.client.launch import driver_environment
from nnburst.hal.errors import GeneralFailure
from nnburst.testing.driver_under_test import DriverUnderTest
from nnburst.testing.faults.activities import ACTIVITIES, STUCK, BrokenLife, outlive
from nnburst.testing.faults.footprint import Footprint, footprint, resident_bytes

# -- the report ------------------------------------------------------------------------------------
#: Share of the time at the begin in which things may still be made once: caches, threads, arenas.
WARM_UP: Final = 0.25
#: Blocks that the rest is divided into, if there are enough samples; samples that are enough for one.
BLOCKS: Final = 20
_OF_A_BLOCK: Final = 3
#: Samples after the warm-up without which there is no verdict, and the fewest blocks.
FEWEST: Final = 8
#: Share of a block that is left out at either end, at least one sample if there are three.
_TRIMMED: Final = 0.1
#: Standard errors that a rise must exceed.
_SURE: Final = 5.0
#: Autocorrelation is taken for no more than this: a line through 20 blocks is not a measure of more.
_MOST_ALIKE: Final = 0.9

_Numbers = npt.NDArray[np.float64]


class Trend(NamedTuple):
    """A straight line through a series, after the warm-up.

    Attributes:
        first: value of the line at its begin.
        growth: by how much the line rises until its end; negative if it falls.
        uncertainty: rise up to which it may be chance: five standard errors.
        allowance: growth that counts as none however sure it is.
    """

    first: float
    growth: float
    uncertainty: float
    allowance: float

    @property
    def is_flat(self) -> bool:
        """Whether it grows no more than may be chance, or than is allowed."""
        return self.growth <= max(self.uncertainty, self.allowance)


@dataclass
class Series:
    """One number, looked at again and again.

    Attributes:
        allowance: growth that counts as none.
        warm_up: seconds at the begin that count for nothing, if these are more than a quarter; nothing
            is concluded before as many have passed after them.
        times: seconds.
        values: as many.
    """

    allowance: float
    warm_up: float = 0.0
    times: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def add(self, time: float, value: float) -> None:
        """Add a sample; times rise."""
        self.times.append(time)
        self.values.append(value)

    def trend(self) -> Trend | None:
        """The line; None if there are too few samples, or too little time."""
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
    """Factor of a variance for the resemblance of neighbours, which a fitted line hides in part."""
    size, power = rest.size, float(rest @ rest)
    alike = float(rest[1:] @ rest[:-1]) / power if power else 0.0
    alike = min(max((size * alike + 2) / (size - 4), 0.0), _MOST_ALIKE)
    return (1 + alike) / (1 - alike)


def as_facts(series: dict[str, Series]) -> dict[str, Any]:
    """All that a verdict needs, as JSON has it."""
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
    """The report that `as_facts` was called on.

    Raises:
        TypeError: that is something else.
    """
    return {name: Series(**each) for name, each in facts.items()}


#: Fields that are counted; the rest of a report follows from its series.
_COUNTED: Final = ("seconds", "rounds", "counts", "errors")


@dataclass
class SoakReport:
    """The results of a soak.

    Attributes:
        seconds: that it took.
        rounds: of each client that stayed.
        counts: of clients and calls that came and went.
        errors: everything that must not happen.
        series: all samples, complete before the first look at `trends`.
    """

    seconds: float = 0.0
    rounds: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    series: dict[str, Series] = field(default_factory=dict)

    @cached_property
    def trends(self) -> dict[str, Trend]:
        """Of every series that is long enough for one."""
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
        """For people."""
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
        """For a file: the findings, and all samples."""
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
        """The report that gave these facts; its verdict is computed from the samples anew.

        Raises:
            KeyError: a fact is missing.
        """
        counted = {name: facts[name] for name in _COUNTED}
        return cls(**counted, series=from_facts(facts["series"]))


# -- Processes and threads that make load ----------------------------------------------------------


#: Seconds until a process must have answered.
_HANG: Final = 60.0
#: Activities of clients that stay: all those that end by themselves in each round.
STAYING: Final = tuple(name for name in ACTIVITIES if name != "idle")
#: Seconds between two deaths.
_BETWEEN_DEATHS: Final = 0.5
#: Longest life of a victim, once it is busy.
_LATEST: Final = 0.2


class Process:
    """A client process of `nnburst.testing.faults.client`.

    Attributes:
        activity: its name.
        pid: its own.
        worker: its driver's; 0 until it is busy.
    """

    def __init__(self, address: str, activity: str) -> None:
        """Start it; `wait_until_busy` is next."""
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
        """Start one and wait until it is busy."""
        process = cls(address, activity)
        process.wait_until_busy()
        return process

    def wait_until_busy(self) -> None:
        """Wait until its activity runs; `worker` is known from then on.

        Raises:
            BrokenLife: it has ended instead.
        """
        self.worker = int(self._line()["worker"])

    def _line(self) -> Any:  # noqa: ANN401 - JSON
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise BrokenLife(f"client {self.activity} ended with {self._process.wait(_HANG)}")
        return json.loads(line)

    def release(self) -> None:
        """Release one that stands by, which ends then; `finish` waits for that."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def finish(self) -> Any:  # noqa: ANN401 - JSON
        """Let one that stands by end: its rounds, errors and latencies."""
        self.release()
        facts = self._line()
        self._process.wait(_HANG)
        return facts

    def kill(self) -> None:
        """SIGKILL in the middle of its work.

        Raises:
            BrokenLife: it had ended before; why stands on its stderr, which is ours.
        """
        status = self.close()
        if status != -signal.SIGKILL:
            raise BrokenLife(f"client {self.activity} had ended with {status} before it was killed")

    def close(self) -> int:
        """SIGKILL, unless it has ended; its exit status."""
        self._process.kill()
        status = self._process.wait(_HANG)
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()
        return status


class Repeated:
    """Something done again and again on a thread, until it is stopped or fails.

    Attributes:
        count: how often it was done.
        error: that it ended with; empty while all is well.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[threading.Event], None],
        clean_up: Callable[[], None] = lambda: None,
    ) -> None:
        """Start.

        Args:
            name: for reports.
            work: is given an event that is set when it shall return early.
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
    """Kill a client in the middle of something, again and again."""
    chance = random.Random(seed)  # noqa: S311 - decides when to kill

    def kill_one(stop: threading.Event) -> None:
        victim = Process.busy(address, chance.choice([*ACTIVITIES, "connect", *STUCK]))
        stop.wait(chance.uniform(0, _LATEST))
        victim.kill()
        stop.wait(_BETWEEN_DEATHS)

    return Repeated("deaths of clients", kill_one)


def deaths_of_workers(address: str) -> Repeated:
    """Kill the worker of a client that outlives it, again and again."""
    steps = outlive(address)

    def kill_one(stop: threading.Event) -> None:
        next(steps)
        stop.wait(_BETWEEN_DEATHS)

    return Repeated("deaths of workers", kill_one, steps.close)


def connections(address: str) -> Repeated:
    """Connect and go."""

    def connect_once(stop: threading.Event) -> None:
        connect(address).close()
        stop.wait(_BETWEEN_DEATHS / 10)

    return Repeated("connections", connect_once)


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether `condition` held within `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        threading.Event().wait(0.01)
    return True


# -- Samples of memory, descriptors and threads ----------------------------------------------------


_MIB: Final = 1 << 20
#: Growth that counts as none: an arena, and what a call under way holds for a moment.
ALLOWANCES: Final = {"MiB": 1.0, "fds": 2.0, "maps": 2.0, "threads": 2.0}


class Samples:
    """Series of several processes. Not thread-safe."""

    def __init__(
        self, processes: Mapping[str, int], warm_up: Mapping[str, float] | None = None
    ) -> None:
        """Take samples of these processes.

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
        """Whether there are enough of process `name` for a verdict."""
        return all(self.series[f"{name}: {what}"].trend() for what in ALLOWANCES)

    def take(self) -> None:
        """Look at all of them.

        Raises:
            FileNotFoundError: one of them is not there any more.
            ProcessLookupError: one of them has just gone.
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


# -- The command line ------------------------------------------------------------------------------


def main(argv: list[str] | None = None) -> int:
    """Soak and report; 0 only if nothing grew and nothing failed."""
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
        args.json.touch()  # a file that cannot be written shall not be found out after hours
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
