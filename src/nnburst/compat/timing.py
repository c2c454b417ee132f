"""Converts durations and deadlines between the clocks and units of HIDL and AIDL."""

from __future__ import annotations

import time
from typing import NamedTuple

from nnburst.compat import aidl
from nnburst.compat.layouts import HalStruct, check_range, check_type, is_aidl
from nnburst.compat.v1_3 import OptionalTimeoutDuration, OptionalTimePoint
from nnburst.hal.enums import FeatureLevel
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.limits import NO_TIMING, UINT64_MAX
from nnburst.hal.types import ExecutionTiming, Timing

# -- Durations: microseconds in HIDL, nanoseconds in AIDL and canonical ----------------------------
# NNAPI: 1.2 and aidl Conversions.cpp convert(Timing), convert(Duration).

_INT64_MAX = 2**63 - 1
_NS_PER_US = 1000


def to_canonical(timing: Timing | aidl.Timing, level: FeatureLevel) -> ExecutionTiming:
    """Convert from a version's timing.

    Raises:
        InvalidArgument: the struct is of another version, or a number does not fit a field.
    """
    check_type(timing, aidl.Timing if is_aidl(level) else Timing, level)
    if isinstance(timing, aidl.Timing):
        both = duration_from_aidl(timing.time_on_device_ns), timing.time_in_driver_ns
        return ExecutionTiming(both[0], duration_from_aidl(both[1]))
    return ExecutionTiming(_from_us(timing.time_on_device), _from_us(timing.time_in_driver))


def to_hal(timing: ExecutionTiming, level: FeatureLevel) -> HalStruct:
    """Convert to a version's timing; microseconds are rounded up, too long durations become the longest."""
    device, driver = timing.time_on_device_ns, timing.time_in_driver_ns
    if is_aidl(level):
        return aidl.Timing(duration_to_aidl(device), duration_to_aidl(driver))
    return Timing(_to_us(device), _to_us(driver))


def duration_from_aidl(nanoseconds: int) -> int | None:
    """Convert from AIDL's int64; −1 means unknown.

    Raises:
        InvalidArgument: validation:S6, the duration is below −1 or does not fit int64.
    """
    if nanoseconds < -1:
        raise InvalidArgument(f"validation:S6: duration: {nanoseconds} ns; only -1 stands for none")
    check_range("duration", (nanoseconds,), -1, _INT64_MAX)
    return None if nanoseconds == -1 else nanoseconds


def duration_to_aidl(nanoseconds: int | None) -> int:
    """Convert to AIDL's int64; a duration that is too long becomes the longest.

    Raises:
        InvalidArgument: validation:S6, the duration is negative.
    """
    return -1 if nanoseconds is None else min(_positive(nanoseconds), _INT64_MAX)


def _from_us(microseconds: int) -> int | None:
    check_range("timing", (microseconds,), 0, UINT64_MAX)
    return None if microseconds == NO_TIMING else microseconds * _NS_PER_US


def _to_us(nanoseconds: int | None) -> int:
    if nanoseconds is None:
        return NO_TIMING
    return min(-(-_positive(nanoseconds) // _NS_PER_US), NO_TIMING - 1)


def _positive(nanoseconds: int) -> int:
    if nanoseconds < 0:
        raise InvalidArgument(f"validation:S6: duration: {nanoseconds} ns is negative")
    return nanoseconds


# -- Points in time: the steady clock in HIDL 1.3, the boot clock in AIDL and canonical ------------
# The version decides which clock a message uses. A deadline is converted between the clocks by the time left
# # until then: a deadline in the past becomes now, one that is too far away becomes the latest possible.
#
# NNAPI: 1.3 and aidl Conversions.cpp convert(OptionalTimePoint), convert(OptionalDuration).

#: AIDL's deadline is the canonical one except for −1, which means no deadline, as with durations.
deadline_from_aidl = duration_from_aidl
deadline_to_aidl = duration_to_aidl


class Clocks(NamedTuple):
    """The times of both clocks at the same moment, in nanoseconds."""

    boot: int
    steady: int

    @classmethod
    def now(cls) -> Clocks:
        """Read both clocks."""
        return cls(
            time.clock_gettime_ns(time.CLOCK_BOOTTIME), time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        )


def deadline_from_hidl(deadline: OptionalTimePoint, clocks: Clocks | None = None) -> int | None:
    """Convert a deadline to nanoseconds on the boot clock, or None.

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
    """Convert a deadline on the boot clock to the steady clock.

    Raises:
        InvalidArgument: validation:S6, the deadline is negative.
    """
    if boot_ns is None:
        return OptionalTimePoint()
    if boot_ns < 0:
        raise InvalidArgument(f"validation:S6: deadline: {boot_ns} ns is negative")
    clocks = clocks or Clocks.now()
    return OptionalTimePoint(min(clocks.steady + max(0, boot_ns - clocks.boot), UINT64_MAX))


def duration_from_hidl(duration: OptionalTimeoutDuration) -> int | None:
    """Convert a duration to nanoseconds, or None.

    Raises:
        InvalidArgument: the number is not a uint64.
    """
    if duration.nanoseconds is not None:
        check_range("duration", (duration.nanoseconds,), 0, UINT64_MAX)
    return duration.nanoseconds


def duration_to_hidl(nanoseconds: int | None) -> OptionalTimeoutDuration:
    """Convert a duration to HIDL 1.3; a duration that is too long becomes the longest.

    Raises:
        InvalidArgument: validation:S6, the duration is negative.
    """
    if nanoseconds is not None and nanoseconds < 0:
        raise InvalidArgument(f"validation:S6: duration: {nanoseconds} ns is negative")
    return OptionalTimeoutDuration(None if nanoseconds is None else min(nanoseconds, UINT64_MAX))
