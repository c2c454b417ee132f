"""How a burst ends: by its own `close`, by the driver's word, or because it cannot be reached any more."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from nnburst._native import lib
from nnburst.client.burst.transport.channels import BurstChannels
from nnburst.control.connection import Connection

if TYPE_CHECKING:
    from nnburst._native import nnb_client

T = TypeVar("T")


class BurstStop:
    """Ends every wait of a burst. Keeps its queues mapped, and not the burst itself."""

    def __init__(self, client: nnb_client, channels: BurstChannels) -> None:
        """End the waits of `client`, whose queues are `channels`."""
        self._client = client
        self._channels = channels

    def __call__(self) -> None:
        """End them, now and from now on. Any thread."""
        lib.nnb_client_stop(self._client)
        self._channels.kicks.fail()


def abandon_burst(connection: Connection, channels: BurstChannels, stop: BurstStop) -> None:
    """Give up a burst that was never closed."""
    connection.remove_callback(stop)
    channels.abandon()


def weakly(method: Callable[[T], None]) -> Callable[[T], None]:
    """`method`, without keeping its object alive."""
    reference = weakref.WeakMethod(method)

    def call(argument: T) -> None:
        alive = reference()
        if alive is not None:
            alive(argument)

    return call


class BurstEnded:
    """The driver's word that a burst has ended, which can come before the burst object is there."""

    def __init__(self) -> None:
        """It goes on."""
        self._lock = threading.Lock()
        self._reason = ""
        self._listener: Callable[[str], None] | None = None

    def set(self, reason: str) -> None:
        """The driver has ended the burst."""
        with self._lock:
            self._reason, listener = f"the driver has ended the burst: {reason}", self._listener
        if listener is not None:
            listener(self._reason)

    def tell(self, listener: Callable[[str], None]) -> None:
        """Whom to notify, now or later."""
        with self._lock:
            self._listener, reason = listener, self._reason
        if reason:
            listener(reason)
