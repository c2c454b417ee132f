"""Long bodies over HTTP, for which all callers share the room."""

from __future__ import annotations

import contextlib
import socket
import time

import pytest

pytest.importorskip("tritonclient.grpc", reason="extra grpc is not installed")
pytest.importorskip("aiohttp", reason="extra http is not installed")

from nnburst.serving import http_server
from nnburst.serving.http_server import HttpServer
from serving.served import PATIENCE


def test_long_body_that_stands_still_is_given_up_and_one_at_an_even_pace_is_not(
    lone_server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "_STALLED", 1.0)
    host, port = lone_server.address.split(":")
    size, steps = 1 << 20, 32
    head = f"POST /v2/models/differing/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n"
    with (
        socket.create_connection((host, int(port)), timeout=PATIENCE) as stalled,
        socket.create_connection((host, int(port)), timeout=PATIENCE) as even,
    ):
        stalled.sendall(head.encode() + bytes(size // 2))
        even.sendall(head.encode())
        for _ in range(steps):
            even.sendall(bytes(size // steps))
            time.sleep(0.1)
            with contextlib.suppress(ConnectionError):
                stalled.sendall(b"x")  # hardly more than nothing
        stalled.settimeout(10.0)  # less than the time that a body has
        assert stalled.recv(13) == b"HTTP/1.1 408 "
        assert even.recv(13) == b"HTTP/1.1 400 ", "it has come, and is no request"
    assert lone_server._bodies.held == 0
