"""Implements sync fences: one end of a socketpair, on which one byte reports the outcome.

The signaller sends a status byte and closes its end. If it closes its end without a byte, for example by
dying, the fence is in the error state. A waiter only peeks at the byte, so any number of processes may wait
on copies of one descriptor. (An eventfd reports no death, and any process with a copy could signal it.)

NNAPI: sync fences of 1.3 and AIDL.
"""

from __future__ import annotations

import contextlib
import os
import socket
import weakref
from enum import IntEnum
from typing import Final

from nnburst.fmq.shared_memory import close_received
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.utils import Scarce, is_readable
from nnburst.hal.validation.values import validate_sync_fence

_LOOK: Final = socket.MSG_PEEK | socket.MSG_DONTWAIT
_DONE: Final = b"\x01"
_FAILED: Final = b"\x02"


class FenceStatus(IntEnum):
    """State of a sync fence, with the numbers of Linux's sync_file."""

    ERROR = -1
    """The work that it stands for failed, or its signaller is gone."""

    ACTIVE = 0
    """Not signalled yet."""

    SIGNALLED = 1
    """The work that it stands for is done."""


class Signaller:
    """Signals one fence, once. If it is closed before, the fence gets into the error state."""

    def __init__(self, end: socket.socket) -> None:
        """Own `end` from here on."""
        self._end: socket.socket | None = end
        # Not __del__: in a cycle the garbage collector may finalise the socket first, with a warning.
        weakref.finalize(self, end.close).atexit = False

    def signal(self) -> None:
        """Signal the fence: the work is done. Later calls do nothing."""
        self._say(_DONE)

    def fail(self) -> None:
        """Put the fence into the error state: the work has failed. Later calls do nothing."""
        self._say(_FAILED)

    def _say(self, status: bytes) -> None:
        end, self._end = self._end, None
        if end is None:
            return
        # There is always room: no other end can write what this one sends, and it sends once.
        with end, contextlib.suppress(OSError):
            end.send(status, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)

    def close(self) -> None:
        """Close the signaller; a fence that was not signalled gets into the error state. Twice is fine."""
        end, self._end = self._end, None
        if end is not None:
            end.close()

    def __repr__(self) -> str:
        return f"<nnburst Signaller: {'used or closed' if self._end is None else 'open'}>"


def create_fence() -> tuple[socket.socket, Signaller]:
    """Make an active fence and its signaller.

    Raises:
        ResourceExhausted: this process may have no more descriptors.
    """
    with Scarce("a fence cannot be made"):
        fence, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    end.shutdown(socket.SHUT_RD)
    return fence, Signaller(end)


def adopt_fence(fd: int) -> socket.socket:
    """Make a fence from its descriptor, which the fence owns from here on.

    Raises:
        InvalidArgument: validation:S10: it is negative; or it is not a local stream socket. It is closed.
    """
    validate_sync_fence(fd)
    try:
        fence = socket.socket(fileno=fd)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.close(fd)
        raise InvalidArgument(f"a sync fence must be a socket: {error}") from error
    if (fence.family, fence.type) != (socket.AF_UNIX, socket.SOCK_STREAM):
        close_received(fence.detach())
        raise InvalidArgument("a sync fence must be an AF_UNIX STREAM socket")
    return fence


def fence_status(fence: socket.socket) -> FenceStatus:
    """The current state of a fence. Never waits, and leaves the byte in the socket."""
    try:
        try:
            status = fence.recv(1, _LOOK)
        except BlockingIOError:
            if not _is_readable(fence):
                return FenceStatus.ACTIVE
            status = fence.recv(1, _LOOK)  # it has come just now
    except OSError:
        # It was never connected, or listens, or has a byte out of band (MSG_OOB), which no signaller sends:
        # poll would report that one for ever.
        return FenceStatus.ERROR
    return FenceStatus.SIGNALLED if status == _DONE else FenceStatus.ERROR


def _is_readable(fence: socket.socket) -> bool:
    try:
        return is_readable(fence.fileno())
    except ValueError:  # another thread has closed it, as the next look at it shows
        return True
