"""Bursts on several threads of one client: none keeps the interpreter lock while it waits for its driver."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

import nnburst
from client.burst_helpers import copy_model
from nnburst import Closed, Device, ExecutionResult, PreparedModel
from nnburst.client.burst import transport
from nnburst.client.burst.interface import BoundRequest
from nnburst.client.execution import socket_request
from nnburst.client.hal import create_reusable_execution, execute_fenced, open_aidl_burst

PATIENCE = 30.0
#: Is done once an execution is under way in the other driver, too.
_MEETING = """
import os
import time
from pathlib import Path

from nnburst.executor.base import Execution as BaseExecution, Outcome
from nnburst.executor.null import NullExecutor, NullPrepared

FOLDER = Path(__file__).parent


class Execution(BaseExecution):
    def run(self, *deadlines):
        (FOLDER / f"{os.getpid()}.here").touch()
        until = time.monotonic() + 60
        while len(list(FOLDER.glob("*.here"))) < 2:
            if time.monotonic() > until:
                raise TimeoutError("no execution in the other driver")
            time.sleep(0.001)
        return Outcome()


class Prepared(NullPrepared):
    def bind(self, inputs, outputs):
        return Execution()


class Executor(NullExecutor):
    def prepare(self, model, *more):
        return Prepared(model)
"""
#: Takes 2 ms, without a core.
_SLEEPING = _MEETING.replace(
    _MEETING[_MEETING.index("        (FOLDER") : _MEETING.index("        return Outcome()")],
    "        time.sleep(0.002)\n",
)
_RUNS = 20


@pytest.fixture
def two_bursts(
    request: pytest.FixtureRequest, make_module: Callable[[str, str], None]
) -> Iterator[list[BoundRequest]]:
    """A bound request in each of two drivers, around the executor whose source is the test's parameter."""
    make_module("threaded", request.param)
    free = {"NNBURST_SANDBOX": "0"}  # they leave files for each other
    with ExitStack() as stack:
        bounds = []
        for _ in range(2):
            device = stack.enter_context(nnburst.launch("threaded:Executor", env=free))
            prepared = stack.enter_context(device.prepare(copy_model()))
            bounds.append(stack.enter_context(prepared.open_burst()).bind())
        yield bounds


def seconds_of(bounds: list[BoundRequest], runs: int) -> float:
    """The seconds until all have run so often, each on a thread of its own."""
    failures: list[BaseException] = []

    def work(bound: BoundRequest) -> None:
        try:
            for _ in range(runs):
                bound.run(60)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=[bound]) for bound in bounds]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    return time.perf_counter() - began


@pytest.mark.parametrize("two_bursts", [_MEETING], ids=["meeting"], indirect=True)
def test_executions_of_two_threads_are_under_way_at_the_same_time(
    two_bursts: list[BoundRequest],
) -> None:
    seconds_of(two_bursts, 1)  # none would end without the other


@pytest.mark.timing
@pytest.mark.parametrize("two_bursts", [_SLEEPING], ids=["sleeping"], indirect=True)
def test_two_threads_do_twice_the_work_of_one(two_bursts: list[BoundRequest]) -> None:
    ratio = 0.0
    for _ in range(20):  # a machine that does other things may spoil most rounds
        alone = seconds_of(two_bursts[:1], _RUNS)
        ratio = max(ratio, 2 * alone / seconds_of(two_bursts, _RUNS))
        if ratio >= 1.8:
            return
    pytest.fail(f"two threads did {ratio:.2f} times the work of one")


def test_model_that_is_closed_while_a_burst_opens_on_it_is_released_afterwards(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = device.prepare(copy_model())
    allowed_cores = transport.allowed_cores

    def close_it() -> tuple[int, ...]:  # as another thread may, right before the driver is asked
        prepared.close()
        return allowed_cores()

    monkeypatch.setattr(transport, "allowed_cores", close_it)
    with prepared.open_burst() as burst:
        x = np.ones(2, np.float32)
        assert burst.execute([x]).outputs[0].tolist() == [1, 1]
        assert prepared._prepared._is_released
    with pytest.raises(Closed, match="the prepared model is released"):
        prepared.open_burst()


def test_model_that_is_closed_while_an_execution_begins_is_released_afterwards(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = device.prepare(copy_model())
    time_left = socket_request.time_left

    def close_it(deadline: float) -> float:
        prepared.close()
        return time_left(deadline)

    monkeypatch.setattr(socket_request, "time_left", close_it)
    x = np.ones(2, np.float32)
    assert prepared.execute([x]).outputs[0].tolist() == [1, 1]
    assert prepared._prepared._is_released


def run_reusable(prepared: PreparedModel, inputs: list[Any]) -> ExecutionResult:
    with create_reusable_execution(prepared, inputs) as execution:
        return execution.run(PATIENCE)


def run_fenced(prepared: PreparedModel, inputs: list[Any]) -> ExecutionResult:
    with execute_fenced(prepared, inputs) as execution:
        return execution.result(PATIENCE)


def run_aidl_burst(prepared: PreparedModel, inputs: list[Any]) -> ExecutionResult:
    with open_aidl_burst(prepared) as burst:
        return burst.execute(inputs, timeout=PATIENCE)


@pytest.mark.parametrize("way", [run_reusable, run_fenced, run_aidl_burst])
def test_model_that_is_closed_during_a_call_of_the_hals_kind_is_released_afterwards(
    device: Device,
    monkeypatch: pytest.MonkeyPatch,
    way: Callable[[PreparedModel, list[Any]], ExecutionResult],
) -> None:
    prepared = device.prepare(copy_model())
    close_before_the_call(prepared, monkeypatch)
    result = way(prepared, [np.ones(2, np.float32)])
    assert result.outputs[0].tolist() == [1, 1]
    assert prepared._prepared._is_released


def test_models_that_are_closed_while_a_buffer_is_allocated_are_released_afterwards(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared, other = device.prepare(copy_model()), device.prepare(copy_model())
    close_before_the_call(prepared, monkeypatch)
    with device.allocate_buffer([(prepared, 0), (other, 0)]) as buffer:
        x = np.ones(2, np.float32)
        buffer.copy_from(x)
        assert other.execute([buffer]).outputs[0].tolist() == [1, 1]
    assert prepared._prepared._is_released
    assert not other._prepared._is_released
    other.close()
    assert other._prepared._is_released


def close_before_the_call(prepared: PreparedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Close a model, as another thread may, right before the driver gets the next call."""
    connection = prepared._prepared.session.connection
    call = connection.call

    def close_it(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(connection, "call", call)
        prepared.close()
        return call(*arguments, **options)

    monkeypatch.setattr(connection, "call", close_it)
