"""The ends of a queue: bound to arrays, in place, messages of any length, one holder each, waits."""

from __future__ import annotations

import gc
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from fmq.queues import ELEMENT, counter, create, numbers, opened_again, other_end
from nnburst._native import lib
from nnburst.fmq.message_queue import MessageQueue
from nnburst.fmq.shared_memory import Flavor
from nnburst.hal.errors import (
    BadState,
    Closed,
    InvalidArgument,
    MissedDeadline,
    QueueCorrupted,
)
from waiting import wait_for

NOT_FULL = int(lib.NNB_FMQ_NOT_FULL)
HEADER = np.dtype([("frame", "<u8"), ("width", "<u2"), ("height", "<u2"), ("at", "<f8")])


@pytest.fixture(params=[ELEMENT, HEADER], ids=["u4", "record"])
def ends(request: pytest.FixtureRequest) -> Iterator[tuple[MessageQueue, MessageQueue]]:
    with MessageQueue.create(request.param, 7) as writer, opened_again(writer) as reader:
        yield writer, reader


@pytest.fixture
def messages() -> Iterator[tuple[MessageQueue, MessageQueue]]:
    with MessageQueue.create(bytes, 64) as writer, opened_again(writer) as reader:
        yield writer, reader


def some(dtype: np.dtype[Any], first: int, count: int) -> np.ndarray[Any, Any]:
    """Elements whose bytes differ."""
    size = dtype.itemsize
    return np.frombuffer(bytes((first + i) % 251 for i in range(count * size)), dtype).copy()


# --- bound to arrays ---


def test_bound_ends_carry_what_the_array_has_at_each_call(
    ends: tuple[MessageQueue, MessageQueue],
) -> None:
    writer, reader = ends
    sent, got = np.zeros(3, writer.dtype), np.zeros(3, writer.dtype)
    send, receive = writer.sender(sent), reader.receiver(got)
    for first in range(20):
        sent[:] = some(writer.dtype, first, 3)
        assert send() is True
        assert receive() is got
        assert got.tobytes() == sent.tobytes()


def test_bound_ends_allocate_nothing() -> None:
    writer = MessageQueue.create(ELEMENT, 8)
    send, receive = writer.sender(np.zeros(2, ELEMENT)), writer.receiver(np.zeros(2, ELEMENT))
    turns = [None] * 1000
    tracemalloc.start()
    try:
        for _ in turns:
            send()
            receive()
        before = tracemalloc.get_traced_memory()[0]
        for _ in turns:
            send()
            receive()
        assert tracemalloc.get_traced_memory()[0] == before
    finally:
        tracemalloc.stop()


def test_bound_ends_answer_as_write_and_read_do_if_it_takes_too_long() -> None:
    queue = MessageQueue.create(ELEMENT, 2)
    send = queue.sender(np.zeros(2, ELEMENT), timeout=0)
    receive = queue.receiver(np.zeros(2, ELEMENT), timeout=0.002)
    assert receive() is None
    assert send() is True
    assert send() is False
    assert receive() is not None


def test_bytes_and_bytearrays_are_bound_too() -> None:
    queue = MessageQueue.create(ELEMENT, 8)
    room = bytearray(8)
    send, receive = queue.sender(b"abcdefgh"), queue.receiver(room)  # type: ignore[arg-type]
    assert send()
    assert receive() is room
    assert bytes(room) == b"abcdefgh"


def test_bound_array_lives_as_long_as_the_function() -> None:
    queue = MessageQueue.create(ELEMENT, 8)
    send = queue.sender(np.full(4, 7, ELEMENT))
    gc.collect()
    send()
    found = queue.read(4)
    assert found is not None
    assert found.tolist() == [7] * 4


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(3, "<f4"), "dtype"),
        (np.zeros(6, ELEMENT)[::2], "gaps"),
        (np.zeros(9, ELEMENT), "36 bytes"),
        (b"12345", "multiple of 4"),
        (7, "of type int"),
    ],
)
def test_what_cannot_be_bound_is_refused_at_once(array: Any, message: str) -> None:
    queue = MessageQueue.create(ELEMENT, 8)
    for bind in (queue.sender, queue.receiver):
        with pytest.raises(InvalidArgument, match=message):
            bind(array)


