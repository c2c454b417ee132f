"""Descriptors of another process may be sockets whose `close` waits for an hour (SO_LINGER): nobody waits.

A client that sent one to a service left a worker behind for that time, and with it a place of another client.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from client.service import Service
from descriptors import lingering_socket
from nnburst.control.channel import Channel, Fds
from nnburst.control.fences import adopt_fence
from nnburst.control.messages import PROTOCOL_VERSION, Hello, encode
from nnburst.fmq.named_queue import receive_queue
from nnburst.fmq.shared_memory import RECORD_BYTES, SharedMemory
from nnburst.hal.enums import FeatureLevel
from nnburst.hal.errors import InvalidArgument
from nnburst.testing.faults.footprint import children
from waiting import wait_for


def adopt_as_memory(fd: int) -> None:
    with pytest.raises(InvalidArgument):
        SharedMemory.adopt(fd)


def adopt_as_fence(fd: int) -> None:
    with pytest.raises(InvalidArgument):
        adopt_fence(fd)


def close_as_process(fd: int) -> None:
    connected, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with other:
        channel = Channel(connected)
        channel.watch_process(fd)
        channel.close()


def receive_as_queue(fd: int) -> None:
    left, right = socket.socketpair()
    with left, right:
        socket.send_fds(left, [bytes(RECORD_BYTES)], [fd, fd])
        os.close(fd)
        with pytest.raises(InvalidArgument):
            receive_queue(right, np.dtype("<u4"), timeout=10)


@pytest.mark.parametrize(
    "close",
    [
        lambda fd: Fds([fd]).close(),
        adopt_as_memory,
        adopt_as_fence,
        close_as_process,
        receive_as_queue,
    ],
    ids=["surplus", "memory", "fence", "process", "queue"],
)
def test_a_received_socket_that_lingers_is_closed_at_once(close: Callable[[int], None]) -> None:
    lingering, peer = lingering_socket()
    thread = threading.Thread(target=close, args=(lingering.detach(),), daemon=True)
    with peer:
        thread.start()
        thread.join(10)
        assert not thread.is_alive(), "it waits for the socket's peer"


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service("add=serving.networks:add") as service:
        yield service


def named_workers(supervisor: int) -> list[int]:
    """Workers that have a client."""
    found = []
    for pid in children(supervisor):
        with contextlib.suppress(OSError):  # it has just ended
            if Path(f"/proc/{pid}/comm").read_text() == "nnburst worker\n":
                found.append(pid)
    return found


@pytest.mark.parametrize("beside", [False, True], ids=["upcalls", "surplus"])
def test_no_worker_stays_for_a_client_that_left_a_socket_that_lingers(
    service: Service, beside: bool
) -> None:
    lingering, peer = lingering_socket()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connected.connect(service.address)
    hello = encode(Hello(PROTOCOL_VERSION, FeatureLevel.AIDL_V4))
    with peer, ours:
        with contextlib.closing(Channel(connected)) as client, theirs, lingering:
            fds = [theirs.fileno(), lingering.fileno()] if beside else [lingering.fileno()]
            client.send(1, hello, fds)
            wait_for(lambda: named_workers(service.pid))
        wait_for(lambda: not named_workers(service.pid), 20)
