"""A signal each millisecond during every kind of call: no call is cut short, no result lost or wrong."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import statistics
import time
from collections.abc import Callable, Iterator

import pytest

import nnburst
from faults.processes import KILLS, STRICT, Row, wait_until_stopped
from interrupting import Handlers
from nnburst import Device, MissedDeadline
from nnburst.client.burst.interface import BoundRequest
from nnburst.testing.faults.activities import (
    ACTIVITIES,
    check_sum,
    sum_model,
    summands,
    write_summands,
)

#: Seconds between two signals.
PERIOD = 0.001
#: Seconds that a call is given, and those beyond them on a quiet machine.
DEADLINE, TOLERANCE = 0.1, 0.01
#: How often that is tried: a busy machine may make a call late, but not most of them.
TRIES = 5
#: Signals after which there are none any more in one call, however long it waits.
LIMIT = 2000


class Storm:
    """Sends signals, and counts those that a Python handler has received."""

    def __init__(self) -> None:
        self.heard = 0
        self._last = -1

    def __call__(self, *_: object) -> None:
        self.heard += 1
        if self.heard == self._last:
            self.rest()

    def rage(self, count: int = -1) -> None:
        """Start a signal each millisecond, `count` of them or without end."""
        self._last = self.heard + count if count > 0 else -1
        if count:
            signal.setitimer(signal.ITIMER_REAL, PERIOD, PERIOD)

    def rest(self) -> None:
        """Stop the signals until the next `rage`."""
        signal.setitimer(signal.ITIMER_REAL, 0)


@pytest.fixture
def storm() -> Iterator[Storm]:
    """SIGALRM each millisecond, handled in Python, so that every system call of this thread is cut."""
    handler = Storm()
    before = signal.signal(signal.SIGALRM, handler)
    handler.rage()
    yield handler
    handler.rest()
    signal.signal(signal.SIGALRM, before)


def test_every_kind_of_call_gives_right_results(storm: Storm, row: Row) -> None:
    rounds = 0
    with nnburst.launch("reference") as device:
        for name, activity in ACTIVITIES.items():
            if name == "idle":
                continue  # waits until a process dies
            steps = activity(device)
            end = storm.heard + 5 * KILLS
            while storm.heard < end:
                next(steps)
                rounds += 1
            steps.close()
        assert device.is_alive
    row("calls under SIGALRM at 1 kHz", storm.heard, rounds=str(rounds))


def test_runs_that_are_awaited_give_right_results(storm: Storm) -> None:
    async def runs(device: Device) -> None:
        with device.prepare(sum_model()) as prepared, prepared.open_burst() as burst:
            bound = burst.bind()
            end, number = storm.heard + 5 * KILLS, 0
            while storm.heard < end:
                number = number % 1000 + 1
                write_summands(bound, number)
                check_sum((await bound.run_async()).outputs[0], number)

    with nnburst.launch("reference") as device:
        asyncio.run(runs(device))


def overrun(use: Callable[[], object]) -> float:
    """Seconds until a call with a deadline misses it."""
    began = time.monotonic()
    with pytest.raises(MissedDeadline):
        use()
    return time.monotonic() - began


def stop_idle(device: Device, bound: BoundRequest) -> None:
    """Stop a driver that has answered everything."""
    os.kill(device.pid, signal.SIGCONT)
    bound.run()
    os.kill(device.pid, signal.SIGSTOP)
    wait_until_stopped(device.pid)


@pytest.mark.every_day("burst")
@pytest.mark.parametrize("way", ["socket", "burst", "burst, behind a late result", "submitted"])
def test_deadlines_are_neither_cut_nor_stretched(way: str, storm: Storm, row: Row) -> None:
    with nnburst.launch("reference") as device:
        prepared = device.prepare(sum_model())
        bound = prepared.open_burst().bind()
        uses: dict[str, Callable[[], object]] = {
            "socket": lambda: prepared.execute(summands(1), timeout=DEADLINE),
            "submitted": lambda: bound.submit().result(DEADLINE),
        }
        use = uses.get(way, lambda: bound.run(timeout=DEADLINE))
        stormy, quiet = [], []
        for _ in range(TRIES):
            for signals, seconds in ((0, quiet), (LIMIT, stormy)):
                storm.rest()
                stop_idle(device, bound)
                if "late" in way:
                    overrun(lambda: bound.run(timeout=0.001))
                heard = storm.heard
                storm.rage(signals)
                seconds.append(overrun(use))
                assert (storm.heard > heard) == bool(signals)
        storm.rest()
        os.kill(device.pid, signal.SIGCONT)
        check_sum(prepared.execute(summands(2)).outputs[0], 2)
    row(
        f"100 ms, {way}",
        TRIES,
        under_signals=[seconds * 1000 for seconds in stormy],
        without=[seconds * 1000 for seconds in quiet],
    )
    assert min(stormy) >= DEADLINE
    # A waiter that begins anew after a signal waits as long as they come.
    assert statistics.median(stormy) <= 2 * statistics.median(quiet)
    if STRICT:
        assert max(*stormy, *quiet) <= DEADLINE + TOLERANCE


def test_handlers_that_raise_at_any_moment_leave_a_burst_usable(
    chance: random.Random, row: Row
) -> None:
    handlers, shots = Handlers(chance), 200 * KILLS
    with handlers.installed(), nnburst.launch("reference") as device:
        bound = device.prepare(sum_model()).open_burst().bind()
        usual = usual_time(bound)
        for number in range(shots):
            number %= 1000
            write_summands(bound, number)
            handlers.around(bound.run, 0, 2 * usual)
            check_sum(bound.run().outputs[0], number)
    row("handler that raises during a run", shots, raised=f"{handlers.interrupted}, no burst lost")
    assert handlers.interrupted >= shots // 10


def usual_time(bound: BoundRequest) -> float:
    """Seconds that half of all runs take at most."""
    seconds = []
    for _ in range(101):
        began = time.perf_counter()
        bound.run()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)