@pytest.mark.parametrize("array", [b"12345678", np.frombuffer(bytes(8), ELEMENT)])
def test_memory_that_cannot_be_written_is_no_place_to_read_into(array: Any) -> None:
    queue = MessageQueue.create(ELEMENT, 8)
    for call in (queue.receiver, queue.read_into):
        with pytest.raises(InvalidArgument, match="read-only"):
            call(array)


def test_masked_arrays_are_refused_by_every_way_to_write(
    ends: tuple[MessageQueue, MessageQueue],
) -> None:
    writer, reader = ends
    masked = np.ma.MaskedArray(np.zeros(1, writer.dtype))
    for call in (writer.write, writer.sender, reader.read_into, reader.receiver):
        with pytest.raises(InvalidArgument, match="masked"):
            call(masked)
    assert not reader.available_to_read()


def test_read_into_leaves_the_array_alone_if_there_is_too_little(
    ends: tuple[MessageQueue, MessageQueue],
) -> None:
    writer, reader = ends
    array = some(writer.dtype, 9, 3)
    before = array.tobytes()
    writer.write(some(writer.dtype, 1, 2))
    assert not reader.read_into(array)
    assert array.tobytes() == before
    assert reader.read_into(array[:2])
    assert array[:2].tobytes() == some(writer.dtype, 1, 2).tobytes()


# --- in place ---


def test_claims_carry_elements_across_the_end_of_the_ring(
    ends: tuple[MessageQueue, MessageQueue],
) -> None:
    writer, reader = ends
    for first in range(30):
        wanted = some(writer.dtype, first, 5)
        with writer.writing(5) as place:
            place[:] = wanted
            assert reader.available_to_read() == 0
        with reader.reading(5) as found:
            assert found.tobytes() == wanted.tobytes()
            assert not found.flags.writeable
            assert writer.available_to_write() == 2
        assert writer.available_to_write() == 7


def test_block_that_raises_publishes_and_takes_nothing() -> None:
    queue = MessageQueue.create(ELEMENT, 4)
    with suppress(ZeroDivisionError), queue.writing(2) as place:
        place[:] = 1
        raise ZeroDivisionError
    assert queue.available_to_read() == 0
    queue.write(np.arange(3, dtype=ELEMENT))
    with suppress(ZeroDivisionError), queue.reading(2):
        raise ZeroDivisionError
    found = queue.read(3)
    assert found is not None
    assert found.tolist() == [0, 1, 2]


def test_claim_that_gets_no_room_in_time_is_a_missed_deadline() -> None:
    queue = MessageQueue.create(ELEMENT, 4)
    with pytest.raises(MissedDeadline), queue.reading(1, timeout=0.002):
        pass
    queue.write(np.zeros(4, ELEMENT))
    with pytest.raises(MissedDeadline), queue.writing(1):
        pass
    with pytest.raises(InvalidArgument, match="4 elements"), queue.writing(5, timeout=9):
        pass


# --- messages of any length ---


def test_messages_of_any_length_come_whole_and_in_order(
    messages: tuple[MessageQueue, MessageQueue],
) -> None:
    writer, reader = messages
    for length in (0, 1, 3, 60, 0, 17, 31, 59, 2, 44) * 7:
        wanted = bytes((length + i) % 256 for i in range(length))
        assert writer.send(wanted)
        assert reader.receive() == wanted
    assert reader.receive() is None


