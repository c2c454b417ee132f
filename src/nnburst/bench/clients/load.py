"""What clients do at the same time, as it is described to their processes and in a report."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Final, Self

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
        """How requests follow each other."""
        return "open" if self.rate else "closed"

    @property
    def waiting(self) -> str:
        """How both sides wait."""
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
        """What `as_text` wrote."""
        fields = json.loads(text)
        return cls(**{**fields, "cores": tuple(fields["cores"])})
