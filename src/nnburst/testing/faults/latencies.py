"""Durations of any number of rounds, in memory that does not grow."""

from __future__ import annotations

import random
from typing import Final

import numpy as np

#: Durations that are kept; percentiles of so many are as good as those of all.
_KEPT: Final = 16384


class Latencies:
    """A fair sample of the durations it was given. One thread at a time.

    Every duration is as likely to be in it as any other, so its percentiles are those of the whole run; a
    list of all would grow for hours in a process that is watched for growth.
    """

    def __init__(self) -> None:
        """Take all the memory that it will ever need."""
        self._kept = np.ones(_KEPT, np.int64)
        self._chance = random.Random()  # noqa: S311 - nothing secret
        #: How many there were.
        self.count = 0

    def add(self, nanoseconds: int) -> None:
        """Count a round."""
        at = self.count if self.count < _KEPT else self._chance.randrange(self.count + 1)
        if at < _KEPT:
            self._kept[at] = nanoseconds
        self.count += 1

    def microseconds(self, *percentiles: float) -> list[float]:
        """The durations at `percentiles`; 0 if there was no round."""
        if not self.count:
            return [0.0 for _ in percentiles]
        found = np.percentile(self._kept[: self.count], percentiles) / 1000
        return [float(each) for each in found]
