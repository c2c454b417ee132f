"""A driver process at the end of a bare channel, for what no honest client sends."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from nnburst.client.launch import driver_environment
from nnburst.control.channel import Channel, Disconnected
from nnburst.control.messages.device import NotifyPrepared
from nnburst.control.messages.message import Message
from nnburst.control.messages.session import Hello
from nnburst.control.protocol import PROTOCOL_VERSION, Reply, decode_reply, decode_upcall, encode
from nnburst.hal.closing import Closing
from nnburst.hal.enums import ErrorStatus, FeatureLevel
from nnburst.hal.errors import GeneralFailure, MissedDeadline

#: Seconds until the driver must have answered.
PATIENCE: Final = 30.0


class RawConnection(Closing):
    """Calls a driver of its own with any bytes and descriptors. One thread; a context manager.

    Attributes:
        prepared: handles that notifications brought, for the caller to release.
        notified: how many notifications there were.
    """

    def __init__(self, executor: str = "reference") -> None:
        """Start a driver and introduce this client."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-m", "nnburst.driver", "--executor", executor]
            self._process = subprocess.Popen(  # noqa: S603 - this interpreter, this package
                [*command, "--fd", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stderr=subprocess.DEVNULL,
                env=driver_environment(),
            )
        self._channel = Channel(ours)
        upcalls, handed_over = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._upcalls = Channel(upcalls)
        self._calls = 0
        self.prepared: deque[int] = deque()
        self.notified = 0
        with handed_over:
            hello = Hello(PROTOCOL_VERSION, FeatureLevel.AIDL_V4)
            reply = self.send(encode(hello), [handed_over.fileno()])
        if reply is None or reply.status != ErrorStatus.NONE:
            raise GeneralFailure(f"the driver did not welcome this client: {reply}")
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    @property
    def pid(self) -> int:
        """The driver."""
        return self._process.pid

    def send(self, body: bytes, fds: Sequence[int] = ()) -> Reply | None:
        """Send a body; the reply to it, less its descriptors, or None if the driver has gone.

        Raises:
            MissedDeadline: it does not answer.
        """
        self._calls += 1
        try:
            self._channel.send(self._calls, body, fds)
            incoming = self._channel.receive(timeout=PATIENCE)
        except Disconnected:
            return None
        except TimeoutError:
            raise MissedDeadline(f"call {self._calls} was not answered") from None
        incoming.fds.close()
        if incoming.id != self._calls:
            raise GeneralFailure(f"call {self._calls} was answered as {incoming.id}")
        return decode_reply(incoming.body)

    def call(self, message: Message, fds: Sequence[int] = ()) -> Reply | None:
        """Send a proper call."""
        return self.send(encode(message), fds)

    def count_fds(self) -> int:
        """Descriptors that the driver has open."""
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    def _listen(self) -> None:
        while True:
            try:
                incoming = self._upcalls.receive()
            except (Disconnected, OSError):
                return
            incoming.fds.close()
            upcall = decode_upcall(incoming.body)
            self.notified += 1
            if isinstance(upcall, NotifyPrepared) and upcall.handle is not None:
                self.prepared.append(upcall.handle)

    def close(self) -> None:
        """End the driver; twice is fine."""
        self._channel.close()
        self._upcalls.shutdown()
        self._listener.join()
        self._upcalls.close()
        self._process.wait(PATIENCE)
