"""Shows whether a file has changed since it was read."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

#: Inode, size in bytes, and time of change in nanoseconds.
Stamp: TypeAlias = tuple[int, int, int]


def stamp(file: Path) -> Stamp:
    """The stamp of a file, or of what a link leads to; another one once it is replaced or written.

    Raises:
        OSError: it is not there, or cannot be looked at.
    """
    status = file.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns
