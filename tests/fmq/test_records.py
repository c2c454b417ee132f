"""Records with checksums through a queue between two processes, in every way to write and to read them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from nnburst.fmq import Flavor, MessageQueue, inheritance
from nnburst.hal import environment
from nnburst.hal.errors import Closed
from programs import environ_of_tests

RECORD = np.dtype([("number", "<u8"), ("words", "<u8", 2)])
#: Odd, so that records wrap everywhere.
CAPACITY = 4093
CHUNK = 1000

#: `way` is single, batches or claims; numbers 0 to COUNT.
WRITER = """
import sys
import numpy as np
from fmq.test_records import CHUNK, RECORD, numbered
from nnburst.fmq import inherit_queue
way, count = sys.argv[2], int(sys.argv[3])
rng = np.random.default_rng(count)
with inherit_queue(sys.argv[1], RECORD) as queue:
    chunk = np.zeros(CHUNK, RECORD)
    senders = [queue.sender(chunk[i : i + 1], 60) for i in range(CHUNK)]
    for first in range(0, count, CHUNK):
        numbered(chunk, first)
        if way == "single":
            for send in senders:
                assert send()
            continue
        at = 0
        while at < CHUNK:
            part = chunk[at : at + 1 + int(rng.integers(64))]
            if way == "batches":
                assert queue.write(part, timeout=60)
            else:
                with queue.writing(len(part), 60) as place:
                    place[:] = part
            at += len(part)
"""

MESSAGES = """
import sys
import numpy as np
from fmq.test_records import message
from nnburst.fmq import inherit_queue
with inherit_queue(sys.argv[1], bytes) as queue:
    for number in range(int(sys.argv[3])):
        assert queue.send(message(number), 60)
"""


def numbered(records: np.ndarray, first: int) -> None:
    """Numbers from `first` on, each with its checksums."""
    records["number"] = np.arange(first, first + len(records))
    records["words"] = checksums(records["number"])


def checksums(numbers: np.ndarray) -> np.ndarray:
    one = numbers * np.uint64(0x9E3779B97F4A7C15)
    return np.stack((one, one ^ np.uint64(0xD1B54A32D192ED03) ^ numbers), axis=1)


def message(number: int) -> bytes:
    """Its number, and bytes that follow from it; 8 to 71 of them."""
    return number.to_bytes(8, "little") + bytes([number & 255]) * (number * 7 % 64)


def started(queue: MessageQueue, program: str, way: str, count: int) -> subprocess.Popen[bytes]:
    text, fds = inheritance(queue)
    command = [sys.executable, "-c", program, text, way, str(count)]
    return subprocess.Popen(command, pass_fds=fds, env=environ_of_tests())


def chunks(queue: MessageQueue, *, single: bool) -> Iterator[np.ndarray]:
    """All records up to the end of the queue."""
    chunk = np.zeros(CHUNK, RECORD)
    receivers = [queue.receiver(chunk[i : i + 1], 60) for i in range(CHUNK)]
    got = 0
    try:
        while True:
            if single:
                for got, receive in enumerate(receivers):  # noqa: B007 - how many before the end
                    assert receive() is not None
                yield chunk
                got = 0
            else:
                found = queue.read(max(queue.available_to_read(), 1), timeout=60)
                if found is not None:
                    yield found
    except Closed:
        yield chunk[:got]


@pytest.mark.every_day("claims-batches")
@pytest.mark.parametrize("read", ["single", "batches"])
@pytest.mark.parametrize("write", ["single", "batches", "claims"])
def test_records_between_processes_are_whole_in_order_and_none_is_lost(
    write: str, read: str
) -> None:
    count = environment.RECORDS.read() // CHUNK * CHUNK
    with (
        MessageQueue.create(RECORD, CAPACITY) as queue,
        started(queue, WRITER, write, count) as peer,
    ):
        at = 0
        for records in chunks(queue, single=read == "single"):
            numbers = np.arange(at, at + len(records), dtype="<u8")
            assert (records["number"] == numbers).all()
            assert (records["words"] == checksums(numbers)).all()
            at += len(records)
        assert at == count
        assert peer.wait(60) == 0


@pytest.mark.every_day("batches-single")
@pytest.mark.parametrize("read", ["single", "batches"])
@pytest.mark.parametrize("write", ["single", "batches"])
def test_broadcast_records_are_whole_in_order_and_those_that_are_not_there_are_counted(
    write: str, read: str
) -> None:
    # The child is the reader: only the maker of a broadcast writes.
    count = environment.RECORDS.read() // CHUNK * CHUNK
    with MessageQueue.create(RECORD, CAPACITY, Flavor.UNSYNCHRONIZED_WRITE) as queue:
        peer = started(queue, READER, read, count)
        chunk, rng = np.zeros(CHUNK, RECORD), np.random.default_rng(count)
        senders = [queue.sender(chunk[i : i + 1], 60) for i in range(CHUNK)]
        for first in range(0, count, CHUNK):
            numbered(chunk, first)
            at = 0
            while at < CHUNK:
                size = 1 if write == "single" else 1 + int(rng.integers(64))
                if size == 1:
                    senders[at]()
                else:
                    queue.write(chunk[at : at + size])
                at += size
        queue.close()
        assert peer.wait(120) == 0


READER = """
import sys
import numpy as np
from fmq.test_records import RECORD, checksums, chunks
from nnburst.fmq import inherit_queue
way, count = sys.argv[2], int(sys.argv[3])
with inherit_queue(sys.argv[1], RECORD) as queue:
    start = int(queue.ring.read_index) // RECORD.itemsize
    got, last = 0, -1
    for records in chunks(queue, single=way == "single"):
        if not len(records):
            continue
        numbers = records["number"].astype(np.int64)
        assert numbers[0] > last and (np.diff(numbers) > 0).all(), "in order, none doubled"
        assert (records["words"] == checksums(records["number"])).all(), "none torn"
        got, last = got + len(records), int(numbers[-1])
    assert got + queue.statistics().missed == count - start, (got, queue.statistics(), start)
"""


def test_messages_between_processes_are_whole_in_order_and_none_is_lost() -> None:
    count = environment.RECORDS.read()
    with MessageQueue.create(bytes, 16381) as queue, started(queue, MESSAGES, "", count) as peer:
        for number in range(count):
            assert queue.receive(60) == message(number)
        with pytest.raises(Closed):
            queue.receive(60)
        assert peer.wait(60) == 0
