"""Message queues between programs in C, C++ and Python."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from c_client.conftest import Compile
from c_client.interface import PATIENCE, Failed, check, ffi, library, made
from c_client.programs import HEAD
from c_client.test_programs import EXAMPLES, run
from nnburst.fmq import (
    Flavor,
    MessageQueue,
    create_named_queue,
    list_named_queues,
    open_named_queue,
    receive_queue,
    send_queue,
)
from nnburst.fmq.shared_memory import RECORD_BYTES, SharedMemory, to_record
from nnburst.hal.errors import BadState, Closed, InvalidArgument, MissedDeadline
from waiting import wait_for

ELEMENT = np.dtype("<u4")
WRITER, READER, BROADCAST, REOPEN, DROP = 1, 2, 1, 2, 4
NO_ERROR, INCOMPLETE, UNEXPECTED_NULL, BAD_DATA, BAD_STATE, UNAVAILABLE = 0, 2, 3, 4, 6, 9
MISSED_DEADLINE, RESOURCE_EXHAUSTED, DEAD_OBJECT, BUSY, CLOSED = 10, 12, 14, 100, 101


@pytest.fixture
def name() -> Iterator[str]:
    """A name that is not used, and is not left."""
    unique = f"/nnburst-test-{uuid.uuid4().hex}"
    yield unique
    assert not Path(f"/dev/shm{unique}").exists()


def options(flags: int = 0) -> tuple[Any, int]:
    given = ffi.new("nnburst_queue_options *", {"flags": flags})
    return given, ffi.sizeof("nnburst_queue_options")


def create(name: str | None, role: int, size: int, capacity: int, flags: int = 0) -> Any:
    c = library()
    text = ffi.NULL if name is None else name.encode()
    return made(c.nnburst_create_queue, text, role, size, capacity, *options(flags))


def opened(name: str, role: int, size: int) -> Any:
    return made(library().nnburst_open_queue, name.encode(), role, size, ffi.NULL, 0, PATIENCE)


def words(numbers: list[int]) -> Any:
    return ffi.new("uint32_t[]", numbers)


def test_c_writes_what_python_reads_by_name_and_python_learns_that_it_was_closed(name: str) -> None:
    c = library()
    queue = create(name, WRITER, 4, 8)
    with open_named_queue(name, ELEMENT, timeout=10) as reader:
        assert c.nnburst_write(queue, words([1, 2, 3]), 3, 0) == NO_ERROR
        found = reader.read(3)
        assert found is not None
        assert found.tolist() == [1, 2, 3]
        assert reader.peer == os.getpid()
        assert c.nnburst_write(queue, words(list(range(9))), 9, 0) == BAD_DATA
        assert c.nnburst_write(queue, words(list(range(8))), 8, 0) == NO_ERROR
        assert c.nnburst_write(queue, words([0]), 1, 1000) == MISSED_DEADLINE
        assert c.nnburst_read(queue, words([0]), 1, 0) == BAD_STATE
        c.nnburst_close_queue(queue)
        assert reader.read(8) is not None
        with pytest.raises(Closed):
            reader.read(1)


def test_python_writes_what_c_reads_by_name_and_c_learns_that_it_was_closed(name: str) -> None:
    c = library()
    writer = create_named_queue(name, ELEMENT, 8)
    queue = opened(name, READER, 4)
    room = words([0, 0])
    assert c.nnburst_read(queue, room, 1, 0) == MISSED_DEADLINE
    assert writer.write(np.arange(5, 7, dtype=ELEMENT))
    assert c.nnburst_queue_available(queue) == 2
    assert c.nnburst_read(queue, room, 2, PATIENCE) == NO_ERROR
    assert list(room) == [5, 6]
    writer.close()
    assert c.nnburst_read(queue, room, 1, PATIENCE) == CLOSED
    c.nnburst_close_queue(queue)


def test_messages_and_claims_cross_the_end_of_the_ring(name: str) -> None:
    c = library()
    writer, reader = create(name, WRITER, 1, 32), open_named_queue(name, bytes, timeout=10)
    for number in range(20):
        message = bytes([number]) * (number % 19)
        assert c.nnburst_send_message(writer, message, len(message), 0) == NO_ERROR
        assert reader.receive() == message
    claim = ffi.new("nnburst_claim *")
    assert c.nnburst_begin_write(writer, 24, 0, claim) == NO_ERROR
    for number in range(24):
        first = number < claim.first_count
        part = claim.first if first else claim.second
        at = number if first else number - claim.first_count
        ffi.cast("uint8_t *", part)[at] = (struct.pack("<I", 20) + bytes(range(20)))[number]
    assert reader.available_to_read() == 0
    assert c.nnburst_commit_write(writer, 24) == NO_ERROR
    assert reader.receive() == bytes(range(20))
    c.nnburst_close_queue(writer)


def test_message_that_is_longer_than_the_room_stays(name: str) -> None:
    c = library()
    writer = create_named_queue(name, bytes, 64)
    reader = opened(name, READER, 1)
    assert writer.send(b"message")
    room, length = ffi.new("char[]", 16), ffi.new("size_t *", 3)
    assert c.nnburst_receive_message(reader, room, length, 0) == BAD_DATA
    assert length[0] == 7
    assert c.nnburst_receive_message(reader, room, length, 0) == NO_ERROR
    assert ffi.buffer(room, length[0])[:] == b"message"
    c.nnburst_close_queue(reader)


def test_broadcast_of_c_is_read_by_python_and_c_and_each_counts_what_it_missed(name: str) -> None:
    c = library()
    writer = create(name, WRITER, 4, 4, BROADCAST)
    other = opened(name, READER, 4)
    with open_named_queue(name, ELEMENT, timeout=10) as reader:
        for number in range(7):
            assert c.nnburst_write(writer, words([number]), 1, 0) == NO_ERROR
        room = words([0])
        assert reader.read(1) is None
        assert reader.statistics().missed == 7
        assert c.nnburst_read(other, room, 1, 0) == MISSED_DEADLINE
        assert c.nnburst_queue_missed(other) == 7
        assert c.nnburst_write(writer, words([7]), 1, 0) == NO_ERROR
        assert c.nnburst_read(other, room, 1, 0) == NO_ERROR
        assert room[0] == 7
        with pytest.raises(BadState, match="read-only"):
            reader.write(np.zeros(1, ELEMENT))
    with pytest.raises(Failed, match="only its maker"):
        opened(name, WRITER, 4)
    c.nnburst_close_queue(other)
    c.nnburst_close_queue(writer)


@pytest.mark.parametrize("flavor", list(Flavor))
def test_queue_goes_over_a_socket_in_both_directions(flavor: Flavor) -> None:
    c = library()
    ours, theirs = socket.socketpair()
    with ours, theirs, MessageQueue.create(ELEMENT, 8, flavor) as queue:
        send_queue(ours, queue)
        arguments = (theirs.fileno(), READER, 4, ffi.NULL, 0, PATIENCE)
        reader = made(c.nnburst_receive_queue, *arguments)
        assert queue.write(np.array([9], ELEMENT))
        room = words([0])
        assert c.nnburst_read(reader, room, 1, PATIENCE) == NO_ERROR
        assert room[0] == 9
        c.nnburst_close_queue(reader)
        flags = BROADCAST if flavor == Flavor.UNSYNCHRONIZED_WRITE else 0
        writer = create(None, WRITER, 4, 8, flags)
        check(c.nnburst_send_queue(ours.fileno(), writer))
        with receive_queue(theirs, ELEMENT, timeout=10) as found:
            assert c.nnburst_write(writer, words([3]), 1, 0) == NO_ERROR
            read = found.read(1)
            assert read is not None
            assert read.tolist() == [3]
            assert found.memories[0].is_writable == (not flags)
        c.nnburst_close_queue(writer)


@pytest.mark.parametrize("flags", [0, BROADCAST, REOPEN])
def test_a_queue_with_a_name_cannot_be_sent(name: str, flags: int) -> None:
    c = library()
    maker = create(name, WRITER, 4, 8, flags)
    ours, theirs = socket.socketpair()
    opener = opened(name, READER, 4)
    with ours, theirs:
        for queue in (maker, opener):
            assert c.nnburst_send_queue(ours.fileno(), queue) == BAD_STATE
            assert "its memory has a name" in ffi.string(c.nnburst_error_message()).decode()
            with pytest.raises(MissedDeadline):
                receive_queue(theirs, ELEMENT, timeout=0.01)
    for queue in (opener, maker):
        c.nnburst_close_queue(queue)


def test_records_of_any_content_are_refused_and_no_descriptor_is_kept() -> None:
    c = library()
    rng = np.random.default_rng(28)
    ours, theirs = socket.socketpair()
    queue = MessageQueue.create(ELEMENT, 8)
    good = to_record(queue.descriptor)
    with ours, theirs, SharedMemory.create(4096) as memory:
        for number in range(300):
            record = bytearray(good)
            for _ in range(1 + number % 3):
                record[rng.integers(RECORD_BYTES)] ^= 1 << rng.integers(8)
            socket.send_fds(ours, [bytes(record)], [memory.fd] * int(rng.integers(3)))
            found = ffi.new("nnburst_queue **")
            arguments = (theirs.fileno(), READER, 4, ffi.NULL, 0, PATIENCE, found)
            if c.nnburst_receive_queue(*arguments) == NO_ERROR:
                c.nnburst_close_queue(found[0])
                view = memory.map(writable=True)
                view[:] = 0


def test_descriptor_shows_an_event_loop_that_there_is_something(name: str) -> None:
    import select

    c = library()
    writer = create_named_queue(name, ELEMENT, 8)
    reader = opened(name, READER, 4)
    fd = c.nnburst_queue_fd(reader)
    assert c.nnburst_arm_queue(reader, 1) == INCOMPLETE
    assert select.select([fd], [], [], 0)[0] == []
    assert writer.write(np.zeros(1, ELEMENT))
    assert select.select([fd], [], [], 60)[0] == [fd]
    assert c.nnburst_arm_queue(reader, 1) == NO_ERROR
    c.nnburst_close_queue(reader)


OTHER_END = """
import sys
import numpy as np
from nnburst.fmq import open_named_queue
queue = open_named_queue(sys.argv[1], "<u4", timeout=60)
queue._opened(writes=sys.argv[2] == "writer")
print(flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("role", ["reader", "writer"])
def test_descriptor_shows_an_event_loop_that_the_other_process_was_killed(
    name: str, role: str
) -> None:
    import select

    c = library()
    queue = create(name, READER if role == "reader" else WRITER, 4, 8)
    fd = c.nnburst_queue_fd(queue)
    other = "writer" if role == "reader" else "reader"
    with subprocess.Popen(
        [sys.executable, "-c", OTHER_END, name, other],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as peer:
        assert peer.stdout is not None
        assert peer.stdout.readline()
        if role == "writer":
            assert c.nnburst_write(queue, words(list(range(8))), 8, 0) == NO_ERROR
        assert c.nnburst_arm_queue(queue, 1) == INCOMPLETE
        assert select.select([fd], [], [], 0)[0] == []
        peer.kill()
        assert select.select([fd], [], [], 60)[0] == [fd]
    assert c.nnburst_arm_queue(queue, 1) == NO_ERROR
    room = words([0])
    move = c.nnburst_read if role == "reader" else c.nnburst_write
    assert move(queue, room, 1, 0) == DEAD_OBJECT
    c.nnburst_close_queue(queue)


DYING_WRITER = """
import sys
import numpy as np
from nnburst.fmq import Flavor, create_named_queue
queue = create_named_queue(sys.argv[1], "<u4", 8, Flavor.UNSYNCHRONIZED_WRITE)
queue.write(np.zeros(1, "<u4"))
print(flush=True)
sys.stdin.read()
"""


def sleeps_on_two_words(thread: int) -> bool:
    """Whether a thread of this process is in futex_waitv; kernels before 5.16 have none."""
    return Path(f"/proc/self/task/{thread}/syscall").read_text().startswith("449 ")


def test_event_loop_without_a_descriptor_or_beside_another_thread_gets_its_own_code(
    name: str,
) -> None:
    c = library()
    writer = create(name, WRITER, 4, 8, BROADCAST)
    readers = [opened(name, READER, 4) for _ in range(73)]
    assert [c.nnburst_arm_queue(reader, 1) for reader in readers[:72]] == 72 * [INCOMPLETE]
    assert c.nnburst_arm_queue(readers[72], 1) == RESOURCE_EXHAUSTED
    found: list[int] = []
    room = words([0])
    waits = threading.Thread(
        target=lambda: found.append(c.nnburst_read(readers[0], room, 1, PATIENCE))
    )
    waits.start()
    wait_for(lambda: c.nnburst_arm_queue(readers[0], 1) == BUSY)
    check(c.nnburst_write(writer, words([7]), 1, 0))
    waits.join(60)
    assert found == [NO_ERROR]
    for queue in (writer, *readers):
        c.nnburst_close_queue(queue)


def test_event_loop_cannot_wait_for_more_than_a_queue_has_room_for() -> None:
    c = library()
    queue = create(None, WRITER, 4, 8)
    assert [c.nnburst_arm_queue(queue, count) for count in (8, 9, 2**62 + 1)] == [
        NO_ERROR,
        BAD_DATA,
        BAD_DATA,
    ]
    assert c.nnburst_write(queue, words([1]), 1, 0) == NO_ERROR
    assert c.nnburst_arm_queue(queue, 8) == INCOMPLETE
    c.nnburst_close_queue(queue)


def test_all_readers_of_a_broadcast_learn_at_once_that_its_writer_has_died(name: str) -> None:
    command = [sys.executable, "-c", DYING_WRITER, name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        queues = [opened(name, READER, 4) for _ in range(4)]
        codes: list[int] = []

        def read(queue: Any) -> None:
            codes.append(library().nnburst_read(queue, words([0]), 1, PATIENCE // 4))

        threads = [threading.Thread(target=read, args=[queue]) for queue in queues]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + 2
        while time.monotonic() < deadline and not all(
            sleeps_on_two_words(thread.native_id or 0) for thread in threads
        ):
            pass
        writer.kill()
        for thread in threads:
            thread.join()
    assert codes == [DEAD_OBJECT] * 4
    for queue in queues:
        library().nnburst_close_queue(queue)
    Path(f"/dev/shm{name}").unlink()


def test_queue_has_all_its_pages_before_it_has_a_name_so_no_write_fails_for_want_of_one(
    name: str,
) -> None:
    queue = create(name, WRITER, 4, 1 << 20)
    status = Path(f"/dev/shm{name}").stat()
    assert status.st_blocks * 512 >= status.st_size > 4 << 20
    library().nnburst_close_queue(queue)


def test_arguments_that_make_no_sense_are_refused(name: str) -> None:
    c = library()
    found = ffi.new("nnburst_queue **")
    for bad in ("camera", "/", "/a/b", "/" + "x" * 255, "/.", "/.."):
        with pytest.raises(Failed, match="name"):
            create(bad, WRITER, 4, 8)
        with pytest.raises(Failed, match="expected '/'"):
            opened(bad, READER, 4)
    for size, capacity in ((0, 1), (1, 0), (2**32, 1), (2**16, 2**17)):
        with pytest.raises(Failed, match="capacity"):
            create(name, WRITER, size, capacity)
    with pytest.raises(Failed, match="role"):
        create(name, 3, 4, 8)
    with pytest.raises(Failed, match="flags: 8, expected"):
        create(name, WRITER, 4, 8, 8)
    with pytest.raises(Failed, match="only writer"):
        create(name, READER, 4, 8, BROADCAST)
    for flags in (DROP, DROP | BROADCAST):
        with pytest.raises(Failed, match="NNBURST_DROP_UNREAD without NNBURST_REOPEN") as failed:
            create(name, WRITER, 4, 8, flags)
        assert failed.value.code == BAD_DATA
        call = (name.encode(), READER, 4, *options(flags), 1000, found)
        assert c.nnburst_open_queue(*call) == BAD_DATA
    assert c.nnburst_create_queue(ffi.NULL, 1, 4, 8, ffi.NULL, 0, ffi.NULL) == UNEXPECTED_NULL
    arguments = (name.encode(), READER, 4, ffi.NULL, 0, 1000, found)
    assert c.nnburst_open_queue(*arguments) == UNAVAILABLE
    with create_named_queue(name, ELEMENT, 8):
        with pytest.raises(Failed, match="element_size"):
            opened(name, READER, 8)
        with pytest.raises(Failed, match="exists"):
            create(name, WRITER, 4, 8)
        assert name in [queue.name for queue in list_named_queues()]
    for call in (c.nnburst_write, c.nnburst_read):
        assert call(ffi.NULL, words([1]), 1, 0) == UNEXPECTED_NULL
    c.nnburst_close_queue(ffi.NULL)


def test_end_that_is_taken_leaves_the_queue_to_the_other_one(name: str) -> None:
    c = library()
    writer = create(name, WRITER, 4, 8)
    with pytest.raises(Failed, match="has a writer already"):
        opened(name, WRITER, 4)
    reader = opened(name, READER, 4)
    check(c.nnburst_write(writer, words([7]), 1, PATIENCE))
    found = words([0])
    check(c.nnburst_read(reader, found, 1, PATIENCE))
    assert list(found) == [7]
    for queue in (writer, reader):
        c.nnburst_close_queue(queue)


@pytest.mark.parametrize("connection", [-1, 1_000_000, "a file", "a socket of TCP"])
def test_connection_that_carries_no_descriptors_is_named(connection: Any) -> None:
    c = library()
    found = ffi.new("nnburst_queue **")
    queue = create(None, WRITER, 4, 8)
    with (
        Path(os.devnull).open("rb") as file,
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as over_tcp,
    ):
        others = {"a file": file.fileno(), "a socket of TCP": over_tcp.fileno()}
        number = others.get(connection, connection)
        for code in (
            c.nnburst_receive_queue(number, READER, 4, ffi.NULL, 0, PATIENCE, found),
            c.nnburst_send_queue(number, queue),
        ):
            assert code == BAD_DATA
            text = f"connection: {number} is no open Unix socket"
            assert text in ffi.string(c.nnburst_error_message()).decode()
    c.nnburst_close_queue(queue)


def test_python_refuses_a_queue_of_another_element_that_c_has_made(name: str) -> None:
    queue = create(name, WRITER, 24, 8)
    with pytest.raises(InvalidArgument, match="quantum"):
        open_named_queue(name, ELEMENT, timeout=10)
    library().nnburst_close_queue(queue)


def test_example_in_c_hands_frames_to_the_example_in_python(
    compile_program: Compile,
    name: str,
) -> None:
    program = compile_program((EXAMPLES / "camera_queue.c").read_text())
    command = [sys.executable, str(EXAMPLES / "camera_reader.py"), name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reader:
        assert run(program, name, "3000") == []
        output, _ = reader.communicate(timeout=60)
    assert output == "3000 frames of 640 x 480, the last one at 59.98 s\n"


CPP = (
    HEAD
    + r"""
#include <nnburst.hpp>
struct Record { std::uint32_t number; };
int main(int, char **argv) {
    auto queue = nnburst::Queue<Record>::open(argv[1], nnburst::Role::reader);
    std::uint64_t sum = 0;
    try {
        for (Record record; queue.read(record);) {
            sum += record.number;
        }
    } catch (const nnburst::Error &error) {
        std::printf("%d %llu\n", error.code(), static_cast<unsigned long long>(sum));
    }
}
"""
)


def test_program_in_cpp_reads_records_until_the_queue_is_closed(
    compile_program: Callable[..., Path],
    name: str,
) -> None:
    program = compile_program(CPP, compiler="g++")
    with subprocess.Popen([program, name], stdout=subprocess.PIPE, text=True) as reader:
        with create_named_queue(name, ELEMENT, 8) as queue:
            for number in range(1000):
                assert queue.write(np.array([number], ELEMENT), timeout=60)
        output, _ = reader.communicate(timeout=60)
    assert output == f"{CLOSED} {sum(range(1000))}\n"
