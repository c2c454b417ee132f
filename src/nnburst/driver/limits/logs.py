"""Log lines of a driver: on stderr, each on one line, and no flood of the same one.

Peers cause most of them, so nothing of a peer's can forge a line or fill a disk: control characters are
escaped, long ones are cut, and of one kind of line only a few are written in a while, by a supervisor and all
its workers together. No tensor, constant or packet byte is ever part of one.
"""

from __future__ import annotations

import logging
import mmap
import struct
import threading
import time
from collections.abc import Callable
from typing import Any, ClassVar, Final, NamedTuple

from nnburst.hal.diagnostics.lines import one_line
from nnburst.hal.limits import UINT32_MAX, UINT64_MAX

#: Lines of one kind that are written in one period.
_LINES: Final = 5
_PERIOD: Final = 60.0
#: Kinds that are remembered; messages are constants of the code, so there are far fewer.
_KINDS: Final = 256
#: Lines of a traceback.
_TRACEBACK: Final = 100


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
    """Escapes control characters of messages and cuts what is long; a defect's traceback keeps its lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """The line without traceback."""
        return one_line(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: ANN401, N802 - logging's
        """The traceback; what was raised may have words of a peer's."""
        lines = super().formatException(ei).split("\n")
        if len(lines) > _TRACEBACK:
            left_out = f"… ({len(lines) - _TRACEBACK} lines)"
            lines = [*lines[: _TRACEBACK // 2], left_out, *lines[-_TRACEBACK // 2 :]]
        return "\n".join(map(one_line, lines))


class _Kind(NamedTuple):
    """What has become of the lines of one kind.

    Attributes:
        key: of the kind, never 0.
        began: when the period did.
        written: in the period.
        left_out: likewise.
    """

    key: int
    began: float
    written: int
    left_out: int


class _Kinds:
    """A table of kinds that forked processes share.

    Without a lock, which a process could die or be stopped with: two that write a line at the very same
    moment may count it once. Each worker can write to it, so nothing in it is used but for comparing.
    """

    _ROW: ClassVar = struct.Struct("<QdII")

    def __init__(self) -> None:
        self._table = mmap.mmap(-1, _KINDS * self._ROW.size)  # MAP_SHARED

    def find(self, key: int) -> tuple[int, _Kind]:
        """The kind and its place: a fresh one if it is new, that of another if all are taken."""
        for step in range(_KINDS):
            place = (key + step) % _KINDS * self._ROW.size
            kind = _Kind(*self._ROW.unpack_from(self._table, place))
            if kind.key in (0, key):
                return place, kind
        place = key % _KINDS * self._ROW.size
        return place, _Kind(*self._ROW.unpack_from(self._table, place))

    def put(self, place: int, kind: _Kind) -> None:
        """Keep what has changed."""
        self._ROW.pack_into(self._table, place, *kind)


class RepetitionFilter(logging.Filter):
    """Lets a few lines of each kind pass in a period, and counts how many it left out. Thread-safe.

    Lines are of one kind if they come from the same message of the code, whatever its arguments. Processes
    that are forked after this was made count together.
    """

    def __init__(
        self,
        lines: int = _LINES,
        period: float = _PERIOD,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Let `lines` of a kind pass in `period` seconds of `clock`, which all processes share."""
        super().__init__()
        self._lines = lines
        self._period = period
        self._clock = clock
        # Reentrant: the garbage collector may come by and log something.
        self._lock = threading.RLock()
        self._kinds = _Kinds()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to write the line."""
        # Forked processes have the same secret in their hashes.
        key = hash((record.name, record.levelno, str(record.msg))) & UINT64_MAX or 1
        now = self._clock()
        left_out = 0
        with self._lock:
            place, kind = self._kinds.find(key)
            if not kind.key or not 0 <= now - kind.began < self._period:
                left_out = kind.left_out
                kind = _Kind(kind.key or key, now, 0, 0)
            if kind.written >= self._lines:
                self._kinds.put(place, kind._replace(left_out=min(kind.left_out + 1, UINT32_MAX)))
                return False
            self._kinds.put(place, kind._replace(written=kind.written + 1))
        if left_out:
            record.msg = f"{record.getMessage()} ({left_out} more like it were left out)"
            record.args = None
        return True
