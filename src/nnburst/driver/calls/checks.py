"""What several calls check: deadlines, and the device's rules that messages name."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from nnburst.hal.enums import ErrorStatus
from nnburst.hal.errors import GeneralFailure, InvalidArgument, MissedDeadline
from nnburst.hal.timing import has_passed


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
    if has_passed(deadline_ns):
        raise MissedDeadline(
            f"device:{rule}: the deadline has passed", status=ErrorStatus.MISSED_DEADLINE_PERSISTENT
        )


def check_in_time(deadline_ns: int | None) -> None:
    """Raise MissedDeadline if a deadline has passed since the call came (TRANSIENT)."""
    if has_passed(deadline_ns):
        raise MissedDeadline(
            "the deadline passed while the model was being prepared",
            status=ErrorStatus.MISSED_DEADLINE_TRANSIENT,
        )
