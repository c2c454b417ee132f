"""A driver that is stopped is slow, not dead: deadlines hold, and late results are dropped."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pytest

import nnburst
from faults.processes import KILLS, Row, Supervisor, stop
from nnburst import Burst, MissedDeadline
from nnburst.client.burst.interface import BoundRequest, SubmittedRequest
from nnburst.testing.faults.activities import check_sum, sum_model, write_summands

#: Seconds that a run may take while the driver is stopped, and after it goes on.
TIMEOUT, PATIENCE = 0.03, 10.0


def run(bound: BoundRequest, number: int) -> None:
    write_summands(bound, number)
    check_sum(bound.run(PATIENCE).outputs[0], number)


def miss(bound: BoundRequest, number: int) -> float:
    """Run while the driver is stopped; milliseconds after the deadline."""
    write_summands(bound, number)
    began = time.monotonic()
    with pytest.raises(MissedDeadline):
        bound.run(TIMEOUT)
    return (time.monotonic() - began - TIMEOUT) * 1000


def test_late_results_of_a_stopped_driver_are_dropped(
    serve: Callable[..., Supervisor], row: Row
) -> None:
    serve()
    late = []
    with nnburst.connect("cam") as device, device.prepare(sum_model()).open_burst() as burst:
        one, other = burst.bind(), burst.bind()
        for number in range(KILLS):
            run(one, number)
            stop(device.pid)
            late.append(miss(one, number + 1000))
            late.append(miss(other, number + 2000))  # waits for the first and sends nothing
            os.kill(device.pid, signal.SIGCONT)
            run(other, number + 3000)
            run(one, number + 4000)
        dropped = burst.statistics()["dropped"]
        assert dropped == KILLS
    row("worker stopped in a run", KILLS, after_the_deadline=late, dropped=str(dropped))
    assert min(late) >= 0
    assert sorted(late)[len(late) // 2] < 100


def test_request_that_was_out_when_the_driver_stopped_is_dropped(
    serve: Callable[..., Supervisor],
) -> None:
    serve()
    with (
        nnburst.connect("cam") as device,
        device.prepare(sum_model()).open_burst(max_in_flight=4) as burst,
    ):
        bounds = [burst.bind() for _ in range(4)]
        for _ in range(KILLS):
            stop(device.pid)
            for number, bound in enumerate(bounds):
                write_summands(bound, number)
            pending = [bound.submit() for bound in bounds]
            with pytest.raises(MissedDeadline):
                pending[0].result(TIMEOUT)
            os.kill(device.pid, signal.SIGCONT)
            check_in_flight(burst, pending)


def check_in_flight(burst: Burst, pending: list[SubmittedRequest]) -> None:
    """Check that a submission that waited too long still gets its result."""
    for number, each in enumerate(pending):
        check_sum(each.result(PATIENCE).outputs[0], number)


def test_stopped_driver_that_is_killed_is_a_dead_object(serve: Callable[..., Supervisor]) -> None:
    serve()
    with nnburst.connect("cam") as device, device.prepare(sum_model()).open_burst() as burst:
        bound = burst.bind()
        stop(device.pid)
        miss(bound, 1)
        os.kill(device.pid, signal.SIGKILL)
        with pytest.raises(nnburst.DeadObject):
            bound.run(PATIENCE)
