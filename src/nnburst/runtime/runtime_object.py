"""Declares the base class of the framework's objects: closes them, and refuses their use after a fork."""

from __future__ import annotations

import os

from nnburst.hal.errors import BadState, Closed
from nnburst.hal.utils import Closing


class RuntimeObject(Closing):
    """An object that belongs to one process. A context manager that closes itself.

    In a forked child every call is refused and `close` frees nothing, since drivers, queues and mappings
    belong to the parent.
    """

    def __init__(self) -> None:
        """Note the process that the object belongs to."""
        self._process = os.getpid()
        self._closed = False

    def _check_open(self) -> None:
        """Refuse the use of a closed object, and of one that a forked child has inherited.

        Raises:
            BadState: this is a forked child.
            Closed: the object was closed.
        """
        self._check_process()
        if self._closed:
            raise Closed(f"{type(self).__name__}: it is closed")

    def _check_process(self) -> None:
        """Raise BadState in a forked child."""
        if os.getpid() != self._process:
            name = type(self).__name__
            raise BadState(f"{name}: belongs to process {self._process}, which forked")

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def close(self) -> None:
        """Free the object's resources. Twice is fine; in a forked child nothing happens."""
        if self._closed or os.getpid() != self._process:
            return
        self._closed = True
        self._release()

    def _release(self) -> None:
        """Free the object's resources; called once, by the process that made it."""

    def _summary(self) -> str:
        """The state of an open object, for its `repr`."""
        return "open"

    def __repr__(self) -> str:
        state = "closed" if self._closed else self._summary()
        return f"<nnburst.runtime.{type(self).__name__}: {state}>"
