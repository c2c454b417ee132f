"""Which executions run on the thread that received them."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest

from client.conftest import add_model
from client.scripted_driver import ScriptedDriver
from nnburst import MissedDeadline, Priority
from nnburst.driver.model import pace as pace_module
from nnburst.driver.model.pace import QUICK_NS, Pace
from nnburst.driver.service.worker import run_timed
from nnburst.driver.session.scheduler import Scheduler
from nnburst.executor.base import Outcome

Noted = threading.Semaphore
X = [np.ones((2, 3), np.float32)] * 2


def test_nothing_is_quick_before_it_has_been_executed() -> None:
    assert not Pace().is_quick


def test_what_took_little_is_quick_and_what_took_long_is_not() -> None:
    pace = Pace()
    pace.note(QUICK_NS)
    assert pace.is_quick
    pace.note(QUICK_NS + 1)
    assert not pace.is_quick


def test_one_long_execution_is_forgotten_after_many_quick_ones() -> None:
    pace = Pace()
    pace.note(10 * QUICK_NS)
    quick = []
    for _ in range(100):
        pace.note(QUICK_NS // 100)
        quick.append(pace.is_quick)
    assert quick == sorted(quick)
    assert not quick[10]
    assert quick[-1]


def test_job_that_raises_is_timed_too() -> None:
    pace = Pace()

    def fail() -> None:
        raise SystemExit

    with pytest.raises(SystemExit):
        run_timed(fail, pace)
    assert pace.is_quick


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> Noted:
    """Released when an execution has been noted, which is after its answer was sent."""
    note, released = Pace.note, threading.Semaphore(0)

    def note_and_release(self: Pace, nanoseconds: float) -> None:
        note(self, nanoseconds)
        released.release()

    monkeypatch.setattr(Pace, "note", note_and_release)
    return released


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch, noted: Noted) -> Iterator[ScriptedDriver]:
    """Another thread can always receive; what has run once is quick, however busy the machine."""
    monkeypatch.setattr(pace_module, "QUICK_NS", 60_000_000_000)
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
        prepared.create_reusable_execution(X) as execution,
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
    monkeypatch.setattr(pace_module, "QUICK_NS", 0)
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
        execution = prepared.create_reusable_execution(X)
        for _ in range(3):
            execution.run()
        with pytest.raises(MissedDeadline):
            execution.run(timeout=1e-9)


def test_every_way_over_the_socket_has_a_pace(driver: ScriptedDriver, noted: Noted) -> None:
    threads: list[bool] = []

    def run(_: object) -> Outcome:
        threads.append(threading.current_thread() is driver._thread)
        return Outcome()

    driver.script.on_run = run
    with driver.device.prepare(add_model()) as prepared, prepared.open_aidl_burst() as burst:
        for use in (prepared.execute, burst.execute):
            threads.clear()
            for _ in range(5):
                use(X)
                assert noted.acquire(timeout=60)
            assert threads[-1]
