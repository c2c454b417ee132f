"""Preparations without a waiting caller: one notification each, whatever comes first."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nnburst
from client.conftest import add_model
from client.scripted_driver import HANG, Gate, ScriptedDriver
from nnburst import (
    Closed,
    DeadObject,
    Device,
    GeneralFailure,
    InvalidArgument,
    MissedDeadline,
    NnburstError,
    PreparedModel,
    Priority,
)
from nnburst.client.compilation_cache import CacheFiles
from nnburst.client.prepared_model import Preparation
from nnburst.client.session.pending import CallbackThread
from nnburst.client.session.upcalls import Callback
from nnburst.control.channel import SEND_TIMEOUT
from nnburst.control.messages import NotifyPrepared
from nnburst.hal.enums import ErrorStatus
from waiting import wait_for

MODEL = add_model()


@pytest.fixture
def driver() -> Iterator[ScriptedDriver]:
    with ScriptedDriver() as started:
        yield started


@pytest.fixture
def gate(driver: ScriptedDriver) -> Iterator[Gate]:
    """Holds every preparation up."""
    driver.script.on_prepare = held = Gate()
    yield held
    held.opened.set()


class Heard:
    """A callback that counts."""

    def __init__(self) -> None:
        self.preparations: list[Preparation] = []
        self.threads: set[str] = set()
        self._called = threading.Semaphore(0)

    def __call__(self, preparation: Preparation) -> None:
        self.threads.add(threading.current_thread().name)
        self.preparations.append(preparation)
        self._called.release()

    def wait(self, count: int = 1) -> None:
        for _ in range(count):
            assert self._called.acquire(timeout=HANG)

    def no_more(self) -> bool:
        return not self._called.acquire(blocking=False)


def test_preparation_becomes_a_prepared_model(device: Device, pair: list[np.ndarray]) -> None:
    preparation = device.prepare_async(MODEL)
    prepared = preparation.result(HANG)
    assert preparation.done()
    assert preparation.result() is prepared
    np.testing.assert_array_equal(prepared.execute(pair).outputs[0], pair[0] + pair[1])
    prepared.close()


def test_caller_does_not_wait_for_the_preparation(driver: ScriptedDriver, gate: Gate) -> None:
    preparation = driver.device.prepare_async(MODEL)
    gate.wait()
    assert not preparation.done()
    assert "pending" in repr(preparation)
    with pytest.raises(MissedDeadline, match=r"not done in 0\.01 s"):
        preparation.result(0.01)
    gate.opened.set()
    assert isinstance(preparation.result(HANG), PreparedModel)


def test_callback_gets_a_success_once(driver: ScriptedDriver) -> None:
    heard = Heard()
    preparation = driver.device.prepare_async(MODEL, callback=heard)
    heard.wait()
    assert heard.preparations == [preparation]
    assert heard.threads == {"nnburst callbacks"}
    assert isinstance(preparation.result(), PreparedModel)
    driver.die()
    driver.device.close()
    assert heard.no_more()


@pytest.mark.parametrize("fails_at_once", [False, True])
def test_callback_gets_a_failure_once(driver: ScriptedDriver, fails_at_once: bool) -> None:
    heard = Heard()
    if fails_at_once:
        driver.script.supports = False
    else:
        driver.script.on_prepare = lambda: 1 // 0
    preparation = driver.device.prepare_async(MODEL, callback=heard)
    heard.wait()
    with pytest.raises(InvalidArgument if fails_at_once else GeneralFailure):
        preparation.result()
    driver.device.close()
    assert heard.no_more()


@pytest.mark.parametrize(
    "wrong", [{"preference": 7}, {"priority": 7}, {"num_threads": -1}, {"model": 7}]
)
def test_argument_that_makes_no_sense_is_refused_before_anything_is_sent(
    driver: ScriptedDriver, wrong: dict[str, Any]
) -> None:
    heard = Heard()
    with pytest.raises(InvalidArgument):
        driver.device.prepare_async(**{"model": MODEL, "callback": heard, **wrong})
    assert heard.no_more()


def test_passed_deadline_is_missed_for_good(driver: ScriptedDriver) -> None:
    with pytest.raises(MissedDeadline, match="P6") as caught:
        driver.device.prepare_async(MODEL, deadline_ns=1).result(HANG)
    assert caught.value.status == ErrorStatus.MISSED_DEADLINE_PERSISTENT


def test_far_deadline_is_kept(driver: ScriptedDriver) -> None:
    deadline = time.clock_gettime_ns(time.CLOCK_BOOTTIME) + 10**12
    assert driver.device.prepare_async(MODEL, deadline_ns=deadline).result(HANG)


def test_death_ends_a_preparation(driver: ScriptedDriver, gate: Gate) -> None:
    heard = Heard()
    preparation = driver.device.prepare_async(MODEL, callback=heard)
    gate.wait()
    driver.die()
    heard.wait()
    with pytest.raises(DeadObject):
        preparation.result()
    with pytest.raises(DeadObject):
        driver.device.prepare_async(MODEL, callback=heard)
    heard.wait()  # it was there before the call failed
    assert heard.no_more()


def test_end_of_the_upcalls_is_the_end_of_the_driver(driver: ScriptedDriver, gate: Gate) -> None:
    preparation = driver.device.prepare_async(MODEL)
    gate.wait()
    driver.worker._session.upcalls.close()  # type: ignore[union-attr]
    with pytest.raises(DeadObject):
        preparation.result(HANG)


def test_closing_the_device_ends_a_preparation(driver: ScriptedDriver, gate: Gate) -> None:
    heard = Heard()
    preparation = driver.device.prepare_async(MODEL, callback=heard)
    gate.wait()
    driver.device.close()
    with pytest.raises(Closed):
        preparation.result(HANG)
    heard.wait()
    assert heard.no_more()


def test_model_that_comes_after_cancelling_is_released(driver: ScriptedDriver, gate: Gate) -> None:
    heard = Heard()
    preparation = driver.device.prepare_async(MODEL, callback=heard)
    gate.wait()
    assert preparation.cancel()
    assert not preparation.cancel()
    assert preparation.cancelled()
    heard.wait()
    with pytest.raises(Closed, match="cancelled"):
        preparation.result()
    gate.opened.set()
    assert driver.script.closed.acquire(timeout=HANG)
    assert heard.no_more()


def test_prepare_that_times_out_leaves_no_model(driver: ScriptedDriver, gate: Gate) -> None:
    with pytest.raises(MissedDeadline):
        driver.device.prepare(MODEL, timeout=0.01)
    gate.opened.set()
    assert driver.script.closed.acquire(timeout=HANG)


def test_cancelling_what_is_done_changes_nothing(driver: ScriptedDriver) -> None:
    preparation = driver.device.prepare_async(MODEL)
    prepared = preparation.result(HANG)
    assert not preparation.cancel()
    assert not preparation.cancelled()
    assert preparation.result() is prepared


def test_model_that_is_not_fetched_is_released(driver: ScriptedDriver) -> None:
    preparation = driver.device.prepare_async(MODEL)
    wait_for(preparation.done)
    del preparation
    gc.collect()
    driver.device.supported_operations(MODEL)  # what the collector posted goes with the next call
    assert driver.script.closed.acquire(timeout=HANG)


def test_model_that_was_fetched_stays(driver: ScriptedDriver) -> None:
    prepared = driver.device.prepare_async(MODEL).result(HANG)
    gc.collect()
    driver.device.supported_operations(MODEL)
    assert prepared.execute([np.zeros((2, 3), np.float32)] * 2)


def test_callback_that_is_added_late_is_called_at_once(driver: ScriptedDriver) -> None:
    preparation = driver.device.prepare_async(MODEL)
    preparation.result(HANG)
    heard = Heard()
    preparation.add_done_callback(heard)
    assert heard.threads == {threading.current_thread().name}


def test_callback_that_blocks_or_raises_keeps_the_driver_from_nothing(
    driver: ScriptedDriver, caplog: pytest.LogCaptureFixture
) -> None:
    blocked, heard = Gate(), Heard()
    driver.device.prepare_async(MODEL, callback=lambda _preparation: blocked())
    blocked.wait()
    driver.device.prepare_async(MODEL, callback=lambda _preparation: 1 // 0)
    second = driver.device.prepare_async(MODEL, callback=heard)
    assert second.result(HANG)
    with driver.device.prepare(MODEL).open_burst() as burst:
        burst.bind().run()  # which needs an upcall
    assert heard.no_more()
    blocked.opened.set()
    heard.wait()
    assert "ZeroDivisionError" in caplog.text


def test_callback_may_prepare_and_close(driver: ScriptedDriver) -> None:
    done = threading.Event()

    def chain(preparation: Preparation) -> None:
        preparation.result().close()
        driver.device.prepare(MODEL).close()
        driver.device.close()
        done.set()

    driver.device.prepare_async(MODEL, callback=chain)
    assert done.wait(HANG)


def test_preparation_can_be_awaited(driver: ScriptedDriver, gate: Gate) -> None:
    async def prepare() -> PreparedModel:
        preparations = [driver.device.prepare_async(MODEL) for _ in range(4)]
        threading.Thread(target=gate.opened.set).start()
        models = await asyncio.gather(*map(wrap, preparations))
        assert await preparations[0] is models[0]
        return models[1]

    assert asyncio.run(prepare()).execute([np.zeros((2, 3), np.float32)] * 2)


async def wrap(preparation: Preparation) -> PreparedModel:
    return await preparation


def test_cancelled_task_cancels_its_preparation(driver: ScriptedDriver, gate: Gate) -> None:
    async def prepare() -> Preparation:
        preparation = driver.device.prepare_async(MODEL)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(wrap(preparation), 0.01)
        return preparation

    preparation = asyncio.run(prepare())
    assert preparation.cancelled()
    gate.opened.set()
    assert driver.script.closed.acquire(timeout=HANG)


def test_event_loop_that_is_closed_meanwhile_does_no_harm(
    driver: ScriptedDriver, gate: Gate
) -> None:
    heard = Heard()

    async def leave() -> None:
        waiting = driver.device.prepare_async(MODEL, callback=heard).__await__()
        next(waiting)

    asyncio.run(leave())
    gate.opened.set()
    heard.wait()
    assert driver.device.prepare(MODEL)


def test_one_model_is_prepared_many_times_at_once(device: Device, pair: list[np.ndarray]) -> None:
    preparations = [device.prepare_async(MODEL) for _ in range(16)]
    for preparation in preparations:
        prepared = preparation.result(HANG)
        np.testing.assert_array_equal(prepared.execute(pair).outputs[0], pair[0] + pair[1])
        prepared.close()


def test_waiting_preparations_run_by_priority(driver: ScriptedDriver) -> None:
    gates = [Gate() for _ in range(64)]
    waiting, order = iter(gates), []
    driver.script.on_prepare = lambda: next(waiting)()
    busy = []
    lanes = driver.worker._session.scheduler._lanes  # type: ignore[union-attr]
    for _ in range(preparation_lanes(lanes)):
        busy.append(driver.device.prepare_async(MODEL))
        gates[len(busy) - 1].wait()
    driver.script.on_prepare = lambda: None
    wanted = [Priority.MEDIUM, Priority.HIGH, Priority.MEDIUM, Priority.HIGH]
    heard = Heard()
    after = [
        driver.device.prepare_async(
            MODEL, priority=priority, callback=lambda _p, which=priority: order.append(which)
        )
        for priority in wanted
    ]
    driver.device.prepare_async(MODEL, priority=Priority.MEDIUM, callback=heard)
    wait_for(lambda: waiting_preparations(lanes) == 5)
    gates[0].opened.set()
    heard.wait()
    assert order == sorted(wanted, reverse=True)
    assert all(preparation.done() for preparation in after)
    for gate in gates:
        gate.opened.set()
    assert all(preparation.result(HANG) for preparation in busy)


def preparation_lanes(lanes: Any) -> int:
    return int(
        next(lane for work, lane in lanes.items() if work.name == "PREPARATION")._usual.limit
    )


def waiting_preparations(lanes: Any) -> int:
    lane = next(lane for work, lane in lanes.items() if work.name == "PREPARATION")
    return sum(map(len, lane._waiting.values()))


def test_of_1000_preparations_each_is_notified_of_exactly_once() -> None:
    """Random failures, deadlines, cancels, and the death of the driver at the end."""
    chance, count = random.Random(4), 1000
    calls: Counter[int] = Counter()
    all_called = threading.Semaphore(0)

    def fate() -> None:
        drawn = chance.random()
        if drawn < 0.2:
            raise GeneralFailure("bad luck")
        if drawn < 0.25:
            raise RuntimeError("worse luck")

    def heard(number: int) -> None:
        calls[number] += 1
        all_called.release()

    with ScriptedDriver() as driver:
        driver.script.on_prepare = fate
        preparations = []
        for number in range(count):
            now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
            preparation = driver.device.prepare_async(
                MODEL,
                priority=chance.choice(list(Priority)),
                deadline_ns=chance.choice([None, 1, now + 1_000_000, now + 10**12]),
                callback=lambda _preparation, which=number: heard(which),
            )
            preparations.append(preparation)
            if chance.random() < 0.2:
                chance.choice(preparations).cancel()
            if chance.random() < 0.05:
                wait_for(preparations[0].done)
        for _ in range(count):
            assert all_called.acquire(timeout=HANG)
        outcomes = Counter(outcome(preparation) for preparation in preparations)
        driver.die()
    assert calls == dict.fromkeys(range(count), 1)
    assert outcomes["PreparedModel"]
    assert outcomes["MissedDeadline"]
    assert outcomes["GeneralFailure"]
    assert outcomes["Closed"]
    assert not all_called.acquire(blocking=False)


def test_death_amid_many_preparations_ends_each_once() -> None:
    heard = Heard()
    with ScriptedDriver() as driver:
        driver.script.on_prepare = gate = Gate()
        preparations = [driver.device.prepare_async(MODEL, callback=heard) for _ in range(200)]
        gate.wait()
        driver.die()
        heard.wait(200)
        gate.opened.set()
    assert heard.no_more()
    assert Counter(map(outcome, preparations)) == {"DeadObject": 200}


def outcome(preparation: Preparation) -> str:
    try:
        return type(preparation.result()).__name__
    except NnburstError as error:
        return type(error).__name__


@given(st.lists(st.sampled_from(["notify", "refuse", "die", "die again"]), min_size=1, max_size=8))
def test_only_the_first_outcome_reaches_the_listener(steps: list[str]) -> None:
    heard: list[Any] = []
    callback = Callback(1, heard.append, lambda _callback: DeadObject("gone"))
    told: list[Any] = []
    for step in steps:
        if step == "notify":
            told.append(NotifyPrepared(1, ErrorStatus.NONE, handle=len(told) + 1))
            assert callback.notify(told[-1]) == (len(told) == 1)
        elif step == "refuse":
            told.append(GeneralFailure("no"))
            assert callback.notify(told[-1]) == (len(told) == 1)
        else:
            told.append(None)
            callback.notify_as_dead_object()
    assert len(heard) == 1
    if told[0] is None:
        assert isinstance(heard[0], DeadObject)
    else:
        assert heard[0] is told[0]


@given(st.lists(st.sampled_from(["model", "error", "cancel", "callback"]), max_size=8))
def test_whatever_comes_first_decides(steps: list[str]) -> None:
    model: Any = object()
    device = FakeDevice()
    preparation = Preparation(device, MODEL, nnburst.ExecutionPreference.LOW_POWER)  # type: ignore[arg-type]
    first, calls, added = "", [], 0
    for number, step in enumerate(steps):
        if step == "callback":
            preparation.add_done_callback(calls.append)
            added += 1
            continue
        if step == "model":
            preparation._notified(NotifyPrepared(1, ErrorStatus.NONE, handle=number + 1))
        elif step == "error":
            preparation._notified(GeneralFailure("no"))
        else:
            assert preparation.cancel() == (not first)
        first = first or step
    device.callback_thread.close()
    wait_for(lambda: len(calls) == (added if first else 0))
    assert preparation.done() == bool(first)
    assert preparation.cancelled() == (first == "cancel")
    models = [number + 1 for number, step in enumerate(steps) if step == "model"]
    assert device.released == (models[1:] if first == "model" else models)
    del model


class FakeDevice:
    """As much of a device as a preparation needs."""

    def __init__(self) -> None:
        self.callback_thread = CallbackThread()
        self.released: list[int] = []
        self.session = self.callbacks = self.connection = self

    def release_unwanted(self, message: NotifyPrepared) -> None:
        assert message.handle is not None
        self.released.append(message.handle)

    def release_later(self, handle: int) -> None:
        """A result that the garbage collector found unclaimed: not what is asked here."""


def test_callbacks_survive_a_process_without_threads_to_spare(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    thread, ran = CallbackThread(), threading.Semaphore(0)

    def fail(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", fail)
        thread.run(lambda: ran.release())
    thread.run(lambda: ran.release())
    assert all(ran.acquire(timeout=HANG) for _ in range(2))
    thread.close()
    thread.run(lambda: ran.release())
    assert ran.acquire(blocking=False)


def test_a_call_that_cannot_leave_takes_no_longer_than_its_caller_has(
    device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeouts: list[float] = []

    def refuse(*_arguments: object, timeout: float) -> NoReturn:
        timeouts.append(timeout)
        raise MissedDeadline("the driver does not read")

    prepared = device.prepare(add_model())
    pair = [np.ones((2, 3), np.float32)] * 2
    ways: list[Callable[[], object]] = [
        lambda: device.prepare(add_model(), timeout=25),
        lambda: device.prepare(add_model(), cache_dir=tmp_path, timeout=25),
        lambda: device.prepare_from_cache(add_model(), CacheFiles(), timeout=25),
        lambda: prepared.execute_async(pair, timeout=25),
    ]
    device.number_of_cache_files_needed  # noqa: B018 - asked before the driver stops reading
    monkeypatch.setattr(device._session.connection, "call_async", refuse)
    for way in ways:
        with pytest.raises(MissedDeadline):
            way()
    assert len(timeouts) == len(ways)
    # More than what a send has by default: the caller's own.
    assert all(SEND_TIMEOUT < timeout <= 25 for timeout in timeouts)
