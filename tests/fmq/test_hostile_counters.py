"""Counters that no honest peer would write: noticed, final, and never followed."""

from __future__ import annotations

from itertools import product

import pytest

from fmq.queues import ELEMENT, counter, create, numbers, other_end
from nnburst.fmq.shared_memory import Flavor
from nnburst.hal.errors import QueueCorrupted

CAPACITY = 8
BYTES = CAPACITY * ELEMENT.itemsize
#: Byte counts at which arithmetic goes wrong.
VALUES = sorted(
    {0, 1, 3, 4, BYTES - 4, BYTES - 1, BYTES, BYTES + 1, BYTES + 4, 2**31, 2**32, 2**63, 2**64 - 4}
    | {2**64 - 1}
)


def is_possible(read: int, written: int) -> bool:
    """Whether a reader that took `read` bytes may find `written`."""
    unread = (written - read) % 2**64
    return unread <= BYTES and unread % ELEMENT.itemsize == 0


@pytest.mark.parametrize(("read", "written"), list(product(VALUES, VALUES)))
def test_queue_opens_only_with_possible_counters(read: int, written: int) -> None:
    queue = create(CAPACITY)
    counter(queue, 0)[0], counter(queue, 1)[0] = read, written
    if is_possible(read, written) and written % ELEMENT.itemsize == 0:
        opened = other_end(queue)
        assert opened.available_to_read() == (written - read) % 2**64 // ELEMENT.itemsize
    else:
        with pytest.raises(QueueCorrupted):
            other_end(queue)


@pytest.mark.parametrize("written", VALUES)
def test_reader_accepts_only_a_possible_write_counter(written: int) -> None:
    queue = create(CAPACITY)
    counter(queue, 1)[0] = written
    if is_possible(0, written):
        assert queue.available_to_read() == written // ELEMENT.itemsize
    else:
        with pytest.raises(QueueCorrupted):
            queue.available_to_read()
        with pytest.raises(QueueCorrupted):
            queue.read(1)
        assert queue.statistics().corrupted


@pytest.mark.parametrize("read", VALUES)
def test_writer_accepts_only_a_possible_read_counter(read: int) -> None:
    queue = create(CAPACITY)
    writer = other_end(queue)
    writer.write(numbers(0, CAPACITY))
    counter(queue, 0)[0] = read
    if is_possible(read, BYTES):
        assert writer.available_to_write() == read // ELEMENT.itemsize
    else:
        with pytest.raises(QueueCorrupted):
            writer.write(numbers(0, 1))


def test_corruption_is_final_even_if_the_peer_repairs_its_counter() -> None:
    queue = create(CAPACITY)
    writes = counter(queue, 1)
    writes[0] = 2**63
    with pytest.raises(QueueCorrupted):
        queue.read(1)
    writes[0] = 0
    for call in (queue.available_to_read, queue.available_to_write, lambda: queue.read(1)):
        with pytest.raises(QueueCorrupted):
            call()


def test_peer_that_rewrites_our_own_counter_changes_nothing() -> None:
    queue = create(CAPACITY)
    writer = other_end(queue)
    writer.write(numbers(0, 3))
    counter(queue, 1)[0] = 2**63 - 1
    assert writer.available_to_write() == CAPACITY - 3
    assert writer.write(numbers(3, 1))
    assert int(counter(queue, 1)[0]) == 4 * ELEMENT.itemsize, "our own truth is published again"


def test_counters_may_pass_2_to_the_64() -> None:
    queue = create(CAPACITY)
    counter(queue, 0)[0] = counter(queue, 1)[0] = 2**64 - 2 * ELEMENT.itemsize
    end = other_end(queue)
    for start in range(0, 40, 5):
        assert end.write(numbers(start, 5))
        found = end.read(5)
        assert found is not None
        assert found.tolist() == list(range(start, start + 5))


def test_unsynchronized_reader_refuses_a_counter_between_elements() -> None:
    writer = create(CAPACITY, Flavor.UNSYNCHRONIZED_WRITE)
    reader = other_end(writer)
    counter(writer, 1)[0] = 2
    with pytest.raises(QueueCorrupted):
        reader.read(1)


@pytest.mark.parametrize("written", [2**31, 2**63, 2**64 - 4])
def test_unsynchronized_reader_takes_a_leap_for_being_overtaken(written: int) -> None:
    writer = create(CAPACITY, Flavor.UNSYNCHRONIZED_WRITE)
    reader = other_end(writer)
    counter(writer, 1)[0] = written
    assert reader.read(1) is None
    assert reader.available_to_read() == 0


def test_read_of_more_than_the_capacity_allocates_nothing() -> None:
    assert create(CAPACITY).read(2**60) is None
