"""Clients that use up their quotas get no more than is documented, and others are served.

NNBURST_CLIENTS is the number of these clients (2 by default; 200 take some ten minutes on two cores).
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from faults.processes import HANG, LAP, Client, Row, Supervisor, figures, quiet_lap
from nnburst.control.channel import MAX_BUFFERS, MAX_MODELS, MAX_POOLS
from nnburst.hal import environment
from nnburst.hal.utils import driver_environment
from nnburst.testing.faults.footprint import children, footprint, proportional_bytes, settle

CLIENTS = environment.CLIENTS.read()
#: Bytes that a worker takes whose client has all of its counts, with small models (docs/quotas.md).
PROMISED = 64 << 20
#: Seconds that the workers of so many clients may take to go.
GONE = 1.0 + CLIENTS / 10


class Greedy:
    """The process of all greedy clients."""

    def __init__(self, address: str, clients: int) -> None:
        command = [sys.executable, "-m", "nnburst.testing.faults.greedy", address, str(clients)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=driver_environment()
        )

    def wait(self) -> Any:
        """Wait for the answers of all clients."""
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def end(self) -> None:
        """End the clients unless they have ended."""
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()
        self.process.wait(HANG)


@pytest.fixture
def greedy() -> Iterator[Callable[[str, int], Greedy]]:
    started: list[Greedy] = []

    def start(address: str, clients: int) -> Greedy:
        started.append(Greedy(address, clients))
        return started[-1]

    yield start
    for one in started:
        one.end()


@pytest.mark.campaign
def test_clients_at_their_quotas_take_what_is_documented_and_disturb_no_other(
    serve: Callable[..., Supervisor],
    client: Callable[[str, str], Client],
    greedy: Callable[[str, int], Greedy],
    row: Row,
) -> None:
    supervisor = serve()
    good = client("cam", "stand_by")
    baseline = footprint(supervisor.pid)
    quiet = quiet_lap(good)
    crowd = greedy("cam", CLIENTS)
    taken = crowd.wait()
    while_they_took = good.lap()
    threading.Event().wait(LAP)
    among_them = good.lap()
    workers = set(children(supervisor.pid)) - {good.worker}
    sizes = [proportional_bytes(worker) for worker in workers]
    row(
        f"{len(workers)} clients at their quotas",
        1,
        each=f"{max(sizes) / 2**20:.0f} MiB at most",
        all=f"{sum(sizes) / 2**20:.0f} of {len(sizes) * PROMISED / 2**20:.0f} MiB",
        bursts=f"{taken['bursts']} (of each at most {taken['burst_limit']})",
        quiet=figures(quiet),
        while_they_took=figures(while_they_took),
        among_them=figures(among_them),
    )
    assert not taken["errors"]
    assert len(workers) == CLIENTS
    assert taken["models"] == CLIENTS * MAX_MODELS
    assert taken["buffers"] == CLIENTS * MAX_BUFFERS
    assert taken["pools"] == CLIENTS * MAX_POOLS
    assert taken["bursts"] == CLIENTS * taken["burst_limit"]
    assert max(sizes) <= PROMISED
    for facts in (quiet, while_they_took, among_them):
        assert not facts["error"]
        assert facts["rounds"] > 0
    crowd.end()
    settle(supervisor.pid, baseline, GONE)
    assert not good.finish()["error"]
