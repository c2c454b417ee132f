"""Models execute over bursts that no program has opened: when, how many, and until when."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from nnburst import Closed, DeadObject, Device, Memory, Model, PreparedModel, Priority
from nnburst.client.burst.burst import RingBurst
from nnburst.client.session import own_bursts as module
from nnburst.client.session.gate import entries, leave
from nnburst.client.session.own_bursts import ThreadBursts
from serving.networks import absolutes
from shared_drivers import connect_to
from waiting import wait_for

PATIENCE = 60.0
X = [np.full((2, 3), 2, np.float32), np.arange(6, dtype=np.float32).reshape(2, 3)]
Y = (X[0] + X[1]).tolist()


def has_burst(model: Any) -> bool:
    return model._thread.mine.burst is not None


def warm_up(model: Any) -> None:
    """Execute until the calling thread has a burst."""

    def execute() -> bool:
        assert model.execute(X).outputs[0].tolist() == Y
        return has_burst(model)

    wait_for(execute)


def own_bursts(device: Device) -> int:
    gc.collect()
    return len(device._session.own_bursts._bursts)


@pytest.fixture
def device() -> Iterator[Device]:
    """A driver of the test's own."""
    with connect_to("reference") as launched:
        yield launched


@pytest.fixture
def prepared(device: Device, make_model: Callable[..., Model]) -> Iterator[PreparedModel]:
    with device.prepare(make_model()) as model:
        yield model


def test_first_call_of_a_thread_opens_no_burst(prepared: PreparedModel) -> None:
    prepared.execute(X)
    assert not prepared._thread.mine.is_wanted
    prepared.execute(X)
    wait_for(lambda: has_burst(prepared))


def test_calls_over_a_burst_of_its_own_give_what_the_socket_gives(prepared: PreparedModel) -> None:
    warm_up(prepared)
    burst = prepared._thread.mine.burst
    assert burst is not None
    before = burst.statistics()["executions"]
    target = np.zeros((2, 3), np.float32)
    result = prepared.execute(X, [target], measure=True)
    assert result.outputs[0] is target
    assert target.tolist() == Y
    assert result.timing.time_in_driver >= result.timing.time_on_device
    assert result.timing_ns is None
    assert burst.statistics()["executions"] == before + 1


def test_result_of_many_open_shapes_comes_over_a_burst_of_its_own(device: Device) -> None:
    x = np.full((3, 1, 1, 1), -7, np.float32)
    with device.prepare(absolutes(205).model) as prepared:  # its results have 1,027 elements

        def execute() -> bool:
            outputs = prepared.execute([x]).outputs
            assert all(output.tolist() == np.abs(x).tolist() for output in outputs)
            return has_burst(prepared)

        wait_for(execute)
        execute()


def test_arrays_beyond_4_gib_of_a_pool_are_executed_as_before(prepared: PreparedModel) -> None:
    memory = Memory((4 << 30) + 4096)
    far = [memory.array(np.float32, (2, 3), (4 << 30) + 64 * number) for number in range(3)]
    for target, source in zip(far, X, strict=False):
        target[...] = source
    assert prepared.execute(far[:2], far[2:]).outputs[0].tolist() == Y
    warm_up(prepared)
    far[2][...] = 0
    assert prepared.execute(far[:2], far[2:]).outputs[0].tolist() == Y
    assert has_burst(prepared)


def test_bursts_can_be_switched_off(device: Device, make_model: Callable[..., Model]) -> None:
    with device.prepare(make_model(), bursts=False) as prepared:
        for _ in range(5):
            assert prepared.execute(X).outputs[0].tolist() == Y
        assert not prepared._thread.mine.is_wanted
        assert own_bursts(device) == 0


def test_models_of_several_priorities_execute_over_the_socket(
    device: Device, prepared: PreparedModel, make_model: Callable[..., Model]
) -> None:
    warm_up(prepared)
    with device.prepare(make_model(), priority=Priority.HIGH) as high:
        for model in (prepared, high):
            assert not has_burst(model)
            for _ in range(4):
                assert model.execute(X).outputs[0].tolist() == Y
            wait_for(lambda model=model: not model._thread.mine.is_wanted)
            assert not has_burst(model)
    assert own_bursts(device) == 0


