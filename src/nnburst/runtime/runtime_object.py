"""Closes the framework's objects, and refuses their use in a forked child."""

from __future__ import annotations

import os

from nnburst.hal.errors import BadState, Closed
from nnburst.hal.utils import Closing


class RuntimeObject(Closing):
    """An object of one process. A context manager that closes itself.

    In a forked child every call is refused and `close` frees nothing: drivers, queues and mappings are the
    parent's.
    """

    def __init__(self) -> None:
        """Belong to this process."""
        self._process = os.getpid()
        self._closed = False

    def _check_open(self) -> None:
        """Refuse what was closed, and what a forked child inherited.

        Raises:
            BadState: this is a forked child.
            Closed: it was closed.
        """
        name = type(self).__name__
        if os.getpid() != self._process:
            raise BadState(f"{name}: belongs to process {self._process}, which forked")
        if self._closed:
            raise Closed(f"{name}: it is closed")

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def close(self) -> None:
        """Free what it holds. Twice is fine; in a forked child nothing happens."""
        if self._closed or os.getpid() != self._process:
            return
        self._closed = True
        self._release()

    def _release(self) -> None:
        """Free what it holds; called once, by the process that made it."""
