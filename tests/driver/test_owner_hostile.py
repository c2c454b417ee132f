"""A worker under its client's control harms neither the owner of the device nor other clients."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from client.conftest import add_model
from nnburst.control.channel import Channel
from nnburst.control.connection import Connection
from nnburst.control.messages import (
    CreateReusableExecution,
    Executed,
    Hello,
    Message,
    Opened,
    Ping,
    PrepareModel,
    Release,
    Welcome,
)
from nnburst.driver.calls import fenced_execution
from nnburst.driver.executors import make_executor
from nnburst.driver.model.device import Device
from nnburst.driver.owner_client import Attach, RunBound
from nnburst.driver.owner_server import FairTurns, OwnedWorker
from nnburst.fmq.shared_memory import SharedMemory
from nnburst.hal.enums import Priority
from nnburst.hal.errors import DeadObject, InvalidArgument, MissedDeadline, NnburstError
from nnburst.hal.model import DataLocation, MemoryPool
from nnburst.hal.types import Request, RequestArgument

PATIENCE = 30.0
BYTES = 24


class Peer:
    """A worker's end of its connection to the owner, over which a test sends anything."""

    def __init__(self, device: Device, turns: FairTurns) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.served = OwnedWorker(theirs, device, turns.join(0))
        self.thread = threading.Thread(target=self.served.serve)
        self.thread.start()
        self.socket = ours
        self.connection = Connection(Channel(ours), "the owner")

    def call(self, message: Message, expected: type[Message], *fds: int) -> Message:
        answer, received = self.connection.call(message, expected, fds, timeout=PATIENCE)
        received.close()
        return answer

    def prepare(self) -> int:
        opened = self.call(PrepareModel(add_model(), 1), Opened)
        assert isinstance(opened, Opened)
        return opened.handle

    def bind(self, model: int, memory: SharedMemory, size: int = 3 * BYTES) -> int:
        message = CreateReusableExecution(model, request(size))
        opened = self.call(message, Opened, memory.fd)
        assert isinstance(opened, Opened)
        return opened.handle

    def end(self) -> None:
        self.connection.close()
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()


def request(size: int) -> Request:
    """a + b, one behind the other in a pool, and their sum behind them."""
    places = [RequestArgument(location=DataLocation(0, n * BYTES, BYTES)) for n in range(3)]
    return Request(tuple(places[:2]), (places[2],), (MemoryPool(size, 0),))


@pytest.fixture
def peers() -> Iterator[tuple[Peer, Peer]]:
    device = Device("shared", make_executor("reference"))
    turns = FairTurns()
    both = Peer(device, turns), Peer(device, turns)
    yield both
    for peer in both:
        peer.end()


def assert_serves(peer: Peer) -> None:
    with SharedMemory.create(3 * BYTES) as memory:
        numbers = memory.map(writable=True).view(np.float32)
        numbers[:12] = np.arange(12)
        bound = peer.bind(peer.prepare(), memory)
        assert isinstance(peer.call(RunBound(bound), Executed), Executed)
        np.testing.assert_array_equal(numbers[12:], np.arange(6) + np.arange(6, 12))


def test_handles_of_one_client_are_not_those_of_another(peers: tuple[Peer, Peer]) -> None:
    one, other = peers
    with SharedMemory.create(3 * BYTES) as memory:
        model = one.prepare()
        bound = one.bind(model, memory)
        for refused in (RunBound(bound), Release(model), Release(bound)):
            with pytest.raises(InvalidArgument, match="is not open on this connection"):
                other.call(refused, Executed)
        with pytest.raises(InvalidArgument, match="is not open on this connection"):
            other.bind(model, memory)
    assert_serves(one)
    assert_serves(other)


def test_memory_that_could_shrink_is_refused(peers: tuple[Peer, Peer]) -> None:
    model = peers[0].prepare()
    fd = os.memfd_create("not sealed", os.MFD_CLOEXEC)
    os.ftruncate(fd, 4096)
    with SharedMemory(fd, 3 * BYTES) as memory, pytest.raises(InvalidArgument, match="seal"):
        peers[0].bind(model, memory)
    assert_serves(peers[0])


def test_request_beyond_its_memory_is_refused(peers: tuple[Peer, Peer]) -> None:
    model = peers[0].prepare()
    with SharedMemory.create(2 * BYTES) as memory:
        for size in (2 * BYTES, 3 * BYTES):
            with pytest.raises(InvalidArgument):
                peers[0].bind(model, memory, size)
    assert_serves(peers[0])


def test_handle_of_something_else_is_not_run(peers: tuple[Peer, Peer]) -> None:
    model = peers[0].prepare()
    with pytest.raises(InvalidArgument, match="expected a ReusableExecution"):
        peers[0].call(RunBound(model), Executed)


@pytest.mark.parametrize("message", [Ping(), Hello(2, 7)])
def test_calls_of_clients_are_refused_by_the_owner(
    peers: tuple[Peer, Peer], message: Message
) -> None:
    with pytest.raises(NnburstError):
        peers[0].call(message, Welcome, *[0] * (message.fd_count or 0))
    assert isinstance(peers[0].call(Attach(), Welcome), Welcome)


def test_broken_envelope_ends_one_connection_and_no_other(peers: tuple[Peer, Peer]) -> None:
    one, other = peers
    one.socket.send(b"\xff broken")
    one.thread.join(PATIENCE)
    assert not one.thread.is_alive()
    with pytest.raises(DeadObject):
        one.call(Attach(), Welcome)
    assert_serves(other)


def test_all_that_a_client_had_goes_with_it(peers: tuple[Peer, Peer]) -> None:
    one, other = peers
    with SharedMemory.create(3 * BYTES) as memory:
        bound = one.bind(one.prepare(), memory)
        one.call(RunBound(bound), Executed)
    assert one.served.held == 2
    one.end()
    assert one.served.held == 0
    assert_serves(other)


@pytest.mark.campaign
def test_request_that_was_unbound_while_it_idled_runs_again(
    peers: tuple[Peer, Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fenced_execution, "IDLE_NS", 1_000_000)
    with SharedMemory.create(3 * BYTES) as memory:
        numbers = memory.map(writable=True).view(np.float32)
        bound = peers[0].bind(peers[0].prepare(), memory)
        for number in range(3):
            numbers[:12] = number
            peers[0].call(RunBound(bound), Executed)
            np.testing.assert_array_equal(numbers[12:], np.full(6, 2 * number))
            deadline = time.monotonic() + PATIENCE
            while any(thread.name == "nnburst idle" for thread in threading.enumerate()):
                assert time.monotonic() < deadline
                threading.Event().wait(0.001)


def test_wait_for_a_turn_ends_at_the_deadline_of_the_request() -> None:
    turns = FairTurns()
    peer = Peer(Device("shared", make_executor("reference")), turns)
    with SharedMemory.create(3 * BYTES) as memory:
        bound = peer.bind(peer.prepare(), memory)
        with turns.join(1).turn(Priority.MEDIUM):  # another user has the device all the time
            deadline_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) + 50_000_000
            with pytest.raises(MissedDeadline, match="E4: the deadline has passed"):
                peer.call(RunBound(bound, deadline_ns), Executed)
            assert turns.waiting == 0
    assert_serves(peer)
    peer.end()
