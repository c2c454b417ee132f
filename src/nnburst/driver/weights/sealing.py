"""Memory files that nothing can change any more, not even a process that has a descriptor of them."""

from __future__ import annotations

import fcntl
import os
from typing import Final

from nnburst.hal.errors import InvalidArgument

_SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL


def seal(fd: int) -> None:
    """Seal a memfd for good; OSError if it is something else, or is mapped for writing."""
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)


def checked_size(fd: int) -> int:
    """Bytes of a memfd whose content and size are final.

    Raises:
        InvalidArgument: it is no such memfd, or has huge pages.
    """
    try:
        # TRUST: only memfds answer; with these seals nothing of the file changes from here on.
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError as error:
        raise InvalidArgument("fd: not a memfd") from error
    if seals & _SEALS != _SEALS:
        raise InvalidArgument("memfd lacks the seals SHRINK, GROW, WRITE and SEAL")
    if os.fstatvfs(fd).f_bsize != os.sysconf("SC_PAGESIZE"):
        raise InvalidArgument("memfd of huge pages is not accepted")
    return os.fstat(fd).st_size


def read_only(fd: int) -> int:
    """A second descriptor of the same file that cannot even be mapped for writing."""
    return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
