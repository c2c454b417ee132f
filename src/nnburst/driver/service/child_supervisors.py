"""Keeps the front process, and the processes for weights or for the device, running beside the workers.

A front is a client like any other, so that its end harms no worker; a spare one takes its place then. It is
started by its module's name, imports what it needs, and waits for the word to serve, a byte by its standard
input. Fronts end with the supervisor: that pipe ends then, however the supervisor ended.
"""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NoReturn

import msgspec

from nnburst.control.counts import LISTENING, QUESTION_BYTES, ServiceCounts
from nnburst.driver.executors import find_executor
from nnburst.driver.owner_server import USER_BYTES, own_device
from nnburst.driver.weights_server import OWNER_BYTES, keep_weights
from nnburst.executor.built_in import PACKING
from nnburst.hal.errors import NnburstError
from nnburst.hal.utils import inherited_environment, python_command

logger = logging.getLogger(__name__)

_MODULE: Final = "nnburst.serving"
#: Exit status of a front that cannot serve: its address is taken, say.
_REFUSED: Final = 1
#: Seconds before a front is started again; each time twice as long after one that could not serve.
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 5.0
#: Seconds that a front must have lived to count as one that could serve.
_SETTLED: Final = 0.5
#: Seconds between the word to a front and the start of its spare, which would take a core from it.
_SPARE_AFTER: Final = 1.0


