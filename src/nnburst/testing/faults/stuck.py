"""What a client does that never takes what its driver has for it: endless generators, as in `activities`.

They are given the address of a driver.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Final

from nnburst.client.burst.burst import Burst
from nnburst.client.connect import connect
from nnburst.control.address import socket_path
from nnburst.control.channel import Channel, Disconnected
from nnburst.control.messages.message import Message
from nnburst.control.messages.session import Hello, Ping
from nnburst.control.protocol import PROTOCOL_VERSION, encode
from nnburst.hal.enums import FeatureLevel
from nnburst.hal.errors import NnburstError
from nnburst.testing.faults.activities import sum_model

#: A success needs two elements of the result ring: room for two, and more requests than that.
_ROOM: Final = 4
_REQUESTS: Final = 8
#: Seconds between looks at a burst.
_PAUSE: Final = 0.05


def reads_no_results(address: str) -> Iterator[None]:
    """Fills the result rings of bursts; once the driver gives one up, opens another."""
    with connect(address) as device, device.prepare(sum_model()) as prepared:
        while True:
            with prepared.open_burst(max_in_flight=_REQUESTS, result_channel_length=_ROOM) as burst:
                bounds = [burst.bind() for _ in range(_REQUESTS)]
                pending = [bound.submit() for bound in bounds]
                yield
                while _goes_on(burst):
                    threading.Event().wait(_PAUSE)
                del pending


def _goes_on(burst: Burst) -> bool:
    try:
        burst._core.check_open()
    except NnburstError:
        return False
    return True


def reads_no_replies(address: str) -> Iterator[None]:
    """Asks and never listens; once the driver gives the connection up, makes another."""
    while True:
        with contextlib.closing(_Deaf(address)) as client:
            yield
            client.talk()


def stops(address: str) -> Iterator[None]:
    """Stops with a request under way, again whenever it is continued."""
    with connect(address) as device, device.prepare(sum_model()).open_burst() as burst:
        bound = burst.bind()
        while True:
            yield
            pending = bound.submit()
            os.kill(os.getpid(), signal.SIGSTOP)
            pending.result()


class _Deaf:
    """A connection on which nothing is ever received."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.connect(address if "/" in address else str(socket_path(address)))
        self._upcalls = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel = Channel(self._socket)
        hello = Hello(PROTOCOL_VERSION, FeatureLevel.AIDL_V4)
        self._send(1, hello, [self._upcalls[1].fileno()])

    def _send(self, number: int, message: Message, fds: list[int] | None = None) -> None:
        self._channel.send(number, encode(message), fds or [])

    def talk(self) -> None:
        """Ask until the driver ends the connection."""
        with contextlib.suppress(Disconnected):
            for number in itertools.count(2):
                with contextlib.suppress(TimeoutError):
                    self._send(number, Ping())

    def close(self) -> None:
        self._channel.close()
        for end in self._upcalls:
            end.close()


STUCK: Final[dict[str, Callable[[str], Iterator[None]]]] = {
    activity.__name__: activity for activity in (reads_no_results, reads_no_replies, stops)
}
