"""A queue between two processes: whole packets, in order, through wraps and waits."""

from __future__ import annotations

import sys
from subprocess import PIPE, Popen

import msgspec
import numpy as np
import pytest

from nnburst.fmq.message_queue import MessageQueue
from programs import environ_of_tests

ELEMENT = np.dtype("<u8")
PACKETS = 3000

#: Answers each packet [n, n, …] with [n + 1], until one starts with 0.
PEER = """
import sys
import msgspec, numpy as np
from nnburst.fmq.shared_memory import MQDescriptor
from nnburst.fmq.message_queue import MessageQueue
from nnburst.fmq.shared_memory import SharedMemory

there, back = (
    MessageQueue.open(
        msgspec.json.decode(text, type=MQDescriptor), [SharedMemory.adopt(int(fd))], "<u8"
    )
    for text, fd in zip(sys.argv[1:3], sys.argv[3:5])
)
while True:
    packet = there.read(1, timeout=30)
    length = int(packet[0])
    if not length:
        break
    rest = there.read(length, timeout=30)
    assert (rest == rest[0]).all(), rest
    assert back.write(rest[:1] + np.uint64(1), timeout=30)
"""


@pytest.fixture
def queues() -> tuple[MessageQueue, MessageQueue]:
    """One there with an odd capacity, so that packets wrap everywhere, and one back."""
    return MessageQueue.create(ELEMENT, 13), MessageQueue.create(ELEMENT, 2)


def test_packets_of_any_length_arrive_whole_and_in_order(
    queues: tuple[MessageQueue, MessageQueue],
) -> None:
    there, back = queues
    fds = [queue.memories[0].fd for queue in queues]
    descriptors = [msgspec.json.encode(queue.descriptor).decode() for queue in queues]
    command = [sys.executable, "-c", PEER, *descriptors, *map(str, fds)]
    environment = environ_of_tests()
    with Popen(command, pass_fds=fds, env=environment, stderr=PIPE, text=True) as peer:
        for number in range(1, PACKETS + 1):
            length = 1 + number % 12
            packet = np.full(length + 1, number, ELEMENT)
            packet[0] = length
            assert there.write(packet, timeout=30)
            answer = back.read(1, timeout=30)
            assert answer is not None
            assert answer.tolist() == [number + 1]
        there.write(np.zeros(1, ELEMENT), timeout=30)
        _, errors = peer.communicate(timeout=30)
    assert peer.returncode == 0, errors
    assert back.statistics().read == PACKETS
