"""Queues of requests: each is answered once, by priority, within bounds, and keys are kept apart."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnburst.hal.errors import (
    DeviceUnavailable,
    MissedDeadline,
    NnburstError,
    ResourceExhausted,
)
from nnburst.serving.queue import Batching, Clock, Job, RequestQueue

PATIENCE = 60
LATER = time.monotonic_ns() + 3_600_000_000_000


class Lane:
    """Notes what it runs, and in which order all lanes did."""

    def __init__(self, order: list[str]) -> None:
        self.order = order


class Task(Job):
    """Keeps its outcome; `gate` blocks it while it runs."""

    def __init__(
        self,
        name: str = "",
        *,
        gate: threading.Event | None = None,
        deadline_ns: int = LATER,
        priority: int = 5,
        key: Hashable = None,
        size: int = 0,
    ) -> None:
        super().__init__(deadline_ns, priority=priority, key=key, size=size)
        self.name, self.gate = name, gate
        self.answers: list[str] = []
        self.runs = threading.Event()
        self.done = threading.Event()

    def run(self, lane: Lane) -> None:
        self.runs.set()
        lane.order.append(self.name)
        if self.gate is not None:
            assert self.gate.wait(PATIENCE)
        if self.settle():
            self.answers.append("ran")
            self.done.set()

    def refuse(self, error: NnburstError) -> None:
        if self.settle():
            self.answers.append(type(error).__name__)
            self.done.set()


class Held:
    """A queue of one lane, which is busy until `free`; 3 requests of 100 bytes may wait."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.queue: RequestQueue[Lane] = RequestQueue("net", 3, 100, Clock(1))
        self.queue.open([Lane(self.order)])
        self.gate = threading.Event()
        self.first = Task("first", gate=self.gate)
        self.thread = threading.Thread(target=self.queue.submit, args=(self.first,))
        self.thread.start()
        assert self.first.runs.wait(PATIENCE)

    def free(self) -> list[str]:
        """Unblock the lane; the tasks that it has run, once the queue is empty."""
        self.gate.set()
        self.thread.join(PATIENCE)
        assert self.queue.wait_until_idle(PATIENCE)
        return self.order


@pytest.fixture
def held() -> Iterator[Held]:
    held = Held()
    yield held
    held.free()


def test_request_that_finds_a_lane_runs_on_its_own_thread() -> None:
    queue: RequestQueue[Lane] = RequestQueue("net", 1, 1, Clock(1))
    queue.open([Lane([])])
    task = Task()
    queue.submit(task)
    assert task.answers == ["ran"]


def test_requests_that_wait_run_by_priority_and_then_as_they_came(held: Held) -> None:
    for name, priority in (("usual", 5), ("late", 9), ("soon", 1)):
        held.queue.submit(Task(name, priority=priority))
    assert len(held.queue) == 3
    assert held.free() == ["first", "soon", "usual", "late"]


def test_request_beyond_the_bound_is_refused_by_the_models_name(held: Held) -> None:
    for _ in range(3):
        held.queue.submit(Task())
    with pytest.raises(ResourceExhausted, match="model 'net': its queue is full"):
        held.queue.submit(Task())


def test_bytes_of_requests_that_wait_are_bounded(held: Held) -> None:
    held.queue.submit(Task(size=60))
    with pytest.raises(ResourceExhausted):
        held.queue.submit(Task(size=41))
    held.queue.submit(Task(size=40))


def test_full_queue_gives_up_the_last_of_lower_priority(held: Held) -> None:
    waiting = [Task(str(priority), priority=priority) for priority in (5, 9, 9)]
    for task in waiting:
        held.queue.submit(task)
    held.queue.submit(Task("soon", priority=1))
    assert waiting[2].answers == ["ResourceExhausted"]
    assert held.free() == ["first", "soon", "5", "9"]


def test_nothing_is_displaced_for_a_request_that_does_not_fit_all_the_same(held: Held) -> None:
    keep, last = Task(size=60, priority=5), Task(size=20, priority=9)
    held.queue.submit(keep)
    held.queue.submit(last)
    with pytest.raises(ResourceExhausted):
        held.queue.submit(Task(size=60, priority=5))
    held.free()
    assert keep.answers == last.answers == ["ran"]


