"""Keeps a front process beside the workers: started by its module's name, and again whenever it ends.

A front is a client like any other, so that its end harms no worker. It ends with the supervisor: the
pipe that is its standard input ends then, however the supervisor ended.
"""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from nnburst.control.counts import QUESTION_BYTES, ServiceCounts

logger = logging.getLogger(__name__)

_MODULE: Final = "nnburst.serving"
#: What a front ends with that cannot serve: its address is taken, say.
_REFUSED: Final = 1
#: Seconds before a front is started again; each time twice as long after one that could not serve.
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 5.0
#: Seconds that a front must have lived to count as one that could serve.
_SETTLED: Final = 0.5


class FrontKeeper:
    """One front process, or the pause before the next.

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
        self._command = [sys.executable, "-m", _MODULE, "--connect", str(address), "--supervised"]
        self.questions, self._fronts = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.restarts = -1
        self._command += ["--counts-fd", str(self._fronts.fileno()), *words]
        self._process: subprocess.Popen[bytes] | None = None
        self._pause = _FIRST_PAUSE
        self._started = 0.0
        self._due = 0.0

    @property
    def patience(self) -> float | None:
        """Seconds until `tend` has something to do that no signal announces; None for never."""
        return None if self._process is not None else max(0.0, self._due - time.monotonic())

    def tend(self) -> None:
        """Start it if it is due; notice its end."""
        now = time.monotonic()
        if self._process is not None and (code := self._process.poll()) is not None:
            self._close_pipe()
            self._process = None
            failed = code == _REFUSED or now - self._started < _SETTLED
            self._pause = min(2 * self._pause, _LONGEST_PAUSE) if failed else _FIRST_PAUSE
            self._due = now + self._pause
            logger.warning("the front ended with %d, it starts again in %.2f s", code, self._pause)
        if self._process is None and now >= self._due:
            self._start(now)

    def answer(self, counts: Callable[[], ServiceCounts]) -> None:
        """Answer a question of the front; never waits."""
        try:
            question = self.questions.recv(QUESTION_BYTES, socket.MSG_DONTWAIT)
            answer = question + msgspec.msgpack.encode(counts())
            self.questions.send(answer, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except OSError:
            pass  # a front that asks and does not read has no answer; it asks again

    def abandon_in_child(self) -> None:
        """Close this end of the pipe, and the way to ask: what a forked worker does."""
        self._close_pipe()
        self.questions.close()
        self._fronts.close()

    def close(self) -> None:
        """Ask it to end; who does not within a second is killed."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(1.0)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(1.0)
        self._close_pipe()
        self.questions.close()
        self._fronts.close()

    def _start(self, now: float) -> None:
        self._started = now
        try:
            self._process = subprocess.Popen(  # noqa: S603
                self._command, stdin=subprocess.PIPE, pass_fds=[self._fronts.fileno()]
            )
            self.restarts += 1
        except OSError as error:
            self._due = now + self._pause
            logger.warning("cannot start the front, trying again: %s", error)

    def _close_pipe(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