def test_message_without_room_is_not_written_in_part(
    messages: tuple[MessageQueue, MessageQueue],
) -> None:
    writer, reader = messages
    assert writer.send(bytes(40))
    assert not writer.send(b"x" * 17)
    assert not writer.send(b"x" * 17, timeout=0.002)
    assert writer.send(b"y" * 16)
    assert reader.receive() == bytes(40)
    assert reader.receive() == b"y" * 16


def test_buffers_are_messages_too(messages: tuple[MessageQueue, MessageQueue]) -> None:
    writer, reader = messages
    kinds: list[Any] = [bytearray(b"ab"), memoryview(b"cd"), np.arange(3, dtype="u1")]
    for found in kinds:
        assert writer.send(found)
    assert [reader.receive() for _ in kinds] == [b"ab", b"cd", b"\0\1\2"]


def test_message_longer_than_the_queue_is_refused(
    messages: tuple[MessageQueue, MessageQueue],
) -> None:
    with pytest.raises(InvalidArgument, match="61 bytes and the 4 bytes of its length do not fit"):
        messages[0].send(bytes(61), timeout=9)
    with pytest.raises(InvalidArgument, match="a message of 244 bytes and"):
        messages[0].send(np.zeros(61, "<u4"))
    with pytest.raises(InvalidArgument, match="expected bytes or a contiguous buffer"):
        messages[0].send(np.zeros(8, "u1")[::2])
    assert messages[0].send(bytes(60))


@pytest.mark.parametrize("length", [61, 2**31, 2**32 - 1])
def test_length_that_no_honest_writer_announces_is_corrupt(length: int) -> None:
    reader = MessageQueue.create(bytes, 64, ends=False)
    raw = MessageQueue.open(reader.descriptor, [m.duplicate() for m in reader.memories], "u1")
    raw.write(length.to_bytes(4, "little") + bytes(60))  # type: ignore[arg-type]
    with pytest.raises(QueueCorrupted, match="no message"):
        reader.receive(timeout=5)


def test_fewer_bytes_than_a_length_are_corrupt() -> None:
    reader = MessageQueue.create(bytes, 64, ends=False)
    raw = MessageQueue.open(reader.descriptor, [m.duplicate() for m in reader.memories], "u1")
    raw.write(b"123")  # type: ignore[arg-type]
    with pytest.raises(QueueCorrupted, match="no message"):
        reader.receive()


def test_elements_and_messages_have_methods_of_their_own(
    messages: tuple[MessageQueue, MessageQueue],
) -> None:
    elements = MessageQueue.create(ELEMENT, 8)
    refused: list[Callable[[], object]] = [
        lambda: messages[0].write(b"x"),  # type: ignore[arg-type]
        lambda: messages[1].read(1),
        lambda: messages[0].sender(b"x"),  # type: ignore[arg-type]
        lambda: elements.send(b"1234"),
        elements.receive,
    ]
    for call in refused * 2:
        with pytest.raises(InvalidArgument, match="use"):
            call()


@pytest.mark.parametrize("dtype", [object, [("a", "O")], np.dtype("V0")])
def test_elements_without_bytes_of_their_own_are_refused(dtype: Any) -> None:
    with pytest.raises(InvalidArgument, match="dtype"):
        MessageQueue.create(dtype, 4)


# --- one writer, one reader ---


def test_second_writer_and_second_reader_are_refused_and_nothing_is_lost() -> None:
    queue = MessageQueue.create(ELEMENT, 4)
    other = opened_again(queue)
    assert queue.write(np.arange(2, dtype=ELEMENT))
    assert other.read(1) is not None
    for call in (
        lambda: other.write(np.zeros(1, ELEMENT)),
        lambda: other.sender(np.zeros(1, ELEMENT)),
    ):
        with pytest.raises(BadState, match="has a writer already"):
            call()
    with pytest.raises(BadState, match="has a reader already"):
        queue.read(1)
    found = other.read(1)
    assert found is not None
    assert found.tolist() == [1]


