"""Log lines of a driver: on stderr, each on one line, and no flood of the same one.

Peers cause most of them, so nothing of a peer's can forge a line or fill a disk: control characters are
escaped, and of one kind of line only a few are written in a while. No tensor, constant or packet byte is
ever part of one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

#: Lines of one kind that are written in one period.
_LINES: Final = 5
_PERIOD: Final = 60.0
#: Kinds that are remembered; messages are constants of the code, so there are far fewer.
_KINDS: Final = 1024
_ESCAPED: Final = {
    code: f"\\x{code:02x}" for code in (*range(32), 127, *range(128, 160), 0x2028, 0x2029)
}


def configure_logging(name: str, level: str) -> None:
    """Log to stderr from here on.

    Args:
        name: of the driver, part of every line.
        level: as `logging` names it.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(OneLineFormatter(f"nnburst driver {name}[%(process)d]: %(message)s"))
    handler.addFilter(RepetitionFilter())
    logging.basicConfig(level=level, handlers=[handler])


class OneLineFormatter(logging.Formatter):
    """Escapes control characters of messages; the traceback of a defect of ours keeps its lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """The line without traceback."""
        return super().formatMessage(record).translate(_ESCAPED)


class _Kind:
    __slots__ = ("began", "left_out", "written")

    def __init__(self, began: float) -> None:
        self.began = began
        self.written = 0
        self.left_out = 0


class RepetitionFilter(logging.Filter):
    """Lets a few lines of each kind pass in a period, and says how many it left out. Thread-safe.

    Lines are of one kind if they come from the same message of the code, whatever its arguments.
    """

    def __init__(
        self,
        lines: int = _LINES,
        period: float = _PERIOD,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Let `lines` of a kind pass in `period` seconds of `clock`."""
        super().__init__()
        self._lines = lines
        self._period = period
        self._clock = clock
        self._lock = threading.Lock()
        self._kinds: dict[tuple[str, int, object], _Kind] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to write the line."""
        key = record.name, record.levelno, record.msg
        now = self._clock()
        with self._lock:
            kind = self._kinds.get(key)
            if kind is None:
                if len(self._kinds) >= _KINDS:
                    self._kinds.clear()
                kind = self._kinds[key] = _Kind(now)
            left_out = 0
            if now - kind.began >= self._period:
                left_out = kind.left_out
                kind = self._kinds[key] = _Kind(now)
            if kind.written >= self._lines:
                kind.left_out += 1
                return False
            kind.written += 1
        if left_out:
            record.msg = f"{record.getMessage()} ({left_out} more like it were left out)"
            record.args = None
        return True
