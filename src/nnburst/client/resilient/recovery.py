"""An object in a driver, made again after the driver has died.

NNAPI: utils/common ResilientDevice.cpp and its kin. DEVIATES: an execution that the driver died of is never
retried (there it is, once): what killed a driver would kill the next one. Calls that find the driver dead
already make the object again and go on.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from nnburst.hal.errors import Closed, DeadObject, GeneralFailure, MissedDeadline, NnburstError

logger = logging.getLogger(__name__)


class Mortal(Protocol):
    """What can be lost with its driver."""

    @property
    def is_alive(self) -> bool:
        """Whether its driver is there."""

    @property
    def _ended_ns(self) -> int:
        """When the driver's end was noticed, on CLOCK_MONOTONIC; 0 before."""

    def close(self) -> None:
        """Give it up."""


T = TypeVar("T", bound=Mortal)
R = TypeVar("R")


class Recoverable(Generic[T]):
    """The current one of a row of objects, each made when the one before is found dead. Thread-safe.

    Recoveries are serialised: threads that find the same object dead make one new one between them.
    """

    def __init__(self, first: T, make: Callable[[T], T]) -> None:
        """Own `first`.

        Args:
            first: alive.
            make: makes the successor of the one that it is given, which is dead.
        """
        self._current = first
        self._make = make
        self._lock = threading.Lock()
        self._closed = False
        self._refused: InvalidDevice | None = None
        self._helper: _Helper | None = None
        self._helper_lock = threading.Lock()
        #: How often it was made again.
        self.recoveries = 0

    @property
    def last(self) -> T:
        """The one made last, dead or alive."""
        return self._current

    def get(self) -> T:
        """One that is alive when looked at; the successor of a dead one is made first.

        Raises:
            DeadObject: it could not be made again; the message has the reason. The next call tries once more.
            InvalidDevice: what came back is another device; final.
            Closed: `close` was called.
        """
        current = self._current
        if current.is_alive and not self._closed:
            return current
        with self._lock:
            if self._closed:
                raise GivenUp(f"{type(self._current).__name__} is closed")
            if self._refused is not None:
                raise InvalidDevice(str(self._refused))
            if not self._current.is_alive:
                self._recover()
            return self._current

    def get_within(self, seconds: float | None, began_ns: int | None = None) -> T:
        """As `get`, but a recovery that takes longer is left to go on; the next call finds it further on.

        So callers that can wait for less than a driver takes to start get it back all the same.

        Args:
            seconds: from now; None for a recovery on the caller's thread, however long it takes.
            began_ns: when the caller began, on CLOCK_MONOTONIC: what has died since is not made again now, so
                that a death costs the call that it falls into no start of a driver. None makes it again.

        Raises:
            MissedDeadline: it is still being made again.
            DeadObject: as `get`, or it has died since `began_ns`.
            InvalidDevice, Closed: as `get`.
        """
        current = self._current
        if began_ns is not None and current._ended_ns > began_ns and not self._closed:
            raise DeadObject("the driver has died meanwhile; the next call has it made again")
        if seconds is None or (current.is_alive and not self._closed):
            return self.get()
        with self._helper_lock:
            if self._helper is None or self._helper.is_done:
                self._helper = _Helper(self.get)
            helper = self._helper
        helper.wait(seconds)
        return self.get()

    def call(self, work: Callable[[T], R]) -> R:
        """Call the current object; if its driver dies meanwhile, once more on a new one.

        For calls that can be repeated, and no executions.
        """
        current = self.get()
        try:
            return work(current)
        except DeadObject:
            return work(self.get())

    def _recover(self) -> None:
        dead = self._current
        try:
            self._current = self._make(dead)
        except InvalidDevice as error:
            self._refused = error
            raise
        except (DeadObject, GivenUp):
            raise  # it died again, was already reported as not recovered, or is not wanted any more
        except NnburstError as error:
            raise DeadObject(f"the driver has died and was not recovered: {error}") from error
        self.recoveries += 1
        logger.info("%s made again after its driver died", type(dead).__name__)
        try:
            dead.close()
        except NnburstError as error:
            logger.info(
                "closing a dead %s failed, the new one goes on: %s", type(dead).__name__, error
            )

    def close(self) -> None:
        """Give the current one up; twice is fine."""
        with self._lock:
            self._closed = True
            self._current.close()


class _Helper:
    """A thread that makes one recovery."""

    def __init__(self, recover: Callable[[], object]) -> None:
        self._recover = recover
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="nnburst-recovery", daemon=True)
        self._thread.start()

    @property
    def is_done(self) -> bool:
        """Whether it has ended."""
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._recover()
        except BaseException as error:
            self._error = error

    def wait(self, seconds: float) -> None:
        """Wait for its end.

        Raises:
            MissedDeadline: it has not ended after `seconds`.
            NnburstError: why it failed.
        """
        self._thread.join(max(0.0, seconds))
        if not self.is_done:
            raise MissedDeadline(f"the driver has died and was not recovered within {seconds:g} s")
        if self._error is not None:
            raise self._error


class GivenUp(Closed):
    """A resilient object was closed, and with it all that it would make again."""


class InvalidDevice(GeneralFailure):
    """The service that came back is another one than before; it is not used (NNAPI: InvalidDevice)."""
