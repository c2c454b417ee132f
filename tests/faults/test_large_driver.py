"""`kill -9` of a driver with much memory: the client notices before the kernel has freed that memory."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable

import pytest

import nnburst
from faults.processes import KILLS, PROMISED_DEAD_OBJECT, Ending, Row, check_p99
from nnburst import DeadObject
from nnburst.testing.faults.activities import ACTIVITIES
from nnburst.testing.faults.footprint import resident_bytes

#: Bytes that the driver holds.
HELD = 512 << 20
#: Milliseconds until the kernel reports the end: of any driver, and more for each GiB that it takes apart.
PROMISED_END = 20.0
PROMISED_END_OF_A_GIB = 100.0

_LARGE = f"""
import numpy as np
from nnburst.executor.reference.executor import ReferenceExecutor


class Large(ReferenceExecutor):
    def __init__(self):
        super().__init__()
        self.held = np.ones({HELD}, np.uint8)
"""


@pytest.mark.campaign
def test_death_of_a_driver_with_much_memory_is_noticed_at_once(
    make_module: Callable[[str, str], None], row: Row
) -> None:
    make_module("large", _LARGE)
    heard, ended, beyond = [], [], []
    for _ in range(max(KILLS // 5, 2)):
        with nnburst.launch("large:Large") as device:
            resident = resident_bytes(device.pid)
            assert resident > HELD
            steps = ACTIVITIES["burst_runs"](device)
            next(steps)
            ending, pidfd = Ending(steps), os.dup(device.pidfd)
            poll = select.poll()
            poll.register(pidfd, select.POLLIN)
            killed = time.monotonic_ns()
            os.kill(device.pid, signal.SIGKILL)
            assert poll.poll(10_000)
            ended.append((time.monotonic_ns() - killed) / 1e6)
            beyond.append(ended[-1] - PROMISED_END_OF_A_GIB * resident / (1 << 30))
            assert isinstance(ending.wait(), DeadObject)
            heard.append((ending.at_ns - killed) / 1e6)
            os.close(pidfd)
    row(f"driver of {HELD >> 20} MiB killed", len(heard), dead_object=heard, pidfd=ended)
    check_p99("DeadObject", heard, PROMISED_DEAD_OBJECT)
    check_p99("the end, less 100 ms/GiB", beyond, PROMISED_END)
