"""Upcalls that carry more pools than a message are refused."""

from __future__ import annotations

import socket

import pytest

from descriptors import descriptors
from nnburst import Device, InvalidArgument, Memory
from nnburst.client.session.upcalls import BurstCallback, UpcallServer
from nnburst.control.channel import MAX_FDS, Channel
from nnburst.control.connection import Connection
from nnburst.control.messages import GetMemories, Memories


@pytest.mark.parametrize("slots", [MAX_FDS + 1, 900])
def test_more_pools_than_a_message_carries_are_refused_before_any_is_duplicated(
    device: Device, slots: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    duplicated = []
    duplicate = Memory.duplicate

    def note(memory: Memory) -> int:
        duplicated.append(memory)
        return duplicate(memory)

    monkeypatch.setattr(Memory, "duplicate", note)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server = UpcallServer(Channel(ours), lambda _: None, lambda: None)
    driver = Connection(Channel(theirs), "the client")
    with device.allocate(64) as memory:
        number = server.register(BurstCallback(lambda asked: [memory] * len(asked), lambda _: None))
        before = descriptors()
        with pytest.raises(InvalidArgument, match="at most 64"):
            driver.call(GetMemories(number, (0,) * slots), Memories, timeout=20)
        assert not duplicated
        found, fds = driver.call(GetMemories(number, (0,) * MAX_FDS), Memories, timeout=20)
        with fds:
            assert len(fds) == len(found.sizes) == MAX_FDS
    driver.close()
    server.close()
    assert descriptors() <= before
