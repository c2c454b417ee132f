"""What several calls check: deadlines, and the device's rules that messages name."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from nnburst.hal.enums import ErrorStatus
from nnburst.hal.errors import GeneralFailure, InvalidArgument, MissedDeadline


def _has_passed(deadline_ns: int | None) -> bool:
    """Whether a moment on CLOCK_BOOTTIME is over; None never is."""
    return deadline_ns is not None and time.clock_gettime_ns(time.CLOCK_BOOTTIME) > deadline_ns


@contextlib.contextmanager
def naming(rule: str) -> Iterator[None]:
    """Add the device's rule to messages, which begin with the rule of validation that is broken."""
    try:
        yield
    except (InvalidArgument, GeneralFailure) as error:
        message = f"{error} (device:{rule})"
        raise type(error)(message, status=error.status) from error


def check_deadline(rule: str, deadline_ns: int | None) -> None:
    """Raise MissedDeadline, which names `rule`, if a deadline had passed when the call came."""
    if _has_passed(deadline_ns):
        raise MissedDeadline(
            f"device:{rule}: the deadline has passed", status=ErrorStatus.MISSED_DEADLINE_PERSISTENT
        )


def check_in_time(deadline_ns: int | None) -> None:
    """Raise MissedDeadline if a deadline has passed since the call came (TRANSIENT)."""
    if _has_passed(deadline_ns):
        raise MissedDeadline(
            "the deadline passed while the model was being prepared",
            status=ErrorStatus.MISSED_DEADLINE_TRANSIENT,
        )
