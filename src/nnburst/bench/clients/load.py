"""Describes the load of many clients, and measures the time and memory of processes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Self

from nnburst.bench.cases import process_cpu
from nnburst.testing.faults.footprint import proportional_bytes

#: Share of a run that is not counted, in which caches, polling windows and learned periods settle.
SETTLING: Final = 0.1


@dataclass(frozen=True, slots=True)
class Load:
    """A number of equal clients.

    Attributes:
        address: address of the service, for `nnburst.connect`.
        clients: number of client processes, each with its own burst.
        rate: requests a second of each client, by a Poisson process (an open loop: a request that arrives
            while another one is under way waits, and its latency counts from the arrival; those that
            still wait at the end of the run do not count); 0 for a closed loop, in which each client sends
            its next request as soon as it has a result.
        spins: whether clients and workers may spin while they wait.
        cores: cores that clients and workers may run on.
        seconds: duration of the run.
        network: a file, or "" for one ADD of four numbers.
        seed: seed of the arrival times.
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
        """The kind of loop: "open" or "closed"."""
        return "open" if self.rate else "closed"

    @property
    def waiting(self) -> str:
        """The way in which both sides wait: "spinning" or "sleeping"."""
        return "spinning" if self.spins else "sleeping"

    @property
    def duration_ns(self) -> int:
        """Nanoseconds of the run."""
        return int(self.seconds * 1e9)

    @property
    def settling_ns(self) -> int:
        """Nanoseconds at the beginning that are not counted."""
        return int(SETTLING * self.duration_ns)

    def as_text(self) -> str:
        """The load as text for another process."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read the text of `as_text`."""
        fields = json.loads(text)
        return cls(**{**fields, "cores": tuple(fields["cores"])})


@dataclass(frozen=True, slots=True)
class Usage:
    """The processor time and waits of some processes together.

    Attributes:
        cpu_s: seconds of CPU time.
        waits: how often their threads gave up a core to wait.
    """

    cpu_s: float
    waits: int

    @classmethod
    def none(cls) -> Usage:
        """No usage."""
        return cls(0.0, 0)

    @classmethod
    def of(cls, pids: Iterable[int]) -> Usage:
        """Measure the usage of running processes until now."""
        known = list(pids)
        return cls(sum(process_cpu(pid) for pid in known), sum(_waits(pid) for pid in known))

    def __sub__(self, before: Usage) -> Usage:
        """The usage between two measurements."""
        return Usage(self.cpu_s - before.cpu_s, self.waits - before.waits)

    def __add__(self, other: Usage) -> Usage:
        """The usage of both together."""
        return Usage(self.cpu_s + other.cpu_s, self.waits + other.waits)


def _waits(pid: int) -> int:
    found = 0
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        for line in status.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("voluntary_ctxt_switches"):
                found += int(line.split()[1])
    return found


def memory_of_each(pids: Sequence[int]) -> int | None:
    """The mean bytes of running processes, with shared pages counted proportionally.

    None if this user may not read them.
    """
    try:
        return round(sum(map(proportional_bytes, pids)) / len(pids))
    except OSError:
        return None
