"""Runs one activity as a client process until it is killed, and times its rounds.

It prints a line of JSON once it is busy. `connect` connects again and again; `stand_by` runs bursts and
executes until its standard input ends, and prints its results so far at each line before and at the end
(`stand_by:NAME` does the same with one of `ACTIVITIES`, or with `decode_in_slots`). The others are
`ACTIVITIES` and `STUCK`, which go on until the process is killed. The address `launch` starts a driver of its
own.
"""

from __future__ import annotations

import json
import os
import random
import select
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

import nnburst
from nnburst.testing.faults.activities import ACTIVITIES, STUCK, burst_runs, execute
from nnburst.testing.faults.sequences import decode_in_slots

#: Durations that are kept; percentiles of so many are as good as those of all.
_KEPT: Final = 16384


class Latencies:
    """A fair sample of the durations it was given. One thread at a time.

    Every duration is as likely to be in it as any other, so its percentiles are those of the whole run; a
    list of all would grow for hours in a process that is watched for growth.
    """

    def __init__(self) -> None:
        """Take all the memory that it will ever need."""
        self._kept = np.ones(_KEPT, np.int64)
        self._chance = random.Random()  # noqa: S311 - nothing secret
        #: How many there were.
        self.count = 0

    def add(self, nanoseconds: int) -> None:
        """Count a round."""
        at = self.count if self.count < _KEPT else self._chance.randrange(self.count + 1)
        if at < _KEPT:
            self._kept[at] = nanoseconds
        self.count += 1

    def microseconds(self, *percentiles: float) -> list[float]:
        """The durations at `percentiles`; 0 if there was no round."""
        if not self.count:
            return [0.0 for _ in percentiles]
        found = np.percentile(self._kept[: self.count], percentiles) / 1000
        return [float(each) for each in found]


#: Seconds between the executions of a client that stands by: it shall leave cores to the others.
_PAUSE: Final = 0.001


def main(address: str, name: str) -> None:
    """Connect and do `name`."""
    if name == "connect":
        _connect(address)
    if name in STUCK:
        _go_on(STUCK[name](address), worker=0)
    with nnburst.launch("reference") if address == "launch" else nnburst.connect(address) as device:
        if name.startswith("stand_by"):
            _stand_by(device, name.partition(":")[2])
            return
        _go_on(ACTIVITIES[name](device), device.pid)


def _go_on(steps: Iterator[None], worker: int) -> None:
    next(steps)
    _say({"pid": os.getpid(), "worker": worker})
    for _ in steps:
        pass


def _connect(address: str) -> None:
    _say({"pid": os.getpid(), "worker": 0})
    while True:
        nnburst.connect(address).close()


def _stand_by(device: nnburst.Device, name: str) -> None:
    known = {**ACTIVITIES, "decode_in_slots": decode_in_slots}
    activities = [known[name](device)] if name else [burst_runs(device), execute(device)]
    for steps in activities:
        next(steps)
    _say({"pid": os.getpid(), "worker": device.pid})
    while True:
        latencies = Latencies()
        error = _repeat(activities, latencies)
        told = sys.stdin.readline() if not error else ""
        p50, p99 = latencies.microseconds(50, 99)
        _say({"rounds": latencies.count, "error": error, "median_us": p50, "p99_us": p99})
        if not told:
            return


def _repeat(activities: Sequence[Iterator[None]], latencies: Latencies) -> str:
    """Go on until there is something to read; the error that came before, if any."""
    while not select.select([sys.stdin], [], [], _PAUSE)[0]:
        began = time.perf_counter_ns()
        try:
            for steps in activities:
                next(steps)
        except Exception as failure:
            return f"{type(failure).__name__}: {failure}"
        latencies.add(time.perf_counter_ns() - began)
    return ""


def _say(facts: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
