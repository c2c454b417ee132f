"""Memory made elsewhere: what can be a pool as it is, and what has to be copied into one.

A pool never shrinks under its reader. Only the size seals of a memfd promise that, so a memfd that takes
them becomes a pool without a copy; files, arrays and other shared memory are copied once.
"""

from __future__ import annotations

import errno
import fcntl
import io
import operator
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nnburst.fmq.shared_memory import SIZE_SEALS, SharedMemory
from nnburst.hal.errors import InvalidArgument, ResourceExhausted

#: No more writes from now on: F_SEAL_WRITE, and F_SEAL_FUTURE_WRITE, which Python 3.11 does not name.
_WRITE_SEALS: Final = fcntl.F_SEAL_WRITE | 0x0010
_COPY_INSTEAD: Final = "Memory.from_file and Memory.from_dlpack copy what cannot be sealed"


def adopt_memfd(fd: int, *, seal: bool) -> tuple[SharedMemory, bool]:
    """Take a descriptor of our own to a memfd that is sealed, or seal it first.

    Nothing is sealed if it is refused.

    Args:
        fd: stays the caller's.
        seal: whether it may be sealed.

    Returns:
        The region, and whether it can be written to.

    Raises:
        InvalidArgument: it is not a memfd, is not sealed and may not or cannot be, is empty, is of huge
            pages, or cannot be read.
    """
    own = _duplicate(fd)
    try:
        _check_sealed(own, seal=seal)
        access = fcntl.fcntl(own, fcntl.F_GETFL) & os.O_ACCMODE
        sealed = fcntl.fcntl(own, fcntl.F_GET_SEALS) & _WRITE_SEALS
    except BaseException:
        os.close(own)
        raise
    return SharedMemory.adopt(own), access == os.O_RDWR and not sealed


def _duplicate(fd: int) -> int:
    try:
        return fcntl.fcntl(operator.index(fd), fcntl.F_DUPFD_CLOEXEC, 0)
    except TypeError:
        raise InvalidArgument(f"fd: {fd!r}, expected a file descriptor") from None
    except (OSError, ValueError, OverflowError) as error:
        raise InvalidArgument(f"fd: {fd} is not open: {error}") from None


def _check_sealed(fd: int, *, seal: bool) -> None:
    """Add the seals that are missing, if it may; what can be refused is refused before."""
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError:
        raise InvalidArgument(
            f"fd: {_kind(fd)} is not a memfd and may shrink while it is read; {_COPY_INSTEAD}"
        ) from None
    if os.fstatvfs(fd).f_bsize != os.sysconf("SC_PAGESIZE"):
        raise InvalidArgument("fd: a memfd of huge pages is not accepted")
    if os.fstat(fd).st_size == 0:
        raise InvalidArgument("fd: the memfd has 0 bytes")
    access = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE
    if access == os.O_WRONLY:
        raise InvalidArgument("fd: the memfd is open for writing only, expected reading, too")
    missing = SIZE_SEALS & ~seals
    if not missing:
        return
    if seals & fcntl.F_SEAL_SEAL:
        raise InvalidArgument(
            "fd: may shrink while it is read and takes no seals: not a memfd, or made without"
            f" MFD_ALLOW_SEALING; {_COPY_INSTEAD}"
        )
    if access != os.O_RDWR:
        raise InvalidArgument(
            "fd: the memfd lacks the seals SHRINK, GROW and SEAL and is open for reading only,"
            " so that they cannot be added"
        )
    if not seal:
        raise InvalidArgument(
            "fd: the memfd may shrink while it is read: it lacks the seals SHRINK, GROW and SEAL;"
            " seal=True adds them, and it can never be resized from then on"
        )
    try:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, missing)
    except OSError as error:
        raise InvalidArgument(f"fd: the memfd cannot be sealed: {error.strerror}") from None


def _kind(fd: int) -> str:
    mode = os.fstat(fd).st_mode
    for is_kind, name in (
        (stat.S_ISREG, "a regular file"),
        (stat.S_ISDIR, "a directory"),
        (stat.S_ISFIFO, "a pipe"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISCHR, "a device"),
    ):
        if is_kind(mode):
            return name
    return "this descriptor"


@contextmanager
def open_file(path: str | os.PathLike[str]) -> Iterator[tuple[io.FileIO, int]]:
    """A regular file and its size in bytes, at least 1.

    Raises:
        InvalidArgument: it is not a regular file, or empty.
        OSError: it cannot be opened.
    """

    # A FIFO without a writer would keep the opener waiting for ever.
    def opener(name: str, flags: int) -> int:
        return os.open(name, flags | os.O_NONBLOCK)

    with io.FileIO(os.fspath(path), "r", opener=opener) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise InvalidArgument(
                f"path: {os.fspath(path)} is {_kind(file.fileno())}, expected a file"
            )
        if status.st_size == 0:
            raise InvalidArgument(f"path: {os.fspath(path)} is empty")
        yield file, status.st_size


def read_all(file: io.FileIO, target: memoryview) -> None:
    """Let the kernel copy the file's first bytes into `target`, which they fill.

    Raises:
        InvalidArgument: the file became shorter.
        ResourceExhausted: there is not so much memory.
    """
    done = 0
    while done < len(target):
        try:
            count = file.readinto(target[done:])
        except OSError as error:
            if error.errno in (errno.EFAULT, errno.ENOMEM):
                raise ResourceExhausted(
                    f"this process has no memory for {len(target)} bytes"
                ) from error
            raise
        if not count:
            raise InvalidArgument(
                f"path: {file.name} has shrunk to {done} of {len(target)} bytes while it was read"
            )
        done += count


def readable_array(array: object) -> npt.NDArray[Any]:
    """A view of what offers DLPack, as numpy sees it.

    Raises:
        InvalidArgument: it offers no DLPack, lies in a device's memory, is of a type that numpy does not
            have, or is empty.
    """
    if isinstance(array, np.ndarray):
        view: npt.NDArray[Any] = array  # also if read-only ones cannot be exported
        if view.dtype.hasobject:
            raise InvalidArgument(f"array: dtype {view.dtype} holds references, expected numbers")
    elif not hasattr(array, "__dlpack__") or not hasattr(array, "__dlpack_device__"):
        raise InvalidArgument(
            f"array: of type {type(array).__name__}, expected one with __dlpack__"
        )
    else:
        try:
            view = np.from_dlpack(array)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            raise InvalidArgument(f"array: numpy cannot read it in place: {error}") from error
    if view.nbytes == 0:
        raise InvalidArgument(f"array: shape {view.shape} has 0 bytes")
    return view
