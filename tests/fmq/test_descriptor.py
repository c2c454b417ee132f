"""Descriptors: the original's layout, and refusal of everything that is not a queue in its regions."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmq.queues import ELEMENT, create
from nnburst.fmq.message_queue import MessageQueue
from nnburst.fmq.shared_memory import Flavor, GrantorDescriptor, MQDescriptor, check, layout
from nnburst.hal.errors import InvalidArgument

SIZES = st.integers(1, 300)


def changed(descriptor: MQDescriptor, grantor: int, **fields: int) -> MQDescriptor:
    """The descriptor with some fields of one grantor replaced."""
    grantors = list(descriptor.grantors)
    grantors[grantor] = msgspec.structs.replace(grantors[grantor], **fields)
    return msgspec.structs.replace(descriptor, grantors=tuple(grantors))


@given(SIZES, SIZES, st.booleans(), st.booleans())
def test_every_layout_passes_its_own_check(
    quantum: int, capacity: int, event_flag: bool, original: bool
) -> None:
    described = layout(quantum, capacity, event_flag=event_flag, original=original)
    check(described, [described.size_bytes()], quantum)
    assert described.capacity == capacity
    assert len(described.grantors) == 3 + event_flag


@given(SIZES, SIZES)
def test_counters_lie_on_cache_lines_of_their_own(quantum: int, capacity: int) -> None:
    grantors = layout(quantum, capacity).grantors
    assert len({grantor.offset // 64 for grantor in grantors}) == 4
    assert [grantor.offset % 64 for grantor in grantors] == [0, 0, 0, 0]
    assert [grantor.extent for grantor in grantors] == [8, 8, quantum * capacity, 4]
    assert grantors[3].offset - grantors[2].offset - quantum * capacity < 64


def test_layout_begins_at_its_offset() -> None:
    offsets = [grantor.offset for grantor in layout(4, 8, start=1024).grantors]
    assert offsets == [1024, 1088, 1152, 1216]


@pytest.mark.parametrize(
    ("quantum", "capacity"), [(0, 8), (-1, 8), (8, 0), (8, -1), (1, 2**32 + 1), (-1, -1)]
)
def test_sizes_that_are_not_positive_or_exceed_4_gib_are_refused(
    quantum: int, capacity: int
) -> None:
    with pytest.raises(InvalidArgument, match="4 GiB"):
        layout(quantum, capacity)


@pytest.mark.parametrize("quantum", [1, 2**20, 2**32 - 1])
def test_4_gib_are_accepted(quantum: int) -> None:
    described = layout(quantum, 2**32 // quantum)
    check(described, [described.size_bytes()], None)


@pytest.mark.parametrize("quantum", [0, -1, 2**32])
def test_quantum_is_checked_where_no_element_size_is_expected(quantum: int) -> None:
    described = changed(msgspec.structs.replace(layout(4, 8), quantum=quantum), 2, extent=2**32)
    with pytest.raises(InvalidArgument, match=r"expected 1 to 2\*\*32 - 1"):
        check(described, [2**40], None)


def test_data_of_more_than_4_gib_is_refused() -> None:
    described = layout(4, 8, event_flag=False)
    check(changed(described, 2, extent=2**32), [2**40], 4)
    with pytest.raises(InvalidArgument, match="extent 4294967300"):
        check(changed(described, 2, extent=2**32 + 4), [2**40], 4)


@pytest.mark.parametrize(
    ("quantum", "capacity", "event_flag_at"), [(24, 1024, 24592), (24, 8, 208), (1, 1, 24)]
)
def test_original_layout_has_the_offsets_of_the_original(
    quantum: int, capacity: int, event_flag_at: int
) -> None:
    offsets = [grantor.offset for grantor in layout(quantum, capacity, original=True).grantors]
    assert offsets == [0, 8, 16, event_flag_at]


@pytest.mark.parametrize(
    ("grantor", "fields", "message"),
    [
        (0, {"fd_index": 1}, "'read counter': fd_index is 1"),
        (0, {"fd_index": -1}, "fd_index is -1"),
        (1, {"offset": 4}, "'write counter': offset is 4"),
        (1, {"offset": -8}, "offset is -8"),
        (2, {"offset": 2**40}, "'data'.*do not lie in"),
        (2, {"extent": 2**40}, "'data'.*do not lie in"),
        (2, {"extent": 30}, "not a whole number of elements"),
        (2, {"extent": 0}, "'data'.*do not lie in"),
        (0, {"extent": 16}, "'read counter': extent is 16"),
        (3, {"extent": 8}, "'event flag': extent is 8"),
        (0, {"flags": 1}, "flags are 1, expected 0"),
        (0, {"offset": 64}, "overlap"),
    ],
)
def test_broken_grantor_is_refused_by_name(
    grantor: int, fields: dict[str, int], message: str
) -> None:
    described = changed(layout(4, 8), grantor, **fields)
    with pytest.raises(InvalidArgument, match=message):
        check(described, [4096], 4)


@pytest.mark.parametrize("count", [0, 2, 6])
def test_number_of_grantors_is_three_to_five(count: int) -> None:
    grantors = tuple(GrantorDescriptor(0, 0, 64 * i, 8) for i in range(count))
    with pytest.raises(InvalidArgument, match=f"{count} grantors"):
        check(MQDescriptor(grantors, 8, 1), [4096], 8)


@pytest.mark.parametrize(("flags", "accepted"), [(0, False), (1, True), (2, True), (3, False)])
def test_only_the_two_flavours_are_known(flags: int, accepted: bool) -> None:
    described = msgspec.structs.replace(layout(4, 8), flags=flags)
    if accepted:
        check(described, [4096], 4)
    else:
        with pytest.raises(InvalidArgument, match="flavour"):
            check(described, [4096], 4)


@pytest.mark.parametrize("quantum", [0, -4, 8, 2**32])
def test_quantum_must_be_the_element_size(quantum: int) -> None:
    described = msgspec.structs.replace(layout(4, 8), quantum=quantum)
    with pytest.raises(InvalidArgument, match="quantum"):
        check(described, [4096], 4)


@given(
    st.lists(
        st.builds(
            GrantorDescriptor,
            st.integers(0, 1),
            st.integers(-1, 2),
            st.integers(-8, 512),
            st.integers(-8, 512),
        ),
        max_size=5,
    ),
    st.integers(-1, 64),
    st.integers(0, 3),
)
def test_any_descriptor_is_refused_or_lies_within_its_regions(
    grantors: list[GrantorDescriptor], quantum: int, flags: int
) -> None:
    described = MQDescriptor(tuple(grantors), quantum, flags)
    regions = [256, 128]
    try:
        check(described, regions, None)
    except InvalidArgument:
        return
    for grantor in grantors:
        assert grantor.offset >= 0
        assert grantor.offset + grantor.extent <= regions[grantor.fd_index]
    assert described.capacity >= 1


def test_too_short_region_is_refused_when_opening() -> None:
    queue, small = create(1024), create(1)
    with pytest.raises(InvalidArgument, match="do not lie in"):
        MessageQueue.open(queue.descriptor, [small.memories[0].duplicate()], ELEMENT)


def test_flavour_travels_with_the_descriptor() -> None:
    assert create(4, Flavor.UNSYNCHRONIZED_WRITE).descriptor.flags == 2


#: Threads that decode a queue's description at once, the first ones in their process.
AT_ONCE = """
import sys, threading, msgspec
from nnburst.fmq.shared_memory import decode_descriptor, layout
sys.setswitchinterval(1e-6)
encoded = msgspec.msgpack.encode(layout(8, 4, event_flag=True, original=False))
ready = threading.Barrier(8)
def decode():
    ready.wait()
    for _ in range(50):
        decode_descriptor(encoded)
threads = [threading.Thread(target=decode) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""


def test_threads_that_decode_the_first_descriptions_at_once_crash_nothing() -> None:
    running = [subprocess.Popen([sys.executable, "-c", AT_ONCE]) for _ in range(6)]
    assert [process.wait(60) for process in running] == [0] * 6
