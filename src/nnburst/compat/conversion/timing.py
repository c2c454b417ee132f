"""Timing: microseconds in HIDL (`nnburst.hal.timing.Timing`), nanoseconds in AIDL and canonical.

NNAPI: 1.2 and aidl Conversions.cpp convert(Timing), convert(Duration).
"""

from __future__ import annotations

import msgspec

from nnburst.compat.layouts import aidl
from nnburst.compat.layouts.levels import HalStruct, check_range, check_type, is_aidl
from nnburst.hal.enums import FeatureLevel
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.limits import NO_TIMING, UINT64_MAX
from nnburst.hal.timing import Timing

_INT64_MAX = 2**63 - 1
_NS_PER_US = 1000


class ExecutionTiming(msgspec.Struct, frozen=True):
    """Canonical durations of an execution in nanoseconds; None if not measured."""

    time_on_device_ns: int | None = None
    time_in_driver_ns: int | None = None


def to_canonical(timing: Timing | aidl.Timing, level: FeatureLevel) -> ExecutionTiming:
    """From a version's timing.

    Raises:
        InvalidArgument: of another version, or a number does not fit the version's field.
    """
    check_type(timing, aidl.Timing if is_aidl(level) else Timing, level)
    if isinstance(timing, aidl.Timing):
        both = duration_from_aidl(timing.time_on_device_ns), timing.time_in_driver_ns
        return ExecutionTiming(both[0], duration_from_aidl(both[1]))
    return ExecutionTiming(_from_us(timing.time_on_device), _from_us(timing.time_in_driver))


def to_hal(timing: ExecutionTiming, level: FeatureLevel) -> HalStruct:
    """Into a version's timing; microseconds are rounded up, what is too long becomes the longest."""
    device, driver = timing.time_on_device_ns, timing.time_in_driver_ns
    if is_aidl(level):
        return aidl.Timing(duration_to_aidl(device), duration_to_aidl(driver))
    return Timing(_to_us(device), _to_us(driver))


def duration_from_aidl(nanoseconds: int) -> int | None:
    """From AIDL's int64; −1 means unknown.

    Raises:
        InvalidArgument: validation:S6, it is below −1 or does not fit int64.
    """
    if nanoseconds < -1:
        raise InvalidArgument(f"validation:S6: duration: {nanoseconds} ns; only -1 stands for none")
    check_range("duration", (nanoseconds,), -1, _INT64_MAX)
    return None if nanoseconds == -1 else nanoseconds


def duration_to_aidl(nanoseconds: int | None) -> int:
    """Into AIDL's int64; what is too long becomes the longest.

    Raises:
        InvalidArgument: validation:S6, it is negative.
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
