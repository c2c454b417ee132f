"""`kill -9` of drivers: their clients get DeadObject at once, and no other client notices."""

from __future__ import annotations

import os
import random
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle, islice
from typing import NamedTuple

import numpy as np
import pytest

import nnburst
from faults.processes import (
    HANG,
    KILLS,
    STRICT,
    Client,
    Ending,
    Row,
    Supervisor,
    check_undisturbed,
    collect,
    figures,
    quiet_lap,
)
from nnburst import DeadObject, Device, DeviceUnavailable
from nnburst.testing.faults.activities import ACTIVITIES
from nnburst.testing.faults.footprint import children, footprint, settle

#: Longest time between the start of an activity and the kill, in seconds: several rounds of each.
LATEST = 0.03
#: Milliseconds from the kill to DeadObject.
PROMISED = 10.0


class Latency(NamedTuple):
    """Milliseconds from the kill to DeadObject, and the delay of a timer just before."""

    dead_object: float
    timer: float


def kill_amid(device: Device, activity: str, delay: float) -> Latency:
    """Kill the driver while the client is busy."""
    steps = ACTIVITIES[activity](device)
    next(steps)
    ending = Ending(steps)
    due = time.monotonic_ns() + int(delay * 1e9)
    threading.Event().wait(delay)
    killed = time.monotonic_ns()
    os.kill(device.pid, signal.SIGKILL)
    error = ending.wait()
    assert isinstance(error, DeadObject), f"{activity}: {error!r}"
    assert not device.is_alive
    assert re.search("was killed by SIGKILL|has died$", str(error)), (
        error
    )  # Linux < 6.15 does not report it
    return Latency((ending.at_ns - killed) / 1e6, (killed - due) / 1e6)


def check_promise(latencies: Sequence[float]) -> None:
    """In strict mode, check the documented time.

    A busy machine exceeds times; the deadline of every wait shows that no call hangs.
    """
    if STRICT:
        assert np.percentile(latencies, 99) <= PROMISED


@pytest.mark.campaign
def test_killed_worker_is_a_dead_object_and_disturbs_no_other(
    serve: Callable[..., Supervisor],
    client: Callable[[str, str], Client],
    chance: random.Random,
    row: Row,
) -> None:
    supervisor = serve()
    bystander = client("cam", "stand_by")
    quiet = quiet_lap(bystander)
    baseline, latencies, cleaned, mine = footprint(supervisor.pid), [], [], []
    nnburst.connect("cam").close()
    own = footprint(os.getpid())
    for activity in islice(cycle(ACTIVITIES), KILLS):
        with nnburst.connect("cam") as device:
            latencies.append(kill_amid(device, activity, chance.uniform(0, LATEST)))
            cleaned.append(settle(supervisor.pid, baseline) * 1000)
        collect()
        mine.append(settle(os.getpid(), own) * 1000)
    facts = bystander.finish()
    dead, timer = zip(*latencies, strict=True)
    row(
        "worker killed",
        KILLS,
        dead_object=dead,
        timer_late=timer,
        cleaned_up=cleaned,
        client_cleaned_up=mine,
        bystander=figures(facts, quiet),
        quiet=figures(quiet),
    )
    check_undisturbed(quiet, facts)
    check_promise(dead)


def test_killed_driver_that_was_launched_is_a_dead_object(chance: random.Random, row: Row) -> None:
    latencies, mine = [], []
    nnburst.launch("reference").close()
    own = footprint(os.getpid())
    for activity in islice(cycle(ACTIVITIES), KILLS):
        with nnburst.launch("reference") as device:
            latencies.append(kill_amid(device, activity, chance.uniform(0, LATEST)))
        collect()
        mine.append(settle(os.getpid(), own) * 1000)
    dead, timer = zip(*latencies, strict=True)
    row("launched driver killed", KILLS, dead_object=dead, timer_late=timer, client_cleaned_up=mine)
    check_promise(dead)


def connecting() -> Iterator[None]:
    while True:
        yield
        nnburst.connect("cam").close()


def test_worker_killed_while_clients_connect_is_a_typed_error(
    serve: Callable[..., Supervisor], chance: random.Random, row: Row
) -> None:
    supervisor = serve()
    baseline = footprint(supervisor.pid)
    nnburst.connect("cam").close()
    own, cleaned = footprint(os.getpid()), []
    for _ in range(KILLS):
        ending = Ending(connecting())
        threading.Event().wait(chance.uniform(0, LATEST))
        while ending.error is None:  # a worker that was leaving anyway is no loss
            for worker in children(supervisor.pid):
                kill_if_there(worker)
        assert isinstance(ending.wait(), DeadObject | DeviceUnavailable)
        cleaned.append(settle(supervisor.pid, baseline) * 1000)
        collect()
        settle(os.getpid(), own)
    row("worker killed during connect", KILLS, cleaned_up=cleaned)


def kill_if_there(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def test_driver_killed_while_it_starts_is_a_typed_error(chance: random.Random, row: Row) -> None:
    own, kills = footprint(os.getpid()), max(KILLS // 10, 3)
    ready = threading.Event()

    def starting() -> Iterator[None]:
        yield
        with nnburst.launch("reference") as device:
            ready.set()
            for _ in ACTIVITIES["prepare"](device):
                pass

    for lap in range(kills):
        ready.clear()
        ending = Ending(starting())
        while not (started := set(children(os.getpid())) - own.children):
            pass
        threading.Event().wait(chance.uniform(0, 0.2) if lap else 0)
        for pid in started:
            os.kill(pid, signal.SIGKILL)
        error = ending.wait()
        if ready.is_set():  # a fast machine had started it before the kill
            assert isinstance(error, DeadObject)
        else:
            assert isinstance(error, DeviceUnavailable)
            assert "was killed by SIGKILL" in str(error)
        del error
        collect()
        settle(os.getpid(), own)
    row("driver killed while it starts", kills)


def test_callback_that_blocks_delays_neither_dead_object_nor_close(
    serve: Callable[..., Supervisor],
) -> None:
    serve()
    blocked, released = threading.Semaphore(0), threading.Event()

    def block() -> None:
        blocked.release()
        released.wait(HANG)
        blocked.release()

    with nnburst.connect("cam") as device:
        device.on_death(block)
        steps = ACTIVITIES["burst_runs"](device)
        next(steps)
        device.on_death(block)
        ending = Ending(steps)
        os.kill(device.pid, signal.SIGKILL)
        assert isinstance(ending.wait(), DeadObject)
        assert blocked.acquire(timeout=HANG)
    assert not blocked.acquire(blocking=False)
    released.set()
    assert all(blocked.acquire(timeout=HANG) for _ in range(3))


def test_callback_that_raises_keeps_no_other_from_being_run(
    serve: Callable[..., Supervisor], caplog: pytest.LogCaptureFixture
) -> None:
    serve()
    told = threading.Event()
    with nnburst.connect("cam") as device:
        device.on_death(told.set)  # runs last: the one added last runs first
        device.on_death(lambda: 1 // 0)  # type: ignore[arg-type, return-value]
        os.kill(device.pid, signal.SIGKILL)
        assert told.wait(HANG)
    assert "ZeroDivisionError" in caplog.text
