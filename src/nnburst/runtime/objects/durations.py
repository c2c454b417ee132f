"""Durations as the framework's calls take them."""

from __future__ import annotations

import math

from nnburst.hal.enums import DurationCode
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.limits import NO_TIMING
from nnburst.runtime.argument import Outcome

#: Longest duration that a message carries, in seconds.
_LONGEST = 4e9


def nanoseconds(what: str, seconds: float | None) -> int | None:
    """A duration in nanoseconds; None for none, which 0 stands for, too.

    Raises:
        InvalidArgument: it is negative or no number.
    """
    if seconds is None:
        return None
    if not isinstance(seconds, int | float) or math.isnan(seconds) or seconds < 0:
        raise InvalidArgument(f"{what}: {seconds!r}, expected seconds, 0 or more")
    return round(min(seconds, _LONGEST) * 1e9) or None


def measured_nanoseconds(outcome: Outcome, code: DurationCode) -> int | None:
    """One of the durations of an execution; None if the device does not measure it (RT:E8)."""
    timing = outcome.timing
    if code.is_fenced and outcome.fenced_timing is not None:
        timing = outcome.fenced_timing
    micros = timing.time_on_device if code.is_on_hardware else timing.time_in_driver
    return None if micros == NO_TIMING else min(micros * 1000, NO_TIMING - 1)
