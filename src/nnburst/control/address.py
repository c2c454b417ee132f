"""Finds, locks and listens at the socket of a named driver, and finds the folders of a user's files.

A lock file beside each socket ensures that one driver owns it: the kernel drops the lock with its process, so
a crashed driver can be restarted at once, and its socket is replaced. Abstract sockets are not used, since
they have no permission bits.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self

from nnburst.hal.errors import DeviceUnavailable, GeneralFailure, InvalidArgument
from nnburst.hal.utils import believed_environment, home, temporary_folder

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
#: sizeof(sockaddr_un.sun_path) without the terminating zero.
MAX_PATH_BYTES: Final = 107
SUFFIX: Final = ".sock"


def directory(*, create: bool = False) -> Path:
    """The directory of this user's drivers.

    `$XDG_RUNTIME_DIR/nnburst`, or `nnburst-UID` in the directory for temporary files.

    Args:
        create: whether to make it (mode 0700) if it is missing.

    Raises:
        DeviceUnavailable: it is not a directory that only this user can enter, or it cannot be made.
    """
    runtime = _given("XDG_RUNTIME_DIR")
    path = runtime or temporary_folder() / f"nnburst-{os.geteuid()}"
    try:
        if create:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        info = path.lstat() if path.is_symlink() or path.exists() else None
    except OSError as error:
        raise DeviceUnavailable(
            f"the directory of drivers, {path}: {error.strerror or error}"
        ) from None
    if info is not None and (
        not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o077
    ):
        raise DeviceUnavailable(f"{path} must be a directory of mode 0700 that you own")
    return path


def socket_path(name: str, *, create: bool = False) -> Path:
    """Path of the socket of driver `name`.

    Args:
        name: letters, digits, '.', '_' and '-', at most 64, beginning with a letter or digit.
        create: whether to make the directory if it is missing.

    Raises:
        InvalidArgument: the name breaks this rule, or the path is too long for a socket.
    """
    if not _NAME.fullmatch(name):
        raise InvalidArgument(
            f"name: {name!r} must be 1 to 64 letters, digits, '.', '_' or '-',"
            " beginning with a letter or digit"
        )
    return check_length(directory(create=create) / (name + SUFFIX))


def check_length(path: Path) -> Path:
    """Check that a path is not too long for a socket, and return it.

    Raises:
        InvalidArgument: it is too long.
    """
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        raise InvalidArgument(
            f"address: {path} is longer than the {MAX_PATH_BYTES} bytes of a socket"
        )
    return path


def check_free(what: str, path: Path) -> None:
    """Check that `path` is free, or has a socket, which a server may replace: not a file of the user.

    Raises:
        InvalidArgument: something else is there; `what` names the argument.
    """
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise InvalidArgument(f"{what}: {path} is there and not a socket, expected a free path")


def take_lock(path: Path) -> int | None:
    """Take the lock of the socket at `path`: a descriptor that the caller closes, None if it is taken."""
    file = _file(path)
    while True:
        lock = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The file may have been removed since it was opened: then its lock has no effect.
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
    """The path at which the socket listens before it takes its name."""
    return path.with_name(path.name + ".new")


def remove_if_dead(path: Path) -> bool:
    """Remove the files of a driver that has ended: its socket at `path` and, last, its lock.

    For names that are never used again, whose files would accumulate. A driver that starts at the same moment
    finds the name taken, or another lock file than the one that it opened, and then tries again.

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


def config_directory() -> Path:
    """The folder of settings that a user wrote: `$XDG_CONFIG_HOME/nnburst`, or `~/.config/nnburst`."""
    return _directory("XDG_CONFIG_HOME", ".config")


def cache_directory() -> Path:
    """The folder of files that may be lost at any time: `$XDG_CACHE_HOME/nnburst`, or `~/.cache/nnburst`."""
    return _directory("XDG_CACHE_HOME", ".cache")


