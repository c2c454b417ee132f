"""A burst that is not used gives memory back, and takes it again with the next request."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
import pytest

from driver.burst_harness import Harness, ScriptedExecution, ScriptedExecutor
from nnburst.driver import burst as driver_burst
from nnburst.executor.base import Argument
from nnburst.hal.enums import ErrorStatus
from nnburst.testing.faults.footprint import resident_bytes
from waiting import wait_for

HELD = 64 << 20


class HeavyExecution(ScriptedExecution):
    """Holds memory until it is closed, as an engine does."""

    scratch: np.ndarray | None = None

    def close(self) -> None:
        super().close()
        self.scratch = None


class HeavyExecutor(ScriptedExecutor):
    def bind(self, inputs: Sequence[Argument], outputs: Sequence[Argument]) -> HeavyExecution:
        execution = HeavyExecution(self, [*inputs, *outputs])
        execution.scratch = np.ones(HELD, np.uint8)
        self.bound.append(execution)
        return execution


def test_memory_of_a_burst_that_idles_goes_back_until_the_next_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(driver_burst, "IDLE_NS", 300_000_000)
    before = resident_bytes(os.getpid())
    with Harness(HeavyExecutor()) as burst:
        for times in (1, 2):
            assert burst.exchange(burst.packet(0))[0] == ErrorStatus.NONE
            assert len(burst.executor.bound) == times
            wait_for(lambda: burst.executor.bound[-1].closed)
            wait_for(lambda: resident_bytes(os.getpid()) < before + HELD // 2)
