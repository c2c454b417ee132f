"""Every way to execute gives times and failures alike, and the same call to the executor."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import pytest

import nnburst
from client.conftest import add_model
from client.scripted_driver import Execution, Gate, ScriptedDriver
from nnburst import (
    Device,
    ErrorStatus,
    ExecutionResult,
    GeneralFailure,
    InvalidArgument,
    MissedDeadline,
    NnburstError,
    PreparedModel,
)
from nnburst.client.hal import create_reusable_execution, execute_fenced, open_aidl_burst
from nnburst.control.fences import FenceStatus
from nnburst.executor.base import Outcome
from nnburst.hal import SyncFence

HANG: Final = 20.0
PAIR: Final = [np.ones((2, 3), np.float32), np.full((2, 3), 2, np.float32)]

Way = Callable[[PreparedModel, bool], ExecutionResult]


def burst_run(prepared: PreparedModel, measure: bool) -> ExecutionResult:
    with prepared.open_burst() as burst:
        bound = burst.bind(measure=measure)
        for mine, given in zip(bound.inputs, PAIR, strict=True):
            mine[...] = given
        return bound.run(HANG)


def burst_run_async(prepared: PreparedModel, measure: bool) -> ExecutionResult:
    with prepared.open_burst() as burst:
        bound = burst.bind(measure=measure)
        for mine, given in zip(bound.inputs, PAIR, strict=True):
            mine[...] = given
        return asyncio.run(bound.run_async(HANG))


def burst_execute(prepared: PreparedModel, measure: bool) -> ExecutionResult:
    with prepared.open_burst() as burst:
        return burst.execute(PAIR, measure=measure, timeout=HANG)


def aidl_burst(prepared: PreparedModel, measure: bool) -> ExecutionResult:
    with open_aidl_burst(prepared) as burst:
        return burst.execute(PAIR, measure=measure, timeout=HANG)


def reusable(prepared: PreparedModel, measure: bool) -> ExecutionResult:
    with create_reusable_execution(prepared, PAIR, measure=measure) as execution:
        return execution.run(HANG)


def reusable_fenced(prepared: PreparedModel, measure: bool) -> ExecutionResult:
    with create_reusable_execution(prepared, PAIR, measure=measure) as execution:
        return execution.run_fenced(timeout=HANG).result(HANG)


#: Those that AIDL brought report nanoseconds, too.
AIDL: Final[dict[str, Way]] = {
    "fenced": lambda p, m: execute_fenced(p, PAIR, measure=m).result(HANG),
    "reusable": reusable,
    "reusable, fenced": reusable_fenced,
    "AIDL's burst": aidl_burst,
}
BURSTS: Final[dict[str, Way]] = {
    "burst": burst_run,
    "burst in an event loop": burst_run_async,
    "burst with arrays": burst_execute,
}
WAYS: Final[dict[str, Way]] = {
    "execute": lambda p, m: p.execute(PAIR, measure=m, timeout=HANG),
    "execute_async": lambda p, m: p.execute_async(PAIR, measure=m, timeout=HANG).result(HANG),
    **BURSTS,
    **AIDL,
}

every_way = pytest.mark.parametrize("way", WAYS)


@pytest.fixture
def driver() -> Iterator[ScriptedDriver]:
    with ScriptedDriver() as started:
        yield started


@pytest.fixture
def scripted(driver: ScriptedDriver) -> PreparedModel:
    return driver.device.prepare(add_model())


@every_way
def test_every_way_gives_the_same(prepared: PreparedModel, way: str) -> None:
    assert WAYS[way](prepared, False).outputs[0].tolist() == [[3] * 3] * 2


@every_way
def test_timing_is_there_where_it_was_asked_for(prepared: PreparedModel, way: str) -> None:
    began = time.perf_counter_ns()
    result = WAYS[way](prepared, True)
    passed = time.perf_counter_ns() - began
    assert result.timing.measured
    assert result.timing.time_on_device <= result.timing.time_in_driver
    assert result.timing.time_in_driver <= -(-passed // 1000)
    bare = WAYS[way](prepared, False)
    assert not bare.timing.measured
    assert bare.timing == nnburst.Timing()
    assert (result.timing_ns is not None) == (way in AIDL)
    if result.timing_ns is not None and bare.timing_ns is not None:
        device, in_driver = result.timing_ns.time_on_device_ns, result.timing_ns.time_in_driver_ns
        assert device is not None
        assert in_driver is not None
        assert device <= in_driver <= passed
        assert bare.timing_ns.time_in_driver_ns is None


@every_way
def test_time_on_the_device_is_that_of_the_executor(
    driver: ScriptedDriver, scripted: PreparedModel, way: str
) -> None:
    lasted = 0

    def run(_execution: Execution) -> Outcome:
        nonlocal lasted
        began = time.perf_counter_ns()
        while time.perf_counter_ns() - began < 2_000_000:
            pass
        lasted = time.perf_counter_ns() - began
        return Outcome()

    driver.script.on_run = run
    timing = WAYS[way](scripted, True).timing
    assert lasted // 1000 <= timing.time_on_device <= timing.time_in_driver


@every_way
@pytest.mark.parametrize(
    "status",
    [
        ErrorStatus.GENERAL_FAILURE,
        ErrorStatus.INVALID_ARGUMENT,
        ErrorStatus.MISSED_DEADLINE_TRANSIENT,
        ErrorStatus.RESOURCE_EXHAUSTED_PERSISTENT,
    ],
)
def test_failure_of_the_executor_is_what_is_raised(
    driver: ScriptedDriver, scripted: PreparedModel, way: str, status: ErrorStatus
) -> None:
    driver.script.on_run = lambda _execution: Outcome(status, (), "on purpose")
    with pytest.raises(NnburstError) as raised:
        WAYS[way](scripted, True)
    above = way in BURSTS and status > ErrorStatus.INVALID_ARGUMENT  # do not travel in a packet
    assert raised.value.status == (ErrorStatus.GENERAL_FAILURE if above else status)
    assert raised.value.output_shapes == ()
    assert way in BURSTS or "on purpose" in str(raised.value)
    driver.script.on_run = lambda _execution: Outcome()
    WAYS[way](scripted, False)


@every_way
def test_executor_that_raises_is_a_general_failure(
    driver: ScriptedDriver, scripted: PreparedModel, way: str
) -> None:
    driver.script.on_run = lambda _execution: 1 // 0  # type: ignore[return-value]
    with pytest.raises(GeneralFailure):
        WAYS[way](scripted, True)
    driver.script.on_run = lambda _execution: Outcome()
    WAYS[way](scripted, False)


@pytest.mark.parametrize(("duration", "timeout"), [(None, 5.0), (2.0, 5.0), (5.0, 2.0)])
def test_fenced_execution_must_end_by_the_sooner_of_deadline_and_duration(
    driver: ScriptedDriver, scripted: PreparedModel, duration: float | None, timeout: float
) -> None:
    told: list[int | None] = []

    def run(execution: Execution) -> Outcome:
        told.append(execution.deadline_ns)
        return Outcome()

    driver.script.on_run = run
    before = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    execute_fenced(scripted, PAIR, duration=duration, timeout=timeout).result(HANG)
    after = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    sooner = int(min(duration or timeout, timeout) * 1e9)
    assert told[0] is not None
    assert before + sooner <= told[0] <= after + sooner


def test_memory_of_a_fenced_execution_is_let_go_before_its_fence_signals(
    driver: ScriptedDriver, scripted: PreparedModel
) -> None:
    for number in range(1, 20):
        fenced = execute_fenced(scripted, PAIR)
        assert fenced.fence.wait(HANG) == FenceStatus.SIGNALLED
        assert driver.script.closed_executions == number


def test_fences_that_are_waited_for_hold_no_lane(
    driver: ScriptedDriver, scripted: PreparedModel
) -> None:
    fence, signaller = SyncFence.create()
    waiting = [execute_fenced(scripted, PAIR, wait_for=[fence]) for _ in range(100)]
    scripted.execute(PAIR)
    assert driver.script.closed_executions == 1
    signaller.signal()
    for fenced in waiting:
        fenced.result(HANG)
    assert driver.script.closed_executions == 101


def test_running_fenced_execution_is_not_complete(
    driver: ScriptedDriver, scripted: PreparedModel
) -> None:
    gate = Gate()

    def run(_execution: Execution) -> Outcome:
        gate()
        return Outcome()

    driver.script.on_run = run
    fenced = execute_fenced(scripted, PAIR)
    gate.wait()
    with pytest.raises(GeneralFailure, match="F8"):
        fenced.info()
    with pytest.raises(MissedDeadline):
        fenced.fence.wait(0.01)
    gate.opened.set()
    assert fenced.fence.wait(HANG) == FenceStatus.SIGNALLED


@pytest.mark.parametrize("way", [way for way in AIDL if "fenced" in way])
def test_unspecified_output_cannot_be_fenced(device: Device, way: str) -> None:
    with (
        device.prepare(add_model(output=(0, 3))) as prepared,
        pytest.raises(InvalidArgument, match="R10"),
    ):
        AIDL[way](prepared, False)
