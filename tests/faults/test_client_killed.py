"""`kill -9` of clients: their driver gives everything back, and no other client notices."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import cycle, islice
from pathlib import Path

from faults.processes import KILLS, Client, Row, Supervisor, wait_until_gone
from nnburst.testing.faults.activities import ACTIVITIES
from nnburst.testing.faults.footprint import footprint, settle

#: Longest time between the start of an activity and its end, in seconds: several rounds of each.
LATEST = 0.03


def test_killed_clients_leave_nothing_behind_and_disturb_nobody(
    serve: Callable[..., Supervisor],
    client: Callable[[str, str], Client],
    chance: random.Random,
    runtime: Path,
    row: Row,
) -> None:
    supervisor = serve()
    bystander = client("cam", "stand_by")
    baseline = footprint(supervisor.pid)
    files = sorted(path.name for path in (runtime / "nnburst").iterdir())
    cleaned = []
    for activity in islice(cycle([*ACTIVITIES, "connect"]), KILLS):
        victim = client("cam", activity)
        victim.kill_after(chance.uniform(0, LATEST))
        cleaned.append(settle(supervisor.pid, baseline) * 1000)
    facts = bystander.finish()
    row(
        "client killed",
        KILLS,
        cleaned_up=cleaned,
        bystander=f"{facts['rounds']} rounds, {facts['error'] or 'no error'},"
        f" p50 {facts['median_us']:.0f} p99 {facts['p99_us']:.0f} us",
    )
    assert not facts["error"]
    assert facts["rounds"] > 0
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
