"""A client that recovers from killed drivers prepares once for each kill, and every result is right."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import islice

from faults.processes import KILLS, PROMISED_DEAD_OBJECT, Row, Supervisor, check_p99, collect
from nnburst.testing.faults.activities import outlive
from nnburst.testing.faults.footprint import footprint, settle


def test_resilient_client_recovers_once_for_each_death_and_goes_on(
    serve: Callable[..., Supervisor], row: Row
) -> None:
    supervisor = serve()
    baseline, own = footprint(supervisor.pid), None
    told, right, heard = [], [], []
    steps = outlive("cam")
    for recovery in islice(steps, KILLS):
        told.append(recovery.told_ms)
        right.append(recovery.right_ms)
        heard += [recovery.told_ms] * recovery.errors
        if own is None:
            own = footprint(os.getpid())
    row(
        "worker of a resilient client",
        KILLS,
        told=told,
        right_again=right,
        deaths=f"{len(heard)} learnt of, {KILLS - len(heard)} found and mended",
    )
    check_p99("DeadObject", heard, PROMISED_DEAD_OBJECT)
    assert own is not None
    collect()
    settle(os.getpid(), own)
    steps.close()
    settle(supervisor.pid, baseline)


def test_resilient_client_repeats_no_execution_that_its_driver_died_of(
    serve: Callable[..., Supervisor], row: Row
) -> None:
    supervisor = serve(executor="nnburst.testing.faults.executors:FatalExecuting")
    baseline = footprint(supervisor.pid)
    steps = outlive("cam", fatal=True)
    recoveries = list(islice(steps, KILLS))
    steps.close()
    assert [recovery.errors for recovery in recoveries] == [1] * KILLS
    row(
        "worker died of an execution",
        KILLS,
        told=[recovery.told_ms for recovery in recoveries],
        right_again=[recovery.right_ms for recovery in recoveries],
        deaths=f"{KILLS} learnt of, none repeated",
    )
    settle(supervisor.pid, baseline)
