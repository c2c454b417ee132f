"""A client that outlives its drivers prepares once for each death, and every result is right."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import islice

from faults.processes import KILLS, Row, Supervisor, collect
from nnburst.testing.faults.footprint import footprint, settle
from nnburst.testing.faults.resilient import outlive


def test_resilient_client_recovers_once_for_each_death_and_goes_on(
    serve: Callable[..., Supervisor], row: Row
) -> None:
    supervisor = serve()
    baseline, own = footprint(supervisor.pid), None
    told, right, errors = [], [], 0
    steps = outlive("cam")
    for recovery in islice(steps, KILLS):
        told.append(recovery.told_ms)
        right.append(recovery.right_ms)
        errors += recovery.errors
        if own is None:
            own = footprint(os.getpid())
    row(
        "worker of a resilient client",
        KILLS,
        told=told,
        right_again=right,
        deaths=f"{errors} heard of, {KILLS - errors} found and mended",
    )
    assert own is not None
    collect()
    settle(os.getpid(), own)
    steps.close()
    settle(supervisor.pid, baseline)
