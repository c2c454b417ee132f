"""Executors that fail in every way: an exception is an answer, a crash ends one worker with its name."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from itertools import cycle, islice

import pytest

import nnburst
from faults.processes import HANG, KILLS, Row, Supervisor
from nnburst import DeadObject, Device, GeneralFailure, ResourceExhausted
from nnburst.client.hal import open_aidl_burst
from nnburst.testing.faults.activities import check_sum, sum_model, summands

#: Fails if the first input says so: numbers are signals, or the exception with that index.
_FAILING = """
import os
import resource
import signal

import numpy as np

from nnburst.executor import base
from nnburst.executor.reference.executor import ReferenceExecutor

FAILURES = (MemoryError(), ValueError("odd"), ZeroDivisionError(), RecursionError(), KeyError("x"),
            StopIteration(), SystemExit(3), KeyboardInterrupt(), OSError(5, "gone"))


class Failing(base.Execution):

    def __init__(self, execution, first):
        self._execution, self._first = execution, first

    def run(self, *deadlines, **more):
        wish = int(self._first.view(np.float32)[0])
        if wish < 0:
            raise FAILURES[-wish - 1]
        if wish >= 1000:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            os.kill(os.getpid(), wish - 1000)
            signal.pause()
        return self._execution.run(*deadlines, **more)

    def close(self):
        self._execution.close()


class Prepared(base.Prepared):
    def __init__(self, prepared):
        self._prepared = prepared

    def bind(self, inputs, outputs):
        return Failing(self._prepared.bind(inputs, outputs), inputs[0].buffer)

    def close(self):
        self._prepared.close()


class Executor(base.Executor):
    name = "failing"

    def __init__(self):
        self._inner = ReferenceExecutor()

    def supported(self, model):
        return self._inner.supported(model)

    def prepare(self, *arguments, **more):
        return Prepared(self._inner.prepare(*arguments, **more))
"""
#: Exceptions that the executor can raise; the first one is MemoryError.
RAISED = 9
#: The kernel's version.
LINUX = tuple(map(int, re.findall(r"\d+", os.uname().release)[:2]))
CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT)


@pytest.fixture(autouse=True)
def failing(make_module: Callable[[str, str], None]) -> str:
    """The executor's name, once drivers can import it."""
    make_module("failing", _FAILING)
    return "failing:Executor"


class Ways:
    """The same sum by several ways to execute."""

    def __init__(self, device: Device) -> None:
        self._prepared = device.prepare(sum_model())
        self._burst = self._prepared.open_burst()
        self._bound = self._burst.bind()
        self._aidl = open_aidl_burst(self._prepared)

    def all(self) -> Iterator[Callable[[int], None]]:
        yield self._bound_run
        yield lambda number: self._check(self._prepared.execute(summands(number)), number)
        yield lambda number: self._check(
            self._prepared.execute_async(summands(number)).result(), number
        )
        yield lambda number: self._check(self._aidl.execute(summands(number)), number)

    def _bound_run(self, number: int) -> None:
        for array, value in zip(self._bound.inputs, summands(number), strict=True):
            array[...] = value
        self._check(self._bound.run(), number)

    @staticmethod
    def _check(result: nnburst.ExecutionResult, number: int) -> None:
        check_sum(result.outputs[0], number)


def test_exceptions_of_an_executor_are_general_failures_and_its_worker_goes_on(
    failing: str, row: Row
) -> None:
    with nnburst.launch(failing) as device:
        ways = list(Ways(device).all())
        for number in range(KILLS * RAISED):
            raised = number % RAISED
            # A burst's result cannot express that memory is exhausted.
            expected = GeneralFailure if raised else (GeneralFailure, ResourceExhausted)
            for way in ways:
                with pytest.raises(expected):
                    way(-1 - raised)
                way(number % 1000)
        assert device.is_alive
    row("executor raises", KILLS * RAISED * len(ways), worker="went on")


def last_words(error: pytest.ExceptionInfo[DeadObject]) -> str:
    """The end of the driver as a DeadObject has it, as soon as the kernel has reported it."""
    deadline = time.monotonic() + HANG
    while True:
        said = str(error.value)
        if "was killed by" in said or time.monotonic() > deadline:
            return said


#: What is known of another process's child that has been reaped: before Linux 6.15 that it has died.
ALSO = "" if LINUX >= (6, 15) else "|has died$"


def test_crash_of_an_executor_is_a_dead_object_that_names_the_signal(
    failing: str, serve: Callable[..., Supervisor], row: Row
) -> None:
    serve("cam", failing)
    with nnburst.connect("cam") as bystander:
        other = next(Ways(bystander).all())
        for number, crash in enumerate(islice(cycle(CRASHES), KILLS)):
            with nnburst.connect("cam") as device:
                way = list(Ways(device).all())[number % 4]
                way(number)
                with pytest.raises(DeadObject) as error:
                    way(1000 + crash)
                assert re.search(rf"was killed by {crash.name}\b{ALSO}", last_words(error))
            other(number)
    row("executor crashes", KILLS, bystander="went on")


@pytest.mark.every_day("11", "6")
@pytest.mark.parametrize("crash", CRASHES)
def test_crash_of_a_launched_driver_names_the_signal(failing: str, crash: signal.Signals) -> None:
    with nnburst.launch(failing) as device:
        way = next(Ways(device).all())
        way(1)
        with pytest.raises(DeadObject) as error:
            way(1000 + crash)
        assert re.search(rf"was killed by {crash.name}\b", last_words(error))
