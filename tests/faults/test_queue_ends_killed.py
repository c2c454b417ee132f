"""Either end of a queue killed or stopped at random: a typed error at once, whole records, nothing left."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path
from subprocess import PIPE, Popen

import msgspec
import numpy as np
import pytest

from descriptors import descriptors
from nnburst.fmq import list_named_queues, remove_stale_names
from nnburst.fmq.message_queue import MessageQueue
from nnburst.hal import environment
from nnburst.hal.errors import DeadObject
from programs import environ_of_tests

pytestmark = pytest.mark.counted

RECORD = np.dtype([("number", "<u8"), ("again", "<u8", (5,)), ("sum", "<u8")])
CAPACITY = 61

PEER = """
import os, sys
import msgspec, numpy as np
from nnburst.fmq.shared_memory import MQDescriptor
from nnburst.fmq.message_queue import MessageQueue
from nnburst.fmq.shared_memory import SharedMemory
RECORD = np.dtype([("number", "<u8"), ("again", "<u8", (5,)), ("sum", "<u8")])
queue = MessageQueue.open(
    msgspec.json.decode(sys.argv[1], type=MQDescriptor), [SharedMemory.adopt(int(sys.argv[2]))], RECORD
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


def start(queue: MessageQueue, program: str) -> Popen[bytes]:
    fd = queue.memories[0].fd
    command = [sys.executable, "-c", PEER + program, msgspec.json.encode(queue.descriptor), str(fd)]
    environ = environ_of_tests()
    return Popen(command, pass_fds=[fd], env=environ, stdin=PIPE)


def check(records: np.ndarray, first: int) -> None:
    """Records from `first` on, each whole."""
    numbers = np.arange(first, first + len(records), dtype="<u8")
    assert (records["number"] == numbers).all()
    assert (records["again"] == numbers[:, None]).all()
    assert (records["sum"] == numbers * 6).all()


def test_killed_writers_leave_whole_records_and_an_error_at_once() -> None:
    rng = random.Random(28)
    before, late = descriptors(), []
    for _ in range(environment.KILLS.read()):
        with MessageQueue.create(RECORD, CAPACITY) as queue, start(queue, WRITER) as peer:
            first, until = 0, time.monotonic() + 0.02 * rng.random()
            found = queue.read(1, timeout=60)
            while True:
                assert found is not None
                check(found, first)
                first += len(found)
                if time.monotonic() >= until:
                    break
                found = queue.read(rng.randint(1, 9), timeout=60)
            peer.kill()
            killed = time.monotonic()
            with pytest.raises(DeadObject):
                while (found := queue.read(1, timeout=60)) is not None:
                    check(found, first)
                    first += 1
            late.append(time.monotonic() - killed)
    print(f"an error {1e3 * np.percentile(late, 99):.1f} ms after the kill (p99)")
    assert descriptors() == before
    if environment.STRICT_TIMING.read():
        assert np.percentile(late, 99) <= 0.01


def test_killed_readers_are_an_error_of_the_writer_at_once() -> None:
    rng = random.Random(29)
    before, late = descriptors(), []
    for _ in range(environment.KILLS.read()):
        with MessageQueue.create(RECORD, CAPACITY) as queue, start(queue, READER) as peer:
            records = np.zeros(5, RECORD)
            until = None
            while until is None or time.monotonic() < until:
                assert queue.write(records, timeout=60)
                if until is None and queue.peer is not None:
                    until = time.monotonic() + 0.02 * rng.random()
            peer.kill()
            killed = time.monotonic()
            with pytest.raises(DeadObject):
                while queue.write(records, timeout=60):
                    pass
            late.append(time.monotonic() - killed)
    print(f"an error {1e3 * np.percentile(late, 99):.1f} ms after the kill (p99)")
    assert descriptors() == before
    if environment.STRICT_TIMING.read():
        assert np.percentile(late, 99) <= 0.01


def test_stopped_writer_is_slow_and_not_dead() -> None:
    rng = random.Random(30)
    with MessageQueue.create(RECORD, CAPACITY) as queue, start(queue, WRITER) as peer:
        first = 0
        for _ in range(environment.KILLS.read()):
            for _ in range(rng.randint(1, 40)):
                found = queue.read(1, timeout=60)
                assert found is not None
                check(found, first)
                first += 1
            peer.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, peer.pid, os.WSTOPPED)
            while (found := queue.read(1, timeout=0.002)) is not None:
                check(found, first)
                first += 1
            peer.send_signal(signal.SIGCONT)
        peer.kill()


MAKER = """
import itertools, sys
from nnburst.fmq import Flavor, create_named_queue
flavors = itertools.cycle(Flavor)
print("ready", flush=True)
while True:
    with create_named_queue(sys.argv[1], "<u4", 64, next(flavors), spin_window=0.0) as queue:
        queue.sender(bytes(4))()
"""


def test_makers_killed_at_any_moment_leave_a_name_that_goes_or_none() -> None:
    pytest.importorskip("posix_ipc", reason="there is no posix_ipc for this Python")
    rng = random.Random(31)
    name = f"/nnburst-test-{os.getpid()}-{rng.getrandbits(32):x}"
    environ = environ_of_tests()
    for _ in range(environment.KILLS.read()):
        with Popen([sys.executable, "-c", MAKER, name], stdout=PIPE, env=environ) as maker:
            assert maker.stdout is not None
            assert maker.stdout.readline() == b"ready\n"
            time.sleep(0.02 * rng.random())
            maker.kill()
            maker.wait(60)
        found = list_named_queues(name)
        assert [queue.is_stale for queue in found] == [True] * Path(f"/dev/shm{name}").exists()
        assert len(remove_stale_names(name)) == len(found)
        assert not Path(f"/dev/shm{name}").exists()
