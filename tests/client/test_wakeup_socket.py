"""The socket that wakes an event loop, if it is closed at the wrong moment."""

from __future__ import annotations

import gc
import os
import socket
import warnings

import pytest

from nnburst import Closed
from nnburst.client.burst.transport import WakeupSocket


def test_closed_wakeups_cannot_be_watched() -> None:
    wakeup_socket = WakeupSocket()
    wakeup_socket.close()
    with pytest.raises(Closed):
        wakeup_socket.hold()
    wakeup_socket.close()


def test_wakeups_that_are_watched_keep_their_descriptor_until_they_are_not() -> None:
    wakeup_socket = WakeupSocket()
    wakeup_socket.hold()
    wakeup_socket.close()
    assert wakeup_socket.fileno() >= 0
    assert not wakeup_socket.drain()
    wakeup_socket.release()
    assert wakeup_socket.fileno() < 0


def test_wakeups_that_are_never_closed_give_their_descriptors_back_in_silence() -> None:
    wakeup_socket = WakeupSocket()
    ends = [
        socket.fromfd(fd, socket.AF_UNIX, socket.SOCK_STREAM)
        for fd in (wakeup_socket.fileno(), wakeup_socket.their_fd)
    ]
    with ends[0], ends[1], warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        fd = wakeup_socket.fileno()
        del wakeup_socket
        gc.collect()
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)
    assert [str(warning.message) for warning in warned] == []
