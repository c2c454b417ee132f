"""Makes folders for temporary files of one process, and removes those that a killed process has left."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

from nnburst.hal.utils import Closing, temporary_folder

_PREFIX: Final = "nnburst-run-"


class OwnFolder(Closing):
    """A new folder of mode 0700 among the temporary files, removed with its content by `close`.

    A killed process leaves its folders. The next process of this user that makes one removes them: each maker
    holds its folder's lock, which ends with it, whatever its number is and in whichever container it runs.
    A forked child keeps the lock, but never removes the folder.

    Attributes:
        path: the folder.
    """

    def __init__(self) -> None:
        """Remove abandoned folders, and make one.

        Raises:
            OSError: there is no room for it, or there are no more descriptors.
        """
        self._maker: Final = os.getpid()
        parent = temporary_folder()
        for left in parent.glob(f"{_PREFIX}*"):
            _remove_if_abandoned(left)
        lock: int | None = None
        while lock is None:  # another process may have taken it for abandoned before it was locked
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
            try:
                lock = _take_lock(self.path)
            except BaseException:
                self.path.rmdir()
                raise
        self._lock: int | None = lock

    def close(self) -> None:
        """Remove the folder; twice is fine, and so is a folder that is gone already."""
        lock, self._lock = self._lock, None
        if lock is not None:
            if os.getpid() == self._maker:
                shutil.rmtree(self.path, ignore_errors=True)
            os.close(lock)


def _take_lock(folder: Path) -> int | None:
    """The folder's descriptor, locked; None if a process has the lock, or if it is no folder of this user.

    Raises:
        OSError: it cannot be opened for another reason.
    """
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None
    try:
        if os.fstat(lock).st_uid == os.geteuid():
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Another process may have removed it since it was opened.
            if os.path.samestat(os.fstat(lock), folder.lstat()):
                return lock
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(lock)
        raise
    os.close(lock)
    return None


def _remove_if_abandoned(folder: Path) -> None:
    with contextlib.suppress(OSError):  # the next process tries again
        lock = _take_lock(folder)
        if lock is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)
