"""The supervisor's side of the process that keeps packed weights: starts it, gives it workers' sockets."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable
from typing import Final, NoReturn

from nnburst.driver.executors import find_executor
from nnburst.driver.weights.keeper import OWNER_BYTES, keep_weights
from nnburst.executor.built_in import PACKING
from nnburst.hal.errors import NnburstError

logger = logging.getLogger(__name__)

#: Of a service whose users share with each other.
_EVERYBODY: Final = -1


class WeightsKeeper:
    """The process that keeps packed weights, if the executor has any to share. Not thread-safe.

    Attributes:
        pid: of the process; 0 without one.
    """

    def __init__(self, executor: str, *, across_users: bool = False) -> None:
        """Nothing is started before `start`.

        Args:
            executor: name of the executor of every worker.
            across_users: share between clients of different users, too. One learns then, from the time that a
                preparation takes, that another has prepared the same model.
        """
        self._executor = executor
        self._across_users = across_users
        self._pair: socket.socket | None = None
        self.pid = 0

    def start(self, fork: Callable[[Callable[[], NoReturn]], int | None]) -> None:
        """Fork the process by `fork`, which is given what it becomes; without it nothing is shared."""
        if not _packs(self._executor):
            return
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            pid = fork(lambda: self._keep(ours, theirs))
        if pid is None:
            ours.close()
        else:
            self._pair, self.pid = ours, pid

    def admit(self, user: int) -> socket.socket | None:
        """A worker's socket, on which clients of `user` share with each other; None without the process."""
        if self._pair is None:
            return None
        owner = _EVERYBODY if self._across_users else user
        keepers, workers = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with keepers:
            try:
                socket.send_fds(
                    self._pair,
                    [owner.to_bytes(OWNER_BYTES, "little", signed=True)],
                    [keepers.fileno()],
                    socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL,
                )
            except OSError as error:
                logger.info("a worker packs its weights for itself: %s", error)
                workers.close()
                return None
        return workers

    def abandon_in_child(self) -> None:
        """Close this end: what a forked child does, so that it cannot say whose worker it is."""
        if self._pair is not None:
            self._pair.close()

    def note_end(self) -> None:
        """The process has ended: workers pack for themselves from here on."""
        self.close()
        self.pid = 0

    def close(self) -> None:
        """Give it up; it ends. Twice is fine."""
        pair, self._pair = self._pair, None
        if pair is not None:
            pair.close()

    def _keep(self, ours: socket.socket, theirs: socket.socket) -> NoReturn:
        ours.close()
        keep_weights(theirs, self._executor)
        os._exit(0)


def _packs(executor: str) -> bool:
    if executor in PACKING:
        return True
    try:
        return hasattr(find_executor(executor), "prepare_packed")
    except NnburstError:  # every client gets this error
        return False
