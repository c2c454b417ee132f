"""Opens the addresses on which a front listens: `HOST:PORT` or `unix:PATH`."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nnburst.control.address import check_free, check_length, take_lock
from nnburst.hal.errors import DeviceUnavailable, InvalidArgument
from nnburst.hal.utils import Closing
from nnburst.serving.options import is_loopback

logger = logging.getLogger(__name__)

UNIX: Final = "unix:"
_BACKLOG: Final = 128


def unix_path(address: str) -> Path | None:
    """The path of a `unix:` address; None for others."""
    return Path(address.removeprefix(UNIX)) if address.startswith(UNIX) else None


class PathLock(Closing):
    """A lock on a path to listen at; the kernel releases it when the process ends."""

    def __init__(self, option: str, path: Path) -> None:
        """Take the lock, and remove the socket that an earlier process has left.

        Raises:
            DeviceUnavailable: another process has the lock, or the folder cannot be written.
            InvalidArgument: a file is there that is not a socket; it stays.
        """
        check_free(option, path)
        self._path = path
        try:
            self._lock = take_lock(check_length(path))
        except OSError as error:
            raise DeviceUnavailable(f"{option}: {path}: {error.strerror}") from None
        if self._lock is None:
            raise DeviceUnavailable(f"{option}: {path} is served by another process")
        path.unlink(missing_ok=True)

    def close(self) -> None:
        """Remove the socket, which only the owner of the lock may, and release the lock; twice is fine."""
        lock, self._lock = self._lock, None
        if lock is not None:
            with contextlib.suppress(OSError):  # the folder is gone, or no longer writable
                self._path.unlink()
            os.close(lock)


def open_to(path: Path, *, any_user: bool) -> None:
    """Let processes of this user connect, or with `any_user` of every user with access to the folder."""
    path.chmod(0o666 if any_user else 0o600)


def log_plain_text(option: str, address: str) -> None:
    """Log a warning if calls to an address without TLS can be read on their way."""
    if unix_path(address) is None and not is_loopback(address.rpartition(":")[0]):
        logger.warning(
            "%s: %s is served without TLS: anyone who reaches it may read and call", option, address
        )


def check_address(option: str, address: str) -> None:
    """Refuse an address that no wait makes usable; a front is started again and again for any other one.

    A port that is taken becomes free, and an address that this machine lacks may come with a network.

    Raises:
        InvalidArgument: the host has no address, or this user may not listen there.
    """
    path = unix_path(address)
    if path is not None:
        check_free(option, check_length(path))
        if not os.access(path.parent, os.W_OK | os.X_OK):
            raise InvalidArgument(
                f"{option}: {address}, expected a path in a folder that this user can write to"
            )
        return
    try:
        family, where = _resolved(address)
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(where)
    except (socket.gaierror, UnicodeError, PermissionError) as error:
        if isinstance(error, socket.gaierror) and error.errno == socket.EAI_AGAIN:
            return  # there is no name server yet
        raise InvalidArgument(f"{option}: {address} cannot be served: {error}") from None
    except OSError:
        pass  # perhaps not for long


def _resolved(address: str) -> tuple[int, tuple[str, int]]:
    """The family and the place of HOST:PORT, to bind a socket."""
    host, _, port = address.rpartition(":")
    plain = host.strip("[]")
    family = socket.getaddrinfo(plain, int(port), type=socket.SOCK_STREAM)[0][0]
    return family, (plain, int(port))


@dataclass
class Listening(Closing):
    """A listening socket.

    Attributes:
        socket: the socket.
        address: the address, with the port that the kernel has chosen.
        is_unix: whether the address is a path.
    """

    socket: socket.socket
    address: str
    is_unix: bool
    _lock: PathLock | None = None

    def close(self) -> None:
        """Stop listening; twice is fine."""
        self.socket.close()
        if self._lock is not None:
            self._lock.close()


def listen(option: str, address: str, *, any_user: bool) -> Listening:
    """Listen at an address.

    Raises:
        DeviceUnavailable: the address is in use, or not this machine's.
        InvalidArgument: at its path is a file that is not a socket.
    """
    path = unix_path(address)
    if path is not None:
        lock = PathLock(option, path)
        listening = socket.socket(socket.AF_UNIX)
        before = os.umask(0o177)
        try:
            listening.bind(str(path))
        finally:
            os.umask(before)
        open_to(path, any_user=any_user)
        listening.listen(_BACKLOG)
        return Listening(listening, address, True, lock)
    try:
        family, where = _resolved(address)
        listening = socket.create_server(where, family=family, backlog=_BACKLOG)
    except (OSError, UnicodeError) as error:  # the latter for a name with an empty or a long part
        raise DeviceUnavailable(f"{option}: {address} cannot be served: {error}") from None
    host, _, _ = address.rpartition(":")
    return Listening(listening, f"{host}:{listening.getsockname()[1]}", False)