class FrontSupervisor:
    """One front process and its spare, or the pause before the next.

    Attributes:
        questions: readable when the front asks for what was counted; `answer` is due then.
        restarts: how often the front was started again.
    """

    def __init__(self, address: Path, words: Sequence[str]) -> None:
        """Nothing is started before `tend`.

        Args:
            address: of the driver's socket.
            words: of the front's command line.
        """
        #: Seconds that it has to end: as long as it lets requests finish, and to say good-bye.
        self._grace = 1.0 + (float(words[words.index("--drain") + 1]) if "--drain" in words else 0)
        self._command = python_command("-m", _MODULE, "--connect", str(address), "--supervised")
        self.questions, self._fronts = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.restarts = -1
        self._command += ["--counts-fd", str(self._fronts.fileno()), *words]
        self._front: _Front | None = None
        self._spare: _Front | None = None
        self._pause = _FIRST_PAUSE
        #: When the front had its word, when the next one is due, and when a spare is.
        self._serves_since = self._due = self._spare_due = 0.0

    @property
    def patience(self) -> float | None:
        """Seconds until `tend` has something to do that no signal announces; None for never."""
        if self._front is None:
            return max(0.0, self._due - time.monotonic())
        return None if self._spare is not None else max(0.0, self._spare_due - time.monotonic())

    def tend(self) -> None:
        """Start front and spare if they are due; notice their ends."""
        now = time.monotonic()
        if self._spare is not None and (code := self._spare.poll()) is not None:
            self._spare = None
            self._spare_due = now + _LONGEST_PAUSE
            logger.warning(
                "the spare front ended with %d, the next starts in %.0f s", code, _LONGEST_PAUSE
            )
        if self._front is not None and (code := self._front.poll()) is not None:
            self._front = None
            failed = code == _REFUSED or now - self._serves_since < _SETTLED
            self._pause = min(2 * self._pause, _LONGEST_PAUSE) if failed else _FIRST_PAUSE
            self._due = now + self._pause
            logger.warning("the front ended with %d, it starts again in %.2f s", code, self._pause)
        if self._front is None and now >= self._due:
            self._serve(now)
        if self._front is not None and self._spare is None and now >= self._spare_due:
            self._spare = self._start()
            self._spare_due = now + _LONGEST_PAUSE  # should that have failed

    def answer(self, counts: Callable[[], ServiceCounts]) -> bool:
        """Answer a question of the front; never waits. Whether it has said instead that its ports listen."""
        try:
            question = self.questions.recv(QUESTION_BYTES, socket.MSG_DONTWAIT)
            if question == LISTENING:
                return True
            answer = question + msgspec.msgpack.encode(counts())
            self.questions.send(answer, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except OSError:
            pass  # a front that asks and does not read has no answer; it asks again
        return False

    def abandon_in_child(self) -> None:
        """Close this end of the pipes, and the way to ask: what a forked worker does."""
        for front in filter(None, (self._front, self._spare)):
            front.close_pipe()
        self.questions.close()
        self._fronts.close()

    def close(self) -> None:
        """Ask both to end; one that does not in time is killed."""
        fronts = [front for front in (self._front, self._spare) if front is not None]
        for front in fronts:
            front.ask_to_end()
        for front in fronts:
            front.close(self._grace)
        self.questions.close()
        self._fronts.close()

    def _serve(self, now: float) -> None:
        """Give the spare the word, or a front that is started now."""
        self._front, self._spare = self._spare or self._start(), None
        if self._front is None:
            self._due = now + self._pause
            return
        self._front.serve()
        self.restarts += 1
        self._serves_since = now
        self._spare_due = now + _SPARE_AFTER

    def _start(self) -> _Front | None:
        try:
            return _Front(self._command, self._fronts.fileno())
        except OSError as error:
            logger.warning("cannot start a front, trying again: %s", error)
            return None


class _Front:
    """A process that imports what a front needs, and serves once it has the word."""

    def __init__(self, command: Sequence[str], questions: int) -> None:
        """Start it.

        Raises:
            OSError: it cannot be started.
        """
        self._process = subprocess.Popen(  # noqa: S603
            command,
            stdin=subprocess.PIPE,
            pass_fds=[questions],
            env=inherited_environment(),
        )

    def serve(self) -> None:
        """Give it the word; `poll` shows if it could not be given."""
        assert self._process.stdin is not None
        try:
            os.write(self._process.stdin.fileno(), b"s")
        except BrokenPipeError:
            pass  # it has ended

    def poll(self) -> int | None:
        """The exit code of the process; None while it runs."""
        code = self._process.poll()
        if code is not None:
            self.close_pipe()
        return code

    def ask_to_end(self) -> None:
        """Ask it to end."""
        self._process.terminate()

    def close(self, seconds: float) -> None:
        """Await its end for so long; then kill it."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(1.0)
        self.close_pipe()

    def close_pipe(self) -> None:
        """Close this end of its standard input, which ends it."""
        if self._process.stdin is not None:
            self._process.stdin.close()


#: Seconds before an owner is started again that had not settled: its clients wait for it.
_OWNERS_PAUSE: Final = 1.0
#: Forks a process that becomes what is given; None if that fails, else its number.
Fork = Callable[[Callable[[], NoReturn]], int | None]
#: Of a service whose users share with each other.
_EVERYBODY: Final = -1


class _SideSupervisor(ABC):
    """A process beside the workers, each of which it knows by a socket. Not thread-safe.

    Attributes:
        pid: of the process; 0 without one.
    """

    #: Seconds before it is started again if it had not settled.
    _pause = _LONGEST_PAUSE

    def __init__(self, executor: str) -> None:
        """Nothing is started before `start`.

        Args:
            executor: name of the service's executor.
        """
        self._executor = executor
        self._pair: socket.socket | None = None
        self.pid = 0
        #: When it was started last, and when it is due again after it has ended.
        self._started = 0.0
        self._due: float | None = None

    @property
    def patience(self) -> float | None:
        """Seconds until `tend` has something to do; None for never."""
        return None if self._due is None else max(0.0, self._due - time.monotonic())

    def tend(self, fork: Fork) -> None:
        """Start it again if it has ended and is due; it would inherit connections that are open here."""
        if self._due is not None and time.monotonic() >= self._due:
            self._due = None
            self.start(fork)

    def start(self, fork: Fork) -> None:
        """Fork the process by `fork`."""
        self._started = time.monotonic()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

        def become() -> NoReturn:
            ours.close()
            self._become(theirs)

        with theirs:
            pid = fork(become)
        if pid is None:
            ours.close()
        else:
            self._pair, self.pid = ours, pid

    @abstractmethod
    def _become(self, supervisor: socket.socket) -> NoReturn:
        """Do the work of the process, which has been forked, until `supervisor` ends."""

    def _admit(self, words: bytes) -> socket.socket | None:
        """A worker's socket, whose other end the process gets with `words`; None if it cannot be had."""
        if self._pair is None:
            return None
        theirs, workers = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                socket.send_fds(
                    self._pair,
                    [words],
                    [theirs.fileno()],
                    socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL,
                )
            except OSError as error:
                logger.info("a worker has to do without the process beside it: %s", error)
                workers.close()
                return None
        return workers

    def abandon_in_child(self) -> None:
        """Close this end: what a forked child does, so that it cannot say whose worker it is."""
        if self._pair is not None:
            self._pair.close()

    def note_end(self) -> None:
        """The process has ended; another one is due, at once if this one had settled."""
        self.close()
        self._schedule()

    def _schedule(self) -> None:
        self.pid = 0
        now = time.monotonic()
        self._due = now + (0.0 if now - self._started > _SETTLED else self._pause)

    def close(self) -> None:
        """Give it up; it ends. Twice is fine."""
        pair, self._pair = self._pair, None
        if pair is not None:
            pair.close()


class WeightsSupervisor(_SideSupervisor):
    """The process that keeps packed weights, if the executor has any to share. Not thread-safe.

    When it has ended workers pack for themselves; those that come share with the next one.
    """

    def __init__(self, executor: str, *, across_users: bool = False) -> None:
        """Nothing is started before `start`.

        Args:
            executor: name of the executor of every worker.
            across_users: share between clients of different users, too. One learns then, from the time that a
                preparation takes, that another has prepared the same model.
        """
        super().__init__(executor)
        self._across_users = across_users

    def start(self, fork: Fork) -> None:
        """Fork the process by `fork`; without it nothing is shared."""
        if _packs(self._executor):
            super().start(fork)

    def admit(self, user: int) -> socket.socket | None:
        """A worker's socket, on which clients of `user` share with each other; None without the process."""
        owner = _EVERYBODY if self._across_users else user
        return self._admit(owner.to_bytes(OWNER_BYTES, "little", signed=True))

    def _become(self, supervisor: socket.socket) -> NoReturn:
        keep_weights(supervisor, self._executor)


class OwnerSupervisor(_SideSupervisor):
    """The process that owns the device of all workers. Not thread-safe.

    Its workers end with it. Those that come wait until the next one has the device: a pair of sockets that
    outlives the process keeps what they are admitted by.
    """

    _pause = _OWNERS_PAUSE

    def __init__(self, executor: str) -> None:
        """Nothing is started before `start`, and workers can be admitted before that."""
        super().__init__(executor)
        self._pair, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def start(self, fork: Fork) -> None:
        """Fork the process by `fork`; if that fails the next attempt is due in a while."""
        self._started = time.monotonic()
        with self._theirs.dup() as theirs:
            pid = fork(lambda: self._become(theirs))
        if pid is None:
            self._due = self._started + self._pause
        else:
            self.pid = pid

    def admit(self, user: int) -> socket.socket | None:
        """A worker's socket to the owner, for a client of `user`; None if there is no room for it."""
        return self._admit(user.to_bytes(USER_BYTES, "little"))

    def abandon_in_child(self) -> None:
        """Close both ends, by which other workers' sockets come; the owner has a copy of its own."""
        super().abandon_in_child()
        self._theirs.close()

    def note_end(self) -> None:
        """The owner has ended; another one is due, at once if this one had settled."""
        self._schedule()

    def _become(self, supervisor: socket.socket) -> NoReturn:
        own_device(supervisor, self._executor)


def _packs(executor: str) -> bool:
    if executor in PACKING:
        return True
    try:
        return hasattr(find_executor(executor), "prepare_packed")
    except NnburstError:  # every client gets this error
        return False
