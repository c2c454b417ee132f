"""Jobs by priority. Threads are held up by events, so that it is known who waits."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driver.burst_harness import Harness, ScriptedExecutor
from nnburst.driver import scheduler as scheduler_module
from nnburst.driver.scheduler import NICER, Lanes, Scheduler, Work
from nnburst.executor.base import Outcome
from nnburst.hal.enums import Priority
from nnburst.hal.errors import GeneralFailure, ResourceExhausted
from waiting import wait_for

LOW, MEDIUM, HIGH = Priority.LOW, Priority.MEDIUM, Priority.HIGH
HANG = 10.0


class Gate:
    """A job that has begun, and ends when released."""

    def __init__(self) -> None:
        self.begun, self.opened = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.begun.set()
        assert self.opened.wait(HANG)


class Order:
    """The order in which jobs ran."""

    def __init__(self) -> None:
        self.names: list[object] = []
        self._ran = threading.Semaphore(0)

    def job(self, name: object) -> Callable[[], None]:
        def run() -> None:
            self.names.append(name)
            self._ran.release()

        return run

    def wait(self, count: int) -> list[object]:
        for _ in range(count):
            assert self._ran.acquire(timeout=HANG)
        return self.names


def occupy(lanes: Lanes | Scheduler, priority: Priority = HIGH) -> Gate:
    gate = Gate()
    lanes.submit(gate, priority)
    assert gate.begun.wait(HANG)
    return gate


def run_waiting(lanes: Lanes | Scheduler, priorities: Sequence[Priority]) -> list[Priority]:
    """The order in which jobs run that wait for one thread."""
    order, gate = Order(), occupy(lanes)
    for number, priority in enumerate(priorities):
        lanes.submit(order.job((priority, number)), priority)
    gate.opened.set()
    ran = order.wait(len(priorities))
    for priority in Priority:
        numbers = [number for found, number in ran if found == priority]  # type: ignore[misc]
        assert numbers == sorted(numbers)
    return [found for found, _ in ran]  # type: ignore[misc]


@given(st.lists(st.sampled_from(Priority), max_size=12))
@settings(max_examples=25, deadline=None)
def test_waiting_jobs_run_by_priority_and_then_in_turn(priorities: list[Priority]) -> None:
    ran = run_waiting(Lanes("test", 1, capacity=64), priorities)
    assert ran == sorted(priorities, reverse=True)


def test_executions_of_one_client_run_by_priority() -> None:
    assert run_waiting(Scheduler(1), [MEDIUM, HIGH, MEDIUM, HIGH]) == [HIGH, HIGH, MEDIUM, MEDIUM]


def test_low_job_has_a_thread_of_its_own_that_is_nice() -> None:
    scheduler, found, done = Scheduler(1), {}, threading.Semaphore(0)

    def note(priority: Priority) -> None:
        found[priority] = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
        done.release()

    for priority in Priority:
        scheduler.submit(lambda which=priority: note(which), priority)  # type: ignore[misc]
        assert done.acquire(timeout=HANG)
    mine = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    assert found == {LOW: min(19, mine + NICER), MEDIUM: mine, HIGH: mine}


def test_low_job_waits_while_a_more_urgent_one_does() -> None:
    scheduler, order = Scheduler(1), Order()
    gate = occupy(scheduler)
    scheduler.submit(order.job("medium"), MEDIUM)
    scheduler.submit(order.job("low"), LOW)
    assert order.names == []
    gate.opened.set()
    assert set(order.wait(2)) == {"medium", "low"}


def test_low_job_runs_beside_a_high_one() -> None:
    scheduler, order = Scheduler(1), Order()
    gate = occupy(scheduler)
    scheduler.submit(order.job("low"), LOW)
    assert order.wait(1) == ["low"]
    gate.opened.set()


@pytest.mark.parametrize("busy", Work)
def test_other_work_never_waits_for_executions_and_preparations(busy: Work) -> None:
    scheduler, order, gates = Scheduler(1), Order(), [Gate() for _ in range(40)]
    for gate, priority in zip(gates, itertools.cycle(Priority), strict=False):
        scheduler.submit(gate, priority, busy)
    others = [work for work in Work if work is not busy]
    for work in others:
        scheduler.submit(order.job(work), work=work)
    assert set(order.wait(len(others))) == set(others)
    for gate in gates:
        gate.opened.set()


def test_jobs_run_side_by_side_up_to_the_number_of_lanes() -> None:
    lanes = Lanes("test", 3, capacity=8)
    for _ in range(2):  # the second time, the threads are there
        gates = [occupy(lanes) for _ in range(3)]
        order = Order()
        lanes.submit(order.job("fourth"))
        assert order.names == []
        gates[0].opened.set()
        assert order.wait(1) == ["fourth"]
        for gate in gates:
            gate.opened.set()


def serving(name: str) -> int:
    """Threads of lanes of this name."""
    return sum(thread.name == name for thread in threading.enumerate())


def test_threads_of_a_busy_moment_end_and_one_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler_module, "_REST", 0.02)
    lanes = Lanes("momentary", 4, low_lanes=2, capacity=99)
    for _ in range(3):
        gates = [occupy(lanes) for _ in range(4)]
        assert serving("momentary") in (4, 5)
        for gate in gates:
            gate.opened.set()
        gates = [occupy(lanes, LOW) for _ in range(2)]
        for gate in gates:
            gate.opened.set()
        wait_for(lambda: serving("momentary") == 2)  # one of each crew
    order = Order()
    for name in range(20):
        lanes.submit(order.job(name), LOW if name % 2 else HIGH)
    assert sorted(order.wait(20)) == list(range(20))  # type: ignore[type-var]


def test_thread_that_had_a_job_last_gets_the_next_and_the_others_may_end() -> None:
    lanes = Lanes("latest", 3, capacity=9)
    for gate in [occupy(lanes) for _ in range(3)]:
        gate.opened.set()
    ran: list[int] = []
    for number in range(10):
        wait_for(lambda: lanes._usual.idle == 3)
        lanes.submit(lambda: ran.append(threading.get_ident()))
        wait_for(lambda number=number: len(ran) > number)  # type: ignore[misc]
    assert len(set(ran)) == 1


@given(rest=st.sampled_from([0.0, 0.0001, 0.001]), pauses=st.lists(st.booleans(), max_size=60))
@settings(max_examples=20)
def test_no_job_is_lost_to_a_thread_that_is_about_to_end(rest: float, pauses: list[bool]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scheduler_module, "_REST", rest)
        lanes, order = Lanes("ending", 3, low_lanes=1, capacity=99), Order()
        for number, pause in enumerate(pauses):
            lanes.submit(order.job(number), LOW if number % 3 == 0 else HIGH)
            if pause:
                threading.Event().wait(rest)
        assert sorted(order.wait(len(pauses))) == list(range(len(pauses)))  # type: ignore[type-var]


def test_more_jobs_than_may_wait_are_refused() -> None:
    lanes, order = Lanes("test", 1, capacity=2), Order()
    gate = occupy(lanes)
    for name in (1, 2):
        lanes.submit(order.job(name))
    with pytest.raises(ResourceExhausted, match="2 jobs are waiting"):
        lanes.submit(order.job(3), HIGH)
    gate.opened.set()
    assert order.wait(2) == [1, 2]


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_jobs_that_want_to_end_their_threads_keep_none_from_running(
    error: type[BaseException],
) -> None:
    lanes = Lanes("test", 2, capacity=10)
    ended, order = Order(), Order()

    def end() -> None:
        ended.job(None)()
        raise error

    for _ in range(4):  # more than there are lanes
        lanes.submit(end)
        ended.wait(1)
    lanes.submit(order.job("next"))
    assert order.wait(1) == ["next"]


def test_job_that_raises_harms_no_other(caplog: pytest.LogCaptureFixture) -> None:
    lanes, order = Lanes("test", 1, capacity=4), Order()
    lanes.submit(lambda: 1 // 0)  # type: ignore[arg-type, return-value]
    lanes.submit(order.job("next"))
    assert order.wait(1) == ["next"]
    assert "ZeroDivisionError" in caplog.text


def test_job_without_a_thread_is_refused_and_does_not_run_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lanes, order = Lanes("test", 1, capacity=4), Order()

    def fail(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(scheduler_module.threading.Thread, "start", fail)
        with pytest.raises(GeneralFailure, match="P9: cannot start a thread"):
            lanes.submit(order.job("refused"))
    lanes.submit(order.job("next"))
    assert order.wait(1) == ["next"]


@pytest.mark.parametrize("priority", Priority)
def test_thread_of_a_burst_is_nice_where_its_model_is_low(priority: Priority) -> None:
    found = []

    def note(_execution: object) -> Outcome:
        found.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
        return Outcome()

    with Harness(ScriptedExecutor(note), priority=priority) as harness:
        harness.exchange(harness.packet(0))
    mine = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    assert found == [min(19, mine + NICER) if priority == LOW else mine]
