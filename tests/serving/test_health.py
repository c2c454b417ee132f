"""grpc.health.v1: calls of Watch get every change, hold no thread, and delay no other call."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("tritonclient.grpc", reason="extra grpc is not installed")

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from nnburst.serving import direct_calls
from nnburst.serving.options import Options
from nnburst.serving.server import Readers, Server, make_threads
from serving.served import PATIENCE, Served
from serving.test_known_requests import Differing, serving
from waiting import wait_for

STATUS = health_pb2.HealthCheckResponse
WATCH = "/grpc.health.v1.Health/Watch"
#: Calls of Watch that the module's front serves at once.
MOST = 12
#: Seconds in which a front that does not hang answers, however busy the machine is.
SOON = 15


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    words = f"--http 127.0.0.1:0 --model-control explicit --max-connections {MOST}"
    with Served(*words.split(), models=("add", "both")) as served:
        yield served


@contextlib.contextmanager
def health_of(address: str) -> Iterator[Any]:
    """Health calls on a connection of their own."""
    own = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(address, options=own) as channel:
        yield health_pb2_grpc.HealthStub(channel)


@pytest.fixture
def health(served: Served) -> Iterator[Any]:
    with health_of(served.address) as health:
        yield health


def service(name: str = "") -> Any:
    return health_pb2.HealthCheckRequest(service=name)


def statuses(watch: Any, count: int) -> list[Any]:
    """The next statuses of a call that has a deadline."""
    return [next(watch).status for _ in range(count)]


def refusal(health: Any, name: str = "") -> grpc.RpcError:
    """The error of a call of Watch."""
    with pytest.raises(grpc.RpcError) as refused:
        next(health.Watch(service(name), timeout=PATIENCE))
    return refused.value


def answers(served: Served) -> None:
    """Both protocols answer calls of the threads for everything but inference."""
    client = served.client()
    with contextlib.closing(client), health_of(served.address) as health:
        assert health.Check(service(), timeout=SOON).status == STATUS.SERVING
        assert client.get_server_metadata(client_timeout=SOON).name == "nnburst"
    host, port = served.http.split(":")
    with socket.create_connection((host, int(port)), SOON) as connection:
        connection.sendall(b"GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 200")


def watched_without_room(address: str, name: str) -> socket.socket:
    """A connection with a call of Watch that lets the server send not one byte of a message."""

    def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
        return (
            struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload
        )

    def field(name: bytes, value: bytes) -> bytes:
        return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value

    fields = {
        b":method": b"POST",
        b":scheme": b"http",
        b":path": WATCH.encode(),
        b":authority": b"x",
        b"content-type": b"application/grpc",
        b"te": b"trailers",
    }
    message = service(name).SerializeToString()
    host, port = address.split(":")
    connection = socket.create_connection((host, int(port)), PATIENCE)
    connection.sendall(
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        + frame(4, 0, 0, struct.pack(">HI", 4, 0))  # SETTINGS: an initial window of 0
        + frame(4, 1, 0, b"")
        + frame(1, 4, 1, b"".join(field(*each) for each in fields.items()))
        + frame(0, 1, 1, b"\0" + struct.pack(">I", len(message)) + message)
    )
    received = b""
    while frame(1, 4, 1, b"")[3:] not in received:  # HEADERS: the server has begun to answer
        chunk = connection.recv(4096)
        assert chunk
        received += chunk
    return connection


def test_watch_gets_every_change_of_a_model_and_of_the_server(served: Served, health: Any) -> None:
    client = served.client()
    watches = [health.Watch(service(name), timeout=PATIENCE) for name in ("both", "")]
    assert [statuses(each, 1) for each in watches] == [[STATUS.SERVING]] * 2
    client.unload_model("both")
    client.load_model("both")
    assert statuses(watches[0], 2) == [STATUS.SERVICE_UNKNOWN, STATUS.SERVING]
    served.kill_workers()
    for each in watches:
        assert statuses(each, 2) == [STATUS.NOT_SERVING, STATUS.SERVING]
        each.cancel()
    client.close()
    served.wait_until_ready()


def test_watch_of_an_unknown_name_gets_its_status_when_it_is_there(
    served: Served, health: Any
) -> None:
    client = served.client()
    client.unload_model("both")
    watches = [health.Watch(service(name), timeout=PATIENCE) for name in ("both", "never")]
    assert [statuses(each, 1) for each in watches] == [[STATUS.SERVICE_UNKNOWN]] * 2
    client.load_model("both")
    assert statuses(watches[0], 1) == [STATUS.SERVING]
    for each in watches:
        each.cancel()
    client.close()


def test_watch_gets_the_end_of_the_server_as_its_last_status() -> None:
    with Served(models=("add",)) as served, health_of(served.address) as health:
        watch = health.Watch(service(), timeout=PATIENCE)
        assert statuses(watch, 1) == [STATUS.SERVING]
        served.close()
        assert statuses(watch, 1) == [STATUS.NOT_SERVING]
        with pytest.raises(grpc.RpcError) as ended:
            next(watch)
        assert ended.value.code() is not grpc.StatusCode.DEADLINE_EXCEEDED


def test_caller_of_watch_that_takes_nothing_delays_no_other_call(
    served: Served, health: Any
) -> None:
    watch = health.Watch(service("both"), timeout=PATIENCE)
    assert statuses(watch, 1) == [STATUS.SERVING]
    client = served.client()
    with watched_without_room(served.address, "both"):
        answers(served)
        for _ in range(3):
            client.unload_model("both", client_timeout=SOON)
            client.load_model("both", client_timeout=PATIENCE)
            assert statuses(watch, 2) == [STATUS.SERVICE_UNKNOWN, STATUS.SERVING]
        answers(served)
    watch.cancel()
    client.close()


def test_watches_that_begin_and_end_beside_checks_hang_nothing(served: Served) -> None:
    ended = time.monotonic() + 3
    errors: list[grpc.RpcError] = []

    def call(*, watches: bool) -> None:
        with health_of(served.address) as health:
            while not errors and time.monotonic() < ended:
                try:
                    if watches:
                        watch = health.Watch(service(), timeout=SOON)
                        next(watch)
                        watch.cancel()
                    else:
                        health.Check(service(), timeout=SOON)
                except grpc.RpcError as error:
                    errors.append(error)

    threads = [
        threading.Thread(target=call, kwargs={"watches": watches}, daemon=True)
        for watches in (True, True, True, False)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * SOON)
    assert errors == []
    answers(served)


def test_watches_without_a_message_hold_no_thread(served: Served) -> None:
    never = threading.Event()

    def message() -> Iterator[bytes]:
        never.wait(PATIENCE)
        yield from ()

    with grpc.insecure_channel(served.address) as channel:
        held = [channel.stream_stream(WATCH)(message()) for _ in range(30)]
        answers(served)
        assert not any(call.done() for call in held)
        for call in held:
            call.cancel()
        never.set()


def test_watches_are_bounded_and_one_that_ends_makes_room(served: Served, health: Any) -> None:
    watches: list[Any] = []

    def stands() -> bool:
        watch = health.Watch(service(), timeout=PATIENCE)
        try:
            next(watch)
        except grpc.RpcError:
            return False
        watches.append(watch)
        return True

    for _ in range(MOST):  # those of earlier tests may still be ending
        wait_for(stands)
    refused = refusal(health)
    assert refused.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert refused.details() == f"{MOST} calls of Watch are open, expected at most that many"
    answers(served)
    watches.pop().cancel()
    wait_for(stands)
    for watch in watches:
        watch.cancel()


class Local:
    """A server in this process, which the end of a test does not wait for without a deadline."""

    def __init__(self) -> None:
        options = Options("", {}, "127.0.0.1:0", max_message=2**31 - 1)
        self.server = Server(options, serving(Differing()), make_threads(options, Readers()))
        self.server.start()

    def close(self) -> None:
        self.server.begin_end(0)
        ending = threading.Thread(target=self.server.close, daemon=True)
        ending.start()
        ending.join(PATIENCE)
        assert not ending.is_alive()


@pytest.fixture
def local() -> Iterator[Local]:
    local = Local()
    yield local
    local.close()


def test_names_that_are_watched_no_longer_are_not_kept(local: Local) -> None:
    with health_of(local.server.address) as health:
        for number in range(20):
            watch = health.Watch(service(f"name {number}"), timeout=PATIENCE)
            assert statuses(watch, 1) == [STATUS.SERVICE_UNKNOWN]
            watch.cancel()
        wait_for(lambda: not local.server._health._watches, SOON)


def test_name_longer_than_that_of_a_model_is_not_watched(local: Local) -> None:
    with health_of(local.server.address) as health:
        for size in (129, 2_000_000):
            refused = refusal(health, "x" * size)
            assert refused.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert (
                refused.details() == f"service: a name of {size} characters, expected at most 128"
            )
        assert statuses(health.Watch(service("x" * 128), timeout=SOON), 1)


def test_watch_whose_message_does_not_come_is_ended(
    local: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = threading.Event()

    def message() -> Iterator[bytes]:
        never.wait(PATIENCE)
        yield from ()

    with grpc.insecure_channel(local.server.address) as channel:
        call = channel.stream_stream(WATCH)(message(), timeout=PATIENCE)
        wait_for(lambda: len(local.server._health._receiver) == 1)
        monkeypatch.setattr(direct_calls, "READING", 0)
        local.server.look(0)
        assert call.code() is grpc.StatusCode.CANCELLED
        never.set()


def test_watch_is_refused_by_a_grpcio_without_functions_that_are_not_public(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(direct_calls, "HAS_DIRECT", False)
    local = Local()
    try:
        with health_of(local.server.address) as health:
            assert health.Check(service(), timeout=SOON).status == STATUS.SERVING
            assert refusal(health).code() is grpc.StatusCode.UNIMPLEMENTED
    finally:
        local.close()
