"""Pools that are closed while a burst adopts them."""

from __future__ import annotations

import sys
import threading
from typing import Any

import numpy as np
import pytest

import nnburst
from client.conftest import add_model
from nnburst import (
    Burst,
    Closed,
    Device,
    InvalidArgument,
    MissedDeadline,
    OutputInsufficientSize,
)
from nnburst.client.burst import arrays as array_execution
from nnburst.client.burst.bound_request import RingRequest
from nnburst.client.burst.core import SlotTable
from nnburst.client.burst.interface import BoundRequest
from nnburst.client.memory import Memory
from nnburst.hal.types import OutputShape


@pytest.fixture
def burst(still: Device) -> Any:
    with still.prepare(add_model((2,))) as prepared, prepared.open_burst() as opened:
        yield opened


def arrays_of(memory: Memory) -> list[np.ndarray]:
    return [memory.array(np.float32, (2,), 8 * number) for number in range(3)]


def test_pool_that_is_closed_just_before_it_gets_its_slot_keeps_none(
    burst: Burst, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = burst._core.prepared.session.allocate(64)
    x, y, z = arrays_of(memory)
    slot_of = SlotTable.slot_of

    def closed_meanwhile(table: SlotTable, of: Memory) -> tuple[int, bool]:
        of.close()  # as another thread may
        return slot_of(table, of)

    with monkeypatch.context() as patch:
        patch.setattr(SlotTable, "slot_of", closed_meanwhile)
        with pytest.raises(Closed, match="its pool is closed"):
            burst.bind([x, y], [z])
    assert not burst._core.slots.has(memory)
    burst.bind().run()


def test_array_beyond_4_gib_of_its_pool_goes_over_the_socket(burst: Burst) -> None:
    memory = Memory((4 << 30) + 4096)
    x, y, z = (memory.array(np.float32, (2,), (4 << 30) + 64 * number) for number in range(3))
    near = memory.array(np.float32, (2,), (4 << 30) - 64)
    expected = r"inputs\[1\] begins at byte 4294967360 of its pool, expected at most 4294967295"
    with pytest.raises(InvalidArgument, match=expected):
        burst.bind([near, y], [z])
    before = burst.statistics()["executions"]
    for value in range(5):
        near[...] = x[...] = y[...] = value
        assert burst.execute([x, y], [z]).outputs[0] is z
        assert z.tolist() == [2 * value] * 2
        assert burst.execute([near, y]).outputs[0].tolist() == [2 * value] * 2
    assert burst.statistics()["executions"] == before
    burst.execute([near, near])
    assert burst.statistics()["executions"] == before + 1


def test_pools_close_while_another_thread_binds(burst: Burst) -> None:
    raised: list[BaseException] = []

    def close_pools() -> None:
        try:
            for _ in range(300):
                burst._core.prepared.session.allocate(64).close()
                burst._core.pool_closed(-1)
        except BaseException as error:
            raised.append(error)

    interval = sys.getswitchinterval()
    closing = threading.Thread(target=close_pools)
    sys.setswitchinterval(1e-6)
    try:
        closing.start()
        kept = []
        while closing.is_alive():
            kept.append(burst.bind())
            del kept[:-5]
    finally:
        sys.setswitchinterval(interval)
        closing.join()
    assert not raised


def test_attempts_with_larger_outputs_share_one_timeout(
    still: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, given = [100.0], []

    def too_small(_bound: BoundRequest, timeout: float) -> nnburst.ExecutionResult:
        given.append(timeout)
        now[0] += 4.0
        shape = OutputShape((1000 * len(given),), False)
        raise OutputInsufficientSize("too small", output_shapes=(shape,))

    monkeypatch.setattr(RingRequest, "run", too_small)
    monkeypatch.setattr(array_execution.time, "monotonic", lambda: now[0])
    x = np.zeros(2, np.float32)
    with still.prepare(add_model((2,), output=(0,))) as prepared, prepared.open_burst() as burst:
        with pytest.raises(MissedDeadline):
            burst.execute([x, x], timeout=10.0)
        now[0] = 0.0
    assert given == [10.0, 6.0, 2.0]
