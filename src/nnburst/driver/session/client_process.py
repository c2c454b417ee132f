"""The client's process: its worker ends with it, even if the client's end of the socket is held elsewhere.

An honest client's socket ends first. But sockets can be sent: who leaves its own end with its worker, or in a
queue that the worker does not empty, or with a child, would never be seen to go. So the end of the process
counts, too. The client is the process that made the upcall socket, which comes with `Hello`; others may have
connected for it, and it may run another program meanwhile.
"""

from __future__ import annotations

import errno
import os
import select
import socket
from typing import Final

from nnburst.control.channel import Channel
from nnburst.hal.errors import InvalidArgument

#: asm-generic/socket.h, since Linux 6.5; Python does not name it.
_SO_PEERPIDFD: Final = 77


def watch_client(upcalls: socket.socket) -> int | None:
    """A pidfd of the process that made `upcalls`, which the caller owns.

    It becomes readable when all threads of the process have ended. None if it cannot be had: before
    Linux 6.5 for a client of another PID namespace.

    Raises:
        InvalidArgument: that process has ended already.
    """
    try:
        pidfd = _open(upcalls)
    except ProcessLookupError:
        pidfd = -1
    if pidfd is not None and (pidfd < 0 or _has_ended(pidfd)):
        if pidfd >= 0:
            os.close(pidfd)
        raise InvalidArgument("Hello: the process that made the upcall socket has ended")
    return pidfd


def _open(upcalls: socket.socket) -> int | None:
    try:
        return upcalls.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ESRCH):  # or, by version, if it was reaped
            raise ProcessLookupError from error
        if error.errno != errno.ENOPROTOOPT:
            raise
    # The client waits for its Welcome now, so the number is not another process's yet.
    pid = _pid_of_peer(upcalls)
    return os.pidfd_open(pid) if pid > 0 else None


def _pid_of_peer(upcalls: socket.socket) -> int:
    return Channel(upcalls).peer.pid


def _has_ended(pidfd: int) -> bool:
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    return bool(poller.poll(0))
