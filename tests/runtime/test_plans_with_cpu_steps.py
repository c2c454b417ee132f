"""Plans with steps on the CPU among those of drivers: one C call all the same."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

import numpy as np
import pytest

import nnburst
from nnburst import MissedDeadline, ModelBuilder, OperandType, OperationType
from nnburst.client.burst import steps
from nnburst.executor.base import Outcome
from nnburst.executor.reference.execution import ReferenceExecution
from nnburst.hal.enums import ErrorStatus, ResultCode
from nnburst.hal.errors import NnburstError
from nnburst.runtime import Compilation, Manager
from nnburst.runtime.compiled_burst import CompiledRequest
from nnburst.runtime.devices.cpu_device import CPU_NAME, CpuRequest
from runtime.building import Built, finished
from runtime.half_drivers import two_halves

T = OperandType.TENSOR_FLOAT32
X = np.array([[1.0, 2.0, 3.0]], np.float32)
#: `first` adds, `second` multiplies, and only the CPU subtracts.
ALL = ["first", "second", CPU_NAME]
RIGHT = [[1.0, 6.0, 15.0]]  # (x + x) * x - x


def model() -> nnburst.Model:
    """(x + x) * x - x, then + 0 by the first driver again."""
    builder = ModelBuilder()
    x = builder.input(T, (1, 3))
    doubled, product, difference = (builder.temporary(T, (1, 3)) for _ in range(3))
    y = builder.output(T, (1, 3))
    none = builder.scalar(0)
    zero = builder.constant(T, np.zeros((1, 3), np.float32))
    builder.operation(OperationType.ADD, [x, x, none], [doubled])
    builder.operation(OperationType.MUL, [doubled, x, none], [product])
    builder.operation(OperationType.SUB, [product, x, none], [difference])
    builder.operation(OperationType.ADD, [difference, zero, none], [y])
    return builder.build()


@pytest.fixture(scope="module")
def drivers() -> Iterator[Manager]:
    with two_halves() as manager:
        yield manager


@contextmanager
def warm(drivers: Manager, listed: Sequence[str] | None = ALL) -> Iterator[CompiledRequest]:
    """A request of `model` on X that has run often enough to be bound: one C call from now on."""
    with (
        nnburst.compile(model(), listed, manager=drivers) as compiled,
        compiled.open_burst() as burst,
    ):
        request = burst.bind()
        request.inputs[0][...] = X
        for _ in range(3):
            request.run()
        yield request


def test_the_cpu_has_a_step_between_those_of_drivers(drivers: Manager) -> None:
    with nnburst.compile(model(), ALL, manager=drivers) as compiled:
        text = str(compiled.plan)
        assert text.count(CPU_NAME) == 1
        assert text.index("second") < text.index(CPU_NAME)


@pytest.mark.parametrize("listed", [True, False])
def test_runs_of_a_plan_with_a_cpu_step_are_right(drivers: Manager, listed: bool) -> None:
    with (
        nnburst.compile(model(), ALL if listed else None, manager=drivers) as compiled,
        compiled.open_burst() as burst,
    ):
        request = burst.bind()
        for scale in range(1, 6):
            request.inputs[0][...] = X * np.float32(scale)
            x = X * np.float32(scale)
            assert request.run().outputs[0].tolist() == ((x + x) * x - x).tolist()
            assert burst.execute([x]).outputs[0].tolist() == ((x + x) * x - x).tolist()
        assert request.is_bound
        assert request._bound is not None
        assert request._bound.needs_python


def test_python_runs_for_the_cpu_step_alone(drivers: Manager) -> None:
    with warm(drivers) as request:
        entered: list[str] = []

        def note(frame: object, event: str, _argument: object) -> None:
            if event == "call":
                entered.append(frame.f_code.co_filename)  # type: ignore[attr-defined]

        gc.collect()
        gc.disable()  # what is collected meanwhile would be entered, too
        sys.setprofile(note)
        try:
            request.run()
        finally:
            sys.setprofile(None)
            gc.enable()
        files = {name.rpartition("nnburst/")[2] for name in entered}
        assert not [name for name in files if name.startswith("runtime/execution")]
        assert not [name for name in files if name.endswith(("driver_device.py", "driver_part.py"))]
        assert "runtime/devices/cpu_device.py" in files


def test_submitted_plans_with_a_cpu_step_overlap_and_are_right(drivers: Manager) -> None:
    with (
        nnburst.compile(model(), ALL, manager=drivers) as compiled,
        compiled.open_burst(max_in_flight=3) as burst,
    ):
        requests = [burst.bind() for _ in range(3)]
        for _ in range(3):
            for scale, request in enumerate(requests, 1):
                request.inputs[0][...] = X * np.float32(scale)
            under_way = [request.submit() for request in requests]
            for scale, submitted in enumerate(under_way, 1):
                x = X * np.float32(scale)
                assert submitted.result().outputs[0].tolist() == ((x + x) * x - x).tolist()


def test_a_reusable_execution_with_a_cpu_step_is_right_each_time(drivers: Manager) -> None:
    built = Built()
    x, doubled, y = (built.tensor(3) for _ in range(3))
    built.add(x, x, doubled)
    built.add(doubled, x, y, OperationType.SUB)
    listed = [drivers.device("first"), drivers.cpu]
    compilation: Compilation = finished(built.finish([x], [y]), listed, drivers)
    execution, out = compilation.execution(), np.zeros(3, np.float32)
    execution.reusable = True
    given = X[0].copy()
    execution.set_input(0, given)
    execution.set_output(0, out)
    with compilation.burst() as burst:
        for compute in [execution.compute] * 3 + [lambda: execution.burst_compute(burst)] * 3:
            out.fill(0)
            compute()
            assert out.tolist() == X[0].tolist()


@pytest.mark.parametrize("listed", [True, False])
def test_a_cpu_step_that_fails_ends_the_run_by_its_code(
    drivers: Manager, monkeypatch: pytest.MonkeyPatch, listed: bool
) -> None:
    with warm(drivers, ALL if listed else None) as request:

        def fails(self: CpuRequest, seconds: float) -> bool:
            assert 0 < seconds <= 30
            raise NnburstError("it fails", status=ErrorStatus.GENERAL_FAILURE)

        with monkeypatch.context() as patched:
            patched.setattr(CpuRequest, "compute", fails)
            if listed:
                with pytest.raises(NnburstError) as caught:
                    request.run()
                assert caught.value.code == ResultCode.OP_FAILED
            else:  # the CPU has the whole model
                assert request.run().outputs[0].tolist() == RIGHT
        for _ in range(3):
            assert request.run().outputs[0].tolist() == RIGHT


def test_an_interruption_in_a_cpu_step_reaches_the_caller_and_the_next_run_is_right(
    drivers: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    with warm(drivers) as request:

        def interrupted(self: CpuRequest, _seconds: float) -> bool:
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(CpuRequest, "compute", interrupted)
            with pytest.raises(KeyboardInterrupt):
                request.run()
        assert request.run().outputs[0].tolist() == RIGHT


def test_an_interruption_right_before_a_cpu_step_reaches_the_caller(drivers: Manager) -> None:
    def interrupt(frame: FrameType, event: str, _argument: object) -> None:
        """As a signal's handler does it that came while C waited: at the first line of Python's."""
        if event == "call" and frame.f_code is steps._compute.__code__:
            raise KeyboardInterrupt

    with warm(drivers) as request:
        for _ in range(3):
            with pytest.raises(KeyboardInterrupt):
                try:
                    sys.setprofile(interrupt)
                    request.run()
                finally:
                    sys.setprofile(None)
            request.outputs[0][...] = 0
            assert request.run().outputs[0].tolist() == RIGHT


def test_a_deadline_that_passes_before_a_cpu_step_is_missed(drivers: Manager) -> None:
    with (
        nnburst.compile(model(), ALL, manager=drivers) as compiled,
        compiled.open_burst() as burst,
    ):
        request = burst.bind()
        request.inputs[0][...] = X
        request.run()
        with pytest.raises(MissedDeadline):
            request.run(timeout=1e-6)
        assert request.run().outputs[0].tolist() == RIGHT


def test_a_driver_behind_a_cpu_step_that_dies_is_there_again(drivers: Manager) -> None:
    with warm(drivers, None) as request:
        os.kill(drivers.device("second").pid, signal.SIGKILL)  # type: ignore[attr-defined]
        for _ in range(10):
            request.outputs[0][...] = 0
            assert request.run().outputs[0].tolist() == RIGHT


@pytest.mark.parametrize(("switch", "own"), [("0", True), ("1", False)])
def test_the_cpu_computes_on_a_thread_of_its_own_if_the_switch_is_off(
    monkeypatch: pytest.MonkeyPatch, switch: str, own: bool
) -> None:
    monkeypatch.setenv("NNBURST_SYNCEXEC_CPU", switch)
    monkeypatch.setenv("NNBURST_CPUONLY", "1")
    seen: list[int] = []
    run = ReferenceExecution.run

    def note(self: ReferenceExecution, *limits: int) -> Outcome:
        seen.append(threading.get_ident())
        return run(self, *limits)

    monkeypatch.setattr(ReferenceExecution, "run", note)
    with Manager() as manager, nnburst.compile(model(), manager=manager) as compiled:
        for _ in range(3):
            assert compiled.execute([X]).outputs[0].tolist() == RIGHT
    assert len(seen) == 3
    assert (threading.get_ident() in seen) is not own
