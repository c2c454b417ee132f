"""`kill -9` of a driver with much memory: the client hears of it before the kernel has taken that apart."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable

import numpy as np

import nnburst
from faults.processes import KILLS, STRICT, Ending, Row
from nnburst import DeadObject
from nnburst.testing.faults.activities import ACTIVITIES
from nnburst.testing.faults.footprint import resident_bytes

#: Bytes that the driver holds.
HELD = 512 << 20
#: Milliseconds from the kill to DeadObject, whatever the driver holds.
PROMISED = 10.0

_LARGE = f"""
import numpy as np
from nnburst.executor.reference.executor import ReferenceExecutor


class Large(ReferenceExecutor):
    def __init__(self):
        super().__init__()
        self.held = np.ones({HELD}, np.uint8)
"""


def test_death_of_a_driver_with_much_memory_is_heard_of_at_once(
    make_module: Callable[[str, str], None], row: Row
) -> None:
    make_module("large", _LARGE)
    heard, ended = [], []
    for _ in range(max(KILLS // 5, 2)):
        with nnburst.launch("large:Large") as device:
            assert resident_bytes(device.pid) > HELD
            steps = ACTIVITIES["burst_runs"](device)
            next(steps)
            ending, pidfd = Ending(steps), os.dup(device.pidfd)
            poll = select.poll()
            poll.register(pidfd, select.POLLIN)
            killed = time.monotonic_ns()
            os.kill(device.pid, signal.SIGKILL)
            assert poll.poll(10_000)
            ended.append((time.monotonic_ns() - killed) / 1e6)
            assert isinstance(ending.wait(), DeadObject)
            heard.append((ending.at_ns - killed) / 1e6)
            os.close(pidfd)
    row(f"driver of {HELD >> 20} MiB killed", len(heard), dead_object=heard, pidfd=ended)
    if STRICT:
        assert np.median(heard) <= PROMISED
