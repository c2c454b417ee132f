"""Points in time: HIDL 1.3 counts on the steady clock, AIDL and canonical on the boot clock.

A message does not name its clock, so the version decides. Between the clocks a time is
carried as what remains until then: one that has passed becomes now, and one that is too far away the
latest possible.

NNAPI: 1.3 and aidl Conversions.cpp convert(OptionalTimePoint), convert(OptionalDuration).
"""

from __future__ import annotations

import time
from typing import NamedTuple

from nnburst.compat.conversion.timing import duration_from_aidl, duration_to_aidl
from nnburst.compat.layouts.levels import check_range
from nnburst.compat.layouts.v1_3 import OptionalTimeoutDuration, OptionalTimePoint
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.limits import UINT64_MAX

#: AIDL's deadline is the canonical one but for −1, which means no deadline; the same as with durations.
deadline_from_aidl = duration_from_aidl
deadline_to_aidl = duration_to_aidl


class Clocks(NamedTuple):
    """Both clocks at one moment, in nanoseconds."""

    boot: int
    steady: int

    @classmethod
    def now(cls) -> Clocks:
        """Read them."""
        return cls(
            time.clock_gettime_ns(time.CLOCK_BOOTTIME), time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        )


def deadline_from_hidl(deadline: OptionalTimePoint, clocks: Clocks | None = None) -> int | None:
    """Nanoseconds on the boot clock, or None.

    Raises:
        InvalidArgument: the number is not a uint64.
    """
    at = deadline.nanoseconds_since_epoch
    if at is None:
        return None
    check_range("deadline", (at,), 0, UINT64_MAX)
    clocks = clocks or Clocks.now()
    return clocks.boot + max(0, at - clocks.steady)


def deadline_to_hidl(boot_ns: int | None, clocks: Clocks | None = None) -> OptionalTimePoint:
    """The same deadline on the steady clock.

    Raises:
        InvalidArgument: validation:S6, it is negative.
    """
    if boot_ns is None:
        return OptionalTimePoint()
    if boot_ns < 0:
        raise InvalidArgument(f"validation:S6: deadline: {boot_ns} ns is negative")
    clocks = clocks or Clocks.now()
    return OptionalTimePoint(min(clocks.steady + max(0, boot_ns - clocks.boot), UINT64_MAX))


def duration_from_hidl(duration: OptionalTimeoutDuration) -> int | None:
    """Nanoseconds, or None.

    Raises:
        InvalidArgument: the number is not a uint64.
    """
    if duration.nanoseconds is not None:
        check_range("duration", (duration.nanoseconds,), 0, UINT64_MAX)
    return duration.nanoseconds


def duration_to_hidl(nanoseconds: int | None) -> OptionalTimeoutDuration:
    """The duration as 1.3 has it; what is too long becomes the longest.

    Raises:
        InvalidArgument: validation:S6, it is negative.
    """
    if nanoseconds is not None and nanoseconds < 0:
        raise InvalidArgument(f"validation:S6: duration: {nanoseconds} ns is negative")
    return OptionalTimeoutDuration(None if nanoseconds is None else min(nanoseconds, UINT64_MAX))
