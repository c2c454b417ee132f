"""Memory files that nothing can change any more, not even a process that has a descriptor of them."""

from __future__ import annotations

import fcntl
import os

from nnburst.fmq.shared_memory import CONTENT_SEALS


def seal(fd: int) -> None:
    """Seal a memfd for good; OSError if it is something else, or is mapped for writing."""
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, CONTENT_SEALS)


def read_only(fd: int) -> int:
    """A second descriptor of the same file that cannot even be mapped for writing."""
    return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
