"""The secret that seals model caches: 32 random bytes, one file for each user."""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from nnburst.control.user_files import state_directory
from nnburst.hal.errors import GeneralFailure

KEY_BYTES: Final = 32
_NAME: Final = "compilation_cache.key"
_OPEN: Final = os.O_CLOEXEC | os.O_NOFOLLOW
#: Seconds after which no process is still making a key.
_LEFT_OVER_AFTER: Final = 60.0


def cache_key() -> bytes:
    """This user's key, made at the first use.

    A process that can read it can write model caches that drivers of this user take for theirs: it lies in a
    file of mode 0600. Processes that make it at the same time end with the same one.

    Raises:
        GeneralFailure: it can neither be read nor made, or others may read it.
    """
    path = state_directory() / _NAME
    try:
        try:
            return _read(path)
        except FileNotFoundError:
            _make(path)
            return _read(path)
    except OSError as error:
        raise GeneralFailure(f"the key of the compilation cache: {error}") from error


def has_cache_key() -> bool:
    """Whether the key has been made, so that no worker needs to write where it lies."""
    try:
        return (state_directory() / _NAME).exists()
    except (GeneralFailure, OSError):
        return False


def _read(path: Path) -> bytes:
    fd = os.open(path, os.O_RDONLY | _OPEN)
    try:
        info = os.fstat(fd)
        if (
            not stat.S_ISREG(info.st_mode)
            or info.st_uid != os.geteuid()
            or info.st_mode & 0o077
            or info.st_size != KEY_BYTES
        ):
            raise GeneralFailure(
                f"{path} must be a file of {KEY_BYTES} bytes and mode 0600 that you own;"
                " without it a new one is made, and models are compiled once more"
            )
        key = os.read(fd, KEY_BYTES)
    finally:
        os.close(fd)
    if len(key) != KEY_BYTES:
        raise GeneralFailure(f"{path} was truncated while it was read")
    return key


def _make(path: Path) -> None:
    """Give the name to a complete file; the first one wins."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _remove_left_over(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(8).hex()}")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OPEN, 0o600)
    try:
        try:
            os.write(fd, os.urandom(KEY_BYTES))
            os.fsync(fd)
        finally:
            os.close(fd)
        with suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        temporary.unlink()


def _remove_left_over(path: Path) -> None:
    """Remove what workers left that ended while they made the key."""
    for left in path.parent.glob(f".{path.name}.*"):
        with suppress(FileNotFoundError):
            if left.stat().st_mtime < time.time() - _LEFT_OVER_AFTER:
                left.unlink()
