"""Numbers over time, and whether they grow."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

#: Share of the time at the begin in which things may still be made once: caches, threads, arenas.
WARM_UP: Final = 0.25
#: Samples without which nothing can be said.
FEWEST: Final = 8


class Trend(NamedTuple):
    """What a straight line through a series says, after the warm-up.

    Attributes:
        first: value of the line at its begin.
        growth: by how much the line rises until its end; negative where it falls.
        noise: how far apart the samples lie around it: from the lowest to the highest.
        allowance: growth that counts as none whatever the noise is.
    """

    first: float
    growth: float
    noise: float
    allowance: float

    @property
    def is_flat(self) -> bool:
        """Whether it grows no more than its noise, or than is allowed."""
        return self.growth <= max(self.noise, self.allowance)


@dataclass
class Series:
    """One number, looked at again and again.

    Attributes:
        allowance: growth that counts as none.
        times: seconds.
        values: as many.
    """

    allowance: float
    times: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def add(self, time: float, value: float) -> None:
        """Add a sample; times rise."""
        self.times.append(time)
        self.values.append(value)

    def trend(self) -> Trend | None:
        """The line by least squares; None where there are too few samples."""
        begin = self.times[0] + WARM_UP * (self.times[-1] - self.times[0]) if self.times else 0.0
        times = np.array([time for time in self.times if time >= begin])
        if len(times) < FEWEST:
            return None
        values = np.array(self.values[-len(times) :])
        rate, start = np.polyfit(times - times[0], values, 1)
        line = start + rate * (times - times[0])
        noise = float(np.ptp(values - line))
        return Trend(float(start), float(rate * (times[-1] - times[0])), noise, self.allowance)
