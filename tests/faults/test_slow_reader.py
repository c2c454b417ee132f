"""A client that does not read its results loses its burst, and no other client is affected."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable

import pytest

import nnburst
from faults.processes import (
    HANG,
    LAP,
    STRICT,
    Client,
    Row,
    Supervisor,
    figures,
    goes_on,
    wait_until_stopped,
)
from nnburst import Burst, GeneralFailure
from nnburst.testing.faults.activities import check_sum, sum_model, write_summands
from nnburst.testing.faults.footprint import footprint, settle, thread_states

#: Seconds after which a client that reads nothing has lost its burst.
PROMISED = 2.0
#: A success needs this many elements of the result ring; room for two of them.
RESULT, ROOM = 2, 4


def fill(burst: Burst) -> list[object]:
    """Submit more requests than there is room for results, and read none."""
    bounds = [burst.bind() for _ in range(burst.max_in_flight)]
    return [bound.submit() for bound in bounds]


def end_of(burst: Burst) -> str:
    """Wait for the end of the burst; the reason."""
    pause = threading.Event()
    for _ in range(int(HANG / 0.01)):
        try:
            burst._core.check_open()
        except GeneralFailure as error:
            return str(error)
        pause.wait(0.01)
    pytest.fail(f"the burst goes on after {HANG} s")


@pytest.mark.campaign
def test_client_that_reads_no_results_loses_that_burst_alone(
    serve: Callable[..., Supervisor], client: Callable[[str, str], Client], row: Row
) -> None:
    supervisor = serve()
    bystander = client("cam", "stand_by")
    baseline = footprint(supervisor.pid)
    filled, lost = [], []
    with nnburst.connect("cam") as device:
        prepared = device.prepare(sum_model())
        stuck = [prepared.open_burst(max_in_flight=8, result_channel_length=ROOM) for _ in range(4)]
        with prepared.open_burst() as good:
            bound = good.bind()
            goes_on(bystander)
            pending = []
            for burst in stuck:
                filled.append(time.monotonic())
                pending.append(fill(burst))
            assert not bystander.lap()["error"]
            for burst, since in zip(stuck, filled, strict=True):
                assert "its client does not read results" in end_of(burst)
                lost.append((time.monotonic() - since) * 1000)
                write_summands(bound, 7)
                check_sum(bound.run(HANG).outputs[0], 7)
            meanwhile = goes_on(bystander)
        for burst in stuck:
            with pytest.raises(GeneralFailure, match="does not read results"):
                burst.bind()
            burst.close()
        del pending
    settle(supervisor.pid, baseline)
    row("client reads no results", len(stuck), lost=lost, bystander=figures(meanwhile))
    assert not bystander.finish()["error"]
    if STRICT:
        assert max(lost) <= PROMISED * 1000


@pytest.mark.campaign
def test_client_that_is_stopped_disturbs_no_other(
    serve: Callable[..., Supervisor], client: Callable[[str, str], Client], row: Row
) -> None:
    supervisor = serve()
    bystander = client("cam", "stand_by")
    baseline = footprint(supervisor.pid)
    victims = [client("cam", "burst_runs"), client("cam", "upcalls")]
    for victim in victims:
        victim.process.send_signal(signal.SIGSTOP)
    for victim in victims:
        wait_until_stopped(victim.pid)
    assert not bystander.lap()["error"]  # what was before they stood still
    threading.Event().wait(LAP)
    meanwhile = goes_on(bystander)
    for victim in victims:
        assert thread_states(victim.pid) == {"T"}
        victim.kill()
    row("clients stand still", len(victims), bystander=figures(meanwhile))
    assert not bystander.finish()["error"]
    settle(supervisor.pid, baseline)
