"""Compares two sets of blocks and decides whether one is better, worse or the same.

A block's mean is one sample, since single exchanges depend on each other. A difference counts if the samples
hardly come from the same distribution (Mann and Whitney's test, by scipy) and if it is large enough to
matter. There is no verdict if a set spreads by more than a fifth, or if the medians are too uncertain to
decide whether the difference is large enough.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib.util import find_spec
from typing import Any, Final

import numpy as np

from nnburst.hal.errors import DeviceUnavailable

#: Greatest spread of blocks, from the first quartile to the third, as a share of the median.
MOST_SPREAD: Final = 0.20
#: Least difference of medians that matters, as a share.
LEAST_EFFECT: Final = 0.05
#: Probability of taking a random difference for a real one.
_CHANCE: Final = 0.001
#: Number of standard errors by which a difference must be away from the least one that matters.
_SURE: Final = 2.0
#: Factor from the interquartile range to a median's standard error: 1.2533 sigma / sqrt(n), and the range is
#: 1.349 sigma.
_ERROR: Final = 1.2533 / 1.349
#: Least number of blocks with which the test can be sure, however large the difference.
FEWEST: Final = 7


class Verdict(StrEnum):
    """The result of comparing a measurement with an older one."""

    SAME = "same"
    BETTER = "better"
    WORSE = "worse"
    NOISY = "noisy"


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of one case before and now; smaller is better.

    Attributes:
        name: name of the case.
        before: median of the old blocks.
        now: median of the new blocks.
        spread: the larger of the two spreads.
        margin: uncertainty of the difference, as a share.
        chance: probability of such a difference between equal runs.
        verdict: the result.
        why: the reason of "noisy".
    """

    name: str
    before: float
    now: float
    spread: float
    margin: float
    chance: float
    verdict: Verdict
    why: str = ""

    @property
    def effect(self) -> float:
        """The relative change: now / before − 1."""
        return self.now / self.before - 1 if self.before else math.nan

    def as_json(self) -> dict[str, Any]:
        """As `--json` writes it; null for unknown values."""
        found = {**asdict(self), "effect": self.effect}
        return {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in found.items()
        }


def compare(
    name: str,
    before: Sequence[float],
    now: Sequence[float],
    least_effect: float = LEAST_EFFECT,
) -> Comparison:
    """Judge two sets of blocks.

    Raises:
        DeviceUnavailable: scipy is not installed.
    """
    old, new = (float(np.median(b)) if len(b) else math.nan for b in (before, now))
    if min(len(before), len(now)) < FEWEST:
        why = f"{min(len(before), len(now))} blocks, expected {FEWEST} or more"
        return Comparison(name, old, new, math.nan, math.nan, math.nan, Verdict.NOISY, why)
    widest = max(spread(before), spread(now))
    # Each spread is an estimate itself, so the larger one is used for both.
    margin = _SURE * _ERROR * widest * math.hypot(len(before) ** -0.5, len(now) ** -0.5)
    chance = _chance(before, now)
    effect = new / old - 1
    verdict, why = Verdict.NOISY, ""
    if widest > MOST_SPREAD:
        why = f"blocks spread by {widest:.0%}, more than {MOST_SPREAD:.0%}"
    elif abs(abs(effect) - least_effect) < margin:
        why = f"{effect:+.1%} ± {margin:.1%} lies on either side of {least_effect:.0%}"
    elif abs(effect) <= least_effect:
        verdict = Verdict.SAME
    elif chance < _CHANCE:
        verdict = Verdict.WORSE if effect > 0 else Verdict.BETTER
    else:
        why = f"{effect:+.1%} comes with a chance of {chance:.1%} between equal runs"
    return Comparison(name, old, new, widest, margin, chance, verdict, why)


def spread(blocks: Sequence[float]) -> float:
    """The interquartile range as a share of the median."""
    low, middle, high = np.percentile(blocks, [25, 50, 75])
    return float((high - low) / middle) if middle else math.inf


def exit_status(verdicts: Sequence[Verdict]) -> int:
    """The exit status: 0 for the same or better, 1 for worse, 2 if a case is noisy and no case is worse."""
    if Verdict.WORSE in verdicts:
        return 1
    return 2 if Verdict.NOISY in verdicts or not verdicts else 0


def _chance(before: Sequence[float], now: Sequence[float]) -> float:
    if find_spec("scipy") is None:
        raise DeviceUnavailable("comparing needs scipy: pip install 'nnburst[data]'")
    from scipy.stats import mannwhitneyu

    return float(mannwhitneyu(before, now, alternative="two-sided").pvalue)
