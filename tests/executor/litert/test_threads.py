"""Threads of the engine: as many as were asked for and fit, counted in /proc, and asleep when idle."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import numpy as np
import pytest

import nnburst
from executor.cpu_time import busy_for, cpu_ns
from executor.litert.networks import aligned, bind, convolution, needs_engine
from nnburst.executor.base import PrepareOptions
from nnburst.executor.built_in import litert
from shared_drivers import connect_to

pytestmark = needs_engine

CORES = sorted(os.sched_getaffinity(0))
two_cores = pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")

#: A patience that only a broken engine outlasts, in seconds.
PATIENCE = 60.0


def computing(pid: int, before: dict[int, int]) -> set[int]:
    """Threads that have done a considerable part of the work since `before`."""
    used = {thread: ns - before.get(thread, 0) for thread, ns in cpu_ns(pid).items()}
    return {thread for thread, ns in used.items() if ns * 8 > max(used.values())}


@pytest.fixture
def device() -> Iterator[nnburst.Device]:
    with connect_to("litert") as launched:
        yield launched


def bound_convolution(
    device: nnburst.Device, num_threads: int
) -> tuple[nnburst.PreparedModel, nnburst.BoundRequest]:
    prepared = device.prepare(convolution(96, 64), num_threads=num_threads)
    bound = prepared.open_burst().bind()
    bound.inputs[0][...] = np.random.default_rng(1).standard_normal((1, 96, 96, 3))
    bound.run()
    return prepared, bound


@pytest.mark.parametrize("count", [1, 2, 3])
def test_engine_has_the_threads_that_were_asked_for(count: int, route: str) -> None:
    model, pid = convolution(96, 64), os.getpid()
    memory = [aligned(96 * 96 * 3 * 4), aligned(48 * 48 * 64 * 4)]
    bind(litert().prepare(model, [], PrepareOptions(num_threads=1)), model, memory).run()
    before = set(cpu_ns(pid))
    prepared = litert().prepare(model, [], PrepareOptions(num_threads=count))
    execution = bind(prepared, model, memory)
    execution.run()
    # The thread that calls is one of them.
    assert len(set(cpu_ns(pid)) - before) == count - 1
    assert prepared.num_threads == count
    execution.close()
    prepared.close()


@two_cores
@pytest.mark.parametrize("count", [1, 2])
def test_as_many_threads_of_the_driver_compute(count: int, device: nnburst.Device) -> None:
    prepared, bound = bound_convolution(device, count)
    assert prepared.num_threads == count
    before, patience = cpu_ns(device.pid), time.monotonic() + PATIENCE
    while True:  # the second thread helps only if it gets a core in time
        for _ in range(200):
            bound.run()
        found = computing(device.pid, before)
        if len(found) >= count or time.monotonic() > patience:
            break
    assert len(found) == count


@pytest.mark.every_day("2")
@pytest.mark.parametrize("count", [1, 2])
def test_no_thread_of_an_idle_driver_spins(count: int, device: nnburst.Device) -> None:
    _, bound = bound_convolution(device, count)
    for _ in range(100):
        bound.run()
    busy_for(0.05)  # a thread that looks for more work right after a run found none
    before = sum(cpu_ns(device.pid).values())
    busy_for(0.4)
    used = sum(cpu_ns(device.pid).values()) - before
    assert used * 1e-9 < 0.4 / 20


def test_results_do_not_depend_on_the_number_of_threads(device: nnburst.Device) -> None:
    found = [bound_convolution(device, count)[1].outputs[0].copy() for count in (1, 2)]
    np.testing.assert_array_equal(*found)


def test_driver_on_one_core_has_a_budget_of_one_thread() -> None:
    with nnburst.launch("litert", cpus=CORES[:1]) as device:
        assert device.thread_budget == 1
        prepared, bound = bound_convolution(device, 8)
        assert prepared.num_threads == 1
        before = cpu_ns(device.pid)
        for _ in range(100):
            bound.run()
        assert len(computing(device.pid, before)) == 1


def test_budget_is_reported_and_never_exceeded(device: nnburst.Device) -> None:
    assert 1 <= device.thread_budget <= len(CORES)
    prepared = device.prepare(convolution(), num_threads=1024)
    assert prepared.num_threads == device.thread_budget


def test_one_thread_computes_unless_asked_for_more(device: nnburst.Device) -> None:
    assert device.prepare(convolution()).num_threads == 1


def test_executors_without_threads_say_one() -> None:
    with connect_to("reference") as device:
        assert device.prepare(convolution(), num_threads=2).num_threads == 1


@pytest.mark.parametrize("count", [-1, 1025, "2"])
def test_impossible_numbers_of_threads_are_refused(count: int, device: nnburst.Device) -> None:
    with pytest.raises(nnburst.InvalidArgument, match="num_threads"):
        device.prepare(convolution(), num_threads=count)
