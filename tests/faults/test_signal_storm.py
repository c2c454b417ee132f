"""A signal each millisecond during every kind of call: nothing is cut short, lost or wrong."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Iterator

import pytest

import nnburst
from faults.processes import KILLS, Row
from nnburst import Device, MissedDeadline
from nnburst.testing.faults.activities import ACTIVITIES, check_sum, sum_model, summands

#: Seconds between two signals.
PERIOD = 0.001


class Storm:
    """Counts the signals that a Python handler has seen."""

    def __init__(self) -> None:
        self.heard = 0

    def __call__(self, *_: object) -> None:
        self.heard += 1


@pytest.fixture
def storm() -> Iterator[Storm]:
    """SIGALRM each millisecond, handled in Python, so that every system call of this thread is cut."""
    handler = Storm()
    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, PERIOD, PERIOD)
    yield handler
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_every_kind_of_call_gives_right_results(storm: Storm, row: Row) -> None:
    rounds = 0
    with nnburst.launch("reference") as device:
        for name, activity in ACTIVITIES.items():
            if name == "idle":
                continue  # waits until somebody dies
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
                for array, value in zip(bound.inputs, summands(number), strict=True):
                    array[...] = value
                check_sum((await bound.run_async()).outputs[0], number)

    with nnburst.launch("reference") as device:
        asyncio.run(runs(device))


def test_deadlines_are_neither_cut_nor_stretched(storm: Storm) -> None:
    with nnburst.launch("reference") as device:
        prepared = device.prepare(sum_model())
        bound = prepared.open_burst().bind()
        bound.run()
        os.kill(device.pid, signal.SIGSTOP)
        for use in (
            lambda: bound.run(timeout=0.1),
            lambda: prepared.execute(summands(1), timeout=0.1),
        ):
            began = time.monotonic()
            with pytest.raises(MissedDeadline):
                use()
            assert time.monotonic() - began >= 0.1
        os.kill(device.pid, signal.SIGCONT)
        check_sum(prepared.execute(summands(2)).outputs[0], 2)


class Interrupted(BaseException):
    """Stands for KeyboardInterrupt, which pytest itself listens to."""


def test_handlers_that_raise_at_any_moment_leave_a_burst_usable(chance: random.Random) -> None:
    def interrupt(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    interrupted = 0
    try:
        with nnburst.launch("reference") as device:
            bound = device.prepare(sum_model()).open_burst().bind()
            for number in range(200 * KILLS):
                number %= 1000
                for array, value in zip(bound.inputs, summands(number), strict=True):
                    array[...] = value
                try:
                    signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-6, 300e-6))
                    bound.run()
                    signal.setitimer(signal.ITIMER_REAL, 0)
                except Interrupted:
                    interrupted += 1
                check_sum(bound.run().outputs[0], number)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert interrupted