def test_end_that_was_closed_is_taken_over_only_if_the_queue_was_made_so() -> None:
    for reopen in (False, True):
        queue = MessageQueue.create(ELEMENT, 4, reopen=reopen)
        later, reader = opened_again(queue), opened_again(queue)
        queue.write(np.arange(3, dtype=ELEMENT))
        assert reader.read(1) is not None
        queue.close()
        if not reopen:
            with pytest.raises(Closed, match="writer was closed"):
                later.write(np.zeros(1, ELEMENT))
            continue
        assert later.write(np.array([9], ELEMENT)), "it goes on where the other stopped"
        assert not later.write(np.zeros(2, ELEMENT))
        found = reader.read(3)
        assert found is not None
        assert found.tolist() == [1, 2, 9]


def test_reader_gets_what_is_left_and_then_learns_that_the_writer_has_closed() -> None:
    queue = MessageQueue.create(ELEMENT, 4)
    reader = opened_again(queue)
    queue.write(np.arange(3, dtype=ELEMENT))
    queue.close()
    assert reader.read(3, timeout=5) is not None
    with pytest.raises(Closed, match="writer has closed"):
        reader.read(1, timeout=3600)


def test_reader_that_asks_for_more_than_a_closed_writer_left_gets_that_as_the_reason() -> None:
    queue = MessageQueue.create(ELEMENT, 4)
    reader = opened_again(queue)
    queue.write(np.arange(1, dtype=ELEMENT))
    queue.close()
    with pytest.raises(Closed, match="fewer elements are left than asked for"):
        reader.read(2, timeout=5)
    assert reader.read(1) is not None


def test_writer_learns_that_the_reader_has_closed() -> None:
    queue = MessageQueue.create(ELEMENT, 4)
    reader = opened_again(queue)
    reader.read(1)
    reader.close()
    for timeout in (0.0, 3600.0):
        with pytest.raises(Closed, match="reader has closed"):
            queue.write(np.zeros(1, ELEMENT), timeout=timeout)


def test_forgotten_queue_is_closed() -> None:
    queue = MessageQueue.create(ELEMENT, 4)
    reader = opened_again(queue)
    queue.write(np.zeros(1, ELEMENT))
    del queue
    gc.collect()
    assert reader.read(1) is not None
    with pytest.raises(Closed, match="writer has closed"):
        reader.read(1, timeout=3600)


def test_reader_of_an_unsynchronized_queue_counts_what_it_has_missed() -> None:
    writer = MessageQueue.create(ELEMENT, 8, Flavor.UNSYNCHRONIZED_WRITE)
    readers = [opened_again(writer) for _ in range(3)]
    got, at = [0, 0, 0], 0
    for turn in range(200):
        count = 1 + turn * 7 % 8
        writer.write(np.arange(at, at + count, dtype=ELEMENT))
        at += count
        for number, reader in enumerate(readers):
            if turn % (number + 1):
                continue
            there = reader.available_to_read()
            found = reader.read(there)
            assert found is not None
            assert found.tolist() == list(range(at - there, at))
            got[number] += there
            assert got[number] + reader.statistics().missed == at
    assert readers[0].statistics().missed == 0
    assert readers[2].statistics().missed > 0
    writer.close()
    with pytest.raises(Closed, match="writer has closed"):
        readers[0].read(1)


def test_unsynchronized_queue_has_one_writer_and_any_number_of_readers() -> None:
    writer = MessageQueue.create(ELEMENT, 4, Flavor.UNSYNCHRONIZED_WRITE)
    readers = [opened_again(writer) for _ in range(5)]
    writer.write(np.arange(2, dtype=ELEMENT))
    for reader in readers:
        found = reader.read(2)
        assert found is not None
        assert found.tolist() == [0, 1]
    with pytest.raises(BadState):
        readers[0].write(np.zeros(1, ELEMENT))


# --- two threads at one end ---


