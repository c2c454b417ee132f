"""One writer and several readers of an unsynchronized queue, each a Python program of its own.

A stream shows how many records a second the writer and its readers come to; a period shows how long after a
write each reader has the record, and how much of a core its waiting takes.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from nnburst.fmq import Flavor, MessageQueue, Queue
from nnburst.hal.errors import Closed

#: Nanoseconds of the write, and the rest of 24 bytes.
_RECORD: Final = np.dtype([("written", "<i8"), ("more", "V16")])
_CAPACITY: Final = 4096
#: Periods by which readers learn a rhythm before they are measured.
_LEARNING: Final = 40
#: Share by which periods differ.
_JITTER: Final = 0.1
#: Seconds that one side waits for the other.
_PATIENCE: Final = 60.0


class ReaderFigures(msgspec.Struct, frozen=True):
    """What one reader has found.

    Attributes:
        read: records.
        missed: records that it was too slow for.
        median_ns: from the moment before a write to the moment that it was read.
        p99_ns: likewise.
        core_share: of a core that the reader took, waiting included.
        stolen_share: of the time in which it was ready and had no core.
    """

    read: int
    missed: int
    median_ns: float
    p99_ns: float
    core_share: float
    stolen_share: float


def _waited_ns() -> int:
    """Nanoseconds that this thread was ready and had no core."""
    return int(Path("/proc/thread-self/schedstat").read_text("ascii").split()[1])


def _read_all(queue: MessageQueue, ready: Queue[Any], cores: Sequence[int], skipped: int) -> None:
    """A reader's program: to the end of the queue."""
    os.sched_setaffinity(0, cores)
    record = np.zeros(1, _RECORD)
    receive, found, clock = queue.receiver(record, _PATIENCE), [], time.monotonic_ns
    written = record["written"]
    ready.put(None)
    began = (time.monotonic(), time.thread_time(), _waited_ns())
    try:
        while receive() is not None:
            found.append(clock() - int(written[0]))
            if len(found) == skipped:
                began = (time.monotonic(), time.thread_time(), _waited_ns())
    except Closed:
        pass
    took = time.monotonic() - began[0]
    late = np.asarray(found[skipped:] or found, np.float64)
    ready.put(
        ReaderFigures(
            len(found),
            queue.statistics().missed,
            float(np.median(late)) if len(late) else 0.0,
            float(np.percentile(late, 99)) if len(late) else 0.0,
            (time.thread_time() - began[1]) / took,
            (_waited_ns() - began[2]) * 1e-9 / took,
        )
    )


class Readers:
    """One writer here, and so many readers on other cores; ended by `figures`."""

    def __init__(self, count: int, cores: Sequence[int], *, skipped: int = 0) -> None:
        """Start them.

        Args:
            count: readers.
            cores: that they may use.
            skipped: records that each reads before it measures.
        """
        context = multiprocessing.get_context("spawn")
        self.queue = MessageQueue.create(_RECORD, _CAPACITY, Flavor.UNSYNCHRONIZED_WRITE)
        self._answers: list[Queue[Any]] = [Queue() for _ in range(count)]
        self._processes = [
            context.Process(
                target=_read_all, args=(self.queue, answer, list(cores), skipped), daemon=True
            )
            for answer in self._answers
        ]
        for process in self._processes:
            process.start()
        for answer in self._answers:
            answer.get(_PATIENCE)

    def figures(self) -> list[ReaderFigures]:
        """Close the queue, and what each reader has found by then."""
        self.queue.close()
        with ExitStack() as stack:
            for answer in self._answers:
                stack.callback(answer.close)
            found = [answer.get(_PATIENCE) for answer in self._answers]
        for process in self._processes:
            process.join(_PATIENCE)
        return found


def stream_to(count: int, records: int, cores: Sequence[int]) -> dict[str, Any]:
    """Records as fast as the writer can, which waits for no reader."""
    readers = Readers(count, cores)
    record = np.zeros(1, _RECORD)
    send = readers.queue.sender(record)
    began = time.perf_counter_ns()
    for _ in [None] * records:
        send()
    took = time.perf_counter_ns() - began
    found = readers.figures()
    return {
        "readers": count,
        "written_per_second": records * 1e9 / took,
        "read_per_second": [each.read * 1e9 / took for each in found],
        "missed": [each.missed for each in found],
    }


def period_to(
    count: int, period: float, events: int, cores: Sequence[int], *, seed: int = 28
) -> dict[str, Any]:
    """One record every `period` seconds, more or less a tenth."""
    readers, rng = Readers(count, cores, skipped=_LEARNING), np.random.default_rng(seed)
    record = np.zeros(1, _RECORD)
    send, written, clock = readers.queue.sender(record), record["written"], time.monotonic_ns
    due = time.monotonic()
    for _ in range(_LEARNING + events):
        due += period * rng.uniform(1 - _JITTER, 1 + _JITTER)
        time.sleep(max(due - time.monotonic(), 0.0))
        written[0] = clock()
        send()
    return {
        "readers": count,
        "period_ms": period * 1e3,
        "each": [msgspec.to_builtins(each) for each in readers.figures()],
    }