def test_a_burst_that_is_not_used_is_given_up(
    device: Device, prepared: PreparedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LOOK", 0.05)
    prepared.execute(X)
    prepared.execute(X)
    wait_for(lambda: own_bursts(device) == 1)
    wait_for(lambda: own_bursts(device) == 0)
    warm_up(prepared)


def test_short_threads_leave_nothing_with_the_connection(
    device: Device, prepared: PreparedModel
) -> None:
    def run() -> None:
        while prepared._thread.mine.burst is None:
            assert time.monotonic() < deadline
            prepared.execute(X)

    deadline = time.monotonic() + PATIENCE
    callbacks = device._session.connection._on_end._callbacks
    before = len(callbacks)
    for _ in range(6):
        thread = threading.Thread(target=run)
        thread.start()
        thread.join(PATIENCE)
        wait_for(lambda: own_bursts(device) == 0)
    wait_for(lambda: len(callbacks) <= before + 1, 10.0)  # that of the model


@pytest.mark.campaign
def test_a_thousand_short_threads_leave_no_burst(device: Device, prepared: PreparedModel) -> None:
    def run() -> None:
        for _ in range(3):
            assert prepared.execute(X).outputs[0].tolist() == Y

    for _ in range(100):
        threads = [threading.Thread(target=run) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
    wait_for(lambda: own_bursts(device) == 0)


def test_threads_have_bursts_up_to_a_number_and_all_get_their_own_results(
    device: Device, prepared: PreparedModel
) -> None:
    barrier = threading.Barrier(24)

    def run(me: int) -> int:
        barrier.wait(PATIENCE)
        wrong = 0
        for turn in range(60):
            inputs = [np.full((2, 3), me * 100 + turn, np.float32), X[1]]
            wrong += prepared.execute(inputs).outputs[0].tolist() != (inputs[0] + X[1]).tolist()
        barrier.wait(PATIENCE)
        return wrong

    with ThreadPoolExecutor(24) as pool:
        assert sum(pool.map(run, range(24))) == 0
    assert own_bursts(device) <= module.MOST_THREADS


def test_a_call_of_a_signal_handler_goes_over_the_socket(
    prepared: PreparedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    warm_up(prepared)
    burst = prepared._thread.mine.burst
    assert burst is not None
    executing, me = burst._arrays.executing, next(entries)
    executing.enter(me)  # as a call has that a handler interrupts
    assert prepared.execute(X).outputs[0].tolist() == Y
    leave(executing.struct, me)
    assert has_burst(prepared)


def test_closed_model_and_dead_driver_are_noticed_over_a_burst_too(
    device: Device, make_model: Callable[..., Model]
) -> None:
    with device.prepare(make_model()) as prepared:
        warm_up(prepared)
    with pytest.raises(Closed):
        prepared.execute(X)
    with device.prepare(make_model()) as prepared:
        warm_up(prepared)
        os.kill(device.pid, signal.SIGKILL)
        with pytest.raises(DeadObject):
            prepared.execute(X)


def test_model_that_is_made_again_gets_other_bursts(make_model: Callable[..., Model]) -> None:
    with connect_to("reference", recover=True) as device:
        prepared = device.prepare(make_model())
        warm_up(prepared)
        os.kill(device.pid, signal.SIGKILL)
        wait_for(lambda: not has_burst(prepared))
        warm_up(prepared)
        assert prepared.recoveries == 1
        prepared.close()


def test_model_that_is_not_closed_leaves_nothing(
    device: Device, make_model: Callable[..., Model]
) -> None:
    prepared = device.prepare(make_model())
    warm_up(prepared)
    bursts: ThreadBursts[RingBurst] = prepared._own_bursts
    registry = bursts._registry
    del prepared, bursts
    gc.collect()
    assert registry.is_closed
    wait_for(lambda: own_bursts(device) == 0)
