"""Queues sent over a Unix socket and inherited, and what a hostile sender can send instead."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from descriptors import descriptors
from fmq.queues import ELEMENT, numbers
from fmq.test_named_queue import free_descriptors
from nnburst.fmq.message_queue import MessageQueue
from nnburst.fmq.named_queue import inherit_queue, inheritance, receive_queue, send_queue
from nnburst.fmq.shared_memory import (
    RECORD_BYTES,
    Flavor,
    GrantorDescriptor,
    MQDescriptor,
    SharedMemory,
    from_record,
    to_record,
)
from nnburst.hal.errors import (
    BadState,
    Closed,
    InvalidArgument,
    MissedDeadline,
    ResourceExhausted,
)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@pytest.mark.parametrize("flavor", list(Flavor))
def test_queue_goes_over_a_socket_and_nothing_behind_it_is_read(
    pair: tuple[socket.socket, socket.socket], flavor: Flavor
) -> None:
    ours, theirs = pair
    before = descriptors()
    with MessageQueue.create(ELEMENT, 8, flavor) as queue:
        send_queue(ours, queue)
        ours.sendall(b"behind")
        with receive_queue(theirs, ELEMENT, timeout=10) as reader:
            assert queue.write(numbers(0, 3))
            found = reader.read(3)
            assert found is not None
            assert found.tolist() == [0, 1, 2]
            if flavor == Flavor.UNSYNCHRONIZED_WRITE:
                with pytest.raises(BadState, match="read-only"):
                    reader.write(numbers(0, 1))
                assert not reader.memories[0].is_writable
    assert theirs.recv(100) == b"behind"
    assert descriptors() <= before


@pytest.mark.parametrize("flavor", list(Flavor))
def test_programs_that_a_receiver_starts_get_no_descriptor_of_its_queue(
    pair: tuple[socket.socket, socket.socket], flavor: Flavor
) -> None:
    ours, theirs = pair
    with MessageQueue.create(ELEMENT, 8, flavor) as queue:
        send_queue(ours, queue)
        with receive_queue(theirs, ELEMENT, timeout=10) as reader:
            assert not any(os.get_inheritable(memory.fd) for memory in reader.memories)


def test_queue_that_does_not_come_ends_at_the_timeout_and_the_socket_keeps_its_own(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    theirs.settimeout(7)
    with pytest.raises(MissedDeadline):
        receive_queue(theirs, ELEMENT, timeout=0.01)
    assert theirs.gettimeout() == 7
    ours.close()
    with pytest.raises(Closed):
        receive_queue(theirs, ELEMENT, timeout=10)


def test_what_carries_no_descriptors_is_refused() -> None:
    refused = pytest.raises(InvalidArgument, match=r"^connection: .*, expected a Unix socket")
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as over_tcp,
        MessageQueue.create(ELEMENT, 8) as queue,
    ):
        for connection in (over_tcp, 5):
            with refused:
                send_queue(connection, queue)  # type: ignore[arg-type]
            with refused:
                receive_queue(connection, ELEMENT, timeout=1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("flavor", "count"),
    [
        (Flavor.SYNCHRONIZED_READ_WRITE, 0),
        (Flavor.UNSYNCHRONIZED_WRITE, 0),
        (Flavor.UNSYNCHRONIZED_WRITE, 1),
    ],
)
def test_queue_that_comes_while_descriptors_are_lacking_is_refused_as_such(
    pair: tuple[socket.socket, socket.socket], flavor: Flavor, count: int
) -> None:
    ours, theirs = pair
    with MessageQueue.create(ELEMENT, 8, flavor) as queue:
        send_queue(ours, queue)
        before = descriptors()
        with free_descriptors(count), pytest.raises(ResourceExhausted, match="no descriptors left"):
            receive_queue(theirs, ELEMENT, timeout=10)
        assert descriptors() <= before
        send_queue(ours, queue)
        receive_queue(theirs, ELEMENT, timeout=10).close()


@pytest.mark.parametrize("kind", [socket.SOCK_SEQPACKET, socket.SOCK_DGRAM])
def test_queue_is_one_packet_on_a_socket_of_packets(kind: int) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
    with ours, theirs, MessageQueue.create(ELEMENT, 8) as queue:
        for _ in range(2):
            send_queue(ours, queue)
        for _ in range(2):
            receive_queue(theirs, ELEMENT, timeout=10).close()


def test_memory_that_is_not_sealed_is_refused_and_no_descriptor_is_left(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    queue = MessageQueue.create(ELEMENT, 8)
    fd = os.memfd_create("unsealed", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, 4096)
    before = descriptors()
    socket.send_fds(ours, [to_record(queue.descriptor)], [fd])
    with pytest.raises(InvalidArgument, match="seals"):
        receive_queue(theirs, ELEMENT, timeout=10)
    socket.send_fds(ours, [to_record(queue.descriptor)], [])
    with pytest.raises(InvalidArgument, match="fd_index"):
        receive_queue(theirs, ELEMENT, timeout=10)
    assert descriptors() <= before
    os.close(fd)


def test_synchronized_queue_in_memory_that_cannot_be_written_is_refused(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    queue = MessageQueue.create(ELEMENT, 8)
    memory = SharedMemory.create(4096, read_only_for_others=True)
    view = memory.map_then_protect()
    socket.send_fds(ours, [to_record(queue.descriptor)], [memory.fd])
    with pytest.raises(InvalidArgument, match="read-only"):
        receive_queue(theirs, ELEMENT, timeout=10)
    view.release()


CHILD = """
import sys
import numpy as np
from nnburst.fmq import inherit_queue
with inherit_queue(sys.argv[1], "<u4") as queue:
    queue.write(np.array([7, 8], "<u4"))
