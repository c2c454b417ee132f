"""Runs a load of many clients on a service, and compares its latencies with a simulated queue."""

from __future__ import annotations

import heapq
import json
import subprocess
import sys
import threading
import time
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nnburst.bench.cases import on_cores
from nnburst.bench.clients.client import ClientRan, Trips
from nnburst.bench.clients.load import Load, Usage, memory_of_each
from nnburst.bench.rounds import stolen_seconds
from nnburst.hal.errors import DeviceUnavailable
from nnburst.hal.own_folder import OwnFolder
from nnburst.testing.driver_under_test import DriverUnderTest

#: Nanoseconds between the command to begin and the beginning.
_HEAD_START_NS: Final = 200_000_000
#: Seconds between two readings of the time that the host has stolen.
_LOOK: Final = 0.25


@dataclass(frozen=True, slots=True)
class Ran:
    """The measurements of one load.

    Attributes:
        wanted: the load.
        trips: for each client, the times of arrival, sending and answer of its requests after settling.
        begin_ns: time from which trips count.
        end_ns: end of the run.
        clients: usage of the clients' processes in that time.
        workers: usage of the service's processes in that time.
        memory: bytes of a client and of a worker at the end; None if unknown.
        stolen: times of the readings, and the seconds that the host had stolen since boot.
    """

    wanted: Load
    trips: list[Trips]
    begin_ns: int
    end_ns: int
    clients: Usage
    workers: Usage
    memory: tuple[int | None, int | None]
    stolen: npt.NDArray[np.float64]


def run_load(wanted: Load) -> Ran:
    """Start the clients of a load, run them, and measure them and their workers.

    Raises:
        DeviceUnavailable: a client failed; the reason went to stderr.
    """
    with OwnFolder() as own:
        module = "nnburst.bench.clients.client"
        command = [sys.executable, "-m", module, wanted.as_text(), str(own.path)]
        with on_cores(wanted.cores):
            group = subprocess.Popen(  # noqa: S603 - this interpreter, this module
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, process_group=0
            )
        with group:
            try:
                return _measure(wanted, group, own.path)
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
    """Start a driver; the context's value is its address."""
    with on_cores(cores):
        driver = DriverUnderTest.start(executor)
    with driver:
        yield driver.address


# -- A simulated queue -----------------------------------------------------------------------------


Nanoseconds = npt.NDArray[np.int64]


def simulate_queue(
    arrivals: Nanoseconds, clients: Nanoseconds, services: Nanoseconds, servers: int
) -> Nanoseconds:
    """Compute the time of each request from its arrival to its answer in a simulated queue.

    Requests of one client are served one after another; a free server takes the request that has waited
    longest.

    Args:
        arrivals: arrival times, in any order.
        clients: the number of each request's client, from 0 on.
        services: time that a server needs for each request.
        servers: number of servers, at least 1.

    Returns:
        Nanoseconds for each request, in the order of `arrivals`.
    """
    free = [0] * servers
    to_come: dict[int, deque[int]] = defaultdict(deque)
    for index in np.argsort(arrivals, kind="stable").tolist():
        to_come[int(clients[index])].append(index)
    # Of each client only the next request: the ones behind it cannot be served before.
    waiting = [(int(arrivals[each[0]]), each.popleft(), client) for client, each in to_come.items()]
    heapq.heapify(waiting)
    took = np.zeros(len(arrivals), np.int64)
    while waiting:
        ready, index, client = heapq.heappop(waiting)
        done = max(ready, heapq.heappop(free)) + int(services[index])
        heapq.heappush(free, done)
        took[index] = done - int(arrivals[index])
        if to_come[client]:
            following = to_come[client].popleft()
            heapq.heappush(waiting, (max(int(arrivals[following]), done), following, client))
    return took


def jain_index(shares: npt.NDArray[np.float64]) -> float:
    """Jain's index of fairness: 1 if all shares are equal, 1/n if one of n has everything.

    It is 1 if all shares are 0.
    """
    squares = float((shares**2).sum())
    return float(shares.sum()) ** 2 / (len(shares) * squares) if squares else 1.0


#: Least number of requests for a meaningful percentile.
_FEWEST: Final = 20


