"""Notifies systemd of how a driver does: ready, alive, stopping (sd_notify's protocol; no library is needed).

Nothing happens if no service manager has started the driver.
"""

from __future__ import annotations

import logging
import os
import socket

logger = logging.getLogger(__name__)


class ServiceManager:
    """The service manager that started this process, if it wants its state."""

    def __init__(self) -> None:
        """Look for it in the environment, and leave nothing of that to processes started from here."""
        self._address = os.environ.pop("NOTIFY_SOCKET", "")
        period = os.environ.pop("WATCHDOG_USEC", "")
        wanted = os.environ.pop("WATCHDOG_PID", str(os.getpid()))
        #: Seconds within which it expects a notification; None if it expects none.
        self.patience: float | None = None
        if self._address and period.isdecimal() and wanted == str(os.getpid()):
            self.patience = int(period) / 1e6

    def ready(self, status: str) -> None:
        """Clients may come."""
        self._tell(f"READY=1\nSTATUS={status}")

    def alive(self, status: str) -> None:
        """It still serves; due within `patience`."""
        self._tell(f"WATCHDOG=1\nSTATUS={status}")

    def stopping(self) -> None:
        """It ends in good order."""
        self._tell("STOPPING=1")

    def _tell(self, text: str) -> None:
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address[0] == "@" else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as manager:
                manager.sendto(text.encode(), address)
        except OSError as error:
            logger.warning("cannot notify the service manager, and goes on without: %s", error)