def test_request_that_is_given_up_leaves_the_queue(held: Held) -> None:
    task = Task("gone", size=100)
    held.queue.submit(task)
    held.queue.abandon(task)
    held.queue.submit(Task("next", size=100))
    assert held.free() == ["first", "next"]


def test_request_that_is_given_up_before_it_comes_takes_no_place_and_no_lane(held: Held) -> None:
    tasks = [Task(f"gone {number}") for number in range(4)]
    for task in tasks:
        assert task.settle()
        held.queue.submit(task)  # the queue has room for three
    assert len(held.queue) == 0
    assert held.free() == ["first"]
    held.queue.submit(tasks[0])
    assert held.order == ["first"]


def test_request_of_a_sequence_has_its_turn_although_it_is_given_up_before_it_comes(
    held: Held,
) -> None:
    task = Task("end", key="sequence")
    assert task.settle()
    held.queue.submit(task)
    assert held.free() == ["first", "end"]


def test_deadlines_end_requests_that_wait_and_those_that_run(held: Held) -> None:
    waits, later = Task("late", deadline_ns=10), Task("later", deadline_ns=30)
    held.queue.submit(waits)
    held.queue.submit(later)
    held.first.deadline_ns = 20
    assert held.queue.look(5) == 10
    assert held.queue.look(10) == 20
    assert waits.answers == ["MissedDeadline"]
    assert held.queue.look(25) == 30
    assert held.first.answers == ["MissedDeadline"]
    assert held.free() == ["first", "later"], "the lane was busy all the same"
    assert held.queue.look(50) == math.inf
    assert held.first.answers == ["MissedDeadline"], "and it was answered once"


def test_closed_queue_refuses_what_waits_and_what_comes(held: Held) -> None:
    waits = Task()
    held.queue.submit(waits)
    held.queue.close()
    assert waits.answers == ["DeviceUnavailable"]
    with pytest.raises(DeviceUnavailable, match="the server is ending"):
        held.queue.submit(Task())
    held.free()
    assert held.first.answers == ["ran"], "what runs goes on"


def test_thread_that_has_no_time_for_others_hands_them_over() -> None:
    order: list[str] = []
    queue: RequestQueue[Lane] = RequestQueue("net", 3, 1, Clock(1))
    queue.open([Lane(order)])
    gate, handed = threading.Event(), []
    first, second = Task("first", gate=gate), Task("second")
    thread = threading.Thread(target=queue.submit, args=(first, handed.append))
    thread.start()
    assert first.runs.wait(PATIENCE)
    queue.submit(second)
    gate.set()
    thread.join(PATIENCE)
    assert not second.answers
    handed[0]()
    assert second.answers == ["ran"]
    assert queue.wait_until_idle(0)


def test_hand_over_to_threads_that_have_ended_is_done_by_the_caller() -> None:
    threads = ThreadPoolExecutor(1)
    threads.shutdown()
    order: list[str] = []
    queue: RequestQueue[Lane] = RequestQueue("net", 3, 1, Clock(1))
    queue.open([Lane(order)])
    gate = threading.Event()
    first = Task("first", gate=gate)
    thread = threading.Thread(target=queue.submit, args=(first, threads.submit))
    thread.start()
    assert first.runs.wait(PATIENCE)
    queue.submit(Task("second"))
    gate.set()
    thread.join(PATIENCE)
    assert order == ["first", "second"]


def test_clock_looks_when_a_deadline_passes_that_came_while_it_slept() -> None:
    queue: RequestQueue[Lane] = RequestQueue("net", 3, 1, Clock(PATIENCE))
    with Clock(PATIENCE) as clock:
        queue = RequestQueue("net", 3, 1, clock)
        clock.start([queue.look])
        task = Task(deadline_ns=time.monotonic_ns() + 20_000_000)
        queue.submit(task)  # there is no lane
        assert task.done.wait(PATIENCE / 2)
        assert task.answers == [MissedDeadline.__name__]


def test_clock_goes_on_after_a_look_that_failed() -> None:
    seen = threading.Semaphore(0)

    def look(_now: int) -> float:
        seen.release()
        raise ValueError("of a test")

    with Clock(0.001) as clock:
        clock.start([look])
        for _ in range(3):
            assert seen.acquire(timeout=PATIENCE)


