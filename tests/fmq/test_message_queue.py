"""A queue carries its messages, as the original's own tests ask; `test_queue_machines.py` has any order."""

from __future__ import annotations

import asyncio
import gc
import inspect
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fmq.queues import ELEMENT, counter, create, numbers, opened_again, other_end
from nnburst.fmq.event_flag import EventFlagBits
from nnburst.fmq.message_queue import MessageQueue, QueueStatistics
from nnburst.fmq.shared_memory import Flavor, layout
from nnburst.hal.errors import BadState, Closed, InvalidArgument, QueueCorrupted

UNSYNCHRONIZED = Flavor.UNSYNCHRONIZED_WRITE


def test_empty_queue_has_nothing_to_read() -> None:
    queue = create(8)
    assert queue.available_to_read() == 0
    assert queue.read(1) is None


def test_elements_come_out_as_they_went_in() -> None:
    queue = create(8)
    assert queue.write(numbers(5, 3))
    found = queue.read(3)
    assert found is not None
    assert found.tolist() == [5, 6, 7]


def test_every_element_is_usable_and_full_queue_refuses_one_more() -> None:
    queue = create(8)
    assert queue.write(numbers(0, 8))
    assert queue.available_to_write() == 0
    assert not queue.write(numbers(8, 1))
    found = queue.read(8)
    assert found is not None
    assert found.tolist() == list(range(8))


def test_write_larger_than_the_room_leaves_unread_elements_alone() -> None:
    queue = create(8)
    queue.write(numbers(0, 6))
    assert not queue.write(numbers(6, 3))
    found = queue.read(6)
    assert found is not None
    assert found.tolist() == list(range(6))


def test_read_of_more_than_there_is_takes_nothing() -> None:
    queue = create(8)
    queue.write(numbers(0, 3))
    assert queue.read(4) is None
    assert queue.available_to_read() == 3


@pytest.mark.parametrize("flavor", list(Flavor))
def test_zero_elements_are_always_written_and_read(flavor: Flavor) -> None:
    queue = create(2, flavor)
    assert queue.write(numbers(0, 0))
    found = queue.read(0)
    assert found is not None
    assert found.tolist() == []


@pytest.mark.parametrize("capacity", [1, 7, 8])
def test_ranges_wrap_in_place_at_the_end(capacity: int) -> None:
    queue = create(capacity)
    for start in range(3 * capacity):
        claim = queue.begin_write(1)
        assert claim is not None
        claim.first[:] = start
        assert queue.commit_write(1)
        found = queue.read(1)
        assert found is not None
        assert found.tolist() == [start]


def test_claim_across_the_end_has_two_parts() -> None:
    queue = create(8)
    queue.write(numbers(0, 5))
    queue.read(5)
    claim = queue.begin_write(6)
    assert claim is not None
    assert (len(claim.first), len(claim.second)) == (3, 3)
    claim.first[:], claim.second[:] = numbers(0, 3), numbers(3, 3)
    queue.commit_write(6)
    back = queue.begin_read(6)
    assert back is not None
    assert [*back.first, *back.second] == list(range(6))
    assert queue.commit_read(6)
    assert queue.available_to_read() == 0


def test_claim_is_invisible_until_it_is_committed() -> None:
    queue = create(8)
    reader = other_end(queue)
    claim = queue.begin_write(4)
    assert claim is not None
    claim.first[:] = 9
    assert reader.available_to_read() == 0
    queue.commit_write(4)
    assert reader.available_to_read() == 4


def test_fewer_elements_than_claimed_may_be_committed() -> None:
    queue = create(8)
    assert queue.begin_write(4) is not None
    queue.commit_write(2)
    assert queue.available_to_read() == 2


def test_both_ends_see_one_queue() -> None:
    writer = create(8)
    reader = other_end(writer, fresh=True)
    writer.write(numbers(0, 8))
    assert reader.read(5) is not None
    assert writer.available_to_write() == 5
    assert reader.statistics().read == 5
    assert writer.statistics().written == 8


