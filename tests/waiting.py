"""Waits for conditions of other threads and processes by polling, and for errors of calls."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


def wait_for(condition: Callable[[], object], seconds: float = 60.0, pause: float = 0.002) -> None:
    """Poll until `condition` holds, with a pause between two checks; fail after `seconds`."""
    deadline = time.monotonic() + seconds
    turn = threading.Event()
    while not condition():
        assert time.monotonic() < deadline
        turn.wait(pause)


def error_of(call: Callable[[], object], seconds: float = 60.0) -> str:
    """The text of the error that a call raises; fail without an error, or after `seconds`."""
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
