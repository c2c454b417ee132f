"""What a stress test does. The original's times are half an hour and more; the caller bounds them here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

INFERENCE: Final = "inference"
LOADING: Final = "loading"
GRAPHS: Final = "graphs"


@dataclass(frozen=True, slots=True)
class Profile:
    """Clients of one kind.

    Attributes:
        processes: at once; one that has ended is followed by another.
        threads: of each.
        work: what each thread does.
        killed: percent of the processes that are killed between a quarter and a half of their life.
        what: in words.
    """

    processes: int
    threads: int
    work: str
    killed: int
    what: str


PROFILES: Final = {
    "parallel": Profile(1, 8, INFERENCE, 0, "8 threads infer"),
    "parallel-12": Profile(1, 12, INFERENCE, 0, "12 threads infer"),
    "early-termination": Profile(1, 4, LOADING, 100, "4 threads prepare and are killed"),
    "multi-process": Profile(6, 10, INFERENCE, 20, "6 × 10 threads infer, 20 % of clients killed"),
    "multi-process-80": Profile(6, 10, INFERENCE, 80, "the same, 80 % of clients killed"),
    "loading": Profile(6, 10, LOADING, 20, "6 × 10 threads prepare, 20 % of clients killed"),
    "loading-killed": Profile(10, 10, LOADING, 100, "10 × 10 threads prepare and are killed"),
    "random-graphs": Profile(1, 4, GRAPHS, 0, "4 threads prepare and execute random graphs"),
}
