"""Fixtures with a driver process at the end of a bare channel, over which tests send hostile messages."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from nnburst.control.channel import Channel, Fds
from nnburst.control.connection import Connection
from nnburst.control.messages import (
    PROTOCOL_VERSION,
    Hello,
    Message,
    Nothing,
    PrepareModel,
    Reply,
    Welcome,
    decode_reply,
    decode_upcall,
    encode,
)
from nnburst.driver.client_session import ClientSession
from nnburst.driver.model.device import Device
from nnburst.executor.null import NullExecutor
from nnburst.hal.enums import ErrorStatus, OperandType, OperationType
from nnburst.hal.model import Model
from nnburst.hal.model_builder import ModelBuilder
from waiting import wait_for


class RawClient:
    """Sends anything, receives replies."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-m", "nnburst.driver", "--executor", "null"]
            self.process = subprocess.Popen(
                [*command, "--fd", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stderr=subprocess.PIPE,
            )
        self.socket = ours
        self.channel = Channel(ours)
        self.upcalls, self._their_upcalls = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.upcall_channel = Channel(self.upcalls)
        self._calls = 0

    def exchange(self, body: bytes, fds: Sequence[int] = ()) -> tuple[Reply, Fds]:
        """Send a body and return the reply to it, and the descriptors that came along."""
        self._calls += 1
        self.channel.send(self._calls, body, fds)
        incoming = self.channel.receive(timeout=30)
        assert incoming.id == self._calls
        return decode_reply(incoming.body), incoming.fds

    def send(self, body: bytes, fds: Sequence[int] = ()) -> Reply:
        """Send a body and return the reply to it, less its descriptors."""
        reply, received = self.exchange(body, fds)
        received.close()
        return reply

    def call(self, message: Message, fds: Sequence[int] = ()) -> Reply:
        return self.send(encode(message), fds)

    def notification(self) -> Message:
        """The next one-way upcall."""
        incoming = self.upcall_channel.receive(30)
        assert incoming.id == 0
        assert not len(incoming.fds)
        return decode_upcall(incoming.body)

    def launch(self, message: Message, fds: Sequence[int] = ()) -> tuple[Reply, Any]:
        """Call what only launches something; the answer and the notification."""
        reply = self.call(message, fds)
        notified: Any = self.notification()
        assert notified.callback == message.callback  # type: ignore[attr-defined]
        return reply, notified

    def prepare(self, model: Model, fds: Sequence[int] = ()) -> int:
        """The handle of a prepared model."""
        reply, notified = self.launch(PrepareModel(model, 7), fds)
        assert (reply.status, notified.status) == (ErrorStatus.NONE, ErrorStatus.NONE), notified
        assert isinstance(reply.result, Nothing)
        return int(notified.handle)

    def hello(self, protocol: int = PROTOCOL_VERSION, level: int = 8) -> Reply:
        return self.call(Hello(protocol, level), [self._their_upcalls.fileno()])

    def introduce(self) -> None:
        reply = self.hello()
        assert reply.status == ErrorStatus.NONE, reply.message
        assert isinstance(reply.result, Welcome)

    def count_fds(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def wait_for_fds(self, before: int) -> None:
        """Wait until the worker has at most `before` descriptors: threads close theirs after answering."""
        wait_for(lambda: self.count_fds() <= before)

    def close(self) -> None:
        self.channel.close()
        self.upcalls.close()
        self._their_upcalls.close()
        self.process.communicate(timeout=10)


@pytest.fixture
def raw() -> Iterator[RawClient]:
    """A fresh driver that has received nothing yet."""
    client = RawClient()
    yield client
    client.close()


@pytest.fixture(scope="module")
def known() -> Iterator[RawClient]:
    """A driver with an introduced client, shared by tests that must not end it."""
    client = RawClient()
    client.introduce()
    yield client
    client.close()


def add_model() -> Model:
    """a + b over (2, 3) floats."""
    builder = ModelBuilder()
    kind = OperandType.TENSOR_FLOAT32
    a, b, c = builder.input(kind, (2, 3)), builder.input(kind, (2, 3)), builder.output(kind, (2, 3))
    builder.operation(OperationType.ADD, [a, b, builder.scalar(0)], [c])
    return builder.build()


@pytest.fixture
def model() -> Model:
    return add_model()


@pytest.fixture
def session() -> Iterator[ClientSession]:
    """The session of a worker on the null executor, in this process."""
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection = Connection(Channel(left), "the client")
    yield ClientSession(Device("null", NullExecutor()), connection)
    connection.close()
    right.close()
