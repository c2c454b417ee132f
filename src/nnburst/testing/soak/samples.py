"""What a soak looks at again and again: memory, descriptors, mappings and threads of some processes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from nnburst.testing.faults.footprint import footprint, resident_bytes
from nnburst.testing.soak.series import Series

_MIB: Final = 1 << 20
#: Growth that counts as none: an arena, and what a call under way holds for a moment.
ALLOWANCES: Final = {"MiB": 1.0, "fds": 2.0, "maps": 2.0, "threads": 2.0}


class Samples:
    """Series of several processes. Not thread-safe."""

    def __init__(
        self, processes: Mapping[str, int], warm_up: Mapping[str, float] | None = None
    ) -> None:
        """Look at these pids, which have names.

        Args:
            processes: pid of each name.
            warm_up: seconds until a process has made what it makes once; 0 if it is not named.
        """
        self._processes = dict(processes)
        self.series: Final[dict[str, Series]] = {
            f"{name}: {what}": Series(allowance, (warm_up or {}).get(name, 0.0))
            for name in processes
            for what, allowance in ALLOWANCES.items()
        }

    def say_something(self, name: str) -> bool:
        """Whether there are enough of process `name` for a verdict."""
        return all(self.series[f"{name}: {what}"].trend() for what in ALLOWANCES)

    def take(self) -> None:
        """Look at all of them.

        Raises:
            FileNotFoundError: one of them is not there any more.
            ProcessLookupError: one of them has just gone.
        """
        for name, pid in self._processes.items():
            now, held = round(time.monotonic(), 3), footprint(pid)
            values = {
                "MiB": round(resident_bytes(pid) / _MIB, 3),
                "fds": sum(held.fds.values()),
                "maps": held.maps,
                "threads": held.threads,
            }
            for what, value in values.items():
                self.series[f"{name}: {what}"].add(now, value)
