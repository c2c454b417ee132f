"""Compiled models execute over bursts of their own from a thread's second call on."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Iterator

import numpy as np
import pytest

import nnburst
from nnburst import CompiledModel, ModelBuilder, OperandType, OperationType, Priority
from nnburst.hal.errors import Closed
from nnburst.runtime import ExecutionRecord, Manager
from nnburst.runtime.devices.driver_device import DriverDevice
from nnburst.runtime.records import ExecutionMode, Record
from shared_drivers import connect_to
from waiting import wait_for

PATIENCE = 60.0


def doubling() -> nnburst.Model:
    builder = ModelBuilder()
    x = builder.input(OperandType.TENSOR_FLOAT32, (2,))
    y = builder.output(OperandType.TENSOR_FLOAT32, (2,))
    builder.operation(OperationType.ADD, [x, x, builder.scalar(0)], [y])
    return builder.build()


@pytest.fixture
def manager() -> Iterator[Manager]:
    driver = DriverDevice(lambda: connect_to("reference"), name="driver")
    with Manager([driver]) as made:
        yield made


def execute(compiled: CompiledModel, number: float) -> None:
    result = compiled.execute([np.array([number, 1], np.float32)])
    assert result.outputs[0].tolist() == [2 * number, 2]


def has_burst(compiled: CompiledModel) -> bool:
    return compiled._thread.mine.burst is not None


def warm_up(compiled: CompiledModel) -> None:
    def execute_once() -> bool:
        execute(compiled, 3)
        return has_burst(compiled)

    wait_for(execute_once)


def test_repeated_calls_are_bound_and_right(manager: Manager) -> None:
    with nnburst.compile(doubling(), ["driver"], manager=manager) as compiled:
        execute(compiled, 0)
        assert not compiled._thread.mine.is_wanted
        warm_up(compiled)
        for number in range(10):
            execute(compiled, number)
        burst = compiled._thread.mine.burst
        assert burst is not None
        assert burst._last is not None
    assert not has_burst(compiled)
    with pytest.raises(Closed):
        execute(compiled, 1)


def test_they_are_recorded_as_what_was_called(manager: Manager) -> None:
    records: list[Record] = []
    manager.records.callback = records.append
    with nnburst.compile(doubling(), ["driver"], manager=manager) as compiled:
        warm_up(compiled)
        execute(compiled, 1)
    modes = {record.mode for record in records if isinstance(record, ExecutionRecord)}
    assert modes == {ExecutionMode.SYNC}


def test_they_can_be_switched_off(manager: Manager) -> None:
    with nnburst.compile(doubling(), ["driver"], manager=manager, bursts=False) as compiled:
        for number in range(4):
            execute(compiled, number)
        assert not compiled._thread.mine.is_wanted


def test_models_of_several_priorities_have_none(manager: Manager) -> None:
    with nnburst.compile(doubling(), ["driver"], manager=manager) as compiled:
        warm_up(compiled)
        options = {"manager": manager, "priority": Priority.HIGH}
        with nnburst.compile(doubling(), ["driver"], **options) as high:  # type: ignore[arg-type]
            for each in (compiled, high):
                assert not has_burst(each)
                for number in range(3):
                    execute(each, number)
                wait_for(lambda each=each: not each._thread.mine.is_wanted)
                assert not has_burst(each)


def test_a_driver_that_dies_is_made_again(manager: Manager) -> None:
    (driver,) = (each for each in manager.devices if isinstance(each, DriverDevice))
    with nnburst.compile(doubling(), ["driver"], manager=manager) as compiled:
        warm_up(compiled)
        for _ in range(2):
            dead = driver.pid
            os.kill(dead, signal.SIGKILL)

            def is_there() -> bool:
                try:
                    execute(compiled, 5)
                except nnburst.DeadObject:  # it died in the middle
                    return False
                return driver.pid != dead  # noqa: B023

            wait_for(is_there)
        execute(compiled, 6)


def test_threads_leave_no_burst(manager: Manager) -> None:
    with nnburst.compile(doubling(), ["driver"], manager=manager) as compiled:

        def run() -> None:
            for number in range(20):
                execute(compiled, number)

        for _ in range(20):
            threads = [threading.Thread(target=run) for _ in range(5)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(PATIENCE)

        (part,) = compiled.compilation._finished_executable.parts
        own = part.session_bursts  # type: ignore[attr-defined]

        def none_is_left() -> bool:
            gc.collect()
            return not len(own._bursts)

        wait_for(none_is_left)
