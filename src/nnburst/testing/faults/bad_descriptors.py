"""Makes descriptors of every kind that is not sealed memory of the promised size, as a peer could send them.

A kind that this machine or this user cannot have (huge pages, memfd_secret) is left out.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import select
import socket
import tempfile
from collections.abc import Callable, Iterator
from typing import Final

from nnburst.fmq.shared_memory import SIZE_SEALS

_PAGE: Final = 4096
_HUGE_PAGE: Final = 2 << 20
_SYS_MEMFD_SECRET: Final = 447  # x86-64, aarch64 and everything newer

Opener = Callable[[int], int]


def _memfd(size: int, seals: int, flags: int = 0) -> int:
    fd = os.memfd_create("bad", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING | flags)
    try:
        os.ftruncate(fd, size)
        if seals:
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    except OSError:
        os.close(fd)
        raise
    return fd


def _read_end(_size: int) -> int:
    read, write = os.pipe()
    os.close(write)
    return read


def _write_end(_size: int) -> int:
    read, write = os.pipe()
    os.close(read)
    return write


def _file(size: int) -> int:
    with tempfile.TemporaryFile() as file:
        file.truncate(size)
        return os.dup(file.fileno())


def _socket(kind: socket.SocketKind) -> Opener:
    return lambda _size: socket.socket(socket.AF_UNIX, kind).detach()


def _path_of_sealed(size: int) -> int:
    """Open sealed memory with O_PATH, so that it can be neither read nor mapped."""
    fd = _memfd(size, SIZE_SEALS)
    try:
        return os.open(f"/proc/self/fd/{fd}", os.O_PATH | os.O_CLOEXEC)
    finally:
        os.close(fd)


def _secret(size: int) -> int:
    fd = ctypes.CDLL(None, use_errno=True).syscall(_SYS_MEMFD_SECRET, os.O_CLOEXEC)
    if fd < 0:
        raise OSError(ctypes.get_errno(), "memfd_secret")
    os.ftruncate(fd, size)
    return int(fd)


def _own_memory(_size: int) -> int:
    return os.open("/proc/self/mem", os.O_RDWR | os.O_CLOEXEC)


_KINDS: Final[dict[str, Opener]] = {
    "unsealed": lambda size: _memfd(size, 0),
    "may shrink": lambda size: _memfd(size, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL),
    "may grow": lambda size: _memfd(size, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL),
    "seals may change": lambda size: _memfd(size, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW),
    "a byte short": lambda size: _memfd(size - 1, SIZE_SEALS),
    "a page short": lambda size: _memfd(max(size - _PAGE, 1), SIZE_SEALS),
    "empty": lambda _size: _memfd(0, SIZE_SEALS),
    "huge pages": lambda size: _memfd(
        size + -size % _HUGE_PAGE, SIZE_SEALS, getattr(os, "MFD_HUGETLB", 4)
    ),
    "secret": _secret,
    "path of a sealed one": _path_of_sealed,
    "file": _file,
    "directory": lambda _size: os.open("/", os.O_RDONLY | os.O_CLOEXEC),
    "path": lambda _size: os.open("/", os.O_PATH | os.O_CLOEXEC),
    "/dev/zero": lambda _size: os.open("/dev/zero", os.O_RDWR | os.O_CLOEXEC),
    "/dev/null": lambda _size: os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC),
    "pipe, read end": _read_end,
    "pipe, write end": _write_end,
    "stream socket": _socket(socket.SOCK_STREAM),
    "datagram socket": _socket(socket.SOCK_DGRAM),
    "packet socket": _socket(socket.SOCK_SEQPACKET),
    "eventfd": lambda _size: os.eventfd(0, os.EFD_CLOEXEC),
    "epoll": lambda _size: _detach_epoll(),
    "pidfd": lambda _size: os.pidfd_open(os.getpid()),
    "memory of a process": _own_memory,
}


def _detach_epoll() -> int:
    with select.epoll() as poller:
        return os.dup(poller.fileno())


@contextlib.contextmanager
def bad_descriptors(size: int) -> Iterator[dict[str, int]]:
    """Open one descriptor of each kind, by name of the kind; all are closed at the end.

    Args:
        size: bytes that the message promises for the memory.
    """
    found: dict[str, int] = {}
    try:
        for kind, opener in _KINDS.items():
            with contextlib.suppress(OSError):
                found[kind] = opener(size)
        yield found
    finally:
        for fd in found.values():
            os.close(fd)
