"""What happened to the requests of a model, as the protocol's ModelStatistics has it."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass


@dataclass(frozen=True)
class Durations:
    """Of one request, in nanoseconds.

    Attributes:
        queue: until it had a lane.
        inference: of the execution.
        total: from its arrival in the service to its answer.
    """

    queue: int
    inference: int
    total: int


class Statistics:
    """Counts and sums. Thread-safe."""

    def __init__(self) -> None:
        """Begin at zero."""
        self._lock = threading.Lock()
        self.succeeded = self.failed = 0
        self.failed_ns = 0
        self.success = Durations(0, 0, 0)
        self.last_ms = 0
        #: Requests by gRPC's name of their status.
        self.statuses: Counter[str] = Counter()

    def succeed(self, durations: Durations) -> None:
        """Count a request that was answered."""
        with self._lock:
            sums = self.success
            self.success = Durations(
                sums.queue + durations.queue,
                sums.inference + durations.inference,
                sums.total + durations.total,
            )
            self.succeeded += 1
            self.statuses["OK"] += 1
            self.last_ms = time.time_ns() // 1_000_000

    def fail(self, status: str, nanoseconds: int) -> None:
        """Count a request that was refused or has failed."""
        with self._lock:
            self.failed += 1
            self.failed_ns += nanoseconds
            self.statuses[status] += 1
