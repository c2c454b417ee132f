"""Traces as files, whatever their format."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Final

from nnburst.hal.errors import InvalidArgument
from nnburst.tracing import chrome, ftrace, perfetto
from nnburst.tracing.timeline import Trace

_GZIP: Final = b"\x1f\x8b"
SUFFIXES: Final = (".pftrace", ".json", ".json.gz")


def write(trace: Trace, path: Path) -> None:
    """Write a trace in the format of the file's suffix.

    Raises:
        InvalidArgument: the name has no known suffix.
        OSError: the file cannot be written.
    """
    if path.name.endswith(".json.gz"):
        path.write_bytes(gzip.compress(chrome.write(trace)))
    elif path.name.endswith(".json"):
        path.write_bytes(chrome.write(trace))
    elif path.name.endswith(".pftrace"):
        path.write_bytes(perfetto.write(trace))
    else:
        raise InvalidArgument(f"trace: {path.name!r}, expected a name in {', '.join(SUFFIXES)}")


def read(path: Path) -> Trace:
    """The trace of a file: Perfetto's format, Chrome's JSON, or the original's text.

    Raises:
        InvalidArgument: it is not one of them.
        OSError: it cannot be read.
    """
    data = path.read_bytes()
    if data.startswith(_GZIP):
        data = gzip.decompress(data)
    if ftrace.is_text(data):
        return ftrace.read(data)
    if data.lstrip()[:1] in (b"{", b"["):
        return chrome.read(data)
    return perfetto.read(data)
