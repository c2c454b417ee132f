"""The lock beside a driver's socket: its holder owns the name, and the kernel drops it with its process."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def take_lock(path: Path) -> int | None:
    """The lock of the socket at `path`: a descriptor that the caller closes, None if a process has it."""
    file = _file(path)
    while True:
        lock = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The file may have been removed since it was opened: then its lock is worth nothing.
            if os.path.samestat(os.fstat(lock), file.lstat()):
                return lock
        except BlockingIOError:
            os.close(lock)
            return None
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)


def temporary_name(path: Path) -> Path:
    """Where the socket listens before it takes its name."""
    return path.with_name(path.name + ".new")


def remove_if_dead(path: Path) -> bool:
    """Remove what a driver that has ended left at `path`: its socket and, last, its lock.

    For names that will not come again, which would pile up. A driver that begins at the same moment finds the
    name taken, or another lock file than the one it opened, and then tries once more.

    Returns:
        Whether no process had the name.
    """
    lock = take_lock(path)
    if lock is None:
        return False
    try:
        for left in (path, temporary_name(path), _file(path)):
            left.unlink(missing_ok=True)
    finally:
        os.close(lock)
    return True


def _file(path: Path) -> Path:
    return Path(f"{path}.lock")
