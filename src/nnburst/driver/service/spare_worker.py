"""A worker that was forked ahead of need: it has its limits, its sandbox and its executor, but no client yet.

It gets one as a socket, over a pair whose other end only the supervisor has; who may be a client was checked
before. The worker sends nothing there: it shuts that direction down when it is ready.
"""

from __future__ import annotations

import os
import socket
from typing import Final

from nnburst.driver.service.admission import Admission

#: Comes with the worker's sockets; a descriptor cannot travel alone.
_CLIENT: Final = b"client"


class SpareWorker:
    """The supervisor's side. Not thread-safe.

    Attributes:
        pid: of the worker.
        is_ready: whether it is known to have done all that needs no client.
    """

    def __init__(self, pid: int, pair: socket.socket) -> None:
        """Own `pair`, at whose other end process `pid` waits for its client."""
        self.pid = pid
        self.is_ready = False
        self._pair = pair

    def fileno(self) -> int:
        """Of the pair, which is at its end once the worker is ready, and hangs up if it has ended."""
        return self._pair.fileno()

    def give(self, admission: Admission) -> bool:
        """Let it serve a client; False if it has ended meanwhile. Closes this, but no socket given."""
        with self._pair as pair:
            try:
                socket.send_fds(
                    pair,
                    [_CLIENT],
                    [given.fileno() for given in admission if given is not None],
                    socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL,
                )
            except OSError:
                return False
        return True

    def close(self) -> None:
        """Give it up; it ends. Twice is fine."""
        self._pair.close()


def await_client(pair: socket.socket, supervisors: socket.socket) -> Admission:
    """The worker's side: what came with a client; without one the process ends.

    Args:
        pair: this worker's end; closed here.
        supervisors: the other one, which the fork has brought along; closed first.
    """
    supervisors.close()
    with pair:
        pair.shutdown(socket.SHUT_WR)
        _, fds, _, _ = socket.recv_fds(
            pair, len(_CLIENT), len(Admission._fields), socket.MSG_CMSG_CLOEXEC
        )
    if not fds:
        os._exit(0)
    return Admission(*(socket.socket(fileno=fd) for fd in fds))
