"""Clients that never read their answers: others are served, and the driver can still end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import cycle, islice

import pytest

from faults.processes import (
    LAP,
    STRICT,
    Client,
    Row,
    Supervisor,
    check_undisturbed,
    figures,
    quiet_lap,
)
from nnburst.testing.faults.activities import STUCK
from nnburst.testing.faults.footprint import children, footprint, settle

#: Clients that are stuck at once.
CLIENTS = 8
#: Seconds that a driver may take to end on SIGTERM.
PROMISED = 2.0


@pytest.mark.campaign
@pytest.mark.parametrize("kinds", [["reads_no_results"], list(STUCK)], ids=["results", "all"])
def test_stuck_clients_disturb_no_other_and_hold_up_no_shutdown(
    kinds: list[str],
    serve: Callable[..., Supervisor],
    client: Callable[[str, str], Client],
    row: Row,
) -> None:
    supervisor = serve()
    good = client("cam", "stand_by")
    quiet = quiet_lap(good)
    stuck = [client("cam", kind) for kind in islice(cycle(kinds), CLIENTS)]
    good.lap()  # while they started
    threading.Event().wait(LAP)
    among_them = good.lap()
    assert all(one.process.poll() is None for one in stuck)
    workers = children(supervisor.pid)
    assert len(workers) >= CLIENTS
    took = supervisor.terminate()
    row(
        f"{CLIENTS} stuck clients ({', '.join(kinds)})",
        1,
        quiet=figures(quiet),
        among_them=figures(among_them, quiet),
        shutdown=f"{took * 1000:.0f} ms",
    )
    check_undisturbed(quiet, among_them)
    if STRICT:
        assert took <= PROMISED


@pytest.mark.campaign
def test_stuck_clients_that_go_leave_nothing_behind(
    serve: Callable[..., Supervisor], client: Callable[[str, str], Client]
) -> None:
    supervisor = serve()
    baseline = footprint(supervisor.pid)
    for one in [client("cam", kind) for kind in STUCK]:
        one.kill()
    settle(supervisor.pid, baseline)
