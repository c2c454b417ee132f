"""Answers scrapers over HTTP: /metrics, for programs of this user on this host."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from nnburst.hal.errors import DeviceUnavailable
from nnburst.hal.peer import has_rights_of_service, tcp_peer_user

#: Seconds that a scraper has for each step.
_PATIENCE: Final = 5.0


def serve_metrics(address: str, text: Callable[[], bytes]) -> str:
    """Answer scrapers at `address` from a thread of their own; the address as it is.

    Args:
        address: "HOST:PORT".
        text: what is answered.

    Raises:
        DeviceUnavailable: the address is taken.
    """

    class Handler(BaseHTTPRequestHandler):
        timeout = _PATIENCE

        def do_GET(self) -> None:
            user = tcp_peer_user(self.client_address[:2], self.connection.getsockname()[:2])
            if not has_rights_of_service(user):
                self.send_error(403, "for the user of the service only")
                return
            if self.path not in ("/metrics", "/"):
                self.send_error(404)
                return
            found = text()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(found)))
            self.end_headers()
            self.wfile.write(found)

        def log_message(self, *_: object) -> None:
            """Scrapes are no news."""

    host, _, port = address.rpartition(":")
    server_class = type("Server", (ThreadingHTTPServer,), {"address_family": _family(host)})
    try:
        server = server_class((host.strip("[]"), int(port)), Handler)
    except OSError as error:
        raise DeviceUnavailable(f"--metrics: {address} cannot be served: {error}") from None
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return f"{host}:{server.server_address[1]}"


def _family(host: str) -> int:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
