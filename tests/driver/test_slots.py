"""Slots of a burst: the pools that they name, and the time that the client has to answer."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from nnburst.control.channel import UPCALL_TIMEOUT
from nnburst.driver import burst as driver_burst
from nnburst.driver.burst import SlotCache
from nnburst.fmq.shared_memory import SharedMemory


def test_unknown_slots_are_asked_for_in_order_and_64_at_a_time() -> None:
    asked: list[list[int]] = []

    def answer(slots: Sequence[int], _timeout: float) -> list[SharedMemory]:
        asked.append(list(slots))
        return [SharedMemory.create(8) for _ in slots]

    cache = SlotCache(answer)
    assert len(cache.resolve([*reversed(range(130)), 5])) == 131
    assert asked == [list(range(64)), list(range(64, 128)), [128, 129]]
    cache.resolve([3, 129])
    assert len(asked) == 3
    cache.close()


def test_all_questions_of_one_request_have_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    now, left = [100.0], []

    def slow(slots: Sequence[int], timeout: float) -> list[SharedMemory]:
        left.append(timeout)
        now[0] += 0.6 * UPCALL_TIMEOUT
        return [SharedMemory.create(8) for _ in slots]

    monkeypatch.setattr(driver_burst.time, "monotonic", lambda: now[0])
    cache = SlotCache(slow)
    cache.resolve(range(180))
    assert left == pytest.approx([UPCALL_TIMEOUT, 0.4 * UPCALL_TIMEOUT, 0])
    cache.close()
