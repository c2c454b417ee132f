"""Waits for conditions of other threads and processes, which notify none, and for errors of calls."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


def wait_for(condition: Callable[[], object], seconds: float = 60.0, pause: float = 0.002) -> None:
    """Return once `condition` holds, which is looked at after each pause; fail after `seconds`."""
    deadline = time.monotonic() + seconds
    turn = threading.Event()
    while not condition():
        assert time.monotonic() < deadline
        turn.wait(pause)


def error_of(call: Callable[[], object], seconds: float = 60.0) -> str:
    """The text of the error that a call raises; fail if it raises none, or takes longer than `seconds`."""
    found: list[str] = []

    def run() -> None:
        try:
            call()
        except Exception as error:
            found.append(str(error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), "the call waits"
    assert found, "the call raises nothing"
    return found[0]
