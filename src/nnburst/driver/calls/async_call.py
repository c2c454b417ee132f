"""What all asynchronous calls share: the outcome comes later, by exactly one notification."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Protocol

from nnburst.control.messages.message import Message
from nnburst.control.protocol import Reply
from nnburst.control.service import Answer, failure, nothing
from nnburst.driver.session.client_session import ClientSession
from nnburst.driver.session.scheduler import Work
from nnburst.hal.enums import Priority
from nnburst.hal.errors import GeneralFailure, InvalidArgument


class AsyncCall(Protocol):
    """Something that has been checked and can be done. Either `run` or `cancel` is called, once."""

    @property
    def priority(self) -> Priority:
        """Among the client's work."""

    def run(self) -> Message:
        """Do it; the notification of its success. Raises what the client gets as its answer otherwise."""

    def cancel(self) -> None:
        """It will not be done: free what it holds."""


def start(
    session: ClientSession,
    work: Work,
    check: Callable[[], AsyncCall],
    failed: Callable[[Reply], Message],
) -> Answer:
    """Check what a call brings and leave the rest to the scheduler.

    If that fails the callback is notified of the same status before the call is answered with it.

    Args:
        session: whose call it is.
        work: which lanes it runs on.
        check: the part that the caller waits for.
        failed: the notification of a failure.

    Raises:
        ResourceExhausted: too many notifications are to come; then only the answer reports it.
        NnburstError: whatever `check` raises, or device:P9.
    """
    ticket = session.outbox.ticket()

    def run() -> None:
        try:
            message = checked.run()
        except BaseException as error:  # an executor of others may raise anything, SystemExit too
            message = failed(failure(error))
        ticket.post(message)

    try:
        checked = check()
        try:
            session.scheduler.submit(run, checked.priority, work)
        except BaseException:
            checked.cancel()
            raise
    except BaseException as error:
        ticket.post(failed(failure(error)))
        raise
    return nothing()


def has_passed(deadline_ns: int | None) -> bool:
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
