"""`Queue` in place of `multiprocessing.SimpleQueue`."""

from __future__ import annotations

import contextlib
import multiprocessing
import pickle
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fmq.queues import opened_again
from nnburst.fmq import Queue
from nnburst.fmq.object_queue import _in_child
from nnburst.hal.errors import Closed, DeadObject, InvalidArgument, MissedDeadline
from programs import run_program


def answer(there: Any, back: Any) -> None:
    """The work of a child, with any kind of queue."""
    while (item := there.get()) is not None:
        back.put([item, type(item).__name__])


@pytest.mark.every_day("ours-spawn")
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
@pytest.mark.parametrize("kind", ["ours", "SimpleQueue"])
def test_program_for_simple_queues_works_with_ours(method: str, kind: str) -> None:
    context = multiprocessing.get_context(method)
    there, back = (
        (Queue[Any](), Queue[Any]())
        if kind == "ours"
        else (context.SimpleQueue(), context.SimpleQueue())
    )  # type: ignore[assignment]
    child = context.Process(target=answer, args=(there, back))
    child.start()
    for item in ("text", {"a": (1, 2.5)}, b"x" * 3_000_000, 7):
        there.put(item)
        assert back.get() == [item, type(item).__name__]
    assert back.empty()
    there.put(None)
    child.join(60)
    assert child.exitcode == 0
    for queue in (there, back):
        queue.close()


FORKED = """
import multiprocessing
from fmq.test_object_queue import answer
from nnburst.fmq import Queue
there, back = Queue(), Queue()
child = multiprocessing.get_context("fork").Process(target=answer, args=(there, back))
child.start()
there.put({1: 2})
print(back.get())
there.put(None)
child.join()
"""


def test_queue_works_in_a_forked_child() -> None:
    assert run_program(FORKED) == "[{1: 2}, 'dict']\n"


@settings(max_examples=50, deadline=None)
@given(st.integers(64, 300), st.lists(st.binary(max_size=700), max_size=6))
def test_objects_of_any_size_come_whole_and_in_order(capacity: int, items: list[bytes]) -> None:
    queue: Queue[bytes] = Queue(capacity)
    reader = threading.Thread(target=lambda: got.extend(queue.get(timeout=60) for _ in items))
    got: list[bytes] = []
    reader.start()
    for item in items:
        queue.put(item, timeout=60)
    reader.join(60)
    assert got == items
    queue.close()


def test_producer_learns_that_everything_was_taken() -> None:
    with Queue[int](64) as ours:
        theirs = _in_child(Queue, opened_again(ours._messages))
        for number in range(20):
            ours.put(number)
            assert not ours.empty()
            assert theirs.get(timeout=60) == number
            assert ours.empty()
            assert theirs.empty()
        theirs.close()


def test_waits_end_at_the_timeout_and_with_the_queue() -> None:
    queue: Queue[Any] = Queue(64)
    with pytest.raises(MissedDeadline):
        queue.get(timeout=0.01)
    with pytest.raises(MissedDeadline):
        queue.put(np.zeros(100), timeout=0.01)
    queue.close()
    with pytest.raises(Closed):
        queue.get()


def test_object_of_which_a_part_was_sent_is_dropped() -> None:
    queue: Queue[Any] = Queue(256)
    with pytest.raises(MissedDeadline):
        queue.put(b"x" * 1000, timeout=0.01)
    with pytest.raises(MissedDeadline):
        queue.get(timeout=0.01)
    queue.put("next")
    assert queue.get(timeout=20) == "next"
    queue.close()


def test_object_whose_last_part_comes_after_a_timeout_is_whole() -> None:
    queue: Queue[Any] = Queue(256)
    writer = threading.Thread(target=queue.put, args=(b"x" * 1000, 20))
    writer.start()
    got = None
    while got is None:
        with contextlib.suppress(MissedDeadline):
            got = queue.get(timeout=1e-9)
    writer.join(20)
    assert got == b"x" * 1000
    queue.close()


DYING = """
import multiprocessing, os, signal
from nnburst.fmq import Queue
from nnburst.hal.errors import DeadObject
def die(queue):
    queue.put("last")
    os.kill(os.getpid(), signal.SIGKILL)
queue = Queue()
multiprocessing.get_context("fork").Process(target=die, args=(queue,)).start()
print(queue.get())
try:
    queue.get()
except DeadObject:
    print("dead")
"""


def test_wait_without_a_timeout_ends_with_the_other_process() -> None:
    assert run_program(DYING) == "last\ndead\n"


@pytest.mark.parametrize("capacity", [0, 63, -1, 2**33, "64", None, float("nan")])
def test_capacity_is_checked(capacity: Any) -> None:
    with pytest.raises(InvalidArgument):
        Queue(capacity)


def test_queue_is_pickled_for_children_alone() -> None:
    with pytest.raises(TypeError):
        pickle.dumps(Queue())
    assert issubclass(DeadObject, Exception)
