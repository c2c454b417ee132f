"""Fences that others made: what can be polled becomes a fence that drivers take."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import socket
import struct
import threading

from nnburst.client.execution.sync_fence import SyncFence
from nnburst.control.fences import Signaller
from nnburst.hal.errors import InvalidArgument

#: SYNC_IOC_FILE_INFO of linux/sync_file.h: name, status, flags, num_fences, pad, sync_fence_info.
_FILE_INFO = struct.Struct("32s i I I I Q")
_SYNC_IOC_FILE_INFO = 0xC0383E04


def adopt_foreign_fence(fd: int) -> SyncFence:
    """A fence for a descriptor, which stays the caller's.

    One of nnburst's is taken as it is. Of anything else a thread waits until it can be read.

    Raises:
        InvalidArgument: `fd` is not open, or cannot be polled, as files cannot.
    """
    try:
        own = os.dup(fd)
    except OSError as error:
        raise InvalidArgument(f"fd: {fd} cannot be duplicated: {error.strerror}") from None
    if _is_ours(own):
        return SyncFence(own)
    try:
        _check_pollable(own, fd)
        fence, signaller = SyncFence.create()
    except BaseException:
        os.close(own)
        raise
    threading.Thread(
        target=_follow, args=(own, signaller), name="nnburst foreign fence", daemon=True
    ).start()
    return fence


def _is_ours(fd: int) -> bool:
    """Whether it is a connected local stream socket that cannot be written, as fences' ends are."""
    try:
        with socket.socket(fileno=os.dup(fd)) as end:
            return (end.family, end.type) == (socket.AF_UNIX, socket.SOCK_STREAM)
    except OSError:
        return False


def _check_pollable(own: int, fd: int) -> None:
    try:
        with select.epoll() as poller:  # unlike poll, it refuses what is always ready
            poller.register(own, select.EPOLLIN)
    except OSError as error:
        raise InvalidArgument(f"fd: {fd} cannot be polled: {error.strerror}") from None


def _follow(fd: int, signaller: Signaller) -> None:
    """Wait for the descriptor, however long; the process may end meanwhile."""
    with contextlib.closing(signaller):
        try:
            poller = select.poll()
            poller.register(fd, select.POLLIN)
            ((_, events),) = poller.poll()
            broken = events & (select.POLLERR | select.POLLNVAL)
            if events & select.POLLIN and not broken and _sync_file_status(fd) >= 0:
                signaller.signal()
        finally:
            os.close(fd)


def _sync_file_status(fd: int) -> int:
    """Status of a sync_file (negative is an error); 1 for anything else."""
    info = bytearray(_FILE_INFO.pack(b"", 0, 0, 0, 0, 0))
    try:
        fcntl.ioctl(fd, _SYNC_IOC_FILE_INFO, info)
    except OSError:
        return 1  # no sync_file
    return int(_FILE_INFO.unpack(bytes(info))[1])