@pytest.mark.parametrize("ends", [True, False])
def test_every_object_of_a_queue_counts_what_is_there_and_goes_on(ends: bool) -> None:
    writer = MessageQueue.create(ELEMENT, 4, ends=ends)
    reader, onlooker = opened_again(writer), opened_again(writer)
    for number in range(8):
        assert writer.write(numbers(3 * number, 3))
        for queue in (writer, reader, onlooker):
            assert (queue.available_to_read(), queue.available_to_write()) == (3, 1)
        found = reader.read(3)
        assert found is not None
        assert found.tolist() == [3 * number, 3 * number + 1, 3 * number + 2]
        for queue in (writer, reader, onlooker):
            assert (queue.available_to_read(), queue.available_to_write()) == (0, 4)
    counter(writer, 1)[0] += 20
    with pytest.raises(QueueCorrupted):
        onlooker.available_to_read()


def test_queue_laid_out_by_the_original_is_opened_too() -> None:
    writer = MessageQueue.create(np.dtype("V24"), 1024, original_layout=True)
    grantors = [(g.offset, g.extent) for g in writer.descriptor.grantors]
    assert grantors == [(0, 8), (8, 8), (16, 24576), (24592, 4)]
    reader = other_end(writer)
    packet = np.frombuffer(bytes(range(48)), "V24")
    writer.write(packet)
    found = reader.read(2)
    assert found is not None
    assert found.tobytes() == packet.tobytes()


def test_used_queue_is_refused_at_the_hand_over() -> None:
    queue = create(8)
    queue.write(numbers(0, 1))
    queue.read(1)
    with pytest.raises(InvalidArgument, match="not 0 at the hand-over"):
        other_end(queue, fresh=True)


def test_queue_with_unread_elements_is_not_fresh_either() -> None:
    queue = create(8)
    queue.write(numbers(0, 1))
    with pytest.raises(InvalidArgument, match="not 0 at the hand-over"):
        other_end(queue, fresh=True)


def test_used_queue_is_opened_unless_a_fresh_one_is_wanted() -> None:
    queue = create(8)
    queue.write(numbers(3, 1))
    memories = [memory.duplicate() for memory in queue.memories]
    found = MessageQueue.open(queue.descriptor, memories, ELEMENT).read(1)
    assert found is not None
    assert found.tolist() == [3]


def test_new_queue_has_our_layout_and_an_event_flag() -> None:
    queue = MessageQueue.create(ELEMENT, 8)
    assert queue.descriptor == layout(4, 8, ends=True)
    assert (queue.capacity, queue.dtype) == (8, ELEMENT)
    assert MessageQueue.create(ELEMENT, 8, event_flag=False).event_flag is None


def test_statistics_count_elements() -> None:
    queue = create(4)
    for start in range(3):
        queue.write(numbers(start, 2))
        queue.read(1)
    assert queue.statistics() == QueueStatistics(4, 6, 3, False)


# --- unsynchronized: a writer that never waits, readers that may lose ---


def test_unsynchronized_write_overwrites_and_reader_starts_again() -> None:
    writer = create(4, UNSYNCHRONIZED)
    reader = other_end(writer)
    writer.write(numbers(0, 4))
    writer.write(numbers(4, 1))
    assert reader.read(1) is None, "what was not read is lost"
    writer.write(numbers(5, 2))
    found = reader.read(2)
    assert found is not None
    assert found.tolist() == [5, 6]


def test_unsynchronized_readers_each_read_everything() -> None:
    writer = create(4, UNSYNCHRONIZED)
    readers = [other_end(writer) for _ in range(3)]
    writer.write(numbers(0, 3))
    for reader in readers:
        found = reader.read(3)
        assert found is not None
        assert found.tolist() == [0, 1, 2]


def test_unsynchronized_reader_learns_that_a_claim_was_overwritten() -> None:
    writer = create(4, UNSYNCHRONIZED)
    reader = other_end(writer)
    writer.write(numbers(0, 4))
    assert reader.begin_read(4) is not None
    writer.write(numbers(4, 1))
    assert not reader.commit_read(4)


# --- waiting ---


def test_blocking_read_returns_what_another_thread_writes() -> None:
    queue = create(8)
    reader = other_end(queue)
    thread = threading.Thread(target=queue.write, args=(numbers(0, 3), 10.0))
    thread.start()
    found = reader.read(3, timeout=10.0)
    thread.join()
    assert found is not None
    assert found.tolist() == [0, 1, 2]


def test_blocking_write_continues_when_another_thread_reads() -> None:
    queue = create(4)
    reader = other_end(queue)
    queue.write(numbers(0, 4))
    thread = threading.Thread(target=reader.read, args=(4, 10.0))
    thread.start()
    assert queue.write(numbers(4, 4), timeout=10.0)
    thread.join()


