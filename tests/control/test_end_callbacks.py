from __future__ import annotations

import gc
import socket
import threading
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnburst.control.channel import Channel, EndCallbacks
from nnburst.control.connection import Connection

HANG = 10.0


class Counter:
    """Something with a method to call."""

    def __init__(self) -> None:
        self.times = 0

    def count(self) -> None:
        self.times += 1


@pytest.fixture
def callbacks() -> EndCallbacks:
    return EndCallbacks("the driver")


def test_callback_that_is_there_at_the_end_runs_once(callbacks: EndCallbacks) -> None:
    counter = Counter()
    callbacks.add(counter.count)
    assert callbacks
    assert counter.times == 0
    callbacks.run()
    callbacks.run()
    assert counter.times == 1
    assert not callbacks


def test_callback_that_was_removed_does_not_run(callbacks: EndCallbacks) -> None:
    counter = Counter()
    callbacks.add(counter.count)
    assert callbacks.remove(counter.count)
    assert not callbacks.remove(counter.count)
    callbacks.run()
    assert counter.times == 0


def test_callback_that_comes_after_the_end_runs_at_once(callbacks: EndCallbacks) -> None:
    counter = Counter()
    callbacks.run()
    callbacks.add(counter.count)
    callbacks.add_weakly(counter.count)
    assert counter.times == 2
    assert not callbacks


def test_callback_that_was_added_twice_runs_twice(callbacks: EndCallbacks) -> None:
    counter = Counter()
    callbacks.add(counter.count)
    callbacks.add(counter.count)
    callbacks.run()
    assert counter.times == 2


def test_callback_that_was_added_last_runs_first(callbacks: EndCallbacks) -> None:
    order: list[int] = []
    callbacks.add(lambda: order.append(1))
    callbacks.add(lambda: order.append(2))
    callbacks.run()
    assert order == [2, 1]


def test_callback_may_add_and_remove_others(callbacks: EndCallbacks) -> None:
    first, late = Counter(), Counter()

    def both() -> None:
        callbacks.add(late.count)
        callbacks.remove(first.count)

    callbacks.add(first.count)
    callbacks.add(both)
    callbacks.run()
    assert (first.times, late.times) == (0, 1)


def test_callback_that_raises_keeps_no_other_from_running(
    callbacks: EndCallbacks, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise RuntimeError("oh")

    counter = Counter()
    callbacks.add(counter.count)
    callbacks.add(fail)
    callbacks.run()
    assert counter.times == 1
    assert "the end of the driver" in caplog.text
    assert "oh" in caplog.text


def test_weakly_held_method_runs_if_its_object_still_exists(callbacks: EndCallbacks) -> None:
    kept, gone = Counter(), Counter()
    callbacks.add_weakly(kept.count)
    callbacks.add_weakly(gone.count)
    callbacks.run()
    assert (kept.times, gone.times) == (1, 1)


def test_weakly_held_method_goes_with_its_object(callbacks: EndCallbacks) -> None:
    gone = Counter()
    callbacks.add_weakly(gone.count)
    del gone
    gc.collect()
    assert not callbacks


def test_object_that_outlives_an_end_does_not_keep_its_callbacks() -> None:
    kept, ran, removed = Counter(), EndCallbacks("x"), EndCallbacks("y")
    ran.add_weakly(kept.count)
    removed.add_weakly(kept.count)
    ended = [weakref.ref(ran), weakref.ref(removed)]
    ran.run()
    removed.remove(removed._callbacks[0])
    del ran, removed
    gc.collect()
    assert [reference() for reference in ended] == [None, None]
    assert kept.times == 1


def test_end_of_a_connection_runs_what_waits_for_it() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection, ended, counter = Connection(Channel(ours), "x"), threading.Event(), Counter()
    connection.on_end(ended.set)  # runs last: it was added first
    connection.on_end(counter.count)
    connection.on_end_weakly(counter.count)
    theirs.close()
    assert ended.wait(HANG)
    assert counter.times == 2
    connection.close()


def test_threads_that_add_while_it_ends_have_each_callback_run_once() -> None:
    for _ in range(100):
        callbacks, counters = EndCallbacks("x"), [Counter() for _ in range(50)]
        begin = threading.Barrier(3)

        def add(
            some: list[Counter],
            callbacks: EndCallbacks = callbacks,
            begin: threading.Barrier = begin,
        ) -> None:
            begin.wait()
            for counter in some:
                callbacks.add(counter.count)

        threads = [
            threading.Thread(target=add, args=(some,)) for some in (counters[::2], counters[1::2])
        ]
        for thread in threads:
            thread.start()
        begin.wait()
        callbacks.run()
        for thread in threads:
            thread.join()
        assert [counter.times for counter in counters] == [1] * len(counters)


@given(st.lists(st.sampled_from(["add", "remove", "end"]), max_size=10))
def test_any_order_of_steps_runs_what_is_there_at_the_end(steps: list[str]) -> None:
    callbacks = EndCallbacks("x")
    inside: list[Counter] = []
    expected: dict[Counter, int] = {}
    ended = False
    for step in steps:
        if step == "add":
            inside.append(Counter())
            callbacks.add(inside[-1].count)
            expected[inside[-1]] = int(ended)
        elif step == "remove" and inside:
            counter = inside.pop()
            assert callbacks.remove(counter.count) == (not ended)
        elif step == "end" and not ended:
            callbacks.run()
            ended = True
            expected |= dict.fromkeys(inside, 1)
    assert {counter: counter.times for counter in expected} == expected


def test_end_that_others_found_first_leaves_those_that_wait_to_run(callbacks: EndCallbacks) -> None:
    early, late = Counter(), Counter()
    callbacks.add(early.count)
    callbacks.ended = True
    callbacks.add(late.count)
    assert (early.times, late.times) == (0, 1)
    callbacks.run()
    assert (early.times, late.times) == (1, 1)
