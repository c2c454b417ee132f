"""Counts a model's requests and sums their durations, for the protocol's ModelStatistics."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

#: Upper ends of the histograms' buckets in nanoseconds; longer durations are in the last bucket.
BOUNDS: Final = (
    *(int(step * 10**power) for power in (5, 6, 7, 8) for step in (1, 2.5, 5)),
    10**9,
    10**10,
)


class Histogram:
    """Counts durations in buckets. Not thread-safe.

    Attributes:
        counts: counts of the buckets, and of the durations above all bounds.
        total: sum of all durations, in nanoseconds.
    """

    def __init__(self) -> None:
        """Start with empty buckets."""
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total = 0

    def add(self, nanoseconds: int) -> None:
        """Count a duration."""
        self.counts[bisect_left(BOUNDS, nanoseconds)] += 1
        self.total += nanoseconds

    def merge(self, other: Histogram) -> None:
        """Add the counts of `other`."""
        self.counts = [a + b for a, b in zip(self.counts, other.counts, strict=True)]
        self.total += other.total


class Durations(NamedTuple):
    """The durations of one request, in nanoseconds.

    Attributes:
        queue: time until a lane was free.
        inference: time of the execution.
        total: time from the arrival in the service to the answer.
        reading: time of reading the tensors.
    """

    queue: int
    inference: int
    total: int
    reading: int = 0

    @property
    def writing(self) -> int:
        """The rest of the total: the time of making the answer."""
        return max(0, self.total - self.queue - self.inference - self.reading)


class Snapshot(NamedTuple):
    """A consistent copy of the counts.

    Attributes:
        statuses: number of requests by gRPC's name of their status.
        in_flight: number of requests without an answer yet.
        histograms: durations of answered requests, by the names of the first three of `Durations`.
    """

    statuses: Counter[str]
    in_flight: int
    histograms: dict[str, Histogram]


class Statistics:
    """Counts and sums. Thread-safe."""

    def __init__(self) -> None:
        """Start with zeros."""
        self._lock = threading.Lock()
        self.succeeded = self.failed = self.executions = 0
        #: Number of rows of answered requests; a request for a model without batches counts as one.
        self.rows = 0
        self.failed_ns = 0
        self._sums = [0, 0, 0, 0]
        self.last_ms = 0
        #: Number of requests by gRPC's name of their status.
        self.statuses: Counter[str] = Counter()
        self.in_flight = 0
        #: In the order of `Durations`; the last duration has no histogram.
        self._histograms = {name: Histogram() for name in Durations._fields[:3]}

    @property
    def success(self) -> Durations:
        """The sums over answered requests."""
        with self._lock:
            return Durations(*self._sums)

    def execute(self) -> None:
        """Count an execution, of one request or of a batch."""
        with self._lock:
            self.executions += 1

    def begin(self) -> None:
        """Count a new request; `succeed` or `fail` follows."""
        with self._lock:
            self.in_flight += 1

    def snapshot(self) -> Snapshot:
        """A consistent copy of the counts."""
        with self._lock:
            histograms = {name: Histogram() for name in self._histograms}
            for name, found in self._histograms.items():
                histograms[name].merge(found)
            return Snapshot(Counter(self.statuses), self.in_flight, histograms)

    def succeed(self, durations: Durations, rows: int = 1) -> None:
        """Count a request that was answered, with its number of rows."""
        with self._lock:
            sums = self._sums
            for index, nanoseconds in enumerate(durations):
                sums[index] += nanoseconds
            self.succeeded += 1
            self.rows += rows
            self.in_flight -= 1
            for histogram, nanoseconds in zip(self._histograms.values(), durations, strict=False):
                histogram.add(nanoseconds)
            self.statuses["OK"] += 1
            self.last_ms = time.time_ns() // 1_000_000

    def fail(self, status: str, nanoseconds: int) -> None:
        """Count a request that was refused or has failed."""
        with self._lock:
            self.failed += 1
            self.in_flight -= 1
            self.failed_ns += nanoseconds
            self.statuses[status] += 1


def totals(several: Sequence[Statistics]) -> Snapshot:
    """The sum of one or more snapshots."""
    found = several[0].snapshot()
    for each in several[1:]:
        more = each.snapshot()
        found.statuses.update(more.statuses)
        for name, histogram in found.histograms.items():
            histogram.merge(more.histograms[name])
        found = found._replace(in_flight=found.in_flight + more.in_flight)
    return found
