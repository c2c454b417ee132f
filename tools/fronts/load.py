"""Puts clients on a server for some time: each has a connection of its own and one call in flight."""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

#: Seconds that one call may take.
PATIENCE: Final = 60
_END_OF_HEAD: Final = b"\r\n\r\n"


class BadAnswer(Exception):
    """A server's answer that is not the one that a request asks for."""


@dataclass(frozen=True)
class Block:
    """The answers that the clients of one server got in a while.

    Attributes:
        calls: of all clients together.
        seconds: that they took.
        slowest: seconds that one call in a hundred took longer than.
    """

    calls: int
    seconds: float
    slowest: float

    @property
    def rate(self) -> float:
        """Calls a second."""
        return self.calls / self.seconds

    @classmethod
    def of(cls, times: Sequence[float], seconds: float) -> Block:
        """From the seconds of each call."""
        ordered = sorted(times)
        return cls(len(ordered), seconds, ordered[(len(ordered) - 1) * 99 // 100])


def post(path: str, body: bytes, headers: dict[str, str]) -> bytes:
    """A request of HTTP as it goes over a connection."""
    lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + _END_OF_HEAD + body


class Connection:
    """A connection by HTTP that stays, without what a library does beside: the client's share is small."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._read = bytearray()
        self._length = -1

    def read(self) -> bytes | None:
        """Take what has come: the body of the answer once it is there, before that None.

        Raises:
            BadAnswer: it is not 200, has no length, or the server has closed the connection.
        """
        came = self.socket.recv(1 << 18)
        if not came:
            raise BadAnswer("the server has closed the connection")
        self._read += came
        if self._length < 0 and _END_OF_HEAD in self._read:
            head, _, rest = bytes(self._read).partition(_END_OF_HEAD)
            self._length, self._read = length(head), bytearray(rest)
        if not 0 <= self._length <= len(self._read):
            return None
        body, self._length = bytes(self._read), -1
        self._read.clear()
        return body

    def call(self, request: bytes) -> bytes:
        """The body of the answer to one request."""
        self.socket.sendall(request)
        while (body := self.read()) is None:
            pass
        return body


def length(head: bytes) -> int:
    """The length of the body behind an answer's head.

    Raises:
        BadAnswer: the answer is not 200, or does not say.
    """
    status, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (x.partition(":") for x in lines)}
    if status.split()[1] != "200" or "content-length" not in headers:
        raise BadAnswer(f"an answer of 200 with a length is wanted, not {head!r}")
    return int(headers["content-length"])


def over_http(port: int, request: bytes, clients: int, seconds: float) -> Block:
    """Load of so many clients by HTTP, all on this thread."""
    with ExitStack() as stack, selectors.DefaultSelector() as selector:
        times: list[float] = []
        sent: dict[Connection, float] = {}
        for _ in range(clients):
            one = Connection(port)
            stack.callback(one.socket.close)
            one.call(request)  # what a connection's first call takes is not measured
            selector.register(one.socket, selectors.EVENT_READ, one)
        began = time.perf_counter()
        for key in selector.get_map().values():
            sent[key.data] = time.perf_counter()
            key.data.socket.sendall(request)
        while sent:
            ready = selector.select(PATIENCE)
            if not ready:
                raise BadAnswer(f"no answer within {PATIENCE} s")
            for key, _ in ready:
                if key.data.read() is None:
                    continue
                now = time.perf_counter()
                times.append(now - sent.pop(key.data))
                if now - began < seconds:
                    sent[key.data] = time.perf_counter()
                    key.data.socket.sendall(request)
        return Block.of(times, time.perf_counter() - began)


def over_grpc(address: str, request: Any, clients: int, seconds: float) -> Block:  # noqa: ANN401
    """Load of so many clients by gRPC: a channel and a thread for each."""
    import grpc
    from tritonclient.grpc import service_pb2_grpc

    with ExitStack() as stack:
        calls: list[Callable[[], object]] = []
        for _ in range(clients):
            options = [("grpc.use_local_subchannel_pool", 1)]
            channel = stack.enter_context(grpc.insecure_channel(address, options))
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            stub.ModelInfer(request, timeout=PATIENCE)
            calls.append(lambda stub=stub: stub.ModelInfer(request, timeout=PATIENCE))  # type: ignore[misc]
        return _of_threads(calls, seconds)


def _of_threads(calls: Sequence[Callable[[], object]], seconds: float) -> Block:
    """Repeat each call on a thread of its own; an error of one is raised here."""
    times: list[list[float]] = [[] for _ in calls]
    failed: list[Exception] = []
    together = threading.Barrier(len(calls) + 1)

    def repeat(call: Callable[[], object], took: list[float]) -> None:
        together.wait(PATIENCE)
        try:
            end = time.perf_counter() + seconds
            while (began := time.perf_counter()) < end:
                call()
                took.append(time.perf_counter() - began)
        except Exception as error:
            failed.append(error)

    threads = [
        threading.Thread(target=repeat, args=each, daemon=True)
        for each in zip(calls, times, strict=True)
    ]
    for each in threads:
        each.start()
    together.wait(PATIENCE)
    began = time.perf_counter()
    for each in threads:
        each.join()
    if failed:
        raise failed[0]
    return Block.of([one for took in times for one in took], time.perf_counter() - began)
