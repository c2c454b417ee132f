"""A named socket with exactly one owner.

A lock file decides who that is: the kernel drops the lock with its process, so a crashed driver can
be restarted at once and whatever it left behind is replaced.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from pathlib import Path
from typing import Final, Self

from nnburst.control.address import check_length
from nnburst.hal.errors import DeviceUnavailable

_BACKLOG: Final = 128


class Listener:
    """A listening socket at `path`, held together with the lock beside it."""

    def __init__(self, path: Path, lock: int, listening: socket.socket) -> None:
        """Own `lock` and `listening` from here on."""
        self.path = path
        self.socket = listening
        self._lock = lock

    @classmethod
    def claim(cls, path: Path) -> Self:
        """Become the one who listens at `path`.

        Raises:
            DeviceUnavailable: somebody else does.
        """
        temporary = check_length(path.with_name(path.name + ".new"))
        lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            listening = _listen(temporary)
        except BlockingIOError:
            os.close(lock)
            raise DeviceUnavailable(f"address: {path} is served by another process") from None
        except BaseException:
            os.close(lock)
            raise
        temporary.rename(path)  # at once: nobody ever finds a socket that does not listen yet
        return cls(path, lock, listening)

    def accept(self) -> socket.socket:
        """The next connection; the socket is in blocking mode and not inherited."""
        connected, _ = self.socket.accept()
        return connected

    def disown(self) -> None:
        """Close the descriptors and leave the name alone: what a forked child does."""
        self.socket.close()
        os.close(self._lock)

    def close(self) -> None:
        """Give the name up."""
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()
        self.disown()


def _listen(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        listening.bind(str(path))
        path.chmod(0o600)
        listening.listen(_BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening
