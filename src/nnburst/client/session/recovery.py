"""Connects again after a driver has died, and prepares again all that was prepared on it.

A thread recovers the connection. It begins when the driver dies and ends with the recovery; there is never
more than one, and no caller's thread does its work. Calls wait meanwhile as long as their timeouts allow, or
fail at once.

A driver that dies within a second of its start is started again only by the next call, so that a driver that
cannot run is not started over and over.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from nnburst.client.session.pending import wake_waiter
from nnburst.hal.errors import Closed, DeadObject, GeneralFailure, MissedDeadline, NnburstError
from nnburst.hal.utils import DaemonThread

logger = logging.getLogger(__name__)

#: Seconds that a driver must have lived to be made again before something calls it.
_LIFE: Final = 1.0
#: Longest single wait, in seconds.
_LONGEST: Final = 86_400.0


class InvalidDevice(GeneralFailure):
    """The service that came back is another one than before; it is not used (NNAPI: InvalidDevice)."""


def check_same(before: Mapping[str, object], now: Mapping[str, object]) -> None:
    """Raise InvalidDevice if a device has come back with other facts than before."""
    for name, fact in before.items():
        if now[name] != fact:
            raise InvalidDevice(
                f"the device came back different: its {name} was {fact}, now {now[name]}"
            )


class Mortal(Protocol):
    """An object that is lost with its driver and can be made again."""

    @property
    def is_alive(self) -> bool:
        """Whether it can be used."""

    @property
    def closed(self) -> bool:
        """Whether it was closed, and is not to be made again."""

    def _renew(self) -> Callable[[], None]:
        """Make it again; what gives back what is left of the old one, once all are there.

        Raises:
            NnburstError: it cannot be made.
        """


class Recovery:
    """Makes a connection again whenever it ends, and what was made over it, in the order of their making.

    Thread-safe. It keeps none of them alive.

    Attributes:
        count: how often the connection was made again.
        waits: whether calls wait unless they say otherwise.
    """

    def __init__(self, waits: bool) -> None:
        """Begin with a connection that lives; `add` it first."""
        self.count = 0
        self.waits: Final = waits
        self._changed: Final = threading.Condition()
        self._mortals: list[weakref.ref[Mortal]] = []
        self._is_running = False
        self._attempts = 0
        self._error: NnburstError | None = None
        self._is_closed = False
        self._began = time.monotonic()
        #: Of event loops: called at each change, with the lock held.
        self._listeners: set[Callable[[], None]] = set()

    def add(self, mortal: Mortal) -> None:
        """Make it again, too, from now on; the connection itself comes first."""
        with self._changed:
            self._mortals = [held for held in self._mortals if held() is not None]
            self._mortals.append(weakref.ref(mortal))

    def connection_ended(self) -> None:
        """The driver has died: begin, unless it did not live long. Does not block."""
        with self._changed:
            soon = time.monotonic() - self._began < _LIFE
            final = self._is_closed or isinstance(self._error, InvalidDevice)
            if final or self._is_running or soon:
                self._tell()
                return
            try:
                self._start()
            except NnburstError as error:
                logger.warning("a driver has died and is made again by the next call: %s", error)
            self._tell()

    def reach(self, mortal: Mortal, deadline_ns: int, *, waits: bool | None = None) -> None:
        """Wait until something is alive.

        Args:
            mortal: what is needed.
            deadline_ns: until when, on CLOCK_MONOTONIC.
            waits: False to raise DeadObject at once; None for what the device was made with.

        Raises:
            MissedDeadline: it is still being made; that goes on.
            DeadObject: it is not waited for, or could not be made; the next call tries again.
            InvalidDevice: what came back is another device; final.
            Closed: the device was closed.
        """
        with self._changed:
            attempts = self._attempts
            while not self._is_there(mortal, attempts, waits):
                left = (deadline_ns - time.monotonic_ns()) * 1e-9
                if left <= 0:
                    raise _missed()
                self._changed.wait(min(left, _LONGEST))

    def revive(
        self, mortal: Mortal, seconds: float | None, began_ns: int | None, ended_ns: int
    ) -> None:
        """`reach` for the framework, which decides by itself how long it waits, and for which deaths.

        Args:
            mortal: what is needed.
            seconds: that this call may wait; None for no limit.
            began_ns: moment on CLOCK_MONOTONIC: a driver that has died since is not waited for. None waits.
            ended_ns: when its driver died.

        Raises:
            DeadObject: its driver has died since `began_ns`.
            NnburstError: as for `reach`.
        """
        if began_ns is not None and ended_ns > began_ns:
            raise DeadObject("the driver has died meanwhile; it is being made again")
        deadline_ns = 2**63 - 1
        if seconds is not None:
            deadline_ns = time.monotonic_ns() + int(max(seconds, 0.0) * 1e9)
        self.reach(mortal, deadline_ns, waits=True)

    async def reach_async(
        self, mortal: Mortal, deadline_ns: int, *, waits: bool | None = None
    ) -> None:
        """`reach`, while the event loop goes on."""
        loop = asyncio.get_running_loop()
        attempts = self._attempts
        while True:
            future: asyncio.Future[None] = loop.create_future()

            def tell(future: asyncio.Future[None] = future) -> None:
                loop.call_soon_threadsafe(wake_waiter, future)

            with self._changed:
                if self._is_there(mortal, attempts, waits):
                    return
                self._listeners.add(tell)
            left = (deadline_ns - time.monotonic_ns()) * 1e-9
            timer = loop.call_later(max(left, 0.0), wake_waiter, future)
            try:
                if left <= 0:
                    raise _missed()
                await future
            finally:
                timer.cancel()
                with self._changed:
                    self._listeners.discard(tell)

    @property
    def is_closed(self) -> bool:
        """Whether nothing is made again any more."""
        return self._is_closed

    def close(self) -> None:
        """Make nothing again; who waits gets Closed. Twice is fine."""
        with self._changed:
            self._is_closed = True
            self._tell()

    def _is_there(self, mortal: Mortal, attempts: int, waits: bool | None) -> bool:
        """Whether it is alive; if not, see that it is being made. With the lock held.

        Args:
            mortal: what is needed.
            attempts: how many had ended when the caller came.
            waits: as for `reach`.
        """
        if self._is_closed:
            raise Closed("the device is closed")
        if mortal.is_alive:
            return True
        if mortal.closed:
            raise Closed(f"the {type(mortal).__name__} is closed")
        error = self._error
        if isinstance(error, InvalidDevice):
            raise InvalidDevice(str(error))
        if not self._is_running:
            if self._attempts != attempts and error is not None:
                raise DeadObject(f"the driver has died and was not recovered: {error}")
            self._start()
        if not (self.waits if waits is None else waits):
            before = "" if error is None else f"; the last try failed: {error}"
            raise DeadObject(f"the driver has died and is being made again{before}")
        return False

    def _start(self) -> None:
        """Begin on a thread; with the lock held."""
        DaemonThread(self._run)
        self._is_running = True

    def _run(self) -> None:
        leftovers: list[Callable[[], None]] = []
        error: NnburstError | None = None
        try:
            error = self._renew_all(leftovers)
        except Exception as unexpected:  # else callers would wait for ever
            logger.exception("making a driver again failed; the next call tries again")
            error = GeneralFailure(f"making it again failed: {unexpected!r}")
        finally:
            with self._changed:
                self._error = error
                self._is_running = False
                self._attempts += 1
                self._began = time.monotonic()
                self._tell()
        for clean_up in leftovers:
            try:
                clean_up()
            except NnburstError as trouble:
                logger.info(
                    "closing what a dead driver left failed, the new one goes on: %s", trouble
                )

    def _renew_all(self, leftovers: list[Callable[[], None]]) -> NnburstError | None:
        """Make all that is dead again, in order; the first error, after which only what is left is tried."""
        first: NnburstError | None = None
        with self._changed:
            mortals = list(self._mortals)
        if mortals[0]() is None:
            return Closed("the device is gone")
        for number, held in enumerate(mortals):
            mortal = held()
            if mortal is None or mortal.closed or mortal.is_alive:
                continue
            try:
                clean_up = mortal._renew()
            except NnburstError as error:
                first = first or error
                logger.info("a %s was not made again: %s", type(mortal).__name__, error)
                if number == 0 or isinstance(error, DeadObject):
                    break  # nothing can be made without the connection
                continue
            leftovers.append(clean_up)
            with self._changed:
                self.count += number == 0
                self._tell()
            del mortal
        return first

    def _tell(self) -> None:
        """Something has changed; with the lock held."""
        self._changed.notify_all()
        for listener in self._listeners:
            listener()
        self._listeners.clear()


def _missed() -> MissedDeadline:
    return MissedDeadline("timeout: the driver has died and is still being made again")


# -- for the layers above ---------------------------------------------------------------------------


class Revivable(Protocol):
    """A prepared model or a burst whose driver may die."""

    @property
    def is_alive(self) -> bool:
        """Whether it can be used."""

    @property
    def _ended_ns(self) -> int: ...

    def _revive(self, seconds: float | None, began_ns: int | None = None) -> None: ...


class _Reachable(Protocol):
    def _reached(self, timeout: float) -> object: ...


def died_ns(mortal: Revivable) -> int | None:
    """When the end of its driver was noticed, on CLOCK_MONOTONIC; None while it can be used."""
    return None if mortal.is_alive else mortal._ended_ns


def revive(mortal: Revivable) -> None:
    """Wait until it is made again if its driver has died, for as long as that takes.

    Raises:
        NnburstError: the driver does not come back.
    """
    mortal._revive(None)


def reach(device: _Reachable, timeout: float) -> None:
    """Wait `timeout` seconds at most until a device's driver is there.

    Raises:
        NnburstError: it is not there in time.
    """
    device._reached(timeout)
