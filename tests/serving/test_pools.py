"""Threads of a front: those that are there do the work of those that cannot be started."""

from __future__ import annotations

import threading

import pytest

from interrupting import threads_that_start
from nnburst.hal.errors import ResourceExhausted
from nnburst.serving.pools import Pool

#: Seconds that anything may take on a busy machine before a test fails.
PATIENCE = 60


def test_work_is_done_by_the_threads_there_are_if_no_other_starts() -> None:
    go_on = threading.Event()
    with Pool(3, "work") as pool:
        first = pool.submit(go_on.wait, PATIENCE)
        with threads_that_start(0):
            second = pool.submit(threading.current_thread)
        go_on.set()
        assert first.result(PATIENCE)
        assert second.result(PATIENCE).name == "work_0"


def test_threads_are_started_again_when_that_is_possible() -> None:
    with Pool(2, "work") as pool:
        both = threading.Barrier(2)
        with threads_that_start(0):
            pool.submit(int).result(PATIENCE)
        waiting = [pool.submit(both.wait, PATIENCE) for _ in range(2)]
        assert sorted(each.result(PATIENCE) for each in waiting) == [0, 1]


def test_a_pool_without_its_first_thread_is_an_error_of_ours() -> None:
    with threads_that_start(0), pytest.raises(ResourceExhausted, match="'work'"):
        Pool(1, "work")
