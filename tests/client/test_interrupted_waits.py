"""A wait that a signal handler ends by an exception, wherever it comes, keeps nobody else waiting."""

from __future__ import annotations

import contextlib
import inspect
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np

import nnburst
from client.burst_helpers import copy_model, standing_still
from interrupting import interrupted_at
from nnburst.client.session.recovery import Recovery
from nnburst.hal.utils import OneTimeEvent
from nnburst.runtime import Manager
from nnburst.runtime.devices.driver_device import DriverDevice
from shared_drivers import connect_to
from waiting import wait_for

X = np.array([1, -2], np.float32)
#: Functions of Python's that take locks, of which a wait must use none.
LOCKS: Final = frozenset(
    function.__code__
    for kind in (threading.Condition, threading.Event)
    for _, function in inspect.getmembers(kind, inspect.isfunction)
)
PATIENCE: Final = 10.0
SHORT: Final = 0.005


def interrupt_everywhere(wait: Callable[[], object], check: Callable[[], object]) -> int:
    """Interrupt `wait` at each of its places, with `check` after each; returns their number."""

    def to_its_end() -> None:
        with contextlib.suppress(nnburst.MissedDeadline):
            wait()

    number = 1
    while interrupted_at(number, to_its_end, LOCKS):
        check()
        number += 1
    return number - 1


def test_an_event_wakes_those_that_wait_for_it_after_interrupted_waits() -> None:
    for event in (OneTimeEvent(), OneTimeEvent()):
        assert not event.wait(0.0)
        places = interrupt_everywhere(lambda: event.wait(SHORT), lambda: None)  # noqa: B023
        assert places > 3
        woken: list[bool] = []
        threads = [
            threading.Thread(target=lambda: woken.append(event.wait(PATIENCE)))  # noqa: B023
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        event.set()
        event.set()
        for thread in threads:
            thread.join(PATIENCE)
        assert woken == [True] * 3
        assert event.is_set()
        assert event.wait()


def test_an_asynchronous_call_whose_wait_is_interrupted_ends_for_others(
    still: nnburst.Device,
) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: still.prepare_async(copy_model()),
        lambda: prepared.execute_async([X]),
    ]
    with still.prepare(copy_model()) as prepared:
        for begin in calls:
            with standing_still(still):
                pending = begin()
                places = interrupt_everywhere(lambda: pending.result(SHORT), lambda: None)  # noqa: B023
            assert places > 5
            pending.result(PATIENCE)
            begin().result(PATIENCE)


def test_a_submission_to_a_plan_whose_wait_is_interrupted_ends_for_others() -> None:
    device = DriverDevice(lambda: connect_to("reference"), name="own")
    with (
        Manager([device]) as manager,
        nnburst.compile(copy_model(), ["own"], manager=manager) as compiled,
        compiled.open_burst(max_in_flight=2) as burst,
    ):
        bound = burst.bind()
        bound.inputs[0][...] = X
        with standing_still(device):  # type: ignore[arg-type]
            submitted = bound.submit()
            places = interrupt_everywhere(lambda: submitted.result(SHORT), lambda: None)
        assert places > 5
        assert submitted.result(PATIENCE).outputs[0].tolist() == bound.outputs[0].tolist()
        wait_for(lambda: not bound.in_flight, PATIENCE)
        bound.run(PATIENCE)


def test_a_wait_for_the_next_driver_that_is_interrupted_ends_for_others() -> None:
    class Dead:
        is_alive = closed = False

    recovery: Recovery = Recovery(waits=True)
    recovery._is_running = True  # so it goes on for as long as the test wants
    dead: Any = Dead()

    def closes() -> None:
        thread = threading.Thread(target=lambda: recovery.add(dead), daemon=True)
        thread.start()
        thread.join(PATIENCE)
        assert not thread.is_alive(), "the lock is taken"

    def wait() -> None:
        recovery.reach(dead, time.monotonic_ns() + int(SHORT * 1e9))

    assert interrupt_everywhere(wait, closes) > 5
