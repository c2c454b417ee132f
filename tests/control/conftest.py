"""Pairs of connected sockets and channels, and how many descriptors this process holds."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from nnburst.control.channel import Channel


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two ends of a SEQPACKET connection."""
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    yield left, right
    left.close()
    right.close()


@pytest.fixture
def channels(sockets: tuple[socket.socket, socket.socket]) -> tuple[Channel, Channel]:
    """The same as channels."""
    return Channel(sockets[0]), Channel(sockets[1])
