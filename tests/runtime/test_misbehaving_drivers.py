"""Drivers that hang, refuse, lie or misshape outputs: in each step, way to execute and mode."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from typing import Self

import numpy as np
import pytest

import nnburst
from nnburst.client.device import Device as ClientDevice
from nnburst.client.memory import Memory as Pool
from nnburst.hal.enums import OperationType, ResultCode
from nnburst.hal.errors import DeadObject, MissedDeadline, NnburstError
from nnburst.hal.model import Model as HalModel
from nnburst.runtime import Compilation, Manager
from nnburst.runtime.devices.cpu_device import CPU_NAME
from nnburst.runtime.devices.driver_device import DriverDevice
from nnburst.testing.partitioning.run import uniform
from runtime.building import Built, finished
from shared_drivers import connect_to

X = np.array([1.0, 2.0], np.float32)
RIGHT = [2.0, 8.0]
KINDS = (OperationType.ADD, OperationType.MUL)
WAYS = ("compute", "start", "burst", "fenced")
FAULTY = "nnburst.testing.faults"
MISSED = (ResultCode.MISSED_DEADLINE_TRANSIENT, ResultCode.MISSED_DEADLINE_PERSISTENT)


class OneKind(DriverDevice):
    """A driver that is asked for one kind of operation."""

    def __init__(self, kind: OperationType, connect: Callable[[], ClientDevice]) -> None:
        super().__init__(connect, name=kind.name.lower())
        self.kind = kind
        self.capabilities = uniform(0.5)

    def supported_operations(self, model: HalModel, pools: object) -> list[bool]:
        del pools
        return [operation.type == self.kind for operation in model.main.operations]


class Drivers:
    """A driver for each of the two steps, one of which misbehaves.

    What is opened is closed once they are dead: closing waits for a driver that hangs, and this need not.
    """

    def __init__(self, step: int, executor: str) -> None:
        names = ["reference", "reference"]
        names[step] = executor
        made = [
            OneKind(kind, lambda name=name: connect_to(name))  # type: ignore[misc]
            for kind, name in zip(KINDS, names, strict=True)
        ]
        self.pids = [driver.pid for driver in made]
        self.manager = Manager(made)
        self.later = ExitStack()
        self.later.callback(self.manager.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pid in self.pids:
            os.kill(pid, signal.SIGKILL)
        self.later.close()

    def compiled(self, *, explicit: bool, known: bool = True) -> Compilation:
        """(x + x) * x, a step on each driver."""
        compilation = compiled(self.manager, explicit=explicit, known=known)
        self.later.callback(compilation.close)
        return compilation


def compiled(manager: Manager, *, explicit: bool, known: bool = True) -> Compilation:
    """(x + x) * x, a step on each driver; its outputs may be of unknown size."""
    built = Built()
    x, s, y = built.tensor(2), built.tensor(2 * known), built.tensor(2 * known)
    built.add(x, x, s)
    built.add(s, x, y, OperationType.MUL)
    devices = [manager.device(kind.name.lower()) for kind in KINDS] if explicit else None
    return finished(built.finish([x], [y]), devices, manager)


def code_of(
    compilation: Compilation,
    way: str,
    out: np.ndarray,
    limit: float = 0,
    later: ExitStack | None = None,
) -> ResultCode:
    """The outcome of one computation; its burst is closed `later`."""
    execution = compilation.execution()
    execution.limit(limit)
    execution.set_input(0, X)
    execution.set_output(0, out)
    out[...] = 0
    try:
        if way == "burst":
            burst = compilation.burst()
            with nullcontext() if later else burst:
                if later:
                    later.callback(burst.close)
                execution.burst_compute(burst)
        elif way == "compute":
            execution.compute()
        else:
            (execution.start() if way == "start" else execution.start_after([])).wait()
    except NnburstError as error:
        return error.code
    return ResultCode.NO_ERROR


@pytest.mark.every_day("Refusing-True-ways0-0", "Misshapen-False-ways2-1")
@pytest.mark.parametrize("step", [0, 1])
@pytest.mark.parametrize(
    ("executor", "known", "ways"),
    [
        ("Refusing", True, WAYS),
        (
            "Misshapen",
            True,
            ("compute", "start", "fenced"),
        ),  # a burst sends no shapes that are known
        ("Misshapen", False, ("compute", "start", "burst")),  # fenced outputs are fully specified
    ],
)
def test_the_cpu_executes_a_step_that_its_driver_refuses_or_misshapes(
    step: int, executor: str, known: bool, ways: tuple[str, ...]
) -> None:
    with Drivers(step, f"{FAULTY}.executors:{executor}") as drivers:
        for explicit in (False, True):
            compilation = drivers.compiled(explicit=explicit, known=known)
            for way in ways:
                out = np.zeros(2, np.float32)
                code = code_of(compilation, way, out)
                if explicit:
                    assert (way, code) == (way, ResultCode.OP_FAILED)
                else:
                    assert (way, code, out.tolist()) == (way, ResultCode.NO_ERROR, RIGHT)


@pytest.mark.every_day("0")
@pytest.mark.parametrize("step", [0, 1])
def test_a_driver_that_never_answers_costs_the_time_that_a_computation_has(step: int) -> None:
    with Drivers(step, f"{FAULTY}.executors:EndlessExecuting") as drivers:
        for explicit in (False, True):
            compilation = drivers.compiled(explicit=explicit)
            for way in WAYS:
                out = np.zeros(2, np.float32)
                code = code_of(compilation, way, out, 0.2, drivers.later)
                if explicit:
                    assert code in MISSED, way
                else:
                    assert (way, code, out.tolist()) == (way, ResultCode.NO_ERROR, RIGHT)


@pytest.mark.every_day("1")
@pytest.mark.parametrize("step", [0, 1])
def test_a_compiled_model_misses_its_deadline_on_a_driver_that_never_answers(step: int) -> None:
    with Drivers(step, f"{FAULTY}.executors:EndlessExecuting") as drivers:
        model = nnburst.compile(
            drivers.compiled(explicit=True).model._finished_model.model,
            [kind.name.lower() for kind in KINDS],
            manager=drivers.manager,
        )
        burst = model.open_burst()
        drivers.later.callback(model.close)
        drivers.later.callback(burst.close)
        bound = burst.bind([X], None)
        for execute in (
            lambda: model.execute([X], timeout=0.2),
            lambda: burst.execute([X], timeout=0.2),
            lambda: bound.run(0.2),
        ):
            with pytest.raises(MissedDeadline):
                execute()


@pytest.mark.every_day("0")
@pytest.mark.parametrize("step", [0, 1])
def test_a_driver_that_lies_about_support_leaves_the_whole_model_to_the_cpu(step: int) -> None:
    with Drivers(step, f"{FAULTY}.executors:Lying") as drivers:
        compilation = drivers.compiled(explicit=False)
        assert compilation._executable.fell_back
        assert compilation._executable.devices[compilation.plan.device].name == CPU_NAME  # type: ignore[union-attr]
        for way in WAYS:
            out = np.zeros(2, np.float32)
            assert code_of(compilation, way, out) == ResultCode.NO_ERROR
            assert out.tolist() == RIGHT
        with pytest.raises(NnburstError, match="no model can be prepared") as error:
            drivers.compiled(explicit=True)
        assert error.value.code == ResultCode.OP_FAILED


class SlowToReturn:
    """Connects at once the first time, and then once it may."""

    def __init__(self) -> None:
        self.may = threading.Event()
        self.may.set()
        self.tries = 0

    def __call__(self) -> ClientDevice:
        self.tries += 1
        assert self.may.wait(120)
        return connect_to("reference")


def test_a_driver_is_connected_to_within_the_deadline_and_further_on_by_the_next_computation() -> (
    None
):
    connect = SlowToReturn()
    manager = Manager([OneKind(OperationType.ADD, connect)])
    built = Built()
    x, y = built.tensor(2), built.tensor(2)
    built.add(x, x, y)
    adder = manager.device("add")
    compilation = finished(built.finish([x], [y]), [adder], manager)
    out = np.zeros(2, np.float32)
    assert code_of(compilation, "compute", out, limit=60) == ResultCode.NO_ERROR
    connect.may.clear()
    os.kill(adder.pid, signal.SIGKILL)  # type: ignore[attr-defined]
    until = time.monotonic() + 60
    while code_of(compilation, "compute", out, limit=0.05) == ResultCode.NO_ERROR:
        assert time.monotonic() < until, "the death is never seen"
    for _ in range(3):
        assert code_of(compilation, "compute", out, limit=0.05) in (
            *MISSED,
            ResultCode.DEAD_OBJECT,
        )
    assert connect.tries <= 2, "the computations wait for one and the same connection"
    connect.may.set()
    assert code_of(compilation, "compute", out, limit=120) == ResultCode.NO_ERROR
    assert out.tolist() == [2.0, 4.0]
    compilation.close()
    manager.close()


def test_a_driver_that_cannot_come_back_fails_each_computation_as_dead() -> None:
    alive = [True]

    def connect() -> ClientDevice:
        if not alive[0]:
            raise DeadObject("it is gone for good")
        return connect_to("reference")

    manager = Manager([OneKind(kind, connect) for kind in KINDS])
    listed, unlisted = compiled(manager, explicit=True), compiled(manager, explicit=False)
    pids = [manager.device(kind.name.lower()).pid for kind in KINDS]  # type: ignore[attr-defined]
    alive[0] = False
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    for _ in range(2):
        for way in WAYS:
            out = np.zeros(2, np.float32)
            assert code_of(unlisted, way, out) == ResultCode.NO_ERROR
            assert out.tolist() == RIGHT
            assert code_of(listed, way, out) == ResultCode.DEAD_OBJECT
    alive[0] = True
    for compilation in (listed, unlisted):
        for way in WAYS:
            out = np.zeros(2, np.float32)
            assert code_of(compilation, way, out) == ResultCode.NO_ERROR
            assert out.tolist() == RIGHT
    listed.close()
    unlisted.close()
    manager.close()


class AskedDriver(DriverDevice):
    """A driver that dies before it is asked which operations it supports."""

    def __init__(self, connect: Callable[[], ClientDevice]) -> None:
        super().__init__(connect, name="mine")
        self.capabilities = uniform(0.5)

    def supported_operations(self, model: HalModel, pools: Sequence[Pool]) -> list[bool]:
        os.kill(self.pid, signal.SIGKILL)
        return super().supported_operations(model, pools)


@pytest.mark.parametrize("comes_back", [True, False])
def test_a_driver_that_dies_when_it_is_asked_is_asked_again_or_named_with_what_follows(
    *, comes_back: bool, caplog: pytest.LogCaptureFixture
) -> None:
    connections = 0

    def connect() -> ClientDevice:
        nonlocal connections
        connections += 1
        if connections > 1 and not comes_back:
            raise DeadObject("it is gone for good")
        return connect_to("reference")

    with Manager([AskedDriver(connect)]) as manager:
        built = Built()
        x, y = built.tensor(2), built.tensor(2)
        built.add(x, x, y)
        compilation = finished(built.finish([x], [y]), None, manager)
        plan = compilation.plan
        assert plan.devices[plan.device] == ("mine" if comes_back else CPU_NAME)  # type: ignore[union-attr]
        told = [r.getMessage() for r in caplog.records if r.name == "nnburst.runtime"]
        named = [text for text in told if text.startswith("device mine gets no part of this model")]
        assert len(named) == (0 if comes_back else 1)
        compilation.close()
