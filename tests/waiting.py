"""Waits for conditions of other threads and processes, which notify none."""

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