def test_blocking_read_of_an_empty_queue_ends_at_its_timeout() -> None:
    assert create(4).read(1, timeout=0.01) is None


def test_blocking_write_to_a_full_queue_ends_at_its_timeout() -> None:
    queue = create(4)
    queue.write(numbers(0, 4))
    assert not queue.write(numbers(4, 1), timeout=0.01)


def test_blocking_write_of_more_than_the_capacity_fails_at_once() -> None:
    assert not create(4).write(numbers(0, 5), timeout=3600)


@pytest.mark.parametrize(
    "timeout", [-1, -1e-9, float("nan"), float("inf"), float("-inf"), "1", None]
)
def test_timeout_that_is_no_time_is_refused(timeout: float) -> None:
    queue = create(4)
    for call in (
        lambda: queue.read(1, timeout=timeout),
        lambda: queue.write(numbers(0, 1), timeout=timeout),
        lambda: queue.sender(numbers(0, 1), timeout=timeout),
    ):
        with pytest.raises(InvalidArgument, match=f"timeout is {timeout!r}"):
            call()


def test_call_wakes_the_other_side_once_it_is_done() -> None:
    queue = create(4)
    flag = queue.event_flag
    assert flag is not None
    assert queue.write(numbers(0, 4), timeout=1)
    assert flag.wait(3, timeout=1) == EventFlagBits.NOT_EMPTY
    assert queue.read(4, timeout=1) is not None
    assert flag.wait(3, timeout=1) == EventFlagBits.NOT_FULL


def test_call_that_fails_wakes_no_waiter() -> None:
    queue = create(4)
    flag = queue.event_flag
    assert flag is not None
    assert queue.read(1, timeout=0.001) is None
    assert queue.read(5, timeout=1) is None
    assert queue.write(numbers(0, 4))
    assert flag.wait(3, timeout=1) == EventFlagBits.NOT_EMPTY
    assert not queue.write(numbers(4, 1), timeout=0.001)
    assert not queue.write(numbers(4, 5), timeout=1)
    assert flag.wait(3, timeout=0.001) == 0


def test_queue_without_event_flag_cannot_be_waited_for() -> None:
    queue = MessageQueue.create(ELEMENT, 4, event_flag=False)
    with pytest.raises(InvalidArgument, match="event flag"):
        queue.read(1, timeout=1)


# --- arguments ---


def test_elements_of_another_size_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="dtype"):
        create(4).write(np.zeros(1, np.uint64))


def test_raw_elements_of_another_size_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="dtype"):
        create(4).write(np.zeros(1, "V8"))
    raw = MessageQueue.create(np.dtype("V24"), 4)
    with pytest.raises(InvalidArgument, match="dtype"):
        raw.write(np.zeros(3, np.uint64))
    assert raw.write(np.zeros(2, "V24"))


def test_records_of_other_fields_and_the_same_size_are_refused() -> None:
    record, other = np.dtype([("a", "<u4"), ("b", "<f4")]), np.dtype([("b", "<f4"), ("a", "<u4")])
    queue = MessageQueue.create(record, 4)
    for elements in (np.zeros(1, other), np.zeros(1, np.float64)):
        for call in (queue.write, queue.read_into, queue.sender, queue.receiver):
            with pytest.raises(InvalidArgument, match="dtype"):
                call(elements)  # type: ignore[operator]
    with pytest.raises(InvalidArgument, match="dtype"):
        MessageQueue.create(np.float64, 4).write(np.zeros(1, record))
    assert queue.write(np.zeros(1, record))
    assert queue.write(np.zeros(1, "V8"))


def test_function_that_sends_or_receives_keeps_its_queue_open() -> None:
    numbers = np.arange(1, dtype=ELEMENT)
    send = MessageQueue.create(ELEMENT, 4).sender(numbers)
    gc.collect()
    assert send()


def test_matrix_is_written_row_by_row() -> None:
    queue = create(8)
    assert queue.write(numbers(0, 6).reshape(2, 3))
    found = queue.read(6)
    assert found is not None
    assert found.tolist() == [0, 1, 2, 3, 4, 5]


def test_largest_count_is_a_count() -> None:
    queue = create(4)
    queue.write(numbers(0, 4))
    assert queue.read(2**64 - 1) is None
    assert queue.begin_read(2**64 - 1) is None
    assert queue.available_to_read() == 4


