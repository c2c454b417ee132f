"""Notifications on their way to the client: each leaves exactly once, however slowly the client reads."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from typing import Final

from nnburst.control.connection import Connection
from nnburst.control.limits import MAX_NOTIFICATIONS, SEND_TIMEOUT
from nnburst.control.messages.message import Message
from nnburst.hal.errors import Closed, DeadObject, NnburstError, ResourceExhausted

logger = logging.getLogger(__name__)

#: Seconds before another attempt if memory or descriptors were short.
_PAUSE: Final = 0.05


class Outbox:
    """Sends one-way upcalls in order and keeps those that do not fit into the socket. Thread-safe.

    What it keeps is bounded, since posting needs a ticket before it begins what it will
    notify of. A thread runs only while the client does not keep up. It ends with the connection.
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
        """Send what waits, until nothing does."""
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
        """Tell the client; whether this was the first."""
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
