"""Either end of a queue is killed or stopped at random: a typed error at once, whole records, no leaks."""

from __future__ import annotations

import os
import random
import select
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from subprocess import Popen
from typing import Self

import msgspec
import numpy as np
import pytest

from descriptors import descriptors
from faults.processes import stop
from nnburst.fmq import list_named_queues, remove_stale_names
from nnburst.fmq.message_queue import MessageQueue
from nnburst.hal import environment
from nnburst.hal.errors import DeadObject
from programs import environ_of_tests

pytestmark = pytest.mark.counted

RECORD = np.dtype([("number", "<u8"), ("again", "<u8", (5,)), ("sum", "<u8")])
CAPACITY = 61

#: Forks a process for each program that comes, so that none costs a start of Python; its pid is the answer.
FORKS = """
import itertools, os, signal, socket, sys
import msgspec, numpy as np
from nnburst.fmq import Flavor, create_named_queue
from nnburst.fmq.message_queue import MessageQueue
from nnburst.fmq.shared_memory import MQDescriptor, SharedMemory
RECORD = np.dtype([("number", "<u8"), ("again", "<u8", (5,)), ("sum", "<u8")])
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
channel = socket.socket(fileno=int(sys.argv[1]))
while True:
    program, fds, _, _ = socket.recv_fds(channel, 65536, 1)
    if not program:
        break
    pid = os.fork()
    if pid == 0:
        exec(program)
    for fd in fds:
        os.close(fd)
    channel.send(str(pid).encode())
"""

PEER = """
queue = MessageQueue.open(
    msgspec.json.decode(descriptor, type=MQDescriptor), [SharedMemory.adopt(fds[0])], RECORD
)
records = np.zeros(7, RECORD)
"""

WRITER = """
number = 0
while True:
    count = 1 + number % 7
    part = records[:count]
    part["number"] = np.arange(number, number + count)
    part["again"] = part["number"][:, None]
    part["sum"] = part["number"] * 6
    queue.write(part, timeout=60)
    number += count
"""

READER = """
while True:
    queue.read_into(records[:3], timeout=60)
"""


class Forks:
    """A process that forks the processes to kill. A context manager."""

    def __init__(self) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            fd = theirs.fileno()
            command = [sys.executable, "-c", FORKS, str(fd)]
            self._process = Popen(command, pass_fds=[fd], env=environ_of_tests())

    def start(self, program: str, fds: Sequence[int] = ()) -> int:
        """Start a process that runs `program`; its pid."""
        socket.send_fds(self._channel, [program.encode()], fds)
        return int(self._channel.recv(64))

    def start_peer(self, queue: MessageQueue, program: str) -> int:
        """Start a process that runs `program` with the other end of `queue`; its pid."""
        descriptor = f"descriptor = {msgspec.json.encode(queue.descriptor)!r}"
        return self.start(descriptor + PEER + program, [queue.memories[0].fd])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()
        assert self._process.wait(60) == 0


def check(records: np.ndarray, first: int) -> None:
    """Check that records are whole and numbered from `first` on."""
    numbers = np.arange(first, first + len(records), dtype="<u8")
    assert (records["number"] == numbers).all()
    assert (records["again"] == numbers[:, None]).all()
    assert (records["sum"] == numbers * 6).all()


@pytest.fixture
def forks() -> Iterator[Forks]:
    with Forks() as forks:
        yield forks


def check_how_late(late: list[float], what: str) -> None:
    """Print seconds between kills and errors; assert them on a quiet machine."""
    p50, p99 = 1e3 * np.percentile(late, [50, 99])
    print(f"{what} x{len(late)}: an error {p50:.2f} ms (median), {p99:.2f} ms (p99) after the kill")
    if environment.STRICT_TIMING.read():
        assert p99 <= 10


