"""Decides whose execution is next on a device that several clients share.

Users have equal shares of the device's time. Among the clients of one user those whose work has the highest
priority go first, and among these each has an equal share. Shares are of time, not of executions, so that
long ones do not take more. A client that was idle has saved nothing up.

This is start-time fair queueing: what waits has a start tag, the least one is served, and its next start tag
lies behind it by the time that it took. NNAPI: priority is relative among the clients of one application.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

from nnburst.hal.enums import Priority


class _Share:
    """One that competes: a user with other users, or a client with the user's other clients.

    Attributes:
        tag: when its service began, or is to begin, in the virtual time of those that compete.
        finish: the tag that work has which comes next.
        waiting: pieces of work that wait.
    """

    def __init__(self) -> None:
        self.tag = 0.0
        self.finish = 0.0
        self.waiting = 0

    def begin_waiting(self, now: float) -> None:
        """One more piece of work has come; `now` is virtual."""
        if not self.waiting:
            self.tag = max(now, self.finish)
        self.waiting += 1

    def charge(self, seconds: float) -> None:
        """It was served for so long."""
        self.finish = self.tag + seconds
        self.tag = max(self.tag, self.finish)


class _User(_Share):
    """All clients of one user.

    Attributes:
        now: the virtual time of its clients.
        clients: how many there are.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.clients = 0


class _Waiter:
    """A thread that waits for its turn, and the lock that it sleeps on."""

    def __init__(self, client: TurnTaker, priority: Priority) -> None:
        self.client = client
        self.priority = priority
        self.bell = threading.Lock()
        self.bell.acquire()


class TurnTaker(_Share):
    """One client among those that share a device. Made by `FairTurns.join`."""

    def __init__(self, turns: FairTurns, user: _User) -> None:
        """Use `FairTurns.join`."""
        super().__init__()
        self.user: Final = user
        self._turns = turns

    @property
    def is_free(self) -> bool:
        """Whether no client had the device, or waited for it, when looked at."""
        return not self._turns.is_busy

    def turn(self, priority: Priority) -> contextlib.AbstractContextManager[None]:
        """A context in which this client alone has the device; waits for its turn before.

        Args:
            priority: of the work, among the work of all clients of the user.
        """
        return self._turns.hold(self, priority)

    def close(self) -> None:
        """The client is gone; none of its threads waits any more."""
        self._turns.leave(self)


class FairTurns:
    """A device that one execution has at a time. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        """No client has it.

        Args:
            clock: seconds that the device is used.
        """
        self._clock = clock
        self._lock = threading.Lock()
        self._users: dict[int, _User] = {}
        self._waiters: list[_Waiter] = []
        self._busy = False
        self._now = 0.0

    @property
    def is_busy(self) -> bool:
        """Whether a client has it."""
        return self._busy

    @property
    def waiting(self) -> int:
        """The number of threads that wait for their turn."""
        return len(self._waiters)

    def join(self, user: int) -> TurnTaker:
        """A client of `user` comes."""
        with self._lock:
            known = self._users.setdefault(user, _User())
            known.clients += 1
        return TurnTaker(self, known)

    def leave(self, client: TurnTaker) -> None:
        """For `TurnTaker.close`."""
        with self._lock:
            client.user.clients -= 1
            self._users = {user: known for user, known in self._users.items() if known.clients}

    @contextlib.contextmanager
    def hold(self, client: TurnTaker, priority: Priority) -> Iterator[None]:
        """For `TurnTaker.turn`."""
        waiter = _Waiter(client, priority)
        with self._lock:
            self._waiters.append(waiter)
            client.user.begin_waiting(self._now)
            client.begin_waiting(client.user.now)
            if not self._busy:
                self._pass_on()
        waiter.bell.acquire()
        began = self._clock()
        try:
            yield
        finally:
            took = self._clock() - began
            with self._lock:
                client.charge(took)
                client.user.charge(took)
                self._pass_on()

    def _pass_on(self) -> None:
        """Give the device to the next one, if there is one; the lock is held."""
        self._busy = bool(self._waiters)
        if not self._waiters:
            return
        user = min((w.client.user for w in self._waiters), key=lambda share: share.tag)
        of_user = [w for w in self._waiters if w.client.user is user]
        highest = max(w.priority for w in of_user)
        # Of equal ones `min` takes the first, which is the one that came first.
        chosen = min((w for w in of_user if w.priority == highest), key=lambda w: w.client.tag)
        self._waiters.remove(chosen)
        client = chosen.client
        user.waiting -= 1
        client.waiting -= 1
        self._now = max(self._now, user.tag)
        user.now = max(user.now, client.tag)
        chosen.bell.release()
