"""Asynchronous calls: their answer and their notification, which must agree."""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence
from typing import NamedTuple

from nnburst.client.device import Device
from nnburst.client.session.upcalls import Notification
from nnburst.control.messages.device import NotifyPrepared
from nnburst.control.messages.message import Message
from nnburst.control.messages.session import Nothing
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.errors import NnburstError


class AsyncOutcome(NamedTuple):
    """Both answers to an asynchronous call.

    Attributes:
        answer: why it was refused; None if it was not.
        outcome: what its callback got: a notification of success, or an error.
    """

    answer: NnburstError | None
    outcome: Notification | NnburstError

    @property
    def status(self) -> ErrorStatus:
        """Of the outcome."""
        return self.outcome.status

    @property
    def agree(self) -> bool:
        """Whether a refused call was notified of the same status."""
        return self.answer is None or self.answer.status == self.status


def call_async(
    device: Device, message: Callable[[int], Message], fds: Sequence[int], timeout: float
) -> AsyncOutcome:
    """Make an asynchronous call and wait for both of its answers; a prepared model that comes is released.

    Args:
        device: whom to call.
        message: makes the call from the number of its callback.
        fds: borrowed descriptors that go with it.
        timeout: seconds for each of the two.

    Raises:
        TimeoutError: one of them did not come.
        DeadObject: the driver has died.
    """
    callbacks = device._session.callbacks
    heard: queue.SimpleQueue[Notification | NnburstError] = queue.SimpleQueue()
    call = message(callbacks.open(heard.put).number)
    answer: NnburstError | None = None
    try:
        device._session.connection.call(call, Nothing, fds, timeout=timeout)
    except NnburstError as error:
        if not device.is_alive:
            raise
        answer = error
    try:
        outcome = heard.get(timeout=timeout)
    except queue.Empty:
        raise TimeoutError(f"{type(call).__name__} was answered and not notified of") from None
    if isinstance(outcome, NotifyPrepared):
        callbacks.release_unwanted(outcome)
    return AsyncOutcome(answer, outcome)
