"""Work behind calls: once for all that wait for it, on one thread, and no call waits longer than it may."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time

import pytest

from nnburst.client.arguments import ExecutionResult
from nnburst.hal.errors import Closed, DeadObject, GeneralFailure, MissedDeadline
from nnburst.runtime.argument import NOT_TIMED
from nnburst.runtime.execution.background import Background, TaskThread

PATIENCE = 30.0


def moment(seconds: float) -> int:
    """The time in `seconds` from now, on CLOCK_BOOTTIME."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) + int(seconds * 1e9)


class Work:
    """Work that counts its runs and threads, and runs until it may end."""

    def __init__(self) -> None:
        self.may_end = threading.Event()
        self.began = threading.Event()
        self.threads: list[int] = []
        self.error: BaseException | None = None

    def __call__(self) -> None:
        self.threads.append(threading.get_ident())
        self.began.set()
        assert self.may_end.wait(PATIENCE)
        if self.error is not None:
            raise self.error


def test_what_is_under_way_is_done_once_for_all_that_ask() -> None:
    background, work = Background(), Work()
    errands = [background.begin("one", "work", work) for _ in range(3)]
    work.may_end.set()
    for errand in errands:
        errand.wait(moment(PATIENCE))
    assert len(work.threads) == 1


def test_what_has_ended_is_done_again_if_it_is_asked_for_again() -> None:
    background, work = Background(), Work()
    work.may_end.set()
    for _ in range(2):
        background.begin("one", "work", work).wait(None)
    assert len(work.threads) == 2


def test_errands_have_one_thread_which_is_not_the_callers() -> None:
    background, works = Background(), [Work() for _ in range(5)]
    errands = [background.begin(n, "work", work) for n, work in enumerate(works)]
    assert works[0].began.wait(PATIENCE)
    assert not any(work.began.is_set() for work in works[1:]), "one after the other"
    for work in works:
        work.may_end.set()
    for errand in errands:
        errand.wait(None)
    threads = {thread for work in works for thread in work.threads}
    assert len(threads) == 1
    assert threading.get_ident() not in threads


def test_a_wait_ends_with_its_deadline_and_the_work_goes_on() -> None:
    background, work = Background(), Work()
    errand = background.begin("one", "making tea", work)
    for seconds in (0.01, 0.0, -1.0):
        with pytest.raises(MissedDeadline, match="making tea"):
            errand.wait(moment(seconds))
    work.may_end.set()
    errand.wait(moment(PATIENCE))
    assert len(work.threads) == 1


def test_all_that_wait_get_an_error_of_their_own() -> None:
    background, work = Background(), Work()
    work.error = DeadObject("it is gone")
    errand = background.begin("one", "work", work)
    work.may_end.set()
    errors = []
    for _ in range(2):
        with pytest.raises(DeadObject, match="it is gone") as raised:
            errand.wait(None)
        errors.append(raised.value)
    assert errors[0] is not errors[1]


def test_an_error_that_is_not_ours_is_a_general_failure_and_the_next_errand_is_done() -> None:
    background, work, other = Background(), Work(), Work()
    work.error = KeyError("key")
    first, second = background.begin(1, "work", work), background.begin(2, "other", other)
    work.may_end.set()
    other.may_end.set()
    with pytest.raises(GeneralFailure, match="KeyError"):
        first.wait(None)
    second.wait(None)


def test_errands_that_begin_while_others_end_are_all_done(monkeypatch: pytest.MonkeyPatch) -> None:
    background, failed = Background(), list[str]()
    monkeypatch.setattr(threading, "excepthook", lambda args: failed.append(str(args.exc_value)))

    def take_turns(_phase: str, _info: dict[str, int]) -> None:  # amid each collection of garbage
        time.sleep(0)

    def begin(first: int) -> None:
        for number in range(500):
            errand = background.begin((first, number), "work", lambda: None)
            if number % 20 == 19:
                errand.wait(moment(PATIENCE))

    interval, thresholds = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(1)
    gc.callbacks.append(take_turns)
    try:
        threads = [threading.Thread(target=begin, args=(first,)) for first in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
    finally:
        gc.callbacks.remove(take_turns)
        gc.set_threshold(*thresholds)
        sys.setswitchinterval(interval)
    assert failed == []
    assert not any(thread.is_alive() for thread in threads)


def test_a_call_on_a_thread_that_was_closed_meanwhile_is_refused_at_once() -> None:
    tasks, works = TaskThread(), list[int]()

    def work() -> ExecutionResult:
        works.append(1)
        return ExecutionResult([], (), NOT_TIMED)

    async def main() -> None:
        deadline_ns = time.monotonic_ns() + int(PATIENCE * 1e9)
        await tasks.call(work, deadline_ns)
        tasks.close()
        with pytest.raises(Closed, match="the burst is closed"):
            await tasks.call(work, deadline_ns)

    asyncio.run(main())
    assert works == [1]
