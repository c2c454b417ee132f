from __future__ import annotations

import threading

import pytest

from nnburst.control.service import ObjectTable
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.errors import Closed, InvalidArgument, ResourceExhausted


class Thing:
    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


class Other(Thing):
    pass


def test_object_closes_once_with_its_last_user_and_not_before() -> None:
    table, thing = ObjectTable(), Thing()
    handle = table.add(thing)
    first, second = table.acquire(handle, Thing), table.acquire(handle, Thing)
    table.release(handle)
    first.close()
    first.close()
    assert thing.closed == 0
    second.close()
    assert thing.closed == 1


def test_released_handle_is_unknown_and_never_used_again() -> None:
    table = ObjectTable()
    handle = table.add(Thing())
    table.release(handle)
    with pytest.raises(Closed, match=f"handle {handle}"):
        table.acquire(handle, Thing)
    with pytest.raises(Closed):
        table.release(handle)
    assert table.add(Thing()) != handle


def test_handle_of_another_kind_is_refused() -> None:
    table = ObjectTable()
    with pytest.raises(InvalidArgument, match="is a Thing, expected a Other"):
        table.acquire(table.add(Thing()), Other)


def test_limit_refuses_and_closes_what_it_cannot_hold() -> None:
    table, late = ObjectTable(limit=2), Thing()
    first = table.add(Thing())
    table.add(Thing())
    with pytest.raises(ResourceExhausted, match="may hold 2"):
        table.add(late)
    assert late.closed == 1
    table.release(first)
    table.add(Thing())
    assert len(table) == 2


class Rare(Thing):
    per_client = 1


def test_class_with_a_limit_of_its_own_is_counted_until_it_closes() -> None:
    table = ObjectTable()
    handle = table.add(Rare())
    used = table.acquire(handle, Rare)
    table.add(Other())
    table.release(handle)
    with pytest.raises(ResourceExhausted, match="1 objects of class Rare") as caught:
        table.add(Rare())
    assert caught.value.status == ErrorStatus.RESOURCE_EXHAUSTED_PERSISTENT
    used.close()
    table.add(Rare())


def test_objects_survive_threads_that_use_and_release_them() -> None:
    table, things = ObjectTable(), [Thing() for _ in range(200)]
    handles = [table.add(thing) for thing in things]
    barrier = threading.Barrier(4)
    unexpected: list[int] = []

    def use() -> None:
        barrier.wait(timeout=10)
        for handle in handles:
            try:
                with table.acquire(handle, Thing) as held:
                    if held.target.closed:
                        unexpected.append(handle)
                table.release(handle)
            except Closed:
                continue

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert not unexpected
    assert [thing.closed for thing in things] == [1] * len(things)
