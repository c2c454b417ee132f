"""Keeps the front process, and the processes for weights or for the device, running beside the workers.

A front is a client like any other, so its end harms no worker. The supervisor starts a process by its
module's name; that process forks the front, and the next one when a front ends. Both end with the supervisor:
the forking process reads a pipe from it, and the front ends with the forking process.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NoReturn

import msgspec

from nnburst.control.counts import LISTENING, QUESTION_BYTES, STARTING, ServiceCounts
from nnburst.driver.executors import find_executor
from nnburst.driver.owner_server import USER_BYTES, own_device
from nnburst.driver.weights_server import OWNER_BYTES, keep_weights
from nnburst.executor.built_in import PACKING
from nnburst.hal.errors import NnburstError
from nnburst.hal.utils import (
    LONGEST_PAUSE,
    REFUSED,
    SETTLED,
    RestartPauses,
    inherited_environment,
    python_command,
)

logger = logging.getLogger(__name__)

_MODULE: Final = "nnburst.serving"


class FrontSupervisor:
    """Runs the process that forks the front, and restarts it after pauses.

    Attributes:
        questions: readable when the front has news or asks for the counts; then call `answer`.
        restarts: number of restarts of the front.
    """

    def __init__(self, address: Path, words: Sequence[str]) -> None:
        """Start nothing before `tend`.

        Args:
            address: path of the driver's socket.
            words: words of the front's command line.
        """
        #: Seconds that a front has to end: its time for open requests, and one more.
        self._grace = 1.0 + (float(words[words.index("--drain") + 1]) if "--drain" in words else 0)
        self._command = python_command("-m", _MODULE, "--connect", str(address), "--supervised")
        self.questions, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.restarts = -1
        self._command += ["--counts-fd", str(self._theirs.fileno()), *words]
        self._process: subprocess.Popen[bytes] | None = None
        self._pauses = RestartPauses()
        #: The time at which the process was started, and the time at which the next one is due.
        self._started = self._due = 0.0

    @property
    def patience(self) -> float | None:
        """Seconds until `tend` must be called although no signal comes; None for never."""
        return None if self._process is not None else max(0.0, self._due - time.monotonic())

    def tend(self) -> None:
        """Start the process if that is due; handle its end."""
        now = time.monotonic()
        if self._process is not None and (code := self._process.poll()) is not None:
            self._close_pipe()
            self._process = None
            pause = self._pauses.after(code, now - self._started)
            self._due = now + pause
            logger.warning(
                "the process of fronts ended with %d, it starts again in %.2f s", code, pause
            )
        if self._process is None and now >= self._due:
            self._start(now)

    def answer(self, counts: Callable[[], ServiceCounts]) -> bool:
        """Answer a question of the front, without waiting; True if it reported listening ports instead."""
        try:
            question = self.questions.recv(QUESTION_BYTES, socket.MSG_DONTWAIT)
            if question == LISTENING:
                return True
            if question == STARTING:
                self.restarts += 1
                return False
            answer = question + msgspec.msgpack.encode(counts())
            self.questions.send(answer, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except OSError:
            pass  # a front that does not read gets no answer; it asks again
        return False

    def abandon_in_child(self) -> None:
        """Close this end of the pipe and the sockets for questions, in a forked worker."""
        self._close_pipe()
        self.questions.close()
        self._theirs.close()

    def close(self) -> None:
        """Ask the processes to end; kill them if they do not end in time."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(self._grace)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(1.0)
            self._close_pipe()
        self.questions.close()
        self._theirs.close()

    def _start(self, now: float) -> None:
        self._started = now
        try:
            self._process = subprocess.Popen(  # noqa: S603
                self._command,
                stdin=subprocess.PIPE,
                pass_fds=[self._theirs.fileno()],
                env=inherited_environment(),
            )
        except OSError as error:
            logger.warning("cannot start a front, trying again: %s", error)
            self._due = now + self._pauses.after(REFUSED, 0.0)

    def _close_pipe(self) -> None:
        """Close this end of the process's standard input, which ends the process."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()


#: Seconds before the restart of an owner that could not serve; short, since its clients wait for it.
_OWNERS_PAUSE: Final = 1.0
#: Forks a process that runs the given function; returns its number, or None if that fails.
Fork = Callable[[Callable[[], NoReturn]], int | None]
#: Stands for all users in a service whose users share weights with each other.
_EVERYBODY: Final = -1


class _SideSupervisor(ABC):
    """Runs a process beside the workers, to which each worker is connected by a socket. Not thread-safe.

    Attributes:
        pid: number of the process; 0 if it does not run.
    """

    #: Seconds before the restart of a process that could not serve.
    _pause = LONGEST_PAUSE

    def __init__(self, executor: str) -> None:
        """Start nothing before `start`.

        Args:
            executor: name of the service's executor.
        """
        self._executor = executor
        self._pair: socket.socket | None = None
        self.pid = 0
        #: The time of its latest start, and the time at which its restart is due.
        self._started = 0.0
        self._due: float | None = None

    @property
    def patience(self) -> float | None:
        """Seconds until `tend` must be called; None for never."""
        return None if self._due is None else max(0.0, self._due - time.monotonic())

    def tend(self, fork: Fork) -> None:
        """Restart the process if that is due. It would inherit open connections: call this without any."""
        if self._due is not None and time.monotonic() >= self._due:
            self._due = None
            self.start(fork)

    def start(self, fork: Fork) -> None:
        """Fork the process by `fork`."""
        self._started = time.monotonic()
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError as error:
            logger.warning("a process beside the workers cannot be started yet: %s", error)
            self._due = self._started + self._pause
            return

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
        """Do the work of the forked process until `supervisor` ends."""

    def _admit(self, words: bytes) -> socket.socket | None:
        """Make a worker's socket, and send its other end to the process with `words`; None if that fails."""
        if self._pair is None:
            return None
        with contextlib.ExitStack() as undo:
            try:
                theirs, workers = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                undo.enter_context(workers)
                with theirs:
                    socket.send_fds(
                        self._pair,
                        [words],
                        [theirs.fileno()],
                        socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL,
                    )
            except OSError as error:
                logger.info("a worker has to do without the process beside it: %s", error)
                return None
            undo.pop_all()
        return workers

    def abandon_in_child(self) -> None:
        """Close this end in a forked worker, so that it cannot claim to be the worker of another user."""
        if self._pair is not None:
            self._pair.close()

    def note_end(self) -> None:
        """Schedule the restart of the process, which has ended: at once if it could serve, else later."""
        self.close()
        self._schedule()

    def _schedule(self) -> None:
        self.pid = 0
        now = time.monotonic()
        self._due = now + (0.0 if now - self._started > SETTLED else self._pause)

    def close(self) -> None:
        """Close the connection, which ends the process. Twice is fine."""
        pair, self._pair = self._pair, None
        if pair is not None:
            pair.close()


