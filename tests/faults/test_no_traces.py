"""What a `kill -9` leaves on the machine: nothing that has a name, and no memory but that of the living."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from itertools import cycle, islice
from pathlib import Path

import pytest

import nnburst
from faults.processes import HANG, KILLS, Client, Row, Supervisor, collect, wait_until_gone
from nnburst import DeadObject
from nnburst.testing.faults.activities import ACTIVITIES, sum_model, summands
from nnburst.testing.faults.footprint import children, footprint, settle

#: Longest time between the start of an activity and its end, in seconds: several rounds of each.
LATEST = 0.03
SHARED = Path("/dev/shm")


def named(*folders: Path) -> set[Path]:
    """What has a name in these folders."""
    return {path for folder in folders for path in folder.iterdir()}


def held(pid: int) -> set[str]:
    """Named shared memory that a process has open or mapped."""
    maps = Path(f"/proc/{pid}/maps").read_text().split()
    links = []
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it was closed after it was listed
            links.append(str(fd.readlink()))
    return {path for path in [*maps, *links] if path.startswith(f"{SHARED}/")}


def test_killed_clients_and_drivers_leave_no_name_and_no_memory(
    serve: Callable[..., Supervisor],
    client: Callable[[str, str], Client],
    chance: random.Random,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    row: Row,
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    supervisor = serve()
    bystander = client("cam", "stand_by")
    while not bystander.lap()["rounds"]:
        pass  # after a round it has all that it ever has
    files, shared = named(temporary, tmp_path / "nnburst"), named(SHARED)
    baseline = footprint(supervisor.pid)
    before = footprint(bystander.pid)
    for number, activity in enumerate(islice(cycle(ACTIVITIES), KILLS)):
        victim = client("cam", activity)
        threading.Event().wait(chance.uniform(0, LATEST))
        os.kill(victim.pid if number % 2 else victim.worker, signal.SIGKILL)
        victim.kill()
    settle(supervisor.pid, baseline)
    assert named(temporary, tmp_path / "nnburst") == files
    # Others on this machine may use named memory; they do not keep it for so long.
    deadline = time.monotonic() + HANG
    while left := named(SHARED) - shared:
        assert time.monotonic() < deadline, left
        threading.Event().wait(0.01)
    settle(bystander.pid, before)
    processes = [bystander.pid, supervisor.pid, *children(supervisor.pid)]
    assert not any(map(held, processes))
    row("client or worker killed", KILLS, left="no name, no memfd")


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_client_that_is_a_zombie_counts_as_gone(
    serve: Callable[..., Supervisor], client: Callable[[str, str], Client]
) -> None:
    supervisor = serve()
    baseline = footprint(supervisor.pid)
    victim = client("cam", "burst_runs")
    os.kill(victim.pid, signal.SIGKILL)  # and nobody waits for it
    os.waitid(os.P_PID, victim.pid, os.WEXITED | os.WNOWAIT)
    settle(supervisor.pid, baseline)
    assert state(victim.pid) == "Z"


def test_a_worker_that_is_a_zombie_is_a_dead_object(serve: Callable[..., Supervisor]) -> None:
    supervisor = serve()
    with nnburst.connect("cam") as device:
        prepared = device.prepare(sum_model())
        bound = prepared.open_burst().bind()
        bound.run()
        supervisor.process.send_signal(signal.SIGSTOP)  # so that it reaps nobody
        os.kill(device.pid, signal.SIGKILL)
        for use in (bound.run, lambda: prepared.execute(summands(1))):
            with pytest.raises(DeadObject):
                use()
        assert not device.is_alive
        wait_until_gone(
            device.pid, time.monotonic(), HANG
        )  # it was heard of before the kernel was done
        assert state(device.pid) == "Z"
        supervisor.process.send_signal(signal.SIGCONT)
    collect()
