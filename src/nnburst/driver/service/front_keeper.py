"""Keeps a front process beside the workers, and a spare that takes its place whenever it ends.

A front is a client like any other, so that its end harms no worker. It is started by its module's name,
imports what it needs, and waits for the word to serve, a byte by its standard input. Fronts end with the
supervisor: that pipe ends then, however the supervisor ended.
"""

from __future__ import annotations

import logging
import os
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
#: Seconds between the word to a front and the start of its spare, which would take a core from it.
_SPARE_AFTER: Final = 1.0


class FrontKeeper:
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
        self._command = [sys.executable, "-m", _MODULE, "--connect", str(address), "--supervised"]
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

    def answer(self, counts: Callable[[], ServiceCounts]) -> None:
        """Answer a question of the front; never waits."""
        try:
            question = self.questions.recv(QUESTION_BYTES, socket.MSG_DONTWAIT)
            answer = question + msgspec.msgpack.encode(counts())
            self.questions.send(answer, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except OSError:
            pass  # a front that asks and does not read has no answer; it asks again

    def abandon_in_child(self) -> None:
        """Close this end of the pipes, and the way to ask: what a forked worker does."""
        for front in filter(None, (self._front, self._spare)):
            front.close_pipe()
        self.questions.close()
        self._fronts.close()

    def close(self) -> None:
        """Ask both to end; one that does not within a second is killed."""
        fronts = [front for front in (self._front, self._spare) if front is not None]
        for front in fronts:
            front.ask_to_end()
        for front in fronts:
            front.close()
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
            command, stdin=subprocess.PIPE, pass_fds=[questions]
        )

    def serve(self) -> None:
        """Give it the word; `poll` shows if it could not be given."""
        assert self._process.stdin is not None
        try:
            os.write(self._process.stdin.fileno(), b"s")
        except BrokenPipeError:
            pass  # it has ended

    def poll(self) -> int | None:
        """What it has ended with; None while it lives."""
        code = self._process.poll()
        if code is not None:
            self.close_pipe()
        return code

    def ask_to_end(self) -> None:
        """Ask it to end."""
        self._process.terminate()

    def close(self) -> None:
        """Await its end, for a second; then kill it."""
        try:
            self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(1.0)
        self.close_pipe()

    def close_pipe(self) -> None:
        """Close this end of its standard input, which ends it."""
        if self._process.stdin is not None:
            self._process.stdin.close()