class WeightsSupervisor(_SideSupervisor):
    """Runs the process that keeps packed weights, if the executor can share any. Not thread-safe.

    After its end, workers pack by themselves; later workers share with the next process.
    """

    def __init__(self, executor: str, *, across_users: bool = False) -> None:
        """Start nothing before `start`.

        Args:
            executor: name of the executor of every worker.
            across_users: whether clients of different users share weights, too. A user can then find, from
                the time of a preparation, that another user has prepared the same model.
        """
        super().__init__(executor)
        self._across_users = across_users

    def start(self, fork: Fork) -> None:
        """Fork the process by `fork`; if that fails, no weights are shared."""
        if _packs(self._executor):
            super().start(fork)

    def admit(self, user: int) -> socket.socket | None:
        """Make a socket for a worker, whose client shares with others of `user`; None without the process."""
        owner = _EVERYBODY if self._across_users else user
        return self._admit(owner.to_bytes(OWNER_BYTES, "little", signed=True))

    def _become(self, supervisor: socket.socket) -> NoReturn:
        keep_weights(supervisor, self._executor)


class OwnerSupervisor(_SideSupervisor):
    """Runs the process that owns the device of all workers. Not thread-safe.

    Its workers end with it. Later workers wait until the next process has opened the device: their sockets
    are kept in a pair of sockets that outlives the process.
    """

    _pause = _OWNERS_PAUSE

    def __init__(self, executor: str) -> None:
        """Start nothing before `start`; workers can be admitted before that."""
        super().__init__(executor)
        self._pair, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def start(self, fork: Fork) -> None:
        """Fork the process by `fork`; if that fails, schedule the next attempt."""
        self._started = time.monotonic()
        pid = None
        try:
            with self._theirs.dup() as theirs:
                pid = fork(lambda: self._become(theirs))
        except OSError as error:
            logger.warning("the device's process cannot be started yet: %s", error)
        if pid is None:
            self._due = self._started + self._pause
        else:
            self.pid = pid

    def admit(self, user: int) -> socket.socket | None:
        """Make a worker's socket to the owner, for a client of `user`; None if it cannot be sent."""
        return self._admit(user.to_bytes(USER_BYTES, "little"))

    def abandon_in_child(self) -> None:
        """Close both ends of the pair that carries other workers' sockets; the owner has its own copy."""
        super().abandon_in_child()
        self._theirs.close()

    def note_end(self) -> None:
        """Schedule the next owner after this one has ended: at once if it could serve, else later."""
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
