"""Calls without a caller that waits: `Connection.launch`."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Iterator

import pytest

from nnburst.control.channel import Channel, Incoming
from nnburst.control.connection import Connection
from nnburst.control.messages import Nothing, Opened, Ping, Reply, encode
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.errors import (
    Closed,
    DeadObject,
    GeneralFailure,
    MissedDeadline,
    NnburstError,
    ResourceExhausted,
)

HANG = 10.0


class Ends:
    """A connection, and the bare channel of its peer."""

    def __init__(self) -> None:
        left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.connection = Connection(Channel(left), "the driver")
        self.peer = Channel(right)
        self.heard: queue.SimpleQueue[NnburstError | None] = queue.SimpleQueue()

    def launch(self, timeout: float = HANG) -> None:
        self.connection.call_async(Ping(), Nothing, (), self.heard.put, timeout=timeout)

    def receive(self) -> Incoming:
        return self.peer.receive(HANG)

    def answer(self, reply: Reply) -> None:
        self.peer.send(self.receive().id, encode(reply))

    def outcome(self) -> NnburstError | None:
        return self.heard.get(timeout=HANG)

    def close(self) -> None:
        self.connection.close()
        self.peer.close()


@pytest.fixture
def ends() -> Iterator[Ends]:
    both = Ends()
    yield both
    both.close()
    assert both.heard.empty()


def test_answer_reaches_the_callback(ends: Ends) -> None:
    ends.launch()
    ends.answer(Reply(result=Nothing()))
    assert ends.outcome() is None


def test_refusal_reaches_the_callback(ends: Ends) -> None:
    ends.launch()
    ends.answer(Reply(ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT, "too many"))
    error = ends.outcome()
    assert isinstance(error, ResourceExhausted)
    assert str(error) == "too many"


def test_answer_of_another_kind_is_a_failure(ends: Ends) -> None:
    ends.launch()
    ends.answer(Reply(result=Opened(1)))
    assert isinstance(ends.outcome(), GeneralFailure)


@pytest.mark.parametrize("answered", [False, True])
def test_end_of_the_peer_reaches_the_callback_once(ends: Ends, answered: bool) -> None:
    ends.launch()
    if answered:
        ends.answer(Reply(result=Nothing()))
        assert ends.outcome() is None
    ends.peer.shutdown()
    if not answered:
        assert isinstance(ends.outcome(), DeadObject)


def test_closing_reaches_the_callback_as_such(ends: Ends) -> None:
    ends.launch()
    ends.connection.close()
    assert isinstance(ends.outcome(), Closed)


def test_call_to_a_peer_that_is_gone_fails(ends: Ends) -> None:
    ends.peer.shutdown()
    ended = threading.Event()
    ends.connection.on_end(ended.set)
    assert ended.wait(HANG)
    with pytest.raises(DeadObject):
        ends.launch()


def test_call_to_a_peer_that_does_not_read_fails(ends: Ends) -> None:
    launched = 0
    with pytest.raises(MissedDeadline, match="did not take Ping"):
        while True:
            ends.launch(timeout=0.01)
            launched += 1
    for _ in range(launched):
        ends.answer(Reply(result=Nothing()))
        assert ends.outcome() is None