def test_bytes_that_are_not_whole_elements_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="multiple of 4"):
        create(4).write(b"12345")  # type: ignore[arg-type]


def test_negative_counts_are_refused() -> None:
    queue = create(4)
    for call in (queue.read, queue.begin_read, queue.begin_write):
        with pytest.raises(InvalidArgument, match="count"):
            call(-1)


@pytest.mark.parametrize(("capacity", "dtype"), [(0, ELEMENT), (-1, ELEMENT), (2**32, ELEMENT)])
def test_impossible_sizes_are_refused(capacity: int, dtype: np.dtype) -> None:
    with pytest.raises(InvalidArgument, match="positive sizes"):
        MessageQueue.create(dtype, capacity)


@pytest.mark.parametrize(
    ("capacity", "dtype", "flavor", "words"),
    [
        (4.0, ELEMENT, 1, "capacity is 4.0"),
        ("4", ELEMENT, 1, "capacity is '4'"),
        (4, "nonsense", 1, "dtype is 'nonsense'"),
        (4, ("<f4", (3,)), 1, "expected a record"),
        (4, ELEMENT, 3, "flavor is 3"),
        (4, ELEMENT, "x", "flavor is 'x'"),
        (4, ELEMENT, None, "flavor is None"),
    ],
)
def test_capacities_types_and_flavours_of_wrong_kinds_are_refused(
    capacity: Any, dtype: Any, flavor: Any, words: str
) -> None:
    with pytest.raises(InvalidArgument, match=words):
        MessageQueue.create(dtype, capacity, flavor)


def test_closed_queue_refuses_everything_and_leaves_the_other_end_alone() -> None:
    queue = create(4)
    reader = other_end(queue)
    queue.write(numbers(0, 1))
    queue.close()
    queue.close()
    with pytest.raises(Closed):
        queue.write(numbers(1, 1))
    assert reader.read(1) is not None


def test_closing_closes_the_memories_too() -> None:
    with create(4) as queue:
        assert not any(memory.closed for memory in queue.memories)
    assert all(memory.closed for memory in queue.memories)
    with pytest.raises(Closed):
        queue.available_to_read()


def test_queue_that_only_c_reads_is_opened_by_the_bytes_of_an_element() -> None:
    queue = create(8)
    queue.write(np.zeros(3, ELEMENT))
    size = queue.descriptor.quantum
    same = MessageQueue.open(queue.descriptor, [m.duplicate() for m in queue.memories], size)
    assert same.available_to_read() == 3
    assert not hasattr(same, "dtype")
    with pytest.raises(InvalidArgument):
        MessageQueue.open(queue.descriptor, [m.duplicate() for m in queue.memories], size + 1)


@pytest.mark.parametrize(
    "call",
    [
        lambda queue: queue.write(np.zeros(1, ELEMENT)),
        lambda queue: queue.read(1),
        lambda queue: queue.send(b""),
        lambda queue: queue.sender(np.zeros(1, ELEMENT)),
        lambda queue: queue.writing(1).__enter__(),
        lambda queue: queue.begin_read(1),
        lambda queue: queue.fileno(),
        lambda queue: asyncio.run(queue.read_async(1)),
    ],
)
def test_queue_that_only_c_reads_refuses_calls_that_need_a_dtype(
    call: Callable[[MessageQueue], object],
) -> None:
    queue = create(8)
    size = queue.descriptor.quantum
    same = MessageQueue.open(queue.descriptor, [m.duplicate() for m in queue.memories], size)
    with pytest.raises(InvalidArgument, match="opened without a dtype"):
        call(same)
    assert queue.write(np.zeros(1, ELEMENT))  # no call has taken an end


def test_descriptor_of_another_type_is_refused_by_its_name() -> None:
    queue = create(4)
    nothing: Any = None
    with pytest.raises(InvalidArgument, match="descriptor is of type NoneType, expected an MQDesc"):
        MessageQueue.open(nothing, queue.memories, ELEMENT)


