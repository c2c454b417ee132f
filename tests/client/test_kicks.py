"""The socket that wakes an event loop, if it is closed at the wrong moment."""

from __future__ import annotations

import gc
import os
import socket
import warnings

import pytest

from nnburst import Closed
from nnburst.client.burst.transport.kicks import Kicks


def test_closed_kicks_cannot_be_watched() -> None:
    kicks = Kicks()
    kicks.close()
    with pytest.raises(Closed):
        kicks.hold()
    kicks.close()


def test_kicks_that_are_watched_keep_their_descriptor_until_they_are_not() -> None:
    kicks = Kicks()
    kicks.hold()
    kicks.close()
    assert kicks.fileno() >= 0
    assert not kicks.drain()
    kicks.release()
    assert kicks.fileno() < 0


def test_kicks_that_are_never_closed_give_their_descriptors_back_in_silence() -> None:
    kicks = Kicks()
    ends = [
        socket.fromfd(fd, socket.AF_UNIX, socket.SOCK_STREAM)
        for fd in (kicks.fileno(), kicks.their_fd)
    ]
    with ends[0], ends[1], warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        fd = kicks.fileno()
        del kicks
        gc.collect()
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)
    assert [str(warning.message) for warning in warned] == []
