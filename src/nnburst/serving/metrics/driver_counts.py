"""What the driver has counted of its executions, by whatever way they came: asked of its supervisor."""

from __future__ import annotations

import os
import socket
import threading
import time
from typing import Final

import msgspec

from nnburst.control.counts import MAX_ANSWER, QUESTION_BYTES, ServiceCounts

#: Seconds that the supervisor has for an answer.
_PATIENCE: Final = 5.0
_decode: Final = msgspec.msgpack.Decoder(ServiceCounts).decode


class DriverCounts:
    """The front's end of the socket over which its supervisor is asked. Thread-safe."""

    def __init__(self, fd: int) -> None:
        """Own descriptor `fd`."""
        self._socket = socket.socket(fileno=fd)
        self._lock = threading.Lock()

    def ask(self) -> ServiceCounts | None:
        """All counts of this moment; None if the supervisor does not answer in time."""
        with self._lock:
            question = os.urandom(QUESTION_BYTES)
            deadline = time.monotonic() + _PATIENCE
            try:
                self._socket.settimeout(_PATIENCE)
                self._socket.send(question)
                while (left := deadline - time.monotonic()) > 0:
                    self._socket.settimeout(left)
                    answer = self._socket.recv(MAX_ANSWER)
                    # One that comes late answers a question that was given up.
                    if answer[:QUESTION_BYTES] == question:
                        return _decode(answer[QUESTION_BYTES:])
            except (OSError, msgspec.MsgspecError):
                pass  # the scrape goes without
            return None
