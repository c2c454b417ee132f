"""A thread whose start nothing waits for."""

from __future__ import annotations

import _thread
import sys
import threading
from collections.abc import Callable
from typing import Final


class DaemonThread:
    """Runs a function on a thread that keeps no process from ending. Thread-safe.

    `threading.Thread.start` returns only once the new thread runs, which takes two switches between threads:
    a tenth of what opening a burst takes, on either side. `threading.enumerate` does not list such a thread.
    """

    def __init__(self, run: Callable[[], None]) -> None:
        """Start it; what `run` raises goes to `threading.excepthook`.

        Raises:
            RuntimeError: the process may have no more threads.
        """
        self._ended: Final = threading.Event()
        _thread.start_new_thread(_run_daemon, (run, self._ended))

    def join(self, timeout: float) -> bool:
        """Wait until it has ended, at most `timeout` seconds; whether it has."""
        return self._ended.wait(timeout)


def _run_daemon(run: Callable[[], None], ended: threading.Event) -> None:
    # Debuggers, coverage and profilers see this thread as they see those of `threading`.
    if (trace := threading.gettrace()) is not None:
        sys.settrace(trace)
    if (profile := threading.getprofile()) is not None:
        sys.setprofile(profile)
    try:
        run()
    except BaseException:  # as in a thread of `threading`
        threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), None)))
    finally:
        ended.set()
