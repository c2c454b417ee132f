"""Metrics reach a scraper of another user or machine with a token, and nobody holds up the others."""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("tritonclient.grpc", reason="extra grpc is not installed")
pytest.importorskip("prometheus_client", reason="extra metrics is not installed")

from nnburst.serving import metrics_server
from nnburst.serving.credentials import Tokens
from nnburst.serving.metrics_server import serve_metrics
from nnburst.serving.options import Options
from serving.served import PATIENCE, Served

TOKEN = "a-token-of-this-test"
TEXT = b"nnburst_clients 1\n"

#: Becomes another user, and prints the status that each token of the command line gets; "" is none.
OTHER_USER = """
import encodings.idna, http.client, os, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
for token in sys.argv[2:]:
    connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=60)
    connection.request("GET", "/metrics", headers={"Authorization": "Bearer " + token} if token else {})
    print(connection.getresponse().status)
"""


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    file = tmp_path / "tokens"
    file.write_text(TOKEN + "\n")
    return file


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


def scrape(port: int, path: str = "/metrics") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    with contextlib.closing(connection):
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)


def serving() -> int:
    """The port of a server in this process."""
    options = Options("", {}, "", metrics="127.0.0.1:0")
    return port_of(serve_metrics(options, lambda: TEXT, None))


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
def test_another_user_scrapes_with_a_token_at_an_address_beyond_loopback(token_file: Path) -> None:
    words = ["--metrics", "0.0.0.0:0", "--token-file", str(token_file)]
    with Served(*words, ready=False, models=("add",)) as served:
        port = port_of(served.metrics)
        words = [sys.executable, "-c", OTHER_USER, str(port), "", "a-token-of-another", TOKEN]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == ["401", "401", "200"]
        status, text = scrape(port)  # this user needs none
        assert status == 200
        assert b"nnburst_ready" in text


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_metrics_beyond_loopback_have_the_certificate_of_the_other_ports(
    tmp_path: Path, token_file: Path
) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost"]
    words += ["-days", "2", "-out", str(certificate), "-keyout", str(key)]
    subprocess.run(words, check=True, capture_output=True, timeout=PATIENCE)
    from nnburst.serving.options import Tls

    options = Options("", {}, "", metrics="0.0.0.0:0", tls=Tls(certificate, key))
    port = port_of(serve_metrics(options, lambda: TEXT, Tokens(token_file)))
    context = ssl.create_default_context(cafile=str(certificate))
    context.check_hostname = False
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=PATIENCE, context=context)
    with contextlib.closing(connection):
        connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
        assert connection.getresponse().read() == TEXT
    with pytest.raises((OSError, http.client.HTTPException)):
        scrape(port)


@pytest.mark.parametrize(
    "sent", [b"", b"GET /metr", b"GET /metrics HTTP/1.1\r\nHost: x\r\n", b"x" * (1 << 20)]
)
def test_question_that_does_not_come_is_given_up(
    monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(metrics_server, "_PATIENCE", 0.2)
    with connected(serving()) as slow, contextlib.suppress(ConnectionError):
        slow.sendall(sent)
        assert slow.recv(4096) == b""


@pytest.mark.parametrize(
    "sent",
    [
        b"\r\n\r\n",
        b"\0\xff\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"X / HTTP/1.1\r\n\r\n",
    ],
)
def test_bytes_that_are_no_question_get_no_metrics_and_harms_no_other(sent: bytes) -> None:
    port = serving()
    with connected(port) as hostile:
        hostile.sendall(sent)
        assert TEXT not in hostile.makefile("rb").read()
    assert scrape(port) == (200, TEXT)
    assert scrape(port, "/secrets")[0] == 404


def test_parameters_of_a_scraper_change_nothing() -> None:
    assert scrape(serving(), "/metrics?collect=requests") == (200, TEXT)


def test_head_is_answered_as_get_without_its_body() -> None:
    with connected(serving()) as scraper:
        scraper.sendall(b"HEAD /metrics HTTP/1.1\r\n\r\n")
        head, _, body = scraper.makefile("rb").read().partition(b"\r\n\r\n")
    assert b" 200 " in head
    assert b"Content-Length: %d" % len(TEXT) in head
    assert body == b""


def test_scrapers_beyond_the_bound_are_closed_and_answered_again_when_there_is_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metrics_server, "_MOST", 2)
    port = serving()
    with (
        connected(port),
        connected(port),
        connected(port) as third,
        contextlib.suppress(ConnectionResetError),
    ):
        assert third.recv(1) == b""
    deadline = time.monotonic() + PATIENCE
    while True:
        with contextlib.suppress(OSError, http.client.HTTPException):
            if scrape(port) == (200, TEXT):
                break
        assert time.monotonic() < deadline
