"""What processes cost: time of cores, memory, and how often they gave up their core to wait."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nnburst.bench.periodic import process_cpu
from nnburst.testing.faults.footprint import proportional_bytes


@dataclass(frozen=True, slots=True)
class Usage:
    """Of some processes together.

    Attributes:
        cpu_s: seconds of CPU.
        waits: times that a thread of them gave up its core to wait.
    """

    cpu_s: float
    waits: int

    @classmethod
    def none(cls) -> Usage:
        """Nothing."""
        return cls(0.0, 0)

    @classmethod
    def of(cls, pids: Iterable[int]) -> Usage:
        """Look at processes that run: what they have used until now."""
        known = list(pids)
        return cls(sum(process_cpu(pid) for pid in known), sum(_waits(pid) for pid in known))

    def __sub__(self, before: Usage) -> Usage:
        """What was used between two looks."""
        return Usage(self.cpu_s - before.cpu_s, self.waits - before.waits)

    def __add__(self, other: Usage) -> Usage:
        """Of both together."""
        return Usage(self.cpu_s + other.cpu_s, self.waits + other.waits)


def _waits(pid: int) -> int:
    found = 0
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        for line in status.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("voluntary_ctxt_switches"):
                found += int(line.split()[1])
    return found


def memory_of_each(pids: Sequence[int]) -> int | None:
    """Mean bytes of processes that run, shared ones counted by their share.

    None if the kernel does not show them to this user.
    """
    try:
        return round(sum(map(proportional_bytes, pids)) / len(pids))
    except OSError:
        return None