class Joined(Task):
    """Records the tasks with which it was joined."""

    def __init__(self, name: str, **more: Any) -> None:
        super().__init__(name, **more)
        self.form = "form"
        self.batch: list[str] = []

    def run_with(self, others: list[Any], lane: Lane) -> None:
        names = [each.name for each in (self, *others)]
        for each in (self, *others):
            each.batch = names
            each.run(lane)


def batches(rows: int, delay: float) -> tuple[RequestQueue[Lane], list[str]]:
    order: list[str] = []
    queue: RequestQueue[Lane] = RequestQueue("net", 20, 100, Clock(1), Batching(rows, delay))
    queue.open([Lane(order)])
    return queue, order


def test_requests_that_wait_are_joined_by_priority_up_to_the_bound() -> None:
    queue, order = batches(3, 0)
    first = Joined("first", gate=threading.Event())
    thread = threading.Thread(target=queue.submit, args=(first,))
    thread.start()
    assert first.runs.wait(PATIENCE)
    tasks = [Joined(str(priority), priority=priority) for priority in (5, 9, 1, 4)]
    other = Task("other", priority=2)
    for task in (*tasks, other):
        queue.submit(task)
    assert first.gate is not None
    first.gate.set()
    thread.join(PATIENCE)
    assert tasks[2].batch == ["1", "4", "5"]
    assert order == ["first", "1", "4", "5", "other", "9"]
    assert all(task.answers == ["ran"] for task in (*tasks, other))
    assert len(queue) == 0


def test_request_waits_for_others_no_longer_than_until_its_batch_is_full() -> None:
    queue, _ = batches(2, PATIENCE)
    one, two = Joined("one"), Joined("two")
    thread = threading.Thread(target=queue.submit, args=(one,))
    thread.start()
    deadline = time.monotonic() + PATIENCE / 2
    while not one.batch:
        if not two.number and queue._room:
            queue.submit(two)
        assert time.monotonic() < deadline
    thread.join(PATIENCE)
    assert one.batch == two.batch == ["one", "two"]


def test_request_that_no_other_joins_runs_after_the_delay() -> None:
    queue, order = batches(8, 0.01)
    queue.submit(Joined("alone"))
    assert order == ["alone"]


#: Priority, key, size, and whether its caller goes away.
WISHES = st.tuples(
    st.integers(1, 9), st.sampled_from([None, "a", "b"]), st.integers(0, 30), st.booleans()
)


@given(st.lists(WISHES, max_size=60), st.integers(1, 3), st.integers(0, 8))
def test_every_request_is_answered_once_and_keys_run_one_at_a_time(
    wishes: list[tuple[int, str | None, int, bool]], lanes: int, most: int
) -> None:
    busy: Counter[Hashable] = Counter()
    running, ran = Counter[str](), []
    lock = threading.Lock()

    class Watched(Task):
        def run(self, lane: Lane) -> None:
            with lock:
                running["all"] += 1
                assert running["all"] <= lanes
                busy[self.key] += 1
                assert self.key is None or busy[self.key] == 1
                ran.append(self)
            super().run(lane)
            with lock:
                running["all"] -= 1
                busy[self.key] -= 1

    queue: RequestQueue[Lane] = RequestQueue("net", most, 60, Clock(1))
    queue.open(Lane([]) for _ in range(lanes))
    tasks = [
        Watched(str(number), priority=priority, key=key, size=size)
        for number, (priority, key, size, _) in enumerate(wishes)
    ]

    def bring(task: Watched, goes: bool) -> None:
        try:
            queue.submit(task)
        except ResourceExhausted as error:
            task.refuse(error)
        if goes and task.settle():
            task.answers.append("gone")
            queue.abandon(task)

    with ThreadPoolExecutor(4) as threads:
        for future in [
            threads.submit(bring, task, wish[3]) for task, wish in zip(tasks, wishes, strict=True)
        ]:
            future.result(PATIENCE)
    assert queue.wait_until_idle(PATIENCE)
    assert len(queue) == 0
    assert [len(task.answers) for task in tasks] == [1] * len(tasks)
    for key in ("a", "b"):
        numbers = [task.number for task in ran if task.key == key and task.number]
        assert numbers == sorted(numbers), "those that waited run as they came"
