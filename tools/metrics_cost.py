"""Measures what counting and metrics add to an execution, by drivers with and without them in turn.

    python tools/metrics_cost.py [--lives N] [--rounds N] [--json FILE]

A launched driver counts nothing; the worker of a service always counts, and here its metrics are read each
second. A client on another core executes `null_1in1out` in short blocks, by two drivers that do not count and
by a service, one after the other in each round. Of a block the time counts that a tenth of its single
executions keep below. What is compared are the blocks of one round, if all of them were awake: on a machine
that others use many executions wait for a core. Two processes alike differ, too, so all are started anew
several times: prints the median over these lives of counting ÷ not counting, its quartiles, and the same
for the two that do not count. Ends with 1 if counting costs more than 1.5 % and more than that, and with 2 if
too few lives were awake.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import numpy as np

import nnburst
from nnburst.bench.cases import Looped, adding_model, null_driver, open_bound, pinned
from nnburst.hal.utils import driver_environment

#: Drivers by name, and whether they count.
DRIVERS: Final = {"without": False, "counting": True, "without, again": False}
#: Executions of a block, and the percent of them that keep below what counts.
_BLOCK: Final = 400
_SHARE: Final = 10
#: A block was awake if it took less than so many times the quickest of all; how many rounds
#: make a life, and how many lives are enough.
_ASLEEP: Final = 3.0
_AWAKE_ROUNDS: Final = 8
_ENOUGH: Final = 5
_SCRAPER: Final = """
import sys, time, urllib.request
while True:
    urllib.request.urlopen(sys.argv[1]).read()
    time.sleep(1)
"""


@contextmanager
def service(address: str, core: int) -> Iterator[str]:
    """A service with metrics whose processes keep to one core; where the metrics are."""
    command = [sys.executable, "-m", "nnburst", "serve", address, "--executor", "null"]
    with pinned(core):
        process = subprocess.Popen(  # noqa: S603
            [*command, "--metrics", "127.0.0.1:0"],
            stdout=subprocess.PIPE,
            text=True,
            env=driver_environment(),
        )
    with process:
        try:
            assert process.stdout is not None
            line = next(line for line in process.stdout if line.startswith("metrics at "))
            yield line.removeprefix("metrics at ").strip()
        finally:
            process.terminate()


@contextmanager
def scraper(address: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that reads the metrics each second."""
    command = [sys.executable, "-c", _SCRAPER, f"http://{address}/metrics"]
    with subprocess.Popen(command) as process:  # noqa: S603
        try:
            yield process
        finally:
            process.terminate()


def live(rounds: int) -> list[list[float]]:
    """Nanoseconds of an execution by each driver in each round.

    Raises:
        RuntimeError: the metrics could not be read until the end.
    """
    here, there = sorted(os.sched_getaffinity(0))[:2]
    found: list[list[float]] = [[] for _ in DRIVERS]
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        cases = []
        for counts in DRIVERS.values():
            if counts:
                metrics = stack.enter_context(service(f"{folder}/driver", there))
                reader = stack.enter_context(scraper(metrics))
                device = stack.enter_context(nnburst.connect(f"{folder}/driver"))
            else:
                device = stack.enter_context(null_driver(there))
            _, bound = open_bound(stack, device, adding_model(1, 1))
            cases.append(Looped("null_1in1out", bound.run))
        stack.enter_context(pinned(here))
        for turn in range(rounds):
            for index in range(len(cases))[:: 1 if turn % 2 == 0 else -1]:
                block = cases[index].samples(_BLOCK)
                found[index].append(float(np.percentile(block, _SHARE)))
        if reader.poll() is not None:
            raise RuntimeError("the scraper has ended: the metrics could not be read")
    return found


def main() -> int:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--lives", type=int, default=15)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    lives = np.array([live(args.rounds) for _ in range(args.lives)])  # life, driver, round
    if args.json is not None:
        args.json.write_text(json.dumps(lives.tolist()))
    quickest = lives.min()
    medians = []
    for each in lives:
        awake = each[:, each.max(axis=0) < _ASLEEP * quickest]
        if awake.shape[1] >= _AWAKE_ROUNDS:
            without, counting, again = awake
            both = (without + again) / 2
            medians.append(
                (
                    np.median(counting / both) - 1,
                    np.median(again / without) - 1,
                    *np.median(awake, axis=1),
                )
            )
    print(f"{len(medians)} of {len(lives)} lives awake")
    if len(medians) < _ENOUGH:
        print(f"noisy: fewer than {_ENOUGH} lives had {_AWAKE_ROUNDS} rounds awake")
        return 2
    figures = np.array(medians)
    for name, each in zip(DRIVERS, figures[:, 2:].T, strict=True):
        print(
            f"{name}: " + ", ".join(f"{ns:.0f}" for ns in np.percentile(each, [25, 50, 75])), "ns"
        )
    cost, spread = np.percentile(figures[:, :2], [25, 50, 75], axis=0).T
    for what, (low, median, high) in (("counting", cost), ("two drivers alike", spread)):
        print(f"{what}: {median:+.2%} ({low:+.2%} to {high:+.2%})")
    return int(cost[1] > max(0.015, abs(spread[1])))


if __name__ == "__main__":
    raise SystemExit(main())
