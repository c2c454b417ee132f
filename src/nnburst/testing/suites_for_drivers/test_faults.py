"""Tests that killing and stopping processes hurts only those processes, and that nothing hangs."""

from __future__ import annotations

import faulthandler
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import pytest

from nnburst.client.burst.burst import check_usable
from nnburst.client.connect import connect
from nnburst.client.device import Device
from nnburst.hal.environment import KILLS
from nnburst.hal.errors import DeadObject, GeneralFailure, MissedDeadline
from nnburst.hal.utils import driver_environment
from nnburst.testing.driver_under_test import DriverUnderTest
from nnburst.testing.faults.activities import ACTIVITIES, check_sum, sum_model, summands
from nnburst.testing.faults.footprint import Footprint, footprint, settle, thread_states

pytestmark = [pytest.mark.nnburst_values, pytest.mark.usefixtures("nnburst_adds")]

#: Rounds, more than in the project's own tests, which run every day.
_KILLS: Final = KILLS.read() if KILLS.is_set else 10
#: Seconds after which a test counts as hanging.
_HANG: Final = 30.0
_LATEST: Final = 0.03


@pytest.fixture
def started(nnburst_driver: DriverUnderTest) -> DriverUnderTest:
    """A driver that was started for these tests; other drivers must not be killed."""
    if nnburst_driver.pid is None:
        pytest.skip("the driver was there before: nothing of it is killed or stopped")
    return nnburst_driver


def _end_of(steps: Iterator[None]) -> tuple[threading.Thread, list[Exception]]:
    """Run an activity on a thread; its final error is added to the list."""
    errors: list[Exception] = []

    def run() -> None:
        try:
            for _ in steps:
                pass
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, errors


@pytest.mark.parametrize("activity", ACTIVITIES)
def test_killed_worker_is_a_dead_object_for_its_client_alone(
    started: DriverUnderTest, nnburst_device: Device, activity: str
) -> None:
    chance = random.Random()
    bystander = nnburst_device.prepare(sum_model()).open_burst().bind()
    for _ in range(max(_KILLS // len(ACTIVITIES), 1)):
        with connect(started.address) as device:
            steps = ACTIVITIES[activity](device)
            next(steps)
            thread, errors = _end_of(steps)
            threading.Event().wait(chance.uniform(0, _LATEST))
            os.kill(device.pid, signal.SIGKILL)
            thread.join(_HANG)
            if thread.is_alive():
                faulthandler.dump_traceback(all_threads=True)
                pytest.fail(f"{activity} hangs after the death of its driver")
        assert isinstance(errors[0], DeadObject), errors
        for array, value in zip(bystander.inputs, summands(3), strict=True):
            array[...] = value
        check_sum(bystander.run().outputs[0], 3)


@pytest.mark.parametrize("activity", ACTIVITIES)
def test_killed_client_leaves_nothing_behind(started: DriverUnderTest, activity: str) -> None:
    assert started.pid is not None
    baseline = _without_workers(started.pid)
    command = [sys.executable, "-m", "nnburst.testing.faults.client", started.address, activity]
    for _ in range(max(_KILLS // len(ACTIVITIES), 1)):
        client = subprocess.Popen(  # noqa: S603 - this interpreter, this package, a list of words
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=driver_environment()
        )
        assert client.stdin is not None
        assert client.stdout is not None
        with client.stdin, client.stdout:
            assert json.loads(client.stdout.readline())["pid"] == client.pid
            client.kill()
            client.wait(_HANG)
        settle(started.pid, baseline, _HANG)


def _without_workers(pid: int) -> Footprint:
    """The resources of a supervisor without a client."""
    settle(pid, replace(footprint(pid), children=frozenset()), _HANG)
    return footprint(pid)


def test_stopped_worker_misses_deadlines_and_gives_only_right_results_afterwards(
    started: DriverUnderTest, nnburst_device: Device
) -> None:
    assert started.pid is not None
    with nnburst_device.prepare(sum_model()).open_burst() as burst:
        bound = burst.bind()
        for number in range(_KILLS):
            for array, value in zip(bound.inputs, summands(number), strict=True):
                array[...] = value
            _stop(nnburst_device.pid)
            try:
                with pytest.raises(MissedDeadline):
                    bound.run(0.03)
            finally:
                os.kill(nnburst_device.pid, signal.SIGCONT)
            for array, value in zip(bound.inputs, summands(number + 1000), strict=True):
                array[...] = value
            check_sum(bound.run(_HANG).outputs[0], number + 1000)


def _stop(pid: int) -> None:
    """Send SIGSTOP, and wait until every thread has stopped."""
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + _HANG
    while thread_states(pid) != {"T"}:
        assert time.monotonic() < deadline
        threading.Event().wait(0.001)


def test_client_that_reads_no_results_loses_that_burst_alone(nnburst_device: Device) -> None:
    prepared = nnburst_device.prepare(sum_model())
    with prepared.open_burst(max_in_flight=8, result_channel_length=4) as stuck:
        bounds = [stuck.bind() for _ in range(8)]
        pending = [bound.submit() for bound in bounds]
        deadline = time.monotonic() + _HANG
        with pytest.raises(GeneralFailure):
            while time.monotonic() < deadline:
                check_usable(stuck)
                threading.Event().wait(0.01)
        del pending
    check_sum(prepared.execute(summands(5)).outputs[0], 5)
