"""Puts a load on a service once and measures it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np
import numpy.typing as npt

from nnburst.bench.clients.client import ClientRan, Trips
from nnburst.bench.clients.load import Load, Usage, memory_of_each
from nnburst.bench.machine import stolen_seconds
from nnburst.hal.errors import DeviceUnavailable
from nnburst.testing.driver_under_test import DriverUnderTest

#: Nanoseconds between the word to begin and the beginning.
_HEAD_START_NS: Final = 200_000_000
#: Seconds between two looks at how much the host has taken.
_LOOK: Final = 0.25


@dataclass(frozen=True, slots=True)
class Ran:
    """The measurements of one load.

    Attributes:
        wanted: the load.
        trips: when the requests of each client came, were sent and were answered, settling left out.
        begin_ns: since when trips count.
        end_ns: when the run was over.
        clients: processor time and memory of the clients' processes meanwhile.
        workers: likewise the service's.
        memory: bytes of a client and of a worker at the end; None if unknown.
        stolen: moments at which the host was looked at, and the seconds it had taken since boot.
    """

    wanted: Load
    trips: list[Trips]
    begin_ns: int
    end_ns: int
    clients: Usage
    workers: Usage
    memory: tuple[int | None, int | None]
    stolen: npt.NDArray[np.float64]


@contextmanager
def on_cores(cores: tuple[int, ...]) -> Iterator[None]:
    """Let processes that are started within run on these cores only."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def run_load(wanted: Load) -> Ran:
    """Start the clients of a load, let them run, and measure them and their workers.

    Raises:
        DeviceUnavailable: a client failed; the reason went to stderr.
    """
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "nnburst.bench.clients.client", wanted.as_text(), folder]
        with on_cores(wanted.cores):
            group = subprocess.Popen(  # noqa: S603 - this interpreter, this module
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, process_group=0
            )
        with group:
            try:
                return _measure(wanted, group, Path(folder))
            except BaseException:
                group.kill()
                raise


def _measure(wanted: Load, group: subprocess.Popen[str], folder: Path) -> Ran:
    pids = _read(group)
    begin = time.monotonic_ns() + _HEAD_START_NS
    looks: list[tuple[float, float]] = []
    done = threading.Event()
    watching = threading.Thread(target=_watch, args=(done, looks))
    watching.start()
    _write(group, str(begin))
    try:
        _read(group)
    finally:
        done.set()
        watching.join()
    memory = memory_of_each(pids["clients"]), memory_of_each(pids["workers"])
    _write(group, "end")
    if group.wait():
        raise DeviceUnavailable("clients: one of them failed")
    clients = [ClientRan.load(folder, number) for number in range(wanted.clients)]
    return Ran(
        wanted,
        [client.trips for client in clients],
        begin + wanted.settling_ns,
        begin + wanted.duration_ns,
        sum((client.own for client in clients), Usage.none()),
        sum((client.worker for client in clients), Usage.none()),
        memory,
        np.asarray(looks),
    )


def _watch(done: threading.Event, looks: list[tuple[float, float]]) -> None:
    while True:
        looks.append((float(time.monotonic_ns()), stolen_seconds()))
        if done.wait(_LOOK):
            looks.append((float(time.monotonic_ns()), stolen_seconds()))
            return


def _read(group: subprocess.Popen[str]) -> dict[str, list[int]]:
    assert group.stdout is not None
    line = group.stdout.readline()
    if not line:
        raise DeviceUnavailable("clients: one of them failed")
    found: dict[str, list[int]] = json.loads(line)
    return found


def _write(group: subprocess.Popen[str], word: str) -> None:
    assert group.stdin is not None
    group.stdin.write(word + "\n")
    group.stdin.flush()


@contextmanager
def service(executor: str, cores: tuple[int, ...]) -> Iterator[str]:
    """A driver of its own; the value is its address."""
    with on_cores(cores):
        driver = DriverUnderTest.start(executor)
    with driver:
        yield driver.address
