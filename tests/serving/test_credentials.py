"""Files of TLS that cannot be used are named, plain text is logged, and handshakes and tokens are bounded."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tritonclient.grpc", reason="extra grpc is not installed")

from nnburst.hal.errors import InvalidArgument
from nnburst.serving.credentials import (
    NotAuthenticated,
    Tokens,
    server_context,
    server_credentials,
)
from nnburst.serving.options import Options, Tls
from nnburst.serving.server import Readers, Server, make_threads
from serving.test_known_requests import Differing, serving

PATIENCE = 60

both_protocols = pytest.mark.parametrize("make", [server_context, server_credentials])


def openssl(*words: str) -> None:
    subprocess.run(["openssl", *words], check=True, capture_output=True, timeout=PATIENCE)


@pytest.fixture
def pair(tmp_path: Path) -> Tls:
    """A certificate and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificates")
    tls = Tls(tmp_path / "cert.pem", tmp_path / "key.pem")
    words = [
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-subj",
        "/CN=localhost",
        "-days",
        "2",
    ]
    openssl(*words, "-out", str(tls.certificate), "-keyout", str(tls.key))
    return tls


@both_protocols
def test_file_without_a_certificate_is_refused_by_its_name(
    make: Callable[[Tls], Any], pair: Tls
) -> None:
    pair.certificate.write_text("x")
    with pytest.raises(InvalidArgument, match=r"--tls-cert \S+cert\.pem and --tls-key \S+key\.pem"):
        make(pair)


@both_protocols
def test_file_without_an_authority_is_refused_by_its_name(
    make: Callable[[Tls], Any], pair: Tls, tmp_path: Path
) -> None:
    authority = tmp_path / "ca.pem"
    authority.write_text("x")
    with pytest.raises(InvalidArgument, match=r"--client-ca \S+ca\.pem"):
        make(Tls(pair.certificate, pair.key, authority))


@pytest.mark.parametrize("make", ["server_context", "server_credentials"])
def test_key_with_a_passphrase_is_refused_without_a_question(make: str, pair: Tls) -> None:
    secret = pair.key.with_name("secret.pem")
    openssl("rsa", "-aes256", "-passout", "pass:x", "-in", str(pair.key), "-out", str(secret))
    program = f"""if True:
        from pathlib import Path
        from nnburst.serving.credentials import {make}
        from nnburst.serving.options import Tls
        {make}(Tls(Path({str(pair.certificate)!r}), Path({str(secret)!r})))
    """
    child = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,  # stays open, as a front's
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # without a terminal
    )
    try:
        assert child.wait(PATIENCE) == 1
        assert child.stderr is not None
        assert "without a passphrase" in child.stderr.read()
    finally:
        child.kill()
        child.communicate()


@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1"])
@pytest.mark.parametrize("option", ["--grpc", "--http"])
def test_plain_text_beyond_loopback_is_logged_with_its_option(
    option: str, host: str, caplog: pytest.LogCaptureFixture
) -> None:
    options = Options("", {}, f"{host}:0", http=f"{host}:0")
    threads, service = make_threads(options, Readers()), serving(Differing())
    if option == "--grpc":
        server = Server(options, service, threads)
        server.begin_end(0)
        server.close()
    else:
        pytest.importorskip("aiohttp", reason="extra http is not installed")
        from nnburst.serving.http_server import HttpServer

        HttpServer(options, service, threads).close(0)
    for each in threads:
        each.shutdown()
    text = f"{option}: {host}:0 is served without TLS: anyone who reaches it may read and call"
    logged = [record.getMessage() for record in caplog.records]
    assert logged == ([text] if host == "0.0.0.0" else [])


@pytest.mark.parametrize("has_tls", [False, True])
def test_connections_that_come_at_once_are_bounded_and_have_little_time_before_a_handshake(
    has_tls: bool, pair: Tls, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("aiohttp", reason="extra http is not installed")
    from nnburst.serving import http_server

    patience, limit = 3.0, 3
    monkeypatch.setattr(http_server, "READING", patience)
    tls = pair if has_tls else None
    options = Options("", {}, "", http="127.0.0.1:0", max_connections=limit, tls=tls)
    threads = make_threads(options, Readers())
    server = http_server.HttpServer(options, serving(Differing()), threads)
    server.start()
    host, port = server.address.split(":")
    server._loop.call_soon_threadsafe(time.sleep, 0.5)  # so that they all wait to be accepted
    with contextlib.ExitStack() as held:
        callers = [
            held.enter_context(socket.create_connection((host, int(port)), PATIENCE))
            for _ in range(30)
        ]
        began, ends = time.monotonic(), []
        for each in reversed(callers):
            with contextlib.suppress(ConnectionResetError):
                assert not each.recv(1)
            ends.append(time.monotonic() - began)
    server.close(1)
    for each in threads:
        each.shutdown()
    assert ends[-limit - 1] < patience, "those beyond the limit are closed at once"
    assert patience / 2 < ends[-limit] <= ends[-1] < PATIENCE / 2


def test_file_of_tokens_that_is_too_long_lets_no_caller_in_by_a_part_of_a_token(
    tmp_path: Path,
) -> None:
    file, token = tmp_path / "tokens", "a-token-that-is-long-enough"
    file.write_text("x" * 15 + "\n" + token + "\n")
    tokens = Tokens(file)
    padding = "#" * 15 + "\n"
    file.write_text(padding * 4095 + token + "\n")  # the limit is behind "a-token-that-is-"
    for given in (token, token[:16]):
        with pytest.raises(NotAuthenticated):
            tokens.check(f"Bearer {given}")
    with pytest.raises(InvalidArgument, match=f"--token-file: .*more than 65536 bytes.*{file}"):
        Tokens(file)
    file.write_text(token)
    tokens.check(f"Bearer {token}")


def test_file_of_tokens_that_becomes_a_pipe_lets_no_caller_in_and_blocks_none(
    tmp_path: Path,
) -> None:
    file, token = tmp_path / "tokens", "a-token-that-is-long-enough"
    file.write_text(token)
    tokens = Tokens(file)
    file.unlink()
    os.mkfifo(file)
    outcomes: list[str] = []

    def call() -> None:
        try:
            tokens.check(f"Bearer {token}")
        except NotAuthenticated:
            outcomes.append("refused")

    caller = threading.Thread(target=call, daemon=True)  # would wait for a writer for ever
    caller.start()
    caller.join(PATIENCE / 6)
    assert outcomes == ["refused"]
    with pytest.raises(InvalidArgument, match=f"--token-file: {file} is a pipe"):
        Tokens(file)
    file.unlink()
    file.write_text(token)
    tokens.check(f"Bearer {token}")
