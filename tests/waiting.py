"""Waits for what nothing tells a test of."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


def wait_for(condition: Callable[[], object], seconds: float = 60.0, pause: float = 0.005) -> None:
    """Return once `condition` holds, which is asked for after each pause; fail if it never does."""
    deadline = time.monotonic() + seconds
    turn = threading.Event()
    while not condition():
        assert time.monotonic() < deadline
        turn.wait(pause)