def state_directory() -> Path:
    """The folder of a program's lasting files: `$XDG_STATE_HOME/nnburst`, or `~/.local/state/nnburst`."""
    return _directory("XDG_STATE_HOME", ".local/state")


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file's content atomically, and make its folder if needed.

    Raises:
        OSError: it cannot be written; the old file is unchanged then.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)  # noqa: PTH105 - others see the old file or the new one
    except BaseException:
        with contextlib.suppress(OSError):  # raise the first error, not this one
            temporary.unlink()
        raise


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Have the lock beside a file, to read, change and replace it; make its folder if needed.

    Raises:
        TimeoutError: another process or thread still has the lock after half a second.
        OSError: the folder or the lock's file cannot be made.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = _wait_for_lock(path)
    if lock is None:
        raise TimeoutError(f"{path}: another process still changes it after {_PATIENCE} s")
    try:
        yield
    finally:
        # Not only closed: a child that was forked meanwhile has the descriptor, too.
        fcntl.flock(lock, fcntl.LOCK_UN)
        os.close(lock)


def _given(variable: str) -> Path | None:
    """The folder of nnburst in the one that `variable` names; None if unset. XDG: ignores relative paths."""
    value = believed_environment().get(variable, "")
    return Path(value, "nnburst") if value.startswith("/") else None


def _directory(variable: str, below_home: str) -> Path:
    given = _given(variable)
    if given is not None:
        return given
    try:
        return home() / below_home / "nnburst"
    except RuntimeError as error:
        raise GeneralFailure(
            f"{variable} is not set, and the home directory is unknown: {error}"
        ) from error


_BACKLOG: Final = 128
#: Seconds to wait for a lock that a newly forked child of a dead driver may still have: the child closes it,
#: or is ended, as soon as it gets a core; or that another process has while it changes a file. And seconds
#: between two tries.
_PATIENCE: Final = 0.5
_LOOK: Final = 0.005


class Listener:
    """A listening socket at a path, and the lock beside it."""

    def __init__(self, path: Path, lock: int, listening: socket.socket) -> None:
        """Own `lock` and `listening`, which `path` names, from here on."""
        self.path = path
        self.socket = listening
        self._lock = lock
        self._named = path.stat()

    @classmethod
    def claim(cls, path: Path, *, any_user: bool = False) -> Self:
        """Take the lock of `path`, and listen there.

        Args:
            path: the path of the socket; its lock lies beside it.
            any_user: whether processes of other users may connect, too, if they can enter the directory.

        Raises:
            DeviceUnavailable: another process still has the lock after half a second.
            InvalidArgument: a file is there that is not a socket; it stays.
        """
        temporary = check_length(temporary_name(path))
        check_free("address", path)
        lock = _wait_for_lock(path)
        if lock is None:
            raise DeviceUnavailable(f"address: {path} is served by another process")
        try:
            listening = _listen(temporary, 0o666 if any_user else 0o600)
        except BaseException:
            os.close(lock)
            raise
        temporary.rename(path)  # atomic: a client never finds a socket that does not listen yet
        return cls(path, lock, listening)

    def accept(self) -> socket.socket:
        """Accept the next connection; its socket is in blocking mode and not inherited."""
        connected, _ = self.socket.accept()
        return connected

    def abandon_in_child(self) -> None:
        """Close the descriptors in a forked child, and keep the name."""
        self.socket.close()
        os.close(self._lock)

    def close(self) -> None:
        """Close the socket and remove its name, unless it is another socket's by now. Twice is fine."""
        if self.socket.fileno() < 0:
            return
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(self.path.lstat(), self._named):
                self.path.unlink()
        self.abandon_in_child()


def _wait_for_lock(path: Path) -> int | None:
    """The descriptor of `take_lock`; None if the lock is still taken after `_PATIENCE`."""
    deadline = time.monotonic() + _PATIENCE
    while (lock := take_lock(path)) is None and time.monotonic() < deadline:
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
