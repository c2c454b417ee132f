"""Which executions run on the thread that received them."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest

from client.conftest import add_model
from client.scripted_driver import ScriptedDriver
from nnburst import MissedDeadline, Priority
from nnburst.client.hal import create_reusable_execution, open_aidl_burst
from nnburst.driver.model import execution as execution_module
from nnburst.driver.model.execution import QUICK_NS, LatencyEstimate
from nnburst.driver.scheduler import Scheduler
from nnburst.driver.service.worker import run_timed
from nnburst.executor.base import Outcome

Noted = threading.Semaphore
X = [np.ones((2, 3), np.float32)] * 2


def test_nothing_is_quick_before_it_has_been_executed() -> None:
    assert not LatencyEstimate().is_quick


def test_what_took_little_is_quick_and_what_took_long_is_not() -> None:
    latency = LatencyEstimate()
    latency.note(QUICK_NS)
    assert latency.is_quick
    latency.note(QUICK_NS + 1)
    assert not latency.is_quick


def test_one_long_execution_is_forgotten_after_many_quick_ones() -> None:
    latency = LatencyEstimate()
    latency.note(10 * QUICK_NS)
    quick = []
    for _ in range(100):
        latency.note(QUICK_NS // 100)
        quick.append(latency.is_quick)
    assert quick == sorted(quick)
    assert not quick[10]
    assert quick[-1]


def test_job_that_raises_is_timed_too() -> None:
    latency = LatencyEstimate()

    def fail() -> None:
        raise SystemExit

    with pytest.raises(SystemExit):
        run_timed(fail, latency)
    assert latency.is_quick


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> Noted:
    """Released when an execution has been recorded, which is after its answer was sent."""
    note, released = LatencyEstimate.note, threading.Semaphore(0)

    def note_and_release(self: LatencyEstimate, nanoseconds: float) -> None:
        note(self, nanoseconds)
        released.release()

    monkeypatch.setattr(LatencyEstimate, "note", note_and_release)
    return released


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch, noted: Noted) -> Iterator[ScriptedDriver]:
    """Another thread can always receive; what has run once is quick, however busy the machine."""
    monkeypatch.setattr(execution_module, "QUICK_NS", 60_000_000_000)
    with ScriptedDriver() as made:
        made.worker.another_receives = lambda: True
        yield made


def threads_of(
    driver: ScriptedDriver, noted: Noted, priority: Priority = Priority.MEDIUM
) -> list[bool]:
    """Prepares a model and runs it four times; for each whether it ran on the thread that receives."""
    ran_on: list[bool] = []

    def run(_: object) -> Outcome:
        ran_on.append(threading.current_thread() is driver._thread)
        return Outcome()

    driver.script.on_run = run
    with (
        driver.device.prepare(add_model(), priority=priority) as prepared,
        create_reusable_execution(prepared, X) as execution,
    ):
        for _ in range(4):
            execution.run()
            assert noted.acquire(timeout=60)
    return ran_on


@pytest.mark.parametrize("priority", [Priority.MEDIUM, Priority.HIGH])
def test_quick_execution_runs_where_it_is_received(
    driver: ScriptedDriver, noted: Noted, priority: Priority
) -> None:
    assert threads_of(driver, noted, priority) == [False, True, True, True]


def test_low_execution_runs_on_a_thread_that_is_nice(driver: ScriptedDriver, noted: Noted) -> None:
    assert threads_of(driver, noted, Priority.LOW) == [False] * 4


def test_slow_execution_leaves_the_thread_that_receives(
    driver: ScriptedDriver, noted: Noted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execution_module, "QUICK_NS", 0)
    assert threads_of(driver, noted) == [False] * 4


def test_execution_waits_its_turn_where_others_wait(
    driver: ScriptedDriver, noted: Noted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Scheduler, "waiting", lambda *_: True)
    assert threads_of(driver, noted) == [False] * 4


def test_execution_leaves_the_thread_that_receives_where_no_other_stands_by(
    driver: ScriptedDriver, noted: Noted
) -> None:
    driver.worker.another_receives = lambda: False
    assert threads_of(driver, noted) == [False] * 4


def test_deadline_that_has_passed_is_missed_where_the_call_is_received(
    driver: ScriptedDriver,
) -> None:
    with driver.device.prepare(add_model()) as prepared:
        execution = create_reusable_execution(prepared, X)
        for _ in range(3):
            execution.run()
        with pytest.raises(MissedDeadline):
            execution.run(timeout=1e-9)


def test_every_way_over_the_socket_has_an_estimate(driver: ScriptedDriver, noted: Noted) -> None:
    threads: list[bool] = []

    def run(_: object) -> Outcome:
        threads.append(threading.current_thread() is driver._thread)
        return Outcome()

    driver.script.on_run = run
    with (
        driver.device.prepare(add_model(), bursts=False) as prepared,
        open_aidl_burst(prepared) as burst,
    ):
        for use in (prepared.execute, burst.execute):
            threads.clear()
            for _ in range(5):
                use(X)
                assert noted.acquire(timeout=60)
            assert threads[-1]
