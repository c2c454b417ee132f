"""Runs asynchronous calls and sends each outcome exactly once, however slowly the client reads.

A call is checked and then left to the scheduler. Notifications that do not fit into the socket are kept, and
their number is bounded.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from nnburst.control.channel import MAX_NOTIFICATIONS, SEND_TIMEOUT
from nnburst.control.connection import Connection
from nnburst.control.messages import Message, Reply
from nnburst.control.service import Answer, failure, nothing
from nnburst.driver.scheduler import Scheduler, Work
from nnburst.hal.enums import Priority
from nnburst.hal.errors import Closed, DeadObject, NnburstError, ResourceExhausted

logger = logging.getLogger(__name__)

#: Seconds before another attempt if memory or descriptors were short.
_PAUSE: Final = 0.05


class Outbox:
    """Sends one-way upcalls in order and keeps those that do not fit into the socket. Thread-safe.

    The number of messages is bounded, since each needs a ticket before the work that it reports begins. A
    thread runs only while the client does not keep up. It ends with the connection.
    """

    def __init__(self, upcalls: Connection, limit: int = MAX_NOTIFICATIONS) -> None:
        """Post to the peer of `upcalls`; at most `limit` tickets are out at once."""
        self._upcalls = upcalls
        self._limit = limit
        self._lock = threading.Lock()
        self._waiting: deque[Message] = deque()
        self._tickets = 0
        self._sending = False

    def ticket(self) -> Ticket:
        """The right to post one message.

        Raises:
            ResourceExhausted: as many are out as may, counting those whose message has not left.
        """
        with self._lock:
            if self._tickets >= self._limit:
                raise ResourceExhausted(
                    f"{self._limit} notifications are due or unread, as many as a client may have"
                )
            self._tickets += 1
        return Ticket(self)

    def post(self, message: Message) -> None:
        """Send or keep a message; for tickets only."""
        with self._lock:
            if not self._waiting and self._leaves(message, 0):
                self._tickets -= 1
                return
            self._waiting.append(message)
            if self._sending:
                return
            self._sending = True
        try:
            threading.Thread(target=self._send, name="nnburst outbox", daemon=True).start()
        except RuntimeError as error:
            logger.warning(
                "cannot start the outbox's thread; the next notification tries again: %s", error
            )
            with self._lock:
                self._sending = False

    def release(self) -> None:
        """A ticket will not be used."""
        with self._lock:
            self._tickets -= 1

    def _send(self) -> None:
        """Send waiting messages until none is left."""
        while True:
            with self._lock:
                if not self._waiting:
                    self._sending = False
                    return
                message = self._waiting[0]
            if self._leaves(message, SEND_TIMEOUT):
                with self._lock:
                    self._waiting.popleft()
                    self._tickets -= 1

    def _leaves(self, message: Message, timeout: float) -> bool:
        """Whether a message has left, or there is no client any more that could miss it."""
        try:
            self._upcalls.notify(message, timeout)
        except TimeoutError:
            return False
        except (ResourceExhausted, MemoryError):
            time.sleep(min(timeout, _PAUSE))
            return False
        except (Closed, DeadObject) as error:
            logger.debug("%s has no receiver and is dropped: %s", type(message).__name__, error)
        except NnburstError as error:
            logger.warning("%s cannot be sent and is dropped: %s", type(message).__name__, error)
        return True


class Ticket:
    """The right to post one message. Thread-safe: the first one wins, later ones are dropped."""

    def __init__(self, outbox: Outbox) -> None:
        """Use `Outbox.ticket`."""
        self._outbox: Outbox | None = outbox
        self._lock: Final = threading.Lock()

    def post(self, message: Message) -> bool:
        """Notify the client; True if this was the first time."""
        outbox = self._take()
        if outbox is None:
            return False
        outbox.post(message)
        return True

    def cancel(self) -> None:
        """Never notify; fine after `post`."""
        outbox = self._take()
        if outbox is not None:
            outbox.release()

    def _take(self) -> Outbox | None:
        with self._lock:
            outbox, self._outbox = self._outbox, None
        return outbox


class AsyncCall(Protocol):
    """Something that has been checked and can be done. Either `run` or `cancel` is called, once."""

    @property
    def priority(self) -> Priority:
        """Among the client's work."""

    def run(self) -> Message:
        """Do it; the notification of its success. Raises what the client gets as its answer otherwise."""

    def cancel(self) -> None:
        """It will not be done: free its resources."""


def start_async_call(
    outbox: Outbox,
    scheduler: Scheduler,
    work: Work,
    check: Callable[[], AsyncCall],
    failed: Callable[[Reply], Message],
) -> Answer:
    """Check a call's arguments and leave the rest to the scheduler.

    If that fails the callback is notified of the same status before the call is answered with it.

    Args:
        outbox: of the client whose call it is.
        scheduler: likewise.
        work: which lanes it runs on.
        check: the part that the caller waits for.
        failed: the notification of a failure.

    Raises:
        ResourceExhausted: too many notifications are to come; then only the answer reports it.
        NnburstError: whatever `check` raises, or device:P9.
    """
    ticket = outbox.ticket()

    def run() -> None:
        try:
            message = checked.run()
        except BaseException as error:  # an executor of others may raise anything, SystemExit too
            message = failed(failure(error))
        ticket.post(message)

    try:
        checked = check()
        try:
            scheduler.submit(run, checked.priority, work)
        except BaseException:
            checked.cancel()
            raise
    except BaseException as error:
        ticket.post(failed(failure(error)))
        raise
    return nothing()
