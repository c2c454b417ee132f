"""What an execution reports beside its outputs, OutputShape and Timing; and when its deadline has passed."""

from __future__ import annotations

import time

import msgspec

from nnburst.hal.limits import NO_TIMING


class OutputShape(msgspec.Struct, frozen=True):
    """Shape of one output (1.2).

    Attributes:
        dimensions: extents as far as known; 0 is unknown.
        is_sufficient: whether the given array was large enough.
    """

    dimensions: tuple[int, ...]
    is_sufficient: bool


class Timing(msgspec.Struct, frozen=True):
    """Durations of an execution in microseconds; NO_TIMING (2**64 - 1) if not measured.

    Both include time spent waiting or preempted; `time_on_device` <= `time_in_driver`.
    """

    time_on_device: int = NO_TIMING
    time_in_driver: int = NO_TIMING

    @property
    def measured(self) -> bool:
        """Whether the driver reported its own duration."""
        return self.time_in_driver != NO_TIMING


def has_passed(deadline_ns: int | None) -> bool:
    """Whether a moment on CLOCK_BOOTTIME is over; None never is."""
    return deadline_ns is not None and time.clock_gettime_ns(time.CLOCK_BOOTTIME) >= deadline_ns
