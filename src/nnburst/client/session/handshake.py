"""Makes a session from a connected socket by exchanging the messages Hello and Welcome."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import msgspec

from nnburst.client.memory import Memory
from nnburst.client.session.own_bursts import OwnBursts
from nnburst.client.session.pending import CallbackThread
from nnburst.client.session.process import PATIENCE, how_it_ended
from nnburst.client.session.upcalls import Callbacks, UpcallServer
from nnburst.control.channel import Channel, EndCallbacks
from nnburst.control.connection import Connection
from nnburst.control.death_word import DeathWatch
from nnburst.control.messages import (
    PROTOCOL_VERSION,
    GetSupportedExtensions,
    Hello,
    SupportedExtensions,
    Welcome,
)
from nnburst.fmq.shared_memory import close_received
from nnburst.hal.enums import FeatureLevel
from nnburst.hal.errors import (
    Closed,
    DeviceUnavailable,
    GeneralFailure,
    InvalidArgument,
    NnburstError,
    ResourceExhausted,
)
from nnburst.hal.extensions import Extension, ExtensionAttribute, Hints, hints_of
from nnburst.hal.utils import Scarce, check_owner, start_thread
from nnburst.hal.validation.values import validate_extensions

logger = logging.getLogger(__name__)

#: Seconds that the driver has to answer a query.
_CALL_TIMEOUT: Final = 30.0


class Session:
    """An established connection to a driver, shared by all objects of a device.

    Thread-safe. Not usable in a process forked from the one that made it.

    Attributes:
        welcome: the driver's Welcome, the answer to this client's Hello.
        feature_level: feature level that both sides speak.
        pidfd: descriptor of the driver's process; borrowed, valid until `close`.
        closed: whether its device was closed.
        lost: whether it was closed because its driver had died and another session replaced it.
        notices: a program's callbacks for the driver's death; they run on a thread of their own, so that
            they can delay neither DeadObject nor `close`.
        callbacks: the callbacks that the driver may notify.
        callback_thread: runs a program's own callbacks.
        own_bursts: the bursts that models open by themselves.
    """

    def __init__(
        self,
        connected: socket.socket,
        name: str,
        dead: Callable[[], NnburstError],
        *,
        timeout: float,
    ) -> None:
        """Exchange Hello and Welcome with the driver.

        Args:
            connected: SEQPACKET socket; owned from here on.
            name: the driver's name, for messages.
            dead: makes the error of calls after the driver's death.
            timeout: seconds until the driver must have answered.

        Raises:
            DeviceUnavailable: protocol or feature level do not fit, or the driver refused with a reason.
            ResourceExhausted: this process may have no more descriptors or threads.
            NnburstError: the driver died or did not answer.
        """
        self._owner = os.getpid()
        self.closed = False
        self.lost = False
        self.notices = EndCallbacks(name)
        self.pidfd = -1
        self._extensions: tuple[Extension, ...] | None = None
        self._ending = ""
        self._death_watch: DeathWatch | None = None
        self.callback_thread = CallbackThread()
        self.own_bursts = OwnBursts()
        connection: Connection | None = None
        self._upcalls: UpcallServer | None = None
        try:
            self._connection = connection = Connection(Channel(connected), name, dead)
            connection.on_end(partial(_run_apart, self.notices))
            self.callbacks = Callbacks(connection)
            with Scarce(f"{name}: there is no socket for its upcalls"):
                ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                self._upcalls = UpcallServer(
                    Channel(ours), self.callbacks.notified, connection.peer_died
                )
                _sessions.add(self)
                self.welcome = self._hello(theirs.fileno(), timeout)
                self.feature_level = _check(self.welcome, name)
        except BaseException:  # also a signal handler's, when a reader may have begun
            if connection is not None:
                self.close()
            with contextlib.suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)
            connected.close()
            raise

    def hints(self, attributes: Sequence[ExtensionAttribute]) -> Hints | msgspec.UnsetType:
        """Convert attributes for a message; if the driver's version has none, log that and return none.

        Raises:
            InvalidArgument: as for `check_attributes`.
        """
        found = hints_of(attributes)
        if attributes and self.feature_level < FeatureLevel.AIDL_V4:
            logger.warning(
                "%s is of version %s, which has no attributes: %d are not sent",
                self.name,
                self.feature_level.name,
                len(attributes),
            )
            return msgspec.UNSET
        return found

    def _hello(self, upcall_socket: int, timeout: float) -> Welcome:
        hello = Hello(PROTOCOL_VERSION, FeatureLevel.AIDL_V4)
        welcome, fds = self._connection.call(hello, Welcome, [upcall_socket], timeout=timeout)
        with fds:
            self.pidfd = fds.take(0)
            if welcome.death_word:
                self._death_watch = DeathWatch(fds.take(1), self._connection.peer_died)
        return welcome

    @property
    def upcalls(self) -> UpcallServer:
        """The server on which bursts register callbacks for the driver."""
        assert self._upcalls is not None
        return self._upcalls

    @property
    def name(self) -> str:
        """The device's name."""
        return self.welcome.name

    @property
    def pid(self) -> int:
        """Process that serves this client."""
        return self.welcome.pid

    @property
    def is_alive(self) -> bool:
        """Whether the driver is alive and the device is open."""
        return not self.closed and self._connection.is_alive

    @property
    def ended_ns(self) -> int:
        """The time at which the driver's end was noticed, on CLOCK_MONOTONIC; 0 before."""
        return self._connection.ended_ns

    @property
    def connection(self) -> Connection:
        """The control connection; after a loss calls on it end with DeadObject.

        Raises:
            Closed: the device was closed, or this is a forked process.
        """
        if not self.lost:
            self.check_open()
        return self._connection

    def check_open(self) -> None:
        """Raise Closed after the device was closed, and in a forked process."""
        if self.closed:
            raise (
                self._connection.end_error()
                if self.lost
                else Closed(f"device {self.name} is closed")
            )
        self.check_process()

    def check_process(self) -> None:
        """Raise Closed in a forked process."""
        check_owner(self._owner, f"device {self.name}")

    def allocate(self, size: int) -> Memory:
        """A new pool; see `Device.allocate`."""
        self.check_open()
        return Memory(size)

    def supported_extensions(self, timeout: float = _CALL_TIMEOUT) -> tuple[Extension, ...]:
        """The driver's extensions, asked for once; see `Device.supported_extensions`."""
        if self._extensions is None:
            call = GetSupportedExtensions()
            answer, _ = self.connection.call(call, SupportedExtensions, timeout=timeout)
            try:
                validate_extensions(answer.extensions)
            except InvalidArgument as error:
                raise GeneralFailure(f"the driver sent invalid extensions: {error}") from error
            self._extensions = answer.extensions
        return self._extensions

    def abandon(self) -> None:
        """End the connection without waiting and without a lock; `close` must still be called."""
        self._connection.abandon()

    def ending(self, patience: float = PATIENCE) -> str:
        """Describe how the driver ended; wait up to `patience` seconds for the kernel to report it."""
        return self._ending or how_it_ended(self.pidfd, patience)

    def close(self) -> None:
        """End the session; twice is fine."""
        self.closed = True
        if not self._connection.is_alive and self.pidfd >= 0:
            self._ending = self.ending(0)  # for errors whose message is read later
        if self._death_watch is not None:
            self._death_watch.close()
        self._connection.close()
        if self._upcalls is not None:
            self._upcalls.close()
        self.callback_thread.close()
        pidfd, self.pidfd = self.pidfd, -1
        if pidfd >= 0:
            close_received(pidfd)  # the driver's process may be any descriptor


_sessions: Final[weakref.WeakSet[Session]] = weakref.WeakSet()


def _abandon_in_child() -> None:
    """Close all connections in a forked child: else the driver would not see the parent's death."""
    for session in list(_sessions):
        session._connection.abandon_in_child()
        session.upcalls.abandon_in_child()


os.register_at_fork(after_in_child=_abandon_in_child)


def _run_apart(notices: EndCallbacks) -> None:
    if not notices:
        notices.run()  # callbacks added from now on run at once
        return
    thread = threading.Thread(target=notices.run, name="nnburst death notices", daemon=True)
    try:
        start_thread(thread)
    except ResourceExhausted as error:
        logger.warning(
            "what is to run at the driver's end runs on the thread that noticed: %s", error
        )
        notices.run()


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
