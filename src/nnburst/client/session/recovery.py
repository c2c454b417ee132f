"""Connects again after a driver has died, and prepares its models and opens its bursts again.

A thread does this; it starts when the driver dies and ends with the recovery. There is never more than one,
and no thread of a caller does its work. Meanwhile calls wait as long as their timeouts allow, or fail at
once.

A driver that dies within a second of its start is restarted only by the next call, so that a driver that
cannot run is not restarted over and over.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from nnburst.client.session.pending import wake_waiter
from nnburst.hal.errors import Closed, DeadObject, GeneralFailure, MissedDeadline, NnburstError
from nnburst.hal.utils import DaemonThread, OneTimeEvent, check_owner

logger = logging.getLogger(__name__)

#: Seconds that a driver must have run to be restarted at once when it dies, not only by the next call.
_LIFE: Final = 1.0
#: Longest single wait, in seconds.
_LONGEST: Final = 86_400.0


class InvalidDevice(GeneralFailure):
    """The restarted service has other facts than before, so it is not used (NNAPI: InvalidDevice)."""


def check_same(before: Mapping[str, object], now: Mapping[str, object]) -> None:
    """Raise InvalidDevice if the facts of a restarted device differ from those before."""
    for name, fact in before.items():
        if now[name] != fact:
            raise InvalidDevice(
                f"the device came back different: its {name} was {fact}, now {now[name]}"
            )


class Mortal(Protocol):
    """An object that is lost with its driver and can be made again: a device, a model or a burst."""

    @property
    def is_alive(self) -> bool:
        """Whether the object can be used."""

    @property
    def closed(self) -> bool:
        """Whether the object was closed; then it is not made again."""

    def _renew(self) -> Callable[[], None]:
        """Make the object again; returns a function that cleans up the old one after the whole recovery.

        Raises:
            NnburstError: the object cannot be made.
        """


def nothing_to_clean() -> None:
    """Do nothing, for `Mortal._renew`: the old object ended with its driver, or was closed meanwhile."""


class Recovery:
    """Makes a connection again whenever it ends, then the objects that were made over it, in their old order.

    Thread-safe. It refers to all of them weakly.

    Attributes:
        count: how often the connection was made again.
        waits: whether calls wait by default.
    """

    def __init__(self, waits: bool) -> None:
        """Begin with a live connection; `add` its device first."""
        self.count = 0
        self.waits: Final = waits
        self._owner: Final = os.getpid()
        self._lock: Final = threading.RLock()
        self._mortals: list[weakref.ref[Mortal]] = []
        self._is_running = False
        self._attempts = 0
        self._error: NnburstError | None = None
        self._is_closed = False
        self._began = time.monotonic()
        #: Functions that wake calls and event loops: called at each change, with the lock held.
        self._listeners: set[Callable[[], None]] = set()

    def add(self, mortal: Mortal) -> None:
        """Include an object in later recoveries; the device with the connection is added first."""
        with self._lock:
            self._mortals = [held for held in self._mortals if held() is not None]
            self._mortals.append(weakref.ref(mortal))

    def connection_ended(self) -> None:
        """Start a recovery after the driver's death, unless it ran only briefly. Does not block."""
        if self.is_foreign:
            return
        with self._lock:
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
        """Wait until an object is alive.

        Args:
            mortal: the object.
            deadline_ns: end of the wait, on CLOCK_MONOTONIC.
            waits: False to raise DeadObject at once; None to do as the device's `recover=` says.

        Raises:
            MissedDeadline: the object is still being made; the recovery goes on.
            DeadObject: the call does not wait, or the object could not be made; the next call tries again.
            InvalidDevice: the restarted device has other facts; no later call tries again.
            Closed: the device was closed, or this is a forked process.
        """
        self._check_process()
        attempts = self._attempts
        while True:
            changed = OneTimeEvent()
            with self._lock:
                if self._is_there(mortal, attempts, waits):
                    return
                self._listeners.add(changed.set)
            try:
                left = (deadline_ns - time.monotonic_ns()) * 1e-9
                if left <= 0:
                    raise _missed()
                changed.wait(min(left, _LONGEST))
            finally:
                with self._lock:
                    self._listeners.discard(changed.set)

    def revive(
        self, mortal: Mortal, seconds: float | None, began_ns: int | None, ended_ns: int
    ) -> None:
        """Do `reach` for the framework, which decides how long it waits, and after which deaths.

        Args:
            mortal: the object.
            seconds: longest wait of this call; None for no limit.
            began_ns: time on CLOCK_MONOTONIC: if the driver died after it, do not wait; None always waits.
            ended_ns: the time of the driver's death.

        Raises:
            DeadObject: the driver died after `began_ns`.
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
        """Do `reach` without blocking the event loop."""
        import asyncio

        self._check_process()
        loop = asyncio.get_running_loop()
        attempts = self._attempts
        while True:
            future: asyncio.Future[None] = loop.create_future()

            def tell(future: asyncio.Future[None] = future) -> None:
                loop.call_soon_threadsafe(wake_waiter, future)

            with self._lock:
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
                with self._lock:
                    self._listeners.discard(tell)

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._is_closed

    def close(self) -> None:
        """End all recoveries; waiting calls raise Closed. Twice is fine."""
        with self._lock:
            self._is_closed = True
            self._tell()

    @property
    def is_foreign(self) -> bool:
        """Whether this is a forked process."""
        return os.getpid() != self._owner

    def _check_process(self) -> None:
        """Raise Closed in a forked process: arrays in pools are not mapped there, and a lock may be held."""
        check_owner(self._owner, "the device")

    def _is_there(self, mortal: Mortal, attempts: int, waits: bool | None) -> bool:
        """Whether an object is alive; if not, start a recovery unless one is running. With the lock held.

        Args:
            mortal: the object.
            attempts: number of recoveries that had ended when the call began.
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
        """Start a recovery on a thread; with the lock held."""
        DaemonThread(self._run)
        self._is_running = True

    def _run(self) -> None:
        leftovers: list[Callable[[], None]] = []
        error: NnburstError | None = None
        try:
            error = self._renew_all(leftovers)
        except Exception as unexpected:  # callers must not wait for ever
            logger.exception("making a driver again failed; the next call tries again")
            error = GeneralFailure(f"making it again failed: {unexpected!r}")
        finally:
            with self._lock:
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
        """Make all dead objects again, in order; goes on after most errors, and returns the first one."""
        first: NnburstError | None = None
        with self._lock:
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
            with self._lock:
                self.count += number == 0
                self._tell()
            del mortal
        return first

    def _tell(self) -> None:
        """Wake all waiting calls after a change; with the lock held."""
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
        """Whether the object can be used."""

    @property
    def _ended_ns(self) -> int: ...

    def _revive(self, seconds: float | None, began_ns: int | None = None) -> None: ...


class _Reachable(Protocol):
    def _reached(self, timeout: float) -> object: ...


def died_ns(mortal: Revivable) -> int | None:
    """The time at which its driver's end was noticed, on CLOCK_MONOTONIC; None while it can be used."""
    return None if mortal.is_alive else mortal._ended_ns


def revive(mortal: Revivable) -> None:
    """Wait, without a limit, until an object is made again if its driver has died.

    Raises:
        NnburstError: the recovery has failed.
    """
    mortal._revive(None)


def reach(device: _Reachable, timeout: float) -> None:
    """Wait at most `timeout` seconds until a device's driver is alive.

    Raises:
        NnburstError: the driver is not recovered in time.
    """
    device._reached(timeout)
