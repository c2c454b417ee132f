"""Long bodies over HTTP, for which all callers share the room."""

from __future__ import annotations

import contextlib
import gzip
import socket
import time
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("tritonclient.grpc", reason="extra grpc is not installed")
pytest.importorskip("aiohttp", reason="extra http is not installed")

from nnburst.hal.errors import InvalidArgument
from nnburst.serving import http_server
from nnburst.serving.body_decoder import BodyDecoder
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


class Counted:
    """A decompressor that counts the bytes that it has made."""

    made = 0

    def __init__(self, real: Any) -> None:
        self._real = real

    def decompress(self, *arguments: Any) -> bytes:
        found = self._real.decompress(*arguments)
        Counted.made += len(found)
        return bytes(found)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_compressed_body_that_is_refused_is_decoded_no_further(
    lone_server: HttpServer, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    """aiohttp decodes what it reads after the answer: 4 MB became 4 GB, meanwhile no other was answered."""
    make = zlib.decompressobj
    monkeypatch.setattr(zlib, "decompressobj", lambda *a, **k: Counted(make(*a, **k)))
    monkeypatch.setattr(Counted, "made", 0)
    monkeypatch.setattr(lone_server, "_most", 1 << 20)
    content = bytes(64 << 20)
    body = gzip.compress(content) if encoding == "gzip" else zlib.compress(content)
    head = (
        f"POST /v2/models/differing/infer HTTP/1.1\r\nHost: x\r\nContent-Encoding: {encoding}\r\n"
        f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    host, port = lone_server.address.split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as caller:
        caller.sendall(head.encode() + body)
        assert caller.recv(13) == b"HTTP/1.1 429 "
        with contextlib.suppress(ConnectionResetError):
            while caller.recv(1 << 16):
                pass  # until the connection is closed, and with it all of the body has been read
    assert Counted.made <= 4 << 20
    assert lone_server._bodies.held == 0


def compressed(content: bytes, encoding: str) -> bytes:
    if encoding == "raw":
        made = zlib.compressobj(wbits=-zlib.MAX_WBITS)
        return made.compress(content) + made.flush()
    if encoding == "gzip":  # of two parts
        half = len(content) // 2
        return gzip.compress(content[:half]) + gzip.compress(content[half:])
    return zlib.compress(content)


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "raw"])
@given(st.binary(max_size=300), st.integers(0, 4), st.integers(1, 64))
def test_a_body_is_decoded_in_whatever_parts_it_comes(
    encoding: str, begin: bytes, times: int, step: int
) -> None:
    content = begin + bytes(times * 200_000)
    body = compressed(content, encoding)
    decoder = BodyDecoder("gzip" if encoding == "gzip" else "deflate")
    parts = [body[at : at + step] for at in range(0, len(body), step)]
    pieces = [piece for part in parts for piece in decoder.pieces(part)]
    decoder.finish()
    assert b"".join(pieces) == content
    assert max(map(len, pieces), default=0) <= 256 * 1024


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_body_that_ends_early_or_is_not_compressed_is_refused(encoding: str) -> None:
    decoder = BodyDecoder(encoding)
    list(decoder.pieces(compressed(b"content" * 100, encoding)[:-6]))
    with pytest.raises(InvalidArgument, match="ends before"):
        decoder.finish()
    with pytest.raises(InvalidArgument):
        list(BodyDecoder(encoding).pieces(b"\xf8 not compressed"))


def test_bytes_behind_the_end_of_deflate_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="behind its end"):
        list(BodyDecoder("deflate").pieces(zlib.compress(b"x") + b"more"))
