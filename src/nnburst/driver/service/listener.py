"""A named socket with exactly one owner.

A lock file decides who that is: the kernel drops the lock with its process, so a crashed driver can
be restarted at once and whatever it left behind is replaced.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from pathlib import Path
from typing import Final, Self

from nnburst.control.address import check_length, take_lock, temporary_name
from nnburst.hal.errors import DeviceUnavailable

_BACKLOG: Final = 128
#: Seconds for which a lock may be held by a child that a dead driver had just forked: it closes the lock,
#: or the kernel ends it, as soon as it gets a core. And seconds between two looks meanwhile.
_PATIENCE: Final = 0.5
_LOOK: Final = 0.005


class Listener:
    """A listening socket at `path`, held together with the lock beside it."""

    def __init__(self, path: Path, lock: int, listening: socket.socket) -> None:
        """Own `lock` and `listening`, which `path` names, from here on."""
        self.path = path
        self.socket = listening
        self._lock = lock
        self._named = path.stat()

    @classmethod
    def claim(cls, path: Path, *, any_user: bool = False) -> Self:
        """Become the one who listens at `path`.

        Args:
            path: of the socket; its lock lies beside it.
            any_user: let processes of other users connect, too, if they may enter the directory.

        Raises:
            DeviceUnavailable: another process still does after half a second.
        """
        temporary = check_length(temporary_name(path))
        lock = _take_lock(path)
        try:
            listening = _listen(temporary, 0o666 if any_user else 0o600)
        except BaseException:
            os.close(lock)
            raise
        temporary.rename(path)  # at once: a client never finds a socket that does not listen yet
        return cls(path, lock, listening)

    def accept(self) -> socket.socket:
        """The next connection; the socket is in blocking mode and not inherited."""
        connected, _ = self.socket.accept()
        return connected

    def abandon_in_child(self) -> None:
        """Close the descriptors and leave the name alone: what a forked child does."""
        self.socket.close()
        os.close(self._lock)

    def close(self) -> None:
        """Give the name up; one that means another socket by now is left alone."""
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(self.path.lstat(), self._named):
                self.path.unlink()
        self.abandon_in_child()


def _take_lock(path: Path) -> int:
    deadline = time.monotonic() + _PATIENCE
    while (lock := take_lock(path)) is None:
        if time.monotonic() >= deadline:
            raise DeviceUnavailable(f"address: {path} is served by another process")
        time.sleep(_LOOK)
    return lock


def _listen(path: Path, mode: int) -> socket.socket:
    path.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        listening.bind(str(path))
        path.chmod(mode)
        listening.listen(_BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening
