"""Describes the load of many clients, and measures the time and memory of processes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Self

from nnburst.bench.cases import process_cpu
from nnburst.testing.faults.footprint import proportional_bytes

#: Share of a run that is not counted: caches, windows and rhythms settle in it.
SETTLING: Final = 0.1


@dataclass(frozen=True, slots=True)
class Load:
    """A number of clients that do the same.

    Attributes:
        address: of the service, for `nnburst.connect`.
        clients: processes, each with a burst of its own.
        rate: requests a second of each client, at moments of a Poisson process (an open loop: a request that
            comes while another one is under way waits, and its time counts from when it came); 0 for a closed
            loop, in which each client sends its next request as soon as it has a result.
        spins: whether clients and workers may spin for each other.
        cores: that clients and workers may run on.
        seconds: of the run.
        network: a file, or "" for one ADD of four numbers.
        seed: of the moments.
    """

    address: str
    clients: int
    rate: float
    spins: bool
    cores: tuple[int, ...]
    seconds: float
    network: str = ""
    seed: int = 1

    @property
    def loop(self) -> str:
        """Kind of the loop: "open" at moments of its own, "closed" with a request after each result."""
        return "open" if self.rate else "closed"

    @property
    def waiting(self) -> str:
        """The way in which both sides wait: "spinning" or "sleeping"."""
        return "spinning" if self.spins else "sleeping"

    @property
    def duration_ns(self) -> int:
        """Of the run."""
        return int(self.seconds * 1e9)

    @property
    def settling_ns(self) -> int:
        """Of its beginning, which is not counted."""
        return int(SETTLING * self.duration_ns)

    def as_text(self) -> str:
        """For another process."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read the text of `as_text`."""
        fields = json.loads(text)
        return cls(**{**fields, "cores": tuple(fields["cores"])})


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
        """Measure running processes: their processor time and memory until now."""
        known = list(pids)
        return cls(sum(process_cpu(pid) for pid in known), sum(_waits(pid) for pid in known))

    def __sub__(self, before: Usage) -> Usage:
        """The use between two measurements."""
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
