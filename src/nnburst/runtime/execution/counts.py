"""How often the devices of this process have executed a model or a step, for reports."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Final


class ExecutionCounts:
    """Executions that gave a result. Thread-safe."""

    def __init__(self) -> None:
        """Count from 0."""
        self._lock: Final = threading.Lock()
        self._by_device: Final[Counter[str]] = Counter()
        self._supported = 0
        self._on_drivers = 0

    def add(self, device: str) -> None:
        """One more of a model or a step, by a device."""
        with self._lock:
            self._by_device[device] += 1

    def add_supported(self, *, on_drivers: bool) -> None:
        """One more of a whole model of which drivers support an operation or more.

        Args:
            on_drivers: whether a driver has executed some of it.
        """
        with self._lock:
            self._supported += 1
            self._on_drivers += on_drivers

    def as_json(self) -> dict[str, object]:
        """All counts."""
        with self._lock:
            return {
                "by_device": dict(self._by_device),
                "supported_by_drivers": self._supported,
                "on_drivers": self._on_drivers,
            }


#: Of this process. What C repeats without the framework is not counted.
EXECUTIONS: Final = ExecutionCounts()
