"""Turns on a device that several clients share."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import pytest

from driver.waiting_turns import Work, order_of
from nnburst.driver.owner_server import FairTurns
from nnburst.hal.enums import Priority
from nnburst.hal.errors import MissedDeadline
from nnburst.hal.limits import UINT64_MAX

LOW, MEDIUM, HIGH = Priority.LOW, Priority.MEDIUM, Priority.HIGH


def served(order: Sequence[Work]) -> list[str]:
    return [work.client for work in order]


def test_clients_of_one_user_take_turns() -> None:
    work = [Work("a")] * 3 + [Work("b")] * 3
    assert served(order_of(work)) == ["a", "b", "a", "b", "a", "b"]


def test_shares_are_of_time_and_not_of_executions() -> None:
    work = [Work("long", cost=4)] * 3 + [Work("short")] * 12
    order = order_of(work)
    for count in range(1, 13):
        long, short = (
            sum(w.cost for w in order[:count] if w.client == c) for c in ("long", "short")
        )
        assert abs(long - short) <= 4, order


def test_higher_priority_goes_first_among_the_clients_of_one_user() -> None:
    work = [Work("a", LOW), Work("b", MEDIUM), Work("c", HIGH), Work("b", HIGH)]
    assert [w.priority for w in order_of(work)] == [HIGH, HIGH, MEDIUM, LOW]


def test_high_priority_takes_nothing_from_another_user() -> None:
    work = (
        [Work("a", HIGH, user=1)] * 4 + [Work("b", HIGH, user=1)] * 4 + [Work("c", LOW, user=2)] * 4
    )
    order = order_of(work)
    assert served(order[:8]).count("c") == 4


def test_many_clients_of_one_user_take_nothing_from_another_user() -> None:
    work = [Work(f"a{n}", user=1) for n in range(9)] + [Work("b", user=2)] * 3
    assert served(order_of(work)[:6]).count("b") == 3


def test_client_that_was_idle_has_saved_nothing_up() -> None:
    early = [Work("busy")] * 20
    late = [Work("idle")] * 6 + [Work("busy")] * 6
    order = order_of(early, late)[20:]
    assert abs(served(order[:6]).count("idle") - 3) <= 1


def test_turn_that_ends_with_an_error_is_passed_on() -> None:
    turns = FairTurns()
    client = turns.join(0)
    with pytest.raises(ValueError, match="of the work"), client.turn(MEDIUM):
        raise ValueError("of the work")
    with client.turn(MEDIUM):
        assert turns.is_busy
    assert not turns.is_busy


def test_one_has_the_device_at_a_time() -> None:
    turns = FairTurns()
    inside: list[int] = []
    most: list[int] = []

    def work(client: int) -> None:
        taker = turns.join(client % 2)
        for _ in range(50):
            with taker.turn(Priority(client % 3)):
                inside.append(client)
                most.append(len(inside))
                inside.remove(client)
        taker.close()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(most) == 300
    assert max(most) == 1
    assert not turns.is_busy


def test_work_whose_deadline_passes_while_it_waits_takes_no_turn_and_no_share() -> None:
    turns = FairTurns()
    late, other = turns.join(0), turns.join(0)
    with turns.join(1).turn(MEDIUM):
        for _ in range(3):
            with pytest.raises(MissedDeadline), late.turn(HIGH, now_ns() + 1_000_000):
                pytest.fail("it was given a device that is in use")
        assert turns.waiting == 0
    assert not turns.is_busy
    for taker in (other, late):
        with taker.turn(MEDIUM, now_ns() + 60_000_000_000):
            assert turns.is_busy


def test_free_device_is_given_whatever_the_deadline() -> None:
    turns = FairTurns()
    with turns.join(0).turn(MEDIUM, 1):
        assert turns.is_busy
    with turns.join(0).turn(MEDIUM, UINT64_MAX):
        assert turns.is_busy


def now_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


@pytest.mark.parametrize("why", ["its client is gone", "its deadline has passed"])
def test_execution_that_never_ends_is_reported_by_those_who_wait(why: str) -> None:
    stuck = threading.Event()
    turns = FairTurns(stuck=stuck.set, patience=0.01)
    holder, other = turns.join(1), turns.join(2)
    holder.is_gone = lambda: why == "its client is gone"
    soon = time.clock_gettime_ns(time.CLOCK_BOOTTIME) + 10**9
    with holder.turn(MEDIUM, None if holder.is_gone() else soon):
        waiting = threading.Thread(target=lambda: other.turn(MEDIUM).__enter__())
        waiting.start()
        assert stuck.wait(30)
    waiting.join(30)
    assert not waiting.is_alive()


def test_long_execution_of_a_client_that_waits_for_it_is_not_reported() -> None:
    looked = threading.Event()
    reported: list[None] = []
    turns = FairTurns(stuck=lambda: reported.append(None), patience=0.01)
    holder, other = turns.join(1), turns.join(2)
    looks = iter(range(20))
    holder.is_gone = lambda: bool(next(looks, None) is None and looked.set())
    with holder.turn(MEDIUM):
        waiting = threading.Thread(target=lambda: other.turn(MEDIUM).__enter__())
        waiting.start()
        assert looked.wait(30)
    waiting.join(30)
    assert not reported