"""


def test_queue_is_inherited_by_a_program_that_is_started() -> None:
    with MessageQueue.create(ELEMENT, 8) as queue:
        text, fds = inheritance(queue)
        subprocess.run([sys.executable, "-c", CHILD, text], pass_fds=fds, check=True, timeout=60)
        found = queue.read(2, timeout=60)
    assert found is not None
    assert found.tolist() == [7, 8]


@pytest.mark.parametrize(
    "text", ["", "00", "zz,3", "00,x", "00" * RECORD_BYTES + ",3", None, 3, b"00,3"]
)
def test_text_that_is_no_inheritance_is_refused(text: object) -> None:
    with pytest.raises(InvalidArgument):
        inherit_queue(text, ELEMENT)  # type: ignore[arg-type]


@pytest.mark.parametrize("number", ["{other}", "{closed}", "-1", "99999999999999"])
def test_a_descriptor_that_is_no_queue_s_is_refused_by_its_number_and_stays_open(
    number: str,
) -> None:
    with MessageQueue.create(ELEMENT, 8) as queue, socket.socket() as other:
        record = inheritance(queue)[0].split(",")[0]
        closed = os.dup(other.fileno())
        os.close(closed)
        text = number.format(other=other.fileno(), closed=closed)
        with pytest.raises(InvalidArgument, match=f"descriptor {text} .*pass_fds"):
            inherit_queue(f"{record},{text}", ELEMENT)
        assert other.getsockname() is not None


@given(st.binary(min_size=RECORD_BYTES, max_size=RECORD_BYTES), st.sampled_from([3, 4, 5, None]))
def test_any_record_is_a_descriptor_or_refused(record: bytes, count: int | None) -> None:
    if count is not None:
        record = count.to_bytes(4, "little") + record[4:]
    ours, theirs = socket.socketpair()
    with ours, theirs, SharedMemory.create(4096) as memory:
        socket.send_fds(ours, [record], [memory.fd])
        with pytest.raises(InvalidArgument):
            receive_queue(theirs, ELEMENT, timeout=10)


@given(
    st.lists(
        st.builds(
            GrantorDescriptor,
            *(2 * [st.integers(0, 2**32 - 1)]),
            *(2 * [st.integers(0, 2**64 - 1)]),
        ),
        min_size=3,
        max_size=5,
    ),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**32 - 1),
)
def test_descriptor_is_itself_again_after_its_record(
    grantors: list[GrantorDescriptor], quantum: int, flags: int
) -> None:
    descriptor = MQDescriptor(tuple(grantors), quantum, flags)
    assert from_record(to_record(descriptor)) == descriptor


@pytest.mark.campaign
def test_many_readers_come_and_go_and_each_counts_exactly_those_that_it_missed() -> None:
    dtype = np.dtype("<u8")
    writer = MessageQueue.create(dtype, 32, Flavor.UNSYNCHRONIZED_WRITE, spin_window=0.0)
    got: dict[int, list[int]] = {number: [] for number in range(64)}
    owed: dict[int, int] = {}
    over = threading.Event()

    def read(number: int) -> None:
        # Every fourth reader leaves early, and every third is too slow for the ring at times.
        memories = [memory.duplicate() for memory in writer.memories]
        with MessageQueue.open(writer.descriptor, memories, dtype) as reader:
            first = int(reader.ring.read_index) // dtype.itemsize
            while not got[number] or got[number][-1] < (300 if number % 4 == 0 else 1500):
                found = reader.read(1, timeout=60)
                assert found is not None
                got[number].append(int(found[0]))
                if number % 3 == 0 and len(got[number]) % 50 == 0:
                    over.wait(0.003)
            passed = got[number][-1] + 1 - first
            owed[number] = passed - len(got[number]) - reader.statistics().missed

    threads = [threading.Thread(target=read, args=(number,)) for number in range(64)]
    for thread in threads:
        thread.start()
    last = 0
    while any(thread.is_alive() for thread in threads):
        assert writer.write(np.array([last], dtype)), "no reader ever holds the writer"
        last += 1
        over.wait(0.0002)
    assert owed == dict.fromkeys(range(64), 0)
    assert all(read == sorted(set(read)) for read in got.values())
