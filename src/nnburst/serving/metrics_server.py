"""Answers scrapers over HTTP: /metrics, for programs of this user on this host and for callers with a token.

A scraper sends a head of a few lines. It is read as a whole, within limits of bytes and seconds, before it is
examined. At most `_MOST` scrapers are answered at once.
"""

from __future__ import annotations

import contextlib
import io
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any, Final

from nnburst.hal.errors import ResourceExhausted
from nnburst.hal.utils import start_thread
from nnburst.serving.addresses import listen
from nnburst.serving.callers import is_of_service
from nnburst.serving.credentials import NotAuthenticated, Tokens, server_context
from nnburst.serving.options import Options, is_loopback

logger = logging.getLogger(__name__)

#: Seconds that a scraper has each for the handshake, for its request, and for taking the answer.
_PATIENCE: Final = 5.0
#: Greatest number of scrapers at once, each with a thread; further connections are closed.
_MOST: Final = 64
#: Greatest size of a request's head, in bytes.
_MOST_BYTES: Final = 16 << 10


def serve_metrics(options: Options, text: Callable[[], bytes], tokens: Tokens | None) -> str:
    """Answer scrapers at `options.metrics` on new threads; return the actual address.

    Args:
        options: the address; beyond loopback its TLS is used, too.
        text: makes the answer.
        tokens: tokens that admit any caller; without them only programs of this user are admitted.

    Raises:
        DeviceUnavailable: the address is in use.
        InvalidArgument: a file of TLS cannot be read or used.
    """
    listening = listen("--metrics", options.metrics, any_user=False)
    context: ssl.SSLContext | None = None
    if not is_loopback(options.metrics.rpartition(":")[0]):
        if options.tls is None:
            logger.warning(
                "%s has metrics without TLS: anyone who reads the connection has the token",
                options.metrics,
            )
        else:
            context = server_context(options.tls)
    room = threading.Semaphore(_MOST)

    def answer(connection: socket.socket) -> None:
        try:
            with contextlib.closing(connection), contextlib.suppress(OSError):
                connection.settimeout(_PATIENCE)
                if context is not None:
                    connection = context.wrap_socket(connection, server_side=True)
                with contextlib.closing(connection):
                    _Scrape(connection, text, tokens)
        except Exception:
            logger.exception("a scraper was not answered")
        finally:
            room.release()

    def accept() -> None:
        while True:
            try:
                connection, _ = listening.socket.accept()
            except OSError as error:  # such as too many open files, until present scrapers end
                logger.warning("--metrics: %s", error)
                time.sleep(_PATIENCE)
                continue
            if room.acquire(blocking=False):
                thread = threading.Thread(target=answer, args=(connection,), daemon=True)
                try:
                    start_thread(thread, connection)
                except ResourceExhausted as error:
                    logger.warning("--metrics: %s", error)
                    room.release()
            else:
                connection.close()

    start_thread(threading.Thread(target=accept, name="metrics", daemon=True))
    return listening.address


class _Scrape(BaseHTTPRequestHandler):
    """One request and its answer; the constructor handles both."""

    def __init__(
        self, connection: socket.socket, text: Callable[[], bytes], tokens: Tokens | None
    ) -> None:
        self._text, self._tokens = text, tokens
        # The base class needs a server only for a name in CGI, which is not used.
        super().__init__(connection, connection.getpeername(), None)  # type: ignore[arg-type]

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self.rfile = io.BytesIO(_question(self.connection))

    def do_GET(self) -> None:
        if not is_of_service(self.connection):
            if self._tokens is None:
                self.send_error(403, "for the user of the service only")
                return
            try:
                self._tokens.check(self.headers.get("Authorization", ""))
            except NotAuthenticated as error:
                self._send(401, str(error).encode(), ("WWW-Authenticate", "Bearer"))
                return
        if self.path.partition("?")[0] not in ("/metrics", "/"):  # a scraper may send `params`
            self.send_error(404)
            return
        self._send(200, self._text())

    def do_HEAD(self) -> None:
        self.do_GET()

    def _send(self, status: int, body: bytes, *headers: tuple[str, str]) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        for header in headers:
            self.send_header(*header)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:  # noqa: ANN401 - as in the base class
        """Do not log scrapes."""


def _question(connection: socket.socket) -> bytes:
    """Read bytes up to the empty line after a head; empty if it is too long or does not come."""
    deadline, found = time.monotonic() + _PATIENCE, b""
    while b"\r\n\r\n" not in found and len(found) < _MOST_BYTES:
        connection.settimeout(max(1e-3, deadline - time.monotonic()))
        chunk = connection.recv(_MOST_BYTES - len(found))
        if not chunk:
            break
        found += chunk
    connection.settimeout(_PATIENCE)
    return found if b"\r\n\r\n" in found else b""
