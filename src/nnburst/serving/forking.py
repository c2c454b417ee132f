"""Forks the front's process, and the next one when it ends.

The process that does this has imported what all fronts need. It has one thread only, and opens nothing.
"""

from __future__ import annotations

import gc
import logging
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Final, NoReturn

from nnburst.control.counts import STARTING
from nnburst.hal.utils import REFUSED, RestartPauses, start_thread
from nnburst.serving.metrics import DriverCounts

logger = logging.getLogger(__name__)

#: Signals that end a front.
ENDING: Final = (signal.SIGTERM, signal.SIGINT)


class Forking:
    """Keeps a forked process serving until a signal or the end of standard input. It has one thread only."""

    def __init__(self, serve: Callable[[], int], driver: DriverCounts | None) -> None:
        """Fork nothing before `run`.

        Args:
            serve: work of the forked process; returns its exit status.
            driver: the supervisor, which gets a message for each fork.
        """
        self._serve, self._driver = serve, driver
        self._has_signal = False
        self._awake, self._wake = socket.socketpair()
        for each in (self._awake, self._wake):
            each.setblocking(False)
        self._poller = select.poll()
        self._poller.register(self._awake, select.POLLIN)
        self._poller.register(sys.stdin.fileno(), select.POLLIN)

    def run(self) -> int:
        """Fork, and fork again when the process has ended, until this process is told to end."""
        signal.set_wakeup_fd(self._wake.fileno())
        signal.signal(signal.SIGCHLD, lambda *_: None)  # with a handler, it wakes `_wait`
        for number in ENDING:
            signal.signal(number, self._note_signal)
        gc.collect()
        gc.freeze()  # a collection in a front then leaves the shared pages alone
        pauses = RestartPauses()
        while True:
            began = time.monotonic()
            code = self._run_front()
            if self._is_ending():
                return code
            pause = pauses.after(code, time.monotonic() - began)
            logger.warning("the front ended with %d, it starts again in %.2f s", code, pause)
            due = time.monotonic() + pause
            while (left := due - time.monotonic()) > 0 and not self._is_ending():
                self._wait(left)
            if self._is_ending():
                return 0

    def _run_front(self) -> int:
        """Fork the process that serves and wait for its end; its exit code, negative for a signal."""
        if self._driver is not None:
            self._driver.tell(STARTING)
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                # The handlers are for this process only: a front's signals wait until `sigwait` takes them.
                signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
                try:
                    pid = os.fork()
                    if pid == 0:
                        ours.close()
                        self._become_front(theirs)
                except OSError as error:
                    logger.warning("cannot start a front, trying again: %s", error)
                    return REFUSED
                finally:
                    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
            while True:
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    return os.waitstatus_to_exitcode(status)
                if self._is_ending():
                    os.kill(pid, signal.SIGTERM)
                self._wait(None)

    def _become_front(self, parent: socket.socket) -> NoReturn:
        """Serve in the forked process, until `parent` ends at the latest."""
        status = REFUSED
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._awake.close()
            self._wake.close()
            start_thread(threading.Thread(target=_end_with, args=(parent,), daemon=True))
            status = self._serve()
        except BaseException:
            logger.exception("the front failed")
        finally:
            logging.shutdown()
            os._exit(status)

    def _wait(self, seconds: float | None) -> None:
        """Wait for a signal, the end of standard input, or so many seconds."""
        for fd, _ in self._poller.poll(None if seconds is None else seconds * 1000 + 1):
            if fd == self._awake.fileno():
                self._awake.recv(4096)
            elif not os.read(fd, 4096):
                os._exit(REFUSED)  # without a supervisor; the front ends with this process

    def _note_signal(self, *_: object) -> None:
        self._has_signal = True

    def _is_ending(self) -> bool:
        return self._has_signal


def _end_with(parent: socket.socket) -> None:
    """End this process when the process that forked it has ended."""
    parent.recv(1)  # it never sends
    os._exit(REFUSED)
