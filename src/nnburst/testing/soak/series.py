"""Numbers over time, and whether they grow.

A line by least squares through 20 blocks of a series, and five standard errors of its rise: what is less
may be chance. A block is the mean of its samples without the highest and lowest tenth, so a sample far off
moves nothing. Neighbouring blocks of something that wobbles slowly resemble each other, which makes a line
through them look surer than it is; the error is widened by their autocorrelation, as of an AR(1) process.

With no allowance at all, fewer than one in a thousand series of an hour that only wobble within minutes
(jitter, pools of threads, something that is now there and now not, outliers, one step) count as growing;
`tests/testing/test_soak_series.py` holds that. What looks like wobble is not found: one step that
stays, or a rise below five standard errors.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

#: Share of the time at the begin in which things may still be made once: caches, threads, arenas.
WARM_UP: Final = 0.25
#: Blocks that the rest is divided into, if there are enough samples; samples that are enough for one.
BLOCKS: Final = 20
_OF_A_BLOCK: Final = 3
#: Samples after the warm-up without which there is no verdict, and the fewest blocks.
FEWEST: Final = 8
#: Share of a block that is left out at either end, at least one sample if there are three.
_TRIMMED: Final = 0.1
#: Standard errors that a rise must exceed.
_SURE: Final = 5.0
#: Autocorrelation is taken for no more than this: a line through 20 blocks is not a measure of more.
_MOST_ALIKE: Final = 0.9

_Numbers = npt.NDArray[np.float64]


class Trend(NamedTuple):
    """A straight line through a series, after the warm-up.

    Attributes:
        first: value of the line at its begin.
        growth: by how much the line rises until its end; negative if it falls.
        uncertainty: rise up to which it may be chance: five standard errors.
        allowance: growth that counts as none however sure it is.
    """

    first: float
    growth: float
    uncertainty: float
    allowance: float

    @property
    def is_flat(self) -> bool:
        """Whether it grows no more than may be chance, or than is allowed."""
        return self.growth <= max(self.uncertainty, self.allowance)


@dataclass
class Series:
    """One number, looked at again and again.

    Attributes:
        allowance: growth that counts as none.
        warm_up: seconds at the begin that count for nothing, if these are more than a quarter; nothing
            is concluded before as many have passed after them.
        times: seconds.
        values: as many.
    """

    allowance: float
    warm_up: float = 0.0
    times: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def add(self, time: float, value: float) -> None:
        """Add a sample; times rise."""
        self.times.append(time)
        self.values.append(value)

    def trend(self) -> Trend | None:
        """The line; None if there are too few samples, or too little time."""
        times, values = np.array(self.times), np.array(self.values)
        if not times.size:
            return None
        times -= times[0]
        warm = times >= max(self.warm_up, WARM_UP * times[-1])
        if times[-1] < 2 * self.warm_up or warm.sum() < FEWEST:
            return None
        return _line(times[warm], values[warm], self.allowance)


def _line(times: _Numbers, values: _Numbers, allowance: float) -> Trend:
    duration = times[-1] - times[0]
    blocks = min(BLOCKS, max(FEWEST, times.size // _OF_A_BLOCK))
    parts = np.array_split(np.arange(times.size), blocks)
    at = np.array([times[part].mean() for part in parts])
    level = np.array([_trimmed_mean(values[part]) for part in parts])
    middle = at.mean()
    at -= middle
    rate = (at @ level) / (at @ at)
    rest = level - level.mean() - rate * at
    variance = (rest @ rest) / (rest.size - 2) / (at @ at)
    error = np.sqrt(variance * _widening(rest)) * duration
    first = level.mean() + rate * (times[0] - middle)
    return Trend(float(first), float(rate * duration), float(_SURE * error), allowance)


def _trimmed_mean(values: _Numbers) -> float:
    left_out = max(1, int(values.size * _TRIMMED)) if values.size >= _OF_A_BLOCK else 0
    return float(np.sort(values)[left_out : values.size - left_out].mean())


def _widening(rest: _Numbers) -> float:
    """Factor of a variance for the resemblance of neighbours, which a fitted line hides in part."""
    size, power = rest.size, float(rest @ rest)
    alike = float(rest[1:] @ rest[:-1]) / power if power else 0.0
    alike = min(max((size * alike + 2) / (size - 4), 0.0), _MOST_ALIKE)
    return (1 + alike) / (1 - alike)


def as_facts(series: dict[str, Series]) -> dict[str, Any]:
    """All that a verdict needs, as JSON has it."""
    return {
        name: {
            "allowance": each.allowance,
            "warm_up": each.warm_up,
            "times": each.times,
            "values": each.values,
        }
        for name, each in series.items()
    }


def from_facts(facts: dict[str, Any]) -> dict[str, Series]:
    """What `as_facts` was given.

    Raises:
        TypeError: that is something else.
    """
    return {name: Series(**each) for name, each in facts.items()}
