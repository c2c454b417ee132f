"""How often each device of this process has executed a model or a step, for reports."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Final


class ExecutionCounts:
    """Executions that gave a result, by name of the device. Thread-safe."""

    def __init__(self) -> None:
        """Count from 0."""
        self._lock: Final = threading.Lock()
        self._counts: Final[Counter[str]] = Counter()

    def add(self, device: str) -> None:
        """One more."""
        with self._lock:
            self._counts[device] += 1

    def by_device(self) -> dict[str, int]:
        """All counts."""
        with self._lock:
            return dict(self._counts)


#: Of this process. What C repeats without the framework is not counted.
EXECUTIONS: Final = ExecutionCounts()
