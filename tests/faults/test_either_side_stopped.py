"""Either side is stopped and continued: only missed deadlines and right results, and others are served.

NNBURST_STOPPED is the number of seconds of each stop: 0.1 by default, more than an execution may take.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Sequence

import pytest

import nnburst
from faults.processes import HANG, KILLS, Client, Row, Supervisor, stop
from nnburst.hal import environment
from nnburst.hal.enums import ErrorStatus
from nnburst.testing.fuzzing.packet_fuzzer import judge, small_model, valid_packet
from nnburst.testing.raw_peer import RawBurst

SECONDS = environment.STOPPED.read()
#: Longest time between two stops.
LATEST = 0.03


def goes_on(client: Client) -> int:
    """Wait until a `stand_by` client has done a round; the number of its rounds."""
    deadline = time.monotonic() + HANG
    while time.monotonic() < deadline:
        facts = client.lap()
        assert not facts["error"]
        if facts["rounds"]:
            return int(facts["rounds"])
        threading.Event().wait(LATEST)
    pytest.fail(f"nothing was done in {HANG} s")


@pytest.mark.campaign
def test_client_that_is_stopped_for_five_seconds_while_it_is_asked_for_memory_goes_on() -> None:
    with nnburst.launch("reference") as device, device.prepare(small_model()) as prepared:
        memory = device.allocate(4096)

        def answer_late(slots: Sequence[int]) -> list[nnburst.Memory]:
            threading.Event().wait(5.5)
            return [memory] * len(slots)

        with RawBurst(prepared, memories=answer_late) as burst:
            status, _ = judge(burst.exchange(valid_packet(0), HANG), {ErrorStatus.NONE})
    assert status == ErrorStatus.NONE


@pytest.mark.campaign
@pytest.mark.parametrize("side", ["client", "worker"])
def test_client_gets_right_results_only_when_either_side_was_stopped(
    side: str,
    serve: Callable[..., Supervisor],
    client: Callable[[str, str], Client],
    chance: random.Random,
    row: Row,
) -> None:
    serve()
    bystander = client("cam", "stand_by")
    victim = client("cam", "stand_by:meets_deadlines")
    stopped = victim.pid if side == "client" else victim.worker
    rounds = 0
    for _ in range(KILLS):
        threading.Event().wait(chance.uniform(0, LATEST))
        stop(stopped)
        threading.Event().wait(SECONDS)
        os.kill(stopped, signal.SIGCONT)
        facts = victim.lap()
        assert not facts["error"]
        rounds += facts["rounds"]
    rounds += goes_on(victim)
    facts = bystander.finish()
    assert not facts["error"]
    assert facts["rounds"] > 0
    row(
        f"{side} stopped for {SECONDS:g} s",
        KILLS,
        rounds=f"{rounds} between stops",
        bystander=f"{facts['rounds']} rounds, no error, p50 {facts['median_us']:.0f}"
        f" p99 {facts['p99_us']:.0f} us",
    )
