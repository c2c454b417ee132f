"""What a stress test does: the original's profiles, whose half hours the caller bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

INFERENCE: Final = "inference"
LOADING: Final = "loading"
MAPPED: Final = "mapped"
DEGRADATION: Final = "degradation"
#: Random graphs by their size (`random_graphs.SIZES`), prepared and executed or prepared only.
GRAPHS: Final = {"wide-graphs": "wide", "long-graphs": "long"}
GRAPHS_LOADED: Final = {"wide-graphs-loaded": "wide", "long-graphs-loaded": "long"}


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
    "inference": Profile(1, 1, INFERENCE, 0, "one thread infers"),
    "loading": Profile(1, 1, LOADING, 0, "one thread prepares"),
    "early-termination": Profile(1, 4, LOADING, 100, "4 threads prepare and are killed"),
    "multi-process": Profile(6, 10, INFERENCE, 0, "6 × 10 threads infer"),
    "multi-process-80": Profile(6, 10, INFERENCE, 80, "the same, 80 % of clients killed"),
    "multi-process-loading": Profile(6, 10, LOADING, 0, "6 × 10 threads prepare"),
    "multi-process-loading-50": Profile(6, 10, LOADING, 50, "the same, 50 % of clients killed"),
    "multi-process-loading-100": Profile(6, 10, LOADING, 100, "the same, all clients killed"),
    "mapped-models": Profile(1, 4, MAPPED, 0, "4 threads map a model's memory anew and prepare it"),
    "random-graphs": Profile(
        1, 4, "wide-graphs", 0, "4 threads execute random graphs of 10 operations, extents to 1,000"
    ),
    "random-graphs-long": Profile(
        1, 4, "long-graphs", 0, "the same with 600 operations, extents to 10"
    ),
    "random-graphs-loading": Profile(
        1, 4, "wide-graphs-loaded", 0, "4 threads prepare random graphs of 10 operations"
    ),
    "random-graphs-long-loading": Profile(
        1, 4, "long-graphs-loaded", 0, "the same with 600 operations"
    ),
    "degradation": Profile(
        1, 1, DEGRADATION, 0, "one thread infers, alone and beside one that prepares every 20 ms"
    ),
}
