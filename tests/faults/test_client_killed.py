"""`kill -9` of clients: their driver releases all their resources, and no other client notices."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import cycle, islice
from pathlib import Path

import pytest

import nnburst
from faults.processes import (
    HANG,
    KILLS,
    Client,
    Row,
    Supervisor,
    check_undisturbed,
    figures,
    quiet_lap,
    wait_until_gone,
)
from nnburst import MissedDeadline
from nnburst.testing.faults.activities import ACTIVITIES
from nnburst.testing.faults.footprint import footprint, is_running, settle

#: Longest time between the start of an activity and its end, in seconds: several rounds of each.
LATEST = 0.03


def test_killed_clients_leave_nothing_behind_and_disturb_no_other(
    serve: Callable[..., Supervisor],
    client: Callable[[str, str], Client],
    chance: random.Random,
    runtime: Path,
    row: Row,
) -> None:
    supervisor = serve()
    bystander = client("cam", "stand_by")
    quiet = quiet_lap(bystander)
    baseline = footprint(supervisor.pid)
    files = sorted(path.name for path in (runtime / "nnburst").iterdir())
    cleaned = []
    for activity in islice(cycle([*ACTIVITIES, "connect"]), KILLS):
        victim = client("cam", activity)
        killed = victim.kill_after(chance.uniform(0, LATEST))
        settle(supervisor.pid, baseline)
        cleaned.append((time.monotonic() - killed) * 1000)
    facts = bystander.finish()
    row(
        "client killed",
        KILLS,
        cleaned_up=cleaned,
        bystander=figures(facts, quiet),
        quiet=figures(quiet),
    )
    check_undisturbed(quiet, facts)
    assert sorted(path.name for path in (runtime / "nnburst").iterdir()) == files


def test_killed_clients_take_the_drivers_that_they_launched_along(
    client: Callable[[str, str], Client], chance: random.Random, row: Row
) -> None:
    gone, kills = [], max(KILLS // 10, 2)
    for activity in islice(cycle(ACTIVITIES), kills):
        victim = client("launch", activity)
        killed = victim.kill_after(chance.uniform(0, LATEST))
        gone.append(wait_until_gone(victim.worker, killed))
    row("client killed, driver launched", kills, driver_gone=gone)


def test_driver_ends_with_its_client_even_where_a_forked_child_lives_on() -> None:
    code = (
        "import os, sys, nnburst\n"
        "device = nnburst.launch('null')\n"
        "child = os.fork()\n"
        "print(child or os.getpid(), device.pid, flush=True) if child else None\n"
        "sys.stdin.read()\n"
    )
    client = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert client.stdout is not None
    assert client.stdin is not None
    child, driver = map(int, client.stdout.readline().split())
    killed = time.monotonic()
    client.kill()
    client.wait(HANG)
    assert is_running(child)
    wait_until_gone(driver, killed)
    assert is_running(child)
    client.stdin.close()
    client.stdout.close()


def test_connecting_to_a_supervisor_that_is_stopped_misses_the_deadline(
    serve: Callable[..., Supervisor],
) -> None:
    supervisor = serve()
    baseline = footprint(supervisor.pid)
    supervisor.process.send_signal(signal.SIGSTOP)
    with pytest.raises(MissedDeadline, match="did not answer Hello"):
        nnburst.connect("cam", timeout=0.05)
    supervisor.process.send_signal(signal.SIGCONT)
    nnburst.connect("cam").close()
    settle(supervisor.pid, baseline)
