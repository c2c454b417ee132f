"""Calls with one message: no thread waits for the message, and one that does not come ends its call."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

pytest.importorskip("grpc", reason="extra grpc is not installed")
pytest.importorskip("tritonclient.grpc", reason="extra grpc is not installed")

import grpc

from nnburst.serving import direct_calls
from nnburst.serving.direct_calls import Context, Receiver, Send, answer
from waiting import wait_for

PATIENCE = 60


class Echo:
    """A server with one thread. `echo` answers what came, `fails` raises."""

    def __init__(self) -> None:
        self.threads = ThreadPoolExecutor(1, "pool")
        self.receiver = Receiver(self.threads, 1000)
        self.names: list[str] = []
        handler = self.receiver.handler
        self.server = grpc.server(ThreadPoolExecutor(1))
        self.server.add_registered_method_handlers(
            "test",
            {
                "echo": handler(self.echo),
                "fails": handler(self.fails),
            },
        )
        port = self.server.add_insecure_port("127.0.0.1:0")
        self.server.start()
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}")

    def call(self, name: str) -> Any:
        return self.channel.unary_unary(f"/test/{name}")

    def begin(self, message: Iterator[bytes]) -> Any:
        """Begin a call whose message may never come."""
        return self.channel.stream_unary("/test/echo").future(message)

    def echo(self, data: bytes | None, context: Context, send: Send) -> None:
        self.names.append(threading.current_thread().name)
        answer(context, send, b"none" if data is None else data)

    def fails(self, *_: object) -> None:
        raise ValueError("of the test")


class Never:
    """A message that does not come until `end`."""

    def __init__(self) -> None:
        self._ended = threading.Event()

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        self._ended.wait(PATIENCE)
        raise StopIteration

    def end(self) -> None:
        """End the call without a message."""
        self._ended.set()


@pytest.fixture
def server() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.channel.close()
    server.server.stop(None).wait()


@pytest.fixture
def never() -> Iterator[Never]:
    never = Never()
    yield never
    never.end()


def test_only_large_messages_take_a_thread(server: Echo) -> None:
    for size in (0, 1000, 1001, 100_000):
        assert server.call("echo")(b"x" * size, timeout=PATIENCE) == b"x" * size
    assert [name.startswith("pool") for name in server.names] == [False, False, True, True]


def test_call_that_ends_without_a_message_has_none(server: Echo, never: Never) -> None:
    call = server.begin(never)
    never.end()
    assert call.result(PATIENCE) == b"none"


def test_call_whose_message_does_not_come_is_ended(
    server: Echo, never: Never, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = server.begin(never)
    wait_for(lambda: len(server.receiver) == 1)
    server.receiver.look(0)
    assert not call.done(), "it has its time"
    monkeypatch.setattr(direct_calls, "READING", 0)
    server.receiver.look(0)
    assert call.code() is grpc.StatusCode.CANCELLED
    wait_for(lambda: len(server.receiver) == 0)


def test_call_whose_message_waits_for_a_thread_goes_on(
    server: Echo, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    server.threads.submit(gate.wait, PATIENCE)
    call = server.call("echo").future(b"x" * 2000)
    wait_for(lambda: server.threads._work_queue.qsize() == 1)
    monkeypatch.setattr(direct_calls, "READING", 0)
    server.receiver.look(0)
    gate.set()
    assert call.result(PATIENCE) == b"x" * 2000


def test_messages_that_are_received_at_once_are_bounded_and_other_calls_wait(
    server: Echo, never: Never, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct_calls, "_MOST", 2)
    monkeypatch.setattr(direct_calls, "_MOST_WAITING", 3)
    held = [server.begin(never) for _ in range(2)]
    wait_for(lambda: len(server.receiver) == 2)
    waiting = [server.call("echo").future(b"%d" % number) for number in range(3)]
    wait_for(lambda: len(server.receiver) == 5)
    with pytest.raises(grpc.RpcError, match="3 calls wait for their messages") as refused:
        server.call("echo")(b"x", timeout=PATIENCE)
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert not any(call.done() for call in waiting)
    waiting[0].cancel()
    held[0].cancel()
    assert [call.result(PATIENCE) for call in waiting[1:]] == [b"1", b"2"]
    held[1].cancel()
    wait_for(lambda: len(server.receiver) == 0)
    assert server.call("echo")(b"x", timeout=PATIENCE) == b"x"


def test_unexpected_error_ends_one_call_and_the_server_goes_on(server: Echo) -> None:
    with pytest.raises(grpc.RpcError) as failed:
        server.call("fails")(b"x", timeout=PATIENCE)
    assert failed.value.code() is grpc.StatusCode.CANCELLED
    assert server.call("echo")(b"x", timeout=PATIENCE) == b"x"


def test_call_that_cannot_be_received_is_ended_and_counts_no_longer(
    server: Echo, never: Never, monkeypatch: pytest.MonkeyPatch
) -> None:
    receive = direct_calls._receive
    fails = iter([True, False, True])

    def failing(*call: Any) -> bool:
        if next(fails, False):
            raise ValueError("of the test")
        return receive(*call)

    monkeypatch.setattr(direct_calls, "_receive", failing)
    monkeypatch.setattr(direct_calls, "_MOST", 1)
    with pytest.raises(grpc.RpcError) as first:
        server.call("echo")(b"x", timeout=PATIENCE)
    assert first.value.code() is grpc.StatusCode.CANCELLED
    wait_for(lambda: len(server.receiver) == 0)
    held = server.begin(never)
    wait_for(lambda: len(server.receiver) == 1)
    waiting = []
    for count in (2, 3):
        waiting.append(server.call("echo").future(b"y"))
        wait_for(lambda count=count: len(server.receiver) == count)
    held.cancel()
    assert isinstance(waiting[0].exception(PATIENCE), grpc.RpcError)
    assert waiting[0].code() is grpc.StatusCode.CANCELLED
    assert waiting[1].result(PATIENCE) == b"y", "the next call that waits is received"
    wait_for(lambda: len(server.receiver) == 0)


def test_message_that_no_thread_can_take_ends_its_call_and_counts_no_longer(server: Echo) -> None:
    server.threads.shutdown()
    with pytest.raises(grpc.RpcError) as refused:
        server.call("echo")(b"x" * 2000, timeout=PATIENCE)
    assert refused.value.code() is grpc.StatusCode.CANCELLED
    wait_for(lambda: len(server.receiver) == 0)
    assert server.call("echo")(b"x", timeout=PATIENCE) == b"x"