def test_killed_writers_leave_whole_records_and_an_error_at_once(forks: Forks) -> None:
    rng = random.Random(28)
    before, late = descriptors(), []
    for _ in range(environment.KILLS.read()):
        with MessageQueue.create(RECORD, CAPACITY) as queue:
            peer = forks.start_peer(queue, WRITER)
            first, until = 0, time.monotonic() + 0.02 * rng.random()
            found = queue.read(1, timeout=60)
            while True:
                assert found is not None
                check(found, first)
                first += len(found)
                if time.monotonic() >= until:
                    break
                found = queue.read(rng.randint(1, 9), timeout=60)
            os.kill(peer, signal.SIGKILL)
            killed = time.monotonic()
            with pytest.raises(DeadObject):
                while (found := queue.read(1, timeout=60)) is not None:
                    check(found, first)
                    first += 1
            late.append(time.monotonic() - killed)
    assert descriptors() == before
    check_how_late(late, "writer killed")


def test_killed_readers_are_an_error_of_the_writer_at_once(forks: Forks) -> None:
    rng = random.Random(29)
    before, late = descriptors(), []
    for _ in range(environment.KILLS.read()):
        with MessageQueue.create(RECORD, CAPACITY) as queue:
            peer = forks.start_peer(queue, READER)
            records = np.zeros(5, RECORD)
            until = None
            while until is None or time.monotonic() < until:
                assert queue.write(records, timeout=60)
                if until is None and queue.peer is not None:
                    until = time.monotonic() + 0.02 * rng.random()
            os.kill(peer, signal.SIGKILL)
            killed = time.monotonic()
            with pytest.raises(DeadObject):
                while queue.write(records, timeout=60):
                    pass
            late.append(time.monotonic() - killed)
    assert descriptors() == before
    check_how_late(late, "reader killed")


def test_stopped_writer_is_slow_and_not_dead(forks: Forks) -> None:
    rng = random.Random(30)
    with MessageQueue.create(RECORD, CAPACITY) as queue:
        peer = forks.start_peer(queue, WRITER)
        first = 0
        for _ in range(environment.KILLS.read()):
            for _ in range(rng.randint(1, 40)):
                found = queue.read(1, timeout=60)
                assert found is not None
                check(found, first)
                first += 1
            stop(peer)
            while (found := queue.read(1, timeout=0.002)) is not None:
                check(found, first)
                first += 1
            os.kill(peer, signal.SIGCONT)
        os.kill(peer, signal.SIGKILL)


def test_stopped_reader_is_slow_and_not_dead(forks: Forks) -> None:
    rng = random.Random(32)
    with MessageQueue.create(RECORD, CAPACITY) as queue:
        peer = forks.start_peer(queue, READER)
        records = np.zeros(5, RECORD)
        for _ in range(environment.KILLS.read()):
            for _ in range(rng.randint(1, 40)):
                assert queue.write(records, timeout=60)
            stop(peer)
            while queue.write(records, timeout=0.002):
                pass
            os.kill(peer, signal.SIGCONT)
        os.kill(peer, signal.SIGKILL)


MAKER = """
for flavor in itertools.cycle(Flavor):
    with create_named_queue(name, "<u4", 64, flavor, spin_window=0.0) as queue:
        queue.sender(bytes(4))()
"""


def test_makers_killed_at_any_moment_leave_a_name_that_goes_or_none(forks: Forks) -> None:
    pytest.importorskip("posix_ipc", reason="there is no posix_ipc for this Python")
    rng = random.Random(31)
    name = f"/nnburst-test-{os.getpid()}-{rng.getrandbits(32):x}"
    for _ in range(environment.KILLS.read()):
        maker = forks.start(f"name = {name!r}\n" + MAKER)
        ended = os.pidfd_open(maker)
        time.sleep(0.02 * rng.random())
        os.kill(maker, signal.SIGKILL)
        assert select.select([ended], [], [], 60)[0], (
            "a look into /proc would hold what it has mapped"
        )
        os.close(ended)
        found = list_named_queues(name)
        assert [queue.is_stale for queue in found] == [True] * Path(f"/dev/shm{name}").exists()
        assert len(remove_stale_names(name)) == len(found)
        assert not Path(f"/dev/shm{name}").exists()