def waiting_reader(reader: MessageQueue, count: int) -> tuple[threading.Thread, list[Any]]:
    """A thread that waits for `count` elements, and what it has read."""
    found: list[Any] = []
    before = reader.statistics().waits

    def read() -> None:
        with suppress(Closed):
            found.append(reader.read(count, timeout=60))

    thread = threading.Thread(target=read)
    thread.start()
    while reader.statistics().waits == before:
        pass
    return thread, found


def is_refused(reader: MessageQueue) -> bool:
    try:
        reader.read(1)
    except BadState:
        return True
    return False


def test_second_thread_is_refused_until_the_one_that_waited_has_what_it_was_woken_for() -> None:
    writer = MessageQueue.create(ELEMENT, 8)
    reader = opened_again(writer)
    reader.read(0)
    thread, found = waiting_reader(reader, 1)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(60)  # this thread keeps the interpreter lock, and that one comes out of C
    try:
        assert writer.write(np.array([7], ELEMENT))
        for _ in range(3000):
            assert is_refused(reader), "what that thread was woken for was taken"
    finally:
        sys.setswitchinterval(interval)
        thread.join()
    assert [each.tolist() for each in found] == [[7]]


def look_beside_a_sleep() -> tuple[bool, tuple[int, int, int]]:
    """Elements before and after an overrun, and those missed, as a thread sees them beside one that sleeps.

    The other thread looks, too, every 50 ms: the first value is whether it slept all the time.
    """
    writer = create(8, Flavor.UNSYNCHRONIZED_WRITE)
    reader = other_end(writer)
    assert reader.read(0) is not None
    thread, _ = waiting_reader(reader, 8)
    wait_for(lambda: reader.statistics().sleeps)
    written, sleeps = counter(writer, 1), reader.statistics().sleeps
    written += np.uint64(5 * ELEMENT.itemsize)  # none is woken
    before = reader.available_to_read()
    written += np.uint64(10 * ELEMENT.itemsize)  # overtaken
    after, seen = reader.available_to_read(), reader.statistics()
    reader.close()
    thread.join()
    return seen.sleeps == sleeps, (before, after, seen.missed)


def test_look_at_a_broadcast_changes_nothing_for_the_thread_that_waits() -> None:
    looks = (look_beside_a_sleep() for _ in range(100))
    assert next(found for slept, found in looks if slept) == (5, 0, 0)


@pytest.mark.parametrize("flavor", list(Flavor))
def test_dropping_unread_elements_is_refused_if_no_reader_can_be_replaced(flavor: Flavor) -> None:
    with pytest.raises(InvalidArgument, match="keep_unread: False, expected reopen=True"):
        MessageQueue.create(ELEMENT, 4, flavor, keep_unread=False)


@pytest.mark.parametrize("option", ["ends", "event_flag"])
def test_queue_without_ends_has_any_writers_and_cannot_drop_unread_elements(option: str) -> None:
    queue = MessageQueue.create(ELEMENT, 4, **{option: False})  # type: ignore[arg-type]
    assert queue.write(numbers(0, 1))
    assert opened_again(queue).write(numbers(1, 2))
    with pytest.raises(InvalidArgument, match="keep_unread: False, expected a queue with ends"):
        MessageQueue.create(ELEMENT, 4, reopen=True, keep_unread=False, **{option: False})  # type: ignore[arg-type]


def test_writer_that_waits_for_room_wakes_when_a_reader_drops_unread_elements() -> None:
    writer = MessageQueue.create(ELEMENT, 4, reopen=True, keep_unread=False)
    first, second = opened_again(writer), opened_again(writer)
    writer.write(numbers(0, 4))
    assert first.read(0) is not None
    first.close()
    assert writer.event_flag is not None
    writer.event_flag.wait(NOT_FULL, timeout=1e-3)  # cleared, as a writer does before it sleeps
    assert second.read(1) is None
    assert writer.event_flag.wait(NOT_FULL, timeout=1e-3) == NOT_FULL
    assert writer.write(numbers(0, 4))
