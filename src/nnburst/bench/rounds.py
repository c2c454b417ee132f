"""Contestants in turn: short blocks, many rounds, ratios within a round."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from nnburst.bench.contestants import Contestant, Samples
from nnburst.bench.machine.steal import stolen_seconds

#: Longest block, in nanoseconds: the cores may move after that.
_BLOCK_NS: Final = 4_000_000
ROUNDS: Final = 41
#: Exchanges of which each is timed, over all rounds.
_SAMPLES: Final = 20_000
#: In each round: enough that one which lost the core does not make their median.
_FEWEST_SAMPLES: Final = 3


@dataclass
class Measured:
    """What one contestant did.

    Attributes:
        name: of the case.
        blocks: nanoseconds of an exchange in each round.
        samples_by_round: nanoseconds of single exchanges.
        wall_s: seconds that all of them took.
        stolen_s: seconds that the host took from all cores together meanwhile.
    """

    name: str
    blocks: list[float] = field(default_factory=list)
    samples_by_round: list[Samples] = field(default_factory=list)
    wall_s: float = 0.0
    stolen_s: float = 0.0

    @property
    def samples(self) -> Samples:
        """Nanoseconds of all single exchanges."""
        return np.concatenate(self.samples_by_round)

    @property
    def mean_ns(self) -> float:
        """Median over the rounds of a block's mean."""
        return float(np.median(self.blocks))

    @property
    def median_ns(self) -> float:
        """Of the single exchanges that the percentiles are of."""
        return float(np.median(self.samples))

    def percentile(self, share: float) -> float:
        """Of single exchanges."""
        return float(np.percentile(self.samples, share))

    def tail_ratio(self) -> float:
        """Median over the rounds of 99th percentile to median: the cores do not move within a round."""
        pairs = [np.percentile(samples, [99, 50]) for samples in self.samples_by_round]
        return float(np.median([high / middle for high, middle in pairs]))

    def ratio_to(self, other: Measured) -> float:
        """Median of the per-round ratios."""
        return float(np.median(np.asarray(self.blocks) / np.asarray(other.blocks)))

    def typical_ratio_to(self, other: Measured) -> float:
        """Median of the per-round ratios of medians of single exchanges.

        Unlike a block's mean, it does not change if another process takes a core for a time slice.
        """
        pairs = zip(self.samples_by_round, other.samples_by_round, strict=True)
        return float(np.median([np.median(a) / np.median(b) for a, b in pairs]))

    def typical_difference_to(self, other: Measured) -> float:
        """Likewise of their differences, in nanoseconds."""
        pairs = zip(self.samples_by_round, other.samples_by_round, strict=True)
        return float(np.median([np.median(a) - np.median(b) for a, b in pairs]))

    def as_json(self) -> dict[str, Any]:
        """As `--json` writes it."""
        return {
            "name": self.name,
            "mean_ns": round(self.mean_ns, 1),
            "median_ns": round(self.median_ns, 1),
            "p99_ns": round(self.percentile(99), 1),
            "p999_ns": round(self.percentile(99.9), 1),
            "per_second": round(1e9 / self.mean_ns),
            "blocks_ns": [round(block, 1) for block in self.blocks],
            "stolen_share": round(self.stolen_s / self.wall_s, 4) if self.wall_s else 0.0,
        }


def run_rounds(
    contestants: Sequence[Contestant],
    rounds: int = ROUNDS,
    progress: Callable[[], None] = lambda: None,
) -> dict[str, Measured]:
    """Run all contestants in turn, `rounds` times, and time single exchanges in between."""
    measured = {c.name: Measured(c.name) for c in contestants}
    counts = {c.name: _block_size(c) for c in contestants}
    gc.collect()
    gc.disable()
    try:
        for turn in range(rounds):
            for contestant in contestants if turn % 2 == 0 else contestants[::-1]:
                _run(contestant, counts[contestant.name], rounds, measured[contestant.name])
            progress()
    finally:
        gc.enable()
    return measured


def _run(contestant: Contestant, count: int, rounds: int, measured: Measured) -> None:
    """One block, and single exchanges as many as are its share."""
    began, stolen = time.perf_counter(), stolen_seconds()
    measured.blocks.append(contestant.block(count))
    share = max(_FEWEST_SAMPLES, min(count, _SAMPLES // rounds))
    measured.samples_by_round.append(contestant.samples(share))
    measured.wall_s += time.perf_counter() - began
    measured.stolen_s += stolen_seconds() - stolen


def _block_size(contestant: Contestant) -> int:
    """Exchanges that fill a block."""
    trial = max(1, min(20, int(_BLOCK_NS / contestant.block(1))))
    each = min(contestant.block(trial) for _ in range(3))
    return max(1, min(20_000, int(_BLOCK_NS / each)))