@dataclass(frozen=True, slots=True)
class ClientShare:
    """The figures of one load.

    Attributes:
        name: name of the case.
        ran: the measurements.
        queue_ns: time of each request in a simulated queue, in the order of the clients; None in a closed
            loop.
    """

    name: str
    ran: Ran
    queue_ns: npt.NDArray[np.int64] | None

    @classmethod
    def of(cls, ran: Ran, services: npt.NDArray[np.int64] | None) -> ClientShare:
        """Make the figures of a load; `services` are measured times of single executions, for the queue."""
        wanted = ran.wanted
        name = f"{wanted.clients}_{wanted.loop}_{wanted.waiting}_{len(wanted.cores)}_cores"
        return cls(name, ran, None if services is None else _queue(ran, services))

    @property
    def latencies(self) -> npt.NDArray[np.int64]:
        """Nanoseconds of each request from its arrival to its answer, in the order of the clients."""
        trips = np.concatenate(self.ran.trips)
        return trips[:, 2] - trips[:, 0]

    @property
    def undisturbed(self) -> npt.NDArray[np.bool_]:
        """For each request, whether the host stole no time while it was under way."""
        trips = np.concatenate(self.ran.trips)
        times, stolen = self.ran.stolen[:, 0], self.ran.stolen[:, 1]
        first = np.interp(trips[:, 0], times, np.arange(len(times)), left=0)
        last = np.interp(trips[:, 2], times, np.arange(len(times)))
        before = stolen[np.floor(first).astype(int)]
        after = stolen[np.ceil(last).astype(int)]
        return np.asarray(after <= before)

    @property
    def fairness(self) -> float:
        """Jain's index of the clients' shares: answers of a closed loop, mean latencies of an open one."""
        trips = self.ran.trips
        if self.ran.wanted.rate == 0:
            return jain_index(np.asarray([len(found) for found in trips], float))
        return jain_index(np.asarray([(t[:, 2] - t[:, 0]).mean() for t in trips if len(t)]))

    def as_json(self) -> dict[str, Any]:
        """As `--json` writes it; times in nanoseconds, sizes in bytes."""
        ran, latencies = self.ran, self.latencies
        seconds = (ran.end_ns - ran.begin_ns) / 1e9
        count = max(1, len(latencies))
        found = {
            "name": self.name,
            "clients": ran.wanted.clients,
            "loop": ran.wanted.loop,
            "waiting": ran.wanted.waiting,
            "cores": len(ran.wanted.cores),
            "requests": len(latencies),
            "per_second": round(len(latencies) / seconds, 1),
            "median_ns": percentile(latencies, 50),
            "p99_ns": percentile(latencies, 99),
            "fairness": round(self.fairness, 4),
            "fewest": min(len(trips) for trips in ran.trips),
            "most": max(len(trips) for trips in ran.trips),
            "client_cpu_share": round(ran.clients.cpu_s / seconds, 4),
            "worker_cpu_share": round(ran.workers.cpu_s / seconds, 4),
            "cpu_ns_per_request": round(1e9 * (ran.clients.cpu_s + ran.workers.cpu_s) / count),
            "waits_per_request": round((ran.clients.waits + ran.workers.waits) / count, 2),
            "client_bytes": ran.memory[0],
            "worker_bytes": ran.memory[1],
            "stolen_share": round(float(ran.stolen[-1, 1] - ran.stolen[0, 1]) / seconds, 4),
        }
        return found | self._beside_queue(latencies)

    def _beside_queue(self, latencies: npt.NDArray[np.int64]) -> dict[str, Any]:
        if self.queue_ns is None:
            return {}
        quiet = self.undisturbed
        found = {
            "undisturbed": int(quiet.sum()),
            "queue_median_ns": percentile(self.queue_ns, 50),
            "queue_p99_ns": percentile(self.queue_ns, 99),
        }
        if quiet.sum() < _FEWEST:
            return found
        own, queue = (percentile(x[quiet], 99) for x in (latencies, self.queue_ns))
        return found | {"undisturbed_p99_ns": own, "p99 / queue": round(own / max(queue, 1), 3)}


def percentile(values: npt.NDArray[np.int64], share: float) -> int:
    """A percentile of nanoseconds; 0 without values."""
    return round(float(np.percentile(values, share))) if len(values) else 0


def _queue(ran: Ran, services: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Simulate a queue with the same arrivals and as many servers as there are cores."""
    arrivals = np.concatenate([found[:, 0] for found in ran.trips])
    whose = np.repeat(np.arange(len(ran.trips)), [len(found) for found in ran.trips])
    drawn = np.random.default_rng(ran.wanted.seed).choice(services, len(arrivals))
    return simulate_queue(arrivals, whose, drawn, len(ran.wanted.cores))
