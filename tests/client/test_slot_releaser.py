"""Pools that are closed faster than the driver forgets them."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from client.conftest import add_model
from nnburst.client.burst.core import MAX_BACKLOG, SlotReleaser, SlotTable
from nnburst.hal.errors import DeadObject, MissedDeadline
from nnburst.testing.faults.footprint import footprint
from shared_drivers import connect_to
from waiting import wait_for

HANG = 30.0


def started(free_memory: Callable[[int], None]) -> SlotReleaser:
    releaser = SlotReleaser(free_memory, SlotTable())
    releaser.start()
    return releaser


def test_new_pool_waits_for_a_driver_that_is_behind() -> None:
    may_forget, forgotten = threading.Semaphore(0), []

    def free_memory(slot: int) -> None:
        may_forget.acquire()
        forgotten.append(slot)

    releaser = started(free_memory)
    for slot in range(MAX_BACKLOG + 3):  # one is under way
        releaser.release(slot)
    with pytest.raises(MissedDeadline, match="has not released closed pools"):
        releaser.keep_up(0.01)
    waiting = threading.Thread(target=releaser.keep_up, args=(HANG,))
    waiting.start()
    may_forget.release(2)
    waiting.join(HANG)
    assert not waiting.is_alive()
    assert len(forgotten) <= 2
    may_forget.release(MAX_BACKLOG + 1)
    wait_for(lambda: forgotten == list(range(MAX_BACKLOG + 3)))
    releaser.close()


def test_burst_that_closes_asks_for_no_slot_that_is_waiting() -> None:
    asked, go_on = threading.Event(), threading.Event()
    freed: list[int] = []

    def free_memory(slot: int) -> None:
        freed.append(slot)
        asked.set()
        assert go_on.wait(HANG)

    releaser = started(free_memory)
    for slot in range(10):
        releaser.release(slot)
    assert asked.wait(HANG)
    closing = threading.Thread(target=releaser.close)
    closing.start()
    wait_for(lambda: releaser._closing)
    go_on.set()
    closing.join(HANG)
    assert freed == [0]


def test_dead_driver_keeps_no_new_pool_waiting() -> None:
    def free_memory(_slot: int) -> None:
        raise DeadObject("the driver is gone")

    releaser = started(free_memory)
    for slot in range(1000):
        releaser.release(slot)
    releaser.keep_up(HANG)
    releaser.close()


def test_driver_holds_few_pools_of_a_client_that_closes_them_at_once() -> None:
    with connect_to("null") as device, device.prepare(add_model()) as prepared:
        shapes = [parameter.dimensions for parameter in (*prepared.inputs, *prepared.outputs)]
        with prepared.open_burst() as burst:
            before, most = footprint(device.pid).memfds, 0
            for number in range(400):
                pools = [device.allocate(4096) for _ in shapes]
                arrays = [
                    pool.array("f4", shape) for pool, shape in zip(pools, shapes, strict=True)
                ]
                burst.bind(arrays[:2], arrays[2:]).run()
                for pool in pools:
                    pool.close()
                if number % 20 == 0:
                    most = max(most, footprint(device.pid).memfds - before)
    assert most <= MAX_BACKLOG + 4 * len(shapes)
