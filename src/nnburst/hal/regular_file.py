"""Opens and reads regular files only: opening a FIFO may block for ever, and reading a device never end."""

from __future__ import annotations

import io
import os
import stat
from pathlib import Path

from nnburst.hal.errors import InvalidArgument
from nnburst.hal.utils import check_path


def open_regular_file(path: str | os.PathLike[str]) -> io.FileIO:
    """Open a file to read it, without a buffer, if it is a regular one.

    Raises:
        InvalidArgument: it is of another kind, which the message names, or `path` is no path.
        OSError: it cannot be opened.
    """
    path = check_path("path", path)
    _check(path, Path(path).stat().st_mode)  # before it is opened, which a socket refuses
    file = io.FileIO(path, "r", opener=_open_at_once)
    try:
        _check(path, os.fstat(file.fileno()).st_mode)  # another file may have this path by now
    except BaseException:
        file.close()
        raise
    return file


def read_regular_file(path: str | os.PathLike[str], most: int | None = None) -> bytes:
    """Read a file if it is a regular one; at most `most` bytes.

    Raises:
        InvalidArgument: it is of another kind, which the message names.
        OSError: it cannot be read.
    """
    with open_regular_file(path) as file:
        return file.readall() if most is None else file.read(most)


def kind_of(mode: int) -> str:
    """The kind of a file, by the `st_mode` of its status, with an article."""
    for is_kind, name in (
        (stat.S_ISREG, "a regular file"),
        (stat.S_ISDIR, "a directory"),
        (stat.S_ISFIFO, "a pipe"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISCHR, "a device"),
        (stat.S_ISBLK, "a device"),
    ):
        if is_kind(mode):
            return name
    return "this descriptor"


def _open_at_once(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_NONBLOCK | os.O_NOCTTY)


def _check(path: str, mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise InvalidArgument(f"{path} is {kind_of(mode)}, expected a regular file")
