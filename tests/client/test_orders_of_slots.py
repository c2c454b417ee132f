"""Orders that open and close slots keep their words until they are seen to end, and so do runs of slots."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nnburst.client.burst.resident import ResidentBurst, _SharedBurst
from nnburst.hal.errors import Closed, DeviceUnavailable, MissedDeadline, StateLost
from nnburst.hal.whole_graph import CLOSE_SLOT, OPEN_SLOT


class SlowDriver:
    """Takes orders and reads their words later; the first order's wait ends before it is done."""

    def __init__(self) -> None:
        self.words: list[Any] = []

    def execute(self, inputs: Sequence[Any], timeout: float) -> None:
        self.words.append(inputs[-1])
        if len(self.words) == 1:
            raise MissedDeadline(f"no result within {timeout:g} s")


def test_order_whose_wait_was_cut_short_keeps_its_word() -> None:
    driver = SlowDriver()
    burst: Any = SimpleNamespace(inputs=[None])
    shared = _SharedBurst(burst, driver.execute)
    with pytest.raises(MissedDeadline):
        shared.order(7, OPEN_SLOT, 1.0)
    shared.order(9, CLOSE_SLOT, 1.0)
    shared.order(11, CLOSE_SLOT, 1.0)
    assert driver.words[0].tolist() == [7, OPEN_SLOT], "the driver may read it only now"
    assert driver.words[1].tolist() == [11, CLOSE_SLOT]
    assert np.shares_memory(driver.words[1], driver.words[2]), (
        "an order that has ended gives it back"
    )


def test_order_that_the_driver_does_not_answer_holds_up_no_other() -> None:
    taken, go_on, words = threading.Event(), threading.Event(), []

    def execute(inputs: Sequence[Any], _timeout: float) -> None:
        words.append(inputs[-1])
        if len(words) == 1:
            taken.set()
            assert go_on.wait(30.0)

    burst: Any = SimpleNamespace(inputs=[None])
    shared = _SharedBurst(burst, execute)
    waiting = threading.Thread(target=shared.order, args=(7, OPEN_SLOT, 30.0))
    waiting.start()
    assert taken.wait(30.0)
    other = threading.Thread(target=shared.order, args=(9, CLOSE_SLOT, 30.0))
    other.start()
    other.join(5.0)
    held_up = other.is_alive()
    go_on.set()
    for thread in (waiting, other):
        thread.join(30.0)
    assert not held_up
    assert [word.tolist() for word in words] == [[7, OPEN_SLOT], [9, CLOSE_SLOT]]


class DriverOfSlots:
    """Counts the runs of its slots, and takes a run and then begins it, as late as its burst lets it."""

    def __init__(self) -> None:
        self.steps: dict[int, int] = {}

    def execute(self, inputs: Sequence[Any], _timeout: float = 0) -> None:
        number, steps = (int(each) for each in inputs[-1])
        if steps == OPEN_SLOT:
            self.steps[number] = 0
        elif steps == CLOSE_SLOT:
            self.steps.pop(number, None)
        elif self.steps.get(number) != steps:
            raise DeviceUnavailable(f"slot {number} has not had {steps} runs")
        else:
            self.steps[number] += 1


class BurstInOrder:
    """A burst of such a driver. A run whose timeout is 0 begins only before the next one."""

    def __init__(self, driver: DriverOfSlots) -> None:
        self.driver = driver
        self.inputs = [None]
        self.outputs: list[Any] = []
        self.closed = False
        self.is_alive = True
        self._late: list[Sequence[Any]] = []

    def execute(self, inputs: Sequence[Any], *_: object, timeout: float, **_options: object) -> Any:
        if self.closed:
            raise Closed("the burst is closed")
        if timeout == 0:
            self._late.append(inputs)
            raise MissedDeadline("timeout: no result came in time; a late one is dropped")
        for late in self._late:
            with contextlib.suppress(DeviceUnavailable):
                self.driver.execute(late)
        self._late.clear()
        self.driver.execute(inputs)

    def close(self) -> None:
        self.closed = True

    def bind(self, inputs: Sequence[Any], *_: object, **_options: object) -> Any:
        def run(timeout: float | None) -> Any:
            return self.execute(inputs, timeout=1 if timeout is None else timeout)

        async def run_async(timeout: float | None) -> Any:  # noqa: ASYNC109 - as the real one
            return run(timeout)

        return SimpleNamespace(inputs=inputs, run=run, run_async=run_async)


def bursts(count: int) -> list[ResidentBurst]:
    """Bursts of one driver."""
    driver = DriverOfSlots()
    made: list[Any] = [BurstInOrder(driver) for _ in range(count)]
    return [ResidentBurst.over(burst, driver.execute) for burst in made]


Run = Callable[[float], object]


def execute(burst: ResidentBurst) -> tuple[Run, Callable[[], None]]:
    return lambda timeout: burst.execute([], timeout=timeout), burst.reset


def bound(burst: ResidentBurst) -> tuple[Run, Callable[[], None]]:
    request = burst.bind([])
    return request.run, request.reset


def bound_async(burst: ResidentBurst) -> tuple[Run, Callable[[], None]]:
    request = burst.bind([])
    return lambda timeout: asyncio.run(request.run_async(timeout)), request.reset


@pytest.mark.parametrize("way", [execute, bound, bound_async])
@pytest.mark.parametrize("beside", [False, True])
def test_reset_waits_until_a_late_run_has_ended_that_had_not_begun(
    way: Callable[[ResidentBurst], tuple[Run, Callable[[], None]]], beside: bool
) -> None:
    burst, other = bursts(2)
    run, reset = way(other.beside(burst) if beside else burst.slot())
    run(1)
    with pytest.raises(MissedDeadline):
        run(0)
    with pytest.raises(StateLost):
        run(1)
    reset()
    for _ in range(3):
        run(1)


def test_slot_can_be_reset_after_the_burst_of_its_late_run_was_closed() -> None:
    burst, other = bursts(2)
    slot = burst.slot()
    with pytest.raises(MissedDeadline):
        other.beside(slot).execute([], timeout=0)
    other.close()
    slot.reset()
    slot.execute([], timeout=1)
