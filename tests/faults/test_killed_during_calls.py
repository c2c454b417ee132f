"""`kill -9` of a driver during every kind of call: the caller or callback gets one error, at once.

The executors never finish, so each call is running at the time of the kill. A new way to execute needs an
entry in CALLS.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import pytest

import nnburst
from faults.processes import (
    HANG,
    KILLS,
    PROMISED_DEAD_OBJECT,
    Row,
    Supervisor,
    check_p99,
    collect,
)
from nnburst import DeadObject, Device
from nnburst.client.hal import create_reusable_execution, execute_fenced, open_aidl_burst
from nnburst.client.session.pending import Pending
from nnburst.hal import SyncFence
from nnburst.testing.faults.activities import sum_model, summands
from nnburst.testing.faults.footprint import footprint, settle

#: Longest time between the start of a call and the kill, in seconds.
LATEST: Final = 0.02
ENDLESS: Final = "nnburst.testing.faults.executors:"


class Heard:
    """The outcome of a call, the number of its deliveries, and the time of the first."""

    def __init__(self) -> None:
        self.times = 0
        self.at_ns = 0
        self._error: BaseException | None = None
        self._called = threading.Event()

    def __call__(self, error: BaseException | None) -> None:
        self.at_ns = self.at_ns or time.monotonic_ns()
        self._error = error if self.times == 0 else self._error
        self.times += 1
        self._called.set()

    def of(self, pending: Pending[Any]) -> None:
        """The callback of a call that was launched."""
        try:
            pending.result()
            self(None)
        except nnburst.NnburstError as error:
            self(error)

    def on_thread(self, call: Callable[[], object]) -> None:
        """Make a call that waits, on a thread of its own."""

        def run() -> None:
            try:
                call()
                self(None)
            except Exception as error:
                self(error)

        threading.Thread(target=run, daemon=True).start()

    def wait(self) -> BaseException | None:
        """The outcome that was delivered; forgotten here, with all that its traceback holds."""
        assert self._called.wait(HANG), f"nothing was heard within {HANG} s"
        error, self._error = self._error, None
        return error


#: Sets a call up on a device; what it returns starts the call.
Call = Callable[[Device], Callable[[Heard], None]]


def prepare(device: Device) -> Callable[[Heard], None]:
    return lambda heard: heard.on_thread(lambda: device.prepare(sum_model()))


def prepare_async(device: Device) -> Callable[[Heard], None]:
    def start(heard: Heard) -> None:
        device.prepare_async(sum_model(), callback=heard.of)

    return start


def execute(device: Device) -> Callable[[Heard], None]:
    prepared = device.prepare(sum_model())
    return lambda heard: heard.on_thread(lambda: prepared.execute(summands(1)))


def execute_async(device: Device) -> Callable[[Heard], None]:
    prepared = device.prepare(sum_model())

    def start(heard: Heard) -> None:
        prepared.execute_async(summands(1), callback=heard.of)

    return start


def burst(device: Device) -> Callable[[Heard], None]:
    bound = device.prepare(sum_model()).open_burst().bind()
    return lambda heard: heard.on_thread(bound.run)


def burst_in_a_loop(device: Device) -> Callable[[Heard], None]:
    bound = device.prepare(sum_model()).open_burst().bind()
    return lambda heard: heard.on_thread(lambda: asyncio.run(bound.run_async()))


def aidl_burst(device: Device) -> Callable[[Heard], None]:
    opened = open_aidl_burst(device.prepare(sum_model()))
    return lambda heard: heard.on_thread(lambda: opened.execute(summands(1)))


def fenced(device: Device) -> Callable[[Heard], None]:
    prepared = device.prepare(sum_model())
    return lambda heard: heard.on_thread(lambda: execute_fenced(prepared, summands(1)).result())


def fenced_waiting(device: Device) -> Callable[[Heard], None]:
    prepared = device.prepare(sum_model())
    fence, signaller = SyncFence.create()

    def call() -> None:
        try:
            execute_fenced(prepared, summands(1), wait_for=[fence]).result()
        finally:
            signaller.close()

    return lambda heard: heard.on_thread(call)


def reusable(device: Device) -> Callable[[Heard], None]:
    execution = create_reusable_execution(device.prepare(sum_model()), summands(1))
    return lambda heard: heard.on_thread(execution.run)


def reusable_fenced(device: Device) -> Callable[[Heard], None]:
    execution = create_reusable_execution(device.prepare(sum_model()), summands(1))
    return lambda heard: heard.on_thread(lambda: execution.run_fenced().result())


CALLS: Final[dict[str, tuple[str, Call]]] = {
    "prepare": ("EndlessPreparing", prepare),
    "prepare_async": ("EndlessPreparing", prepare_async),
    "execute": ("EndlessExecuting", execute),
    "execute_async": ("EndlessExecuting", execute_async),
    "burst": ("EndlessExecuting", burst),
    "run_async": ("EndlessExecuting", burst_in_a_loop),
    "aidl_burst": ("EndlessExecuting", aidl_burst),
    "fenced": ("EndlessExecuting", fenced),
    "fenced, waiting": ("EndlessExecuting", fenced_waiting),
    "reusable": ("EndlessExecuting", reusable),
    "reusable, fenced": ("EndlessExecuting", reusable_fenced),
}


@pytest.mark.every_day("burst")
@pytest.mark.parametrize("name", CALLS)
def test_driver_killed_during_a_call_is_a_dead_object_once_and_at_once(
    serve: Callable[..., Supervisor], chance: random.Random, row: Row, name: str
) -> None:
    executor, call = CALLS[name]
    supervisor = serve("cam", ENDLESS + executor)
    baseline, latencies, cleaned, mine = footprint(supervisor.pid), [], [], []
    nnburst.connect("cam").close()
    own = footprint(os.getpid())
    for _ in range(KILLS):
        heard = Heard()
        with nnburst.connect("cam") as device:
            call(device)(heard)
            threading.Event().wait(chance.uniform(0, LATEST))
            killed = time.monotonic_ns()
            os.kill(device.pid, signal.SIGKILL)
            error = heard.wait()
            assert isinstance(error, DeadObject), f"{name}: {error!r}"
            latencies.append((heard.at_ns - killed) / 1e6)
            cleaned.append(settle(supervisor.pid, baseline) * 1000)
        del error, device
        collect()
        mine.append(settle(os.getpid(), own) * 1000)
        assert heard.times == 1
    row(
        f"killed during {name}",
        KILLS,
        heard=latencies,
        cleaned_up=cleaned,
        client_cleaned_up=mine,
    )
    check_p99(name, latencies, PROMISED_DEAD_OBJECT)


def test_driver_killed_amid_200_launched_calls_ends_each_of_them(
    serve: Callable[..., Supervisor], row: Row
) -> None:
    serve("cam", ENDLESS + "EndlessExecuting")
    nnburst.connect("cam").close()
    own, latencies = footprint(os.getpid()), []
    for _ in range(max(KILLS // 10, 2)):
        everybody = [Heard() for _ in range(200)]
        with nnburst.connect("cam") as device:
            prepared = device.prepare(sum_model())
            for heard in everybody:
                prepared.execute_async(summands(1), callback=heard.of)
            killed = time.monotonic_ns()
            os.kill(device.pid, signal.SIGKILL)
            for heard in everybody:
                assert isinstance(heard.wait(), DeadObject)
                latencies.append((heard.at_ns - killed) / 1e6)
        assert all(heard.times == 1 for heard in everybody)
        del device, prepared, everybody, heard
        collect()
        settle(os.getpid(), own)
    row("killed amid 200 launched calls", len(latencies), heard=latencies)
    check_p99("each of 200", latencies, PROMISED_DEAD_OBJECT)
