"""Hello and Welcome: from a connected socket to a session that can be used."""

from __future__ import annotations

import os
import socket
import weakref
from collections.abc import Callable
from typing import Final

from nnburst.client.session.callbacks import Callbacks, CallbackThread
from nnburst.client.session.death_notices import DeathNotices
from nnburst.client.session.death_watch import DeathWatch
from nnburst.client.session.ending import PATIENCE, how_it_ended
from nnburst.client.session.upcalls import UpcallServer
from nnburst.control.channel import Channel
from nnburst.control.connection import Connection
from nnburst.control.messages import PROTOCOL_VERSION, Hello, Welcome
from nnburst.hal.enums import FeatureLevel
from nnburst.hal.errors import DeviceUnavailable, NnburstError


class Session:
    """A connection to a driver that both sides agreed to."""

    def __init__(
        self,
        connected: socket.socket,
        name: str,
        dead: Callable[[], NnburstError],
        *,
        timeout: float,
    ) -> None:
        """Introduce this client.

        Args:
            connected: SEQPACKET socket; owned from here on.
            name: of the driver, for messages.
            dead: makes the error of calls after the driver's death.
            timeout: seconds until the driver must have answered.

        Raises:
            DeviceUnavailable: protocol or feature level do not fit, or the driver's own reason.
            NnburstError: the driver died or did not answer.
        """
        self.connection = Connection(Channel(connected), name, dead)
        self.notices = DeathNotices(self.connection)
        self.pidfd = -1
        self._ending = ""
        self._death_watch: DeathWatch | None = None
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.callback_thread = CallbackThread()
        self.callbacks = Callbacks(self.connection)
        self.upcalls = UpcallServer(
            Channel(ours), self.callbacks.notified, self.connection.peer_died
        )
        _sessions.add(self)
        try:
            with theirs:
                self.welcome = self._introduce(theirs.fileno(), timeout)
            self.feature_level = _check(self.welcome, name)
        except BaseException:
            self.close()
            raise

    def _introduce(self, upcall_socket: int, timeout: float) -> Welcome:
        hello = Hello(PROTOCOL_VERSION, FeatureLevel.AIDL_V4)
        welcome, fds = self.connection.call(hello, Welcome, [upcall_socket], timeout=timeout)
        with fds:
            self.pidfd = fds.take(0)
            if welcome.death_word:
                self._death_watch = DeathWatch(fds.take(1), self.connection.peer_died)
        return welcome

    def ending(self, patience: float = PATIENCE) -> str:
        """How the driver ended; waits up to `patience` seconds for the kernel to say it."""
        return self._ending or how_it_ended(self.pidfd, patience)

    def close(self) -> None:
        """End it; twice is fine."""
        if not self.connection.is_alive and self.pidfd >= 0:
            self._ending = self.ending(0)  # for those who look at an error after this
        if self._death_watch is not None:
            self._death_watch.close()
        self.connection.close()
        self.upcalls.close()
        self.callback_thread.close()
        pidfd, self.pidfd = self.pidfd, -1
        if pidfd >= 0:
            os.close(pidfd)


_sessions: Final[weakref.WeakSet[Session]] = weakref.WeakSet()


def _leave_to_parent() -> None:
    """In a forked child: the driver must see the parent's death, however long the child lives."""
    for session in list(_sessions):
        session.connection.disown()
        session.upcalls.disown()


os.register_at_fork(after_in_child=_leave_to_parent)


def _check(welcome: Welcome, name: str) -> FeatureLevel:
    if welcome.protocol != PROTOCOL_VERSION:
        raise DeviceUnavailable(
            f"{name} speaks protocol {welcome.protocol}, expected {PROTOCOL_VERSION}"
        )
    lowest, highest = FeatureLevel.V1_2, FeatureLevel.AIDL_V4
    if not lowest <= welcome.feature_level <= highest:
        raise DeviceUnavailable(
            f"{name} is of feature level {welcome.feature_level},"
            f" expected {int(lowest)} to {int(highest)}"
        )
    return FeatureLevel(welcome.feature_level)