def test_calls_of_a_used_queue_take_arguments_by_name_as_the_first_call_does() -> None:
    with MessageQueue.create(bytes, 64) as queue:
        for _ in range(2):  # the first use of an end, and all others
            assert queue.send(message=b"one", timeout=0.0)
            assert queue.receive(timeout=0.0) == b"one"
    with MessageQueue.create("u1", 8) as queue:
        into = np.zeros(2, "u1")
        for number in range(2):
            assert queue.write(elements=np.array([number, 7], "u1"))
            assert queue.read_into(timeout=1.0, array=into)
            assert into.tolist() == [number, 7]
            assert queue.read(count=1) is None
        assert str(inspect.signature(queue.write)) == "(elements, timeout=0.0)"


def test_calls_of_a_used_queue_refuse_arguments_that_they_do_not_have() -> None:
    queue = create(8)
    assert queue.write(numbers(0, 1))
    one = numbers(1, 1)
    for arguments, named in (
        ((), {}),
        ((one, 0.0, 0.0), {}),
        ((one,), {"elements": one}),
        ((one, 0.0), {"timeout": 0.0}),
        ((one,), {"seconds": 0.0}),
    ):
        with pytest.raises(TypeError):
            queue.write(*arguments, **named)
    assert queue.available_to_read() == 1


def test_a_claim_does_not_outlive_another_write() -> None:
    queue = create(8)
    with pytest.raises(BadState, match="not claimed"), queue.writing(3) as outer:
        outer[:] = 9
        queue.write(numbers(0, 2))
    found = queue.read(queue.available_to_read())
    assert found is not None
    assert found.tolist() == [0, 1]


def test_a_claim_does_not_outlive_another_claim() -> None:
    queue = create(8)
    with pytest.raises(BadState, match="not claimed"), queue.writing(3) as outer:
        outer[:] = 9
        with queue.writing(1) as inner:
            inner[:] = 1
    found = queue.read(queue.available_to_read())
    assert found is not None
    assert found.tolist() == [1]


def test_a_claim_outlives_one_that_finds_no_room() -> None:
    queue = create(2)
    claim = queue.begin_write(1)
    assert claim is not None
    assert queue.begin_write(3) is None
    claim.first[:] = 7
    assert queue.commit_write(1)
    assert other_end(queue).read(1).tolist() == [7]


def test_a_read_within_a_claim_of_a_reader_frees_no_other_elements() -> None:
    queue = create(8)
    queue.write(numbers(0, 6))
    with pytest.raises(BadState, match="not claimed"), queue.reading(2):
        assert queue.read(1) is not None
    found = queue.read(queue.available_to_read())
    assert found is not None
    assert found.tolist() == [1, 2, 3, 4, 5]


def test_more_elements_than_are_claimed_are_not_committed() -> None:
    queue = create(8)
    with pytest.raises(BadState, match="not claimed"):
        queue.commit_write(1)
    assert queue.begin_write(4) is not None
    with pytest.raises(BadState, match="not claimed"):
        queue.commit_write(5)
    assert queue.commit_write(3)
    assert queue.commit_write(1)  # the rest of the claim
    with pytest.raises(BadState, match="not claimed"):
        queue.commit_read(1)
    assert queue.available_to_read() == 4


def test_claims_of_elements_are_refused_in_a_queue_of_messages() -> None:
    with MessageQueue.create(bytes, 64) as queue:
        for claim in (queue.begin_write, queue.begin_read):
            with pytest.raises(InvalidArgument, match="messages of any length"):
                claim(3)
        for block in (queue.writing, queue.reading):
            with pytest.raises(InvalidArgument, match="messages of any length"), block(3):
                pass
        assert queue.send(b"whole")
        assert queue.receive() == b"whole"


@pytest.mark.parametrize(
    "kind",
    [
        ">i4",
        [("a", ">i4"), ("b", "u1")],
        {"names": ["a", "b"], "formats": ["u1", "u4"], "offsets": [3, 8], "itemsize": 16},
        {"names": ["a", "b"], "formats": ["u4", "u1"], "offsets": [0, 0]},
    ],
    ids=str,
)
def test_claim_across_the_end_of_the_ring_is_of_the_queues_type(kind: Any) -> None:
    dtype = np.dtype(kind)
    with MessageQueue.create(dtype, 4) as queue:
        queue.write(np.zeros(3, dtype))
        assert queue.read(3) is not None
        sent = np.frombuffer(bytes(range(1, 1 + 3 * dtype.itemsize)), dtype)
        assert queue.write(sent)
        with queue.reading(3) as found:
            assert found.dtype == dtype
            assert found.tobytes() == sent.tobytes()
