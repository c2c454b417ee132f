"""Sends a driver control messages and burst packets without a client's checks."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nnburst._native import lib
from nnburst.client.burst.core import SlotTable
from nnburst.client.burst.transport import BurstChannels
from nnburst.client.memory import Memory
from nnburst.client.prepared_model import PreparedModel
from nnburst.client.session.upcalls import BurstCallback
from nnburst.control.channel import Channel, Disconnected
from nnburst.control.messages import (
    PROTOCOL_VERSION,
    Hello,
    Message,
    NotifyPrepared,
    Reply,
    decode_reply,
    decode_upcall,
    encode,
)
from nnburst.fmq.event_flag import EventFlagBits
from nnburst.hal.enums import ErrorStatus, FeatureLevel
from nnburst.hal.errors import GeneralFailure, MissedDeadline
from nnburst.hal.limits import BURST_CHANNEL_LENGTH
from nnburst.hal.utils import Closing, driver_environment
from nnburst.serialize import DATUM_BYTES

Packet = npt.NDArray[Any]

#: Number of polls of the ring before sleeping: most answers arrive within microseconds.
_POLLS: Final = 2000
#: Seconds between two checks whether the driver is still running.
_GLANCE: Final = 0.1


class RawBurst(Closing):
    """An open burst over which the caller sends any packets. One thread at a time."""

    def __init__(
        self,
        prepared_model: PreparedModel,
        lengths: tuple[int, int] = (BURST_CHANNEL_LENGTH, BURST_CHANNEL_LENGTH),
        memories: Callable[[Sequence[int]], Sequence[Memory]] | None = None,
    ) -> None:
        """Open the burst.

        Args:
            prepared_model: an open prepared model.
            lengths: lengths of the request and the result ring.
            memories: answers getMemories instead of the slots from `slot_of`.
        """
        self._session = prepared_model._prepared.session
        self._slots = SlotTable()
        self.ended = ""
        self.channels = BurstChannels(
            prepared_model._prepared,
            BurstCallback(memories or self._slots.memories, self._failed),
            lengths,
        )
        self._memories: list[Memory] = []

    def _failed(self, reason: str) -> None:
        self.ended = reason

    def slot_of(self, memory: Memory) -> int:
        """The slot of `memory`, which the driver can request; this object keeps a reference to the memory."""
        self._memories.append(memory)
        return self._slots.slot_of(memory)[0]

    def send(self, packet: Packet | bytes) -> None:
        """Put a packet into the request ring without checks and wake the driver."""
        data = packet if isinstance(packet, bytes) else packet.tobytes()
        elements = np.frombuffer(data, self.channels.requests.dtype)
        if not self.channels.requests.write(elements):
            raise GeneralFailure(f"a packet of {len(elements)} elements does not fit the ring")
        flag = self.channels.requests.event_flag
        if flag is not None:
            lib.nnb_event_flag_notify(flag.word, int(EventFlagBits.NOT_EMPTY))

    def receive(self, timeout: float = 5.0) -> bytes:
        """Wait for a result; returns all bytes in the result ring.

        Raises:
            MissedDeadline: no result arrived in time.
            DeadObject: the driver has died.
        """
        results = self.channels.results
        for _ in range(_POLLS):
            if lib.nnb_ring_available_to_read(results.ring):
                break
        else:
            self._sleep(timeout)
        count = results.available_to_read()
        found = results.read(count)
        return b"" if found is None else found.tobytes()

    def _sleep(self, timeout: float) -> None:
        results, deadline = self.channels.results, time.monotonic() + timeout
        flag = results.event_flag
        while not results.available_to_read():
            left = deadline - time.monotonic()
            if left <= 0 or flag is None:
                raise MissedDeadline(f"no result within {timeout:g} s")
            if not self._session.is_alive:
                raise self._session.connection.end_error()
            flag.wait(EventFlagBits.NOT_EMPTY, min(left, _GLANCE))

    def exchange(self, packet: Packet | bytes, timeout: float = 5.0) -> bytes:
        """Send and receive."""
        self.send(packet)
        return self.receive(timeout)

    @property
    def quantum(self) -> int:
        """Bytes of an element."""
        return DATUM_BYTES

    def close(self) -> None:
        """End the burst."""
        self.channels.close()


#: Seconds until the driver must have answered.
PATIENCE: Final = 30.0


class RawConnection(Closing):
    """Starts a driver and sends it any bytes and descriptors. For one thread; a context manager.

    Attributes:
        prepared: handles from notifications, which the caller releases.
        notified: number of notifications.
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
        """Pid of the driver."""
        return self._process.pid

    def send(self, body: bytes, fds: Sequence[int] = ()) -> Reply | None:
        """Send a body; the reply without its descriptors, or None if the driver has ended.

        Raises:
            MissedDeadline: the driver does not answer.
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
        """Send a valid call."""
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
        """End the driver. May be called twice."""
        self._channel.close()
        self._upcalls.shutdown()
        self._listener.join()
        self._upcalls.close()
        self._process.wait(PATIENCE)
