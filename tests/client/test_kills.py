"""Drivers killed at random points: callers are told soon, and nothing is left behind."""

from __future__ import annotations

import gc
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import nnburst
from nnburst import DeadObject, Model

KILLS = 10


def left_behind() -> tuple[int, int, int]:
    """Descriptors, threads and mapped pools of this process."""
    gc.collect()
    maps = Path("/proc/self/maps").read_text()
    return len(list(Path("/proc/self/fd").iterdir())), threading.active_count(), maps.count("memfd")


def time_to_notice(model: Model, route: str, patience: float) -> float:
    """Seconds from a kill at a random point to DeadObject in the caller."""
    with nnburst.launch("null") as device:
        prepared = device.prepare(model)
        if route == "burst":
            burst = prepared.open_burst()
            run = burst.bind().run
        else:
            array = np.zeros((2, 3), np.float32)
            run = lambda: prepared.execute([array, array])  # noqa: E731
        killed: list[float] = []

        def kill() -> None:
            threading.Event().wait(patience)
            killed.append(time.perf_counter())
            os.kill(device.pid, signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        with pytest.raises(DeadObject):
            while True:
                run()
        noticed = time.perf_counter()
        killer.join(timeout=10)
        if route == "burst":
            burst.close()
        prepared.close()
    return noticed - killed[0]


@pytest.mark.slow
@pytest.mark.parametrize("route", ["execute", "burst"])
def test_killed_driver_is_noticed_within_10_ms_and_leaves_nothing(
    make_model: Callable[..., Model], route: str
) -> None:
    model, at = make_model(), random.Random(7)
    time_to_notice(model, route, 0.001)
    before = left_behind()
    times = [time_to_notice(model, route, at.uniform(0, 0.02)) for _ in range(KILLS)]
    assert left_behind() == before
    assert float(np.median(times)) < 0.010
    assert max(times) < 0.5
