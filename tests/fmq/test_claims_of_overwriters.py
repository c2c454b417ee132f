"""A writer that never waits announces what it is about to overwrite, so that no reader takes it."""

from __future__ import annotations

import numpy as np
import pytest

from fmq.queues import counter, create, numbers, other_end
from nnburst.fmq.message_queue import MessageQueue
from nnburst.fmq.shared_memory import Flavor
from nnburst.hal.errors import QueueCorrupted


@pytest.fixture
def writer() -> MessageQueue:
    return create(4, Flavor.UNSYNCHRONIZED_WRITE)


def test_elements_of_a_claim_are_not_read(writer: MessageQueue) -> None:
    reader = other_end(writer)
    writer.write(numbers(0, 4))
    claim = writer.begin_write(1)
    assert claim is not None
    claim.first[:] = 999
    assert reader.read(4) is None, "its first element is being overwritten"
    claim.first[:] = 4
    assert writer.commit_write(1)
    found = reader.read(1)
    assert found is not None
    assert found.tolist() == [4]


def test_elements_that_are_claimed_while_they_are_read_in_place_are_lost(
    writer: MessageQueue,
) -> None:
    reader = other_end(writer)
    writer.write(numbers(0, 4))
    assert reader.begin_read(4) is not None
    assert writer.begin_write(2) is not None
    assert not reader.commit_read(4)


def test_elements_of_an_abandoned_claim_stay_lost_behind_a_smaller_one(
    writer: MessageQueue,
) -> None:
    reader = other_end(writer)
    writer.write(numbers(0, 4))
    assert writer.begin_write(3) is not None
    for one in (writer, other_end(writer)):
        assert one.begin_write(1) is not None
    later = other_end(writer)
    assert reader.read(2) is None
    writer.write(numbers(9, 1))
    found = later.read(1)
    assert found is not None
    assert found.tolist() == [9]


def test_claim_beside_what_is_unread_loses_nothing(writer: MessageQueue) -> None:
    reader = other_end(writer)
    writer.write(numbers(0, 3))
    assert writer.begin_write(1) is not None
    found = reader.read(3)
    assert found is not None
    assert found.tolist() == [0, 1, 2]


@pytest.mark.parametrize("word", [0, 2**63, 2**64 - 1])
def test_writer_that_does_not_announce_claims_is_read_as_ever(
    writer: MessageQueue, word: int
) -> None:
    reader = other_end(writer)
    for first in range(0, 40, 4):
        writer.write(numbers(first, 4))
        counter(writer, 0)[0] = word  # an original writer leaves it as it is: 0
        found = reader.read(4)
        assert found is not None
        assert found.tolist() == list(range(first, first + 4))


@pytest.mark.parametrize("value", [8, 8 + 24, 25, 2**64 - 16])
def test_counter_inside_of_an_element_is_refused(value: int) -> None:
    writer = MessageQueue.create(np.dtype("V24"), 4, Flavor.UNSYNCHRONIZED_WRITE, ends=False)
    reader = other_end(writer)
    writer.write(np.zeros(1, "V24"))
    assert reader.read(1) is not None
    counter(writer, 1)[0] = value
    with pytest.raises(QueueCorrupted):
        reader.available_to_read()


def test_elements_that_no_number_of_fills_the_counter_are_read_across_its_end() -> None:
    writer = MessageQueue.create(np.dtype("V24"), 4, Flavor.UNSYNCHRONIZED_WRITE, ends=False)
    counter(writer, 1)[0] = (2**64 - 1) // 24 * 24
    writer, reader = other_end(writer), other_end(writer)
    for number in range(1, 12):
        element = np.frombuffer(bytes([number]) * 24, "V24")
        assert writer.write(element)
        found = reader.read(1)
        assert found is not None
        assert found.tobytes() == element.tobytes()


def test_reader_of_a_counter_that_was_set_back_starts_again_there() -> None:
    writer = MessageQueue.create(np.dtype("V24"), 4, Flavor.UNSYNCHRONIZED_WRITE, ends=False)
    reader = other_end(writer)
    for _ in range(3):
        writer.write(np.zeros(1, "V24"))
        assert reader.read(1) is not None
    counter(writer, 1)[0] = 24
    assert reader.read(1) is None
    again = other_end(writer)  # a writer that counts from there
    again.write(np.frombuffer(b"x" * 24, "V24"))
    found = reader.read(1)
    assert found is not None
    assert found.tobytes() == b"x" * 24
