"""Writes verbose logs by topic, and turns any text into one line of a log.

Topics are chosen by the environment: `NNBURST_VLOG=compilation,execution`.

    if vlog.on("execution"):
        vlog.write("execution", "step %d on %s", number, name)

For a topic that is off, the cost is one call with a comparison; its text is not made. Lines are written to
stderr at INFO, at any value of `NNBURST_LOG`, as `nnburst.vlog.<tag>`: each is one line, escaped and cut,
with names and sizes but never with data. Single requests of a burst are not logged; traces have them.

NNAPI: debug.nn.vlog, ANeuralNetworks' VLOG; the syntax is the original's.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
from collections.abc import Callable
from typing import Final

from nnburst.hal.environment import TAGS, VLOG, known_tags, unknown_tags

#: Most characters of a line.
_LONGEST: Final = 1024
_ESCAPED: Final = {
    code: f"\\x{code:02x}" for code in (*range(32), 127, *range(128, 160), 0x2028, 0x2029)
}


def one_line(text: str) -> str:
    """Escape control characters in `text`, and cut it if it is long."""
    line = text[:_LONGEST].translate(_ESCAPED)
    if max(len(line), len(text)) <= _LONGEST:
        return line
    return f"{line[:_LONGEST]}… ({len(text)} characters)"


#: The beginning of a line, which distinguishes it from a driver's other lines.
MARK: Final = "nnburst.vlog."
#: Most lines of a process in a second; further ones are only counted.
_LINES: Final = 2000

logger = logging.getLogger(__name__)


class _Handler(logging.Handler):
    """Writes lines to the stderr that this process has at that time."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        write_line(f"{record.name}[{record.process}]: {one_line(record.getMessage())}")


def write_line(text: str) -> None:
    """Write a finished line to this process's stderr; it is lost if that cannot be written."""
    # A missing reader (`… 2>&1 | head`) or a closed stderr must not make the caller fail.
    with contextlib.suppress(OSError, ValueError):
        if sys.stderr is not None:
            sys.stderr.write(f"{text}\n")


class Cap(logging.Filter):
    """Limits the lines of each second, and counts the lines that it drops. Thread-safe."""

    def __init__(self, lines: int = _LINES, clock: Callable[[], float] = time.monotonic) -> None:
        """Let `lines` pass in each second of `clock`."""
        super().__init__()
        self._lines = lines
        self._clock = clock
        self._lock = threading.RLock()  # the garbage collector may log within
        self._second = -1
        self._written = 0
        self._dropped = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to write the line."""
        with self._lock:
            second = int(self._clock())
            if second != self._second:
                self._second, self._written = second, 0
            if self._written >= self._lines:
                self._dropped += 1
                return False
            self._written += 1
            dropped, self._dropped = self._dropped, 0
        if dropped:
            record.msg, record.args = (
                f"{record.getMessage()} ({dropped} lines before it were dropped)",
                None,
            )
        return True


_parent: Final = logging.getLogger(MARK.removesuffix("."))
_loggers: Final = {tag: logging.getLogger(MARK + tag) for tag in TAGS}
_on: frozenset[str] = frozenset()


def set_tags(text: str) -> None:
    """Turn on the tags in `text` and all others off; warn of words that are not tags."""
    global _on
    tags = known_tags(text)
    for line in unknown_tags(text):
        logger.warning("%s", line)
    if tags and not _parent.handlers:
        handler = _Handler()
        handler.addFilter(Cap())
        _parent.addHandler(handler)
        _parent.setLevel(logging.INFO)
        _parent.propagate = False
    _on = tags


def on(tag: str) -> bool:
    """Whether lines of a tag are written."""
    return tag in _on


def write(tag: str, text: str, *words: object) -> None:
    """Write a line if its tag is on."""
    if tag in _on:
        _loggers[tag].info(text, *words)


def write_all(tag: str, text: str) -> None:
    """Write each line of a longer text if its tag is on."""
    if tag in _on:
        for line in text.splitlines():
            _loggers[tag].info("%s", line)


set_tags(VLOG.read())
