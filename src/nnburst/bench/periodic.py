"""Measures callers with a rhythm: the cost of a call after a gap, and the cost of waiting for it."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from nnburst.bench.cases import adding_model, null_driver, open_bound
from nnburst.client.burst.interface import BoundRequest
from nnburst.client.device import Device

_JITTER: Final = 0.02
#: A polling window that no gap outlasts, in microseconds.
_FOREVER_US: Final = 10_000_000
#: Share of a segment that the driver gets to find the rhythm again.
_SETTLING: Final = 0.2


@dataclass
class Caller:
    """One caller of a driver, at one rate.

    Attributes:
        name: of the case.
        rate: calls a second.
        latencies: nanoseconds of each call after settling.
        segments: median of each segment.
        wall_s: seconds measured.
        cpu_s: seconds of CPU of client and driver together in that time.
    """

    name: str
    rate: float
    bound: BoundRequest
    device: Device
    latencies: list[int] = field(default_factory=list)
    segments: list[float] = field(default_factory=list)
    wall_s: float = 0.0
    cpu_s: float = 0.0

    def run_segment(self, seconds: float, rng: random.Random) -> None:
        """Call with the period, each gap drawn within the jitter.

        The driver is stopped outside of its segments: one that spins for ever would keep the core from
        the one that is measured.
        """
        os.kill(self.device.pid, signal.SIGCONT)
        try:
            self._call(seconds, rng)
        finally:
            os.kill(self.device.pid, signal.SIGSTOP)

    def _call(self, seconds: float, rng: random.Random) -> None:
        calls = max(8, int(seconds * self.rate))
        settled = int(calls * _SETTLING)
        found: list[int] = []
        due = time.perf_counter()
        began = self._cpu(), time.perf_counter()
        for turn in range(calls):
            due += (1 + rng.uniform(-_JITTER, _JITTER)) / self.rate
            time.sleep(max(0.0, due - time.perf_counter()))
            start = time.perf_counter_ns()
            self.bound.run()
            ended = time.perf_counter_ns()
            if turn == settled:
                began = self._cpu(), time.perf_counter()
            if turn > settled:
                found.append(ended - start)
        self.cpu_s += self._cpu() - began[0]
        self.wall_s += time.perf_counter() - began[1]
        self.latencies += found
        self.segments.append(float(np.median(found)))

    def _cpu(self) -> float:
        return time.process_time() + process_cpu(self.device.pid)

    def as_json(self) -> dict[str, Any]:
        """As `--json` writes it."""
        return {
            "name": self.name,
            "median_ns": round(float(np.median(self.latencies)), 1),
            "p99_ns": round(float(np.percentile(self.latencies, 99)), 1),
            "p999_ns": round(float(np.percentile(self.latencies, 99.9)), 1),
            "per_second": self.rate,
            "cpu_share": round(self.cpu_s / self.wall_s, 4),
        }


def process_cpu(pid: int) -> float:
    """Seconds of CPU that a process has used (its CPU-time clock)."""
    return time.clock_gettime((~pid << 3) | 2)


@contextmanager
def periodic_callers(core: int) -> Iterator[list[Caller]]:
    """Two rates, each against a driver that learns the rhythm and against one that spins for ever."""
    with (
        null_driver(core) as learning,
        null_driver(core, polling_window_us=_FOREVER_US) as spinning,
        ExitStack() as stack,
    ):
        callers = []
        for rate in (1000, 100):
            for kind, device in (("learning", learning), ("spinning", spinning)):
                _, bound = open_bound(stack, device, adding_model(1, 1))
                callers.append(Caller(f"periodic_{rate}hz_{kind}", rate, bound, device))
        for device in (learning, spinning):
            os.kill(device.pid, signal.SIGSTOP)
        try:
            yield callers
        finally:
            for device in (learning, spinning):
                os.kill(device.pid, signal.SIGCONT)


def idle_share(device: Device, seconds: float) -> float:
    """Share of a core that client and driver use between calls."""
    began = time.process_time() + process_cpu(device.pid), time.perf_counter()
    time.sleep(seconds)
    used = time.process_time() + process_cpu(device.pid) - began[0]
    return used / (time.perf_counter() - began[1])
