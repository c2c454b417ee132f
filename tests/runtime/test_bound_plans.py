"""Plans of several steps by one C call: as fast as their bursts, and right for any outcome of a step."""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import signal
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import nnburst
from client.burst_helpers import standing_still
from client.test_in_place import forget_what_was_used, used
from descriptors import inode_of
from nnburst import BurstBusy, Memory, MissedDeadline, ModelBuilder, OperandType, OperationType
from nnburst.client.memory import find_memory
from nnburst.hal.errors import BadState, DeadObject, InvalidArgument
from nnburst.runtime import Compilation, Execution, Manager
from nnburst.runtime.compiled_burst import CompiledRequest
from nnburst.runtime.devices.cpu_device import CPU_NAME
from nnburst.runtime.execution.temporaries import TemporaryPool
from runtime.building import Built, finished
from runtime.half_drivers import two_halves

T = OperandType.TENSOR_FLOAT32
X = np.array([[1.0, 2.0, 3.0]], np.float32)
BOTH = ["first", "second"]
MIB = 1 << 20


def chain(columns: int = 3, steps: int = 2) -> nnburst.Model:
    """x + x, then times x, then plus x, …: each operation is a step of the other driver."""
    builder = ModelBuilder()
    x = value = builder.input(T, (1, columns))
    for step in range(steps):
        last = step == steps - 1
        out = (builder.output if last else builder.temporary)(T, (1, columns))
        kind = (OperationType.ADD, OperationType.MUL)[step % 2]
        builder.operation(kind, [value, x, builder.scalar(0)], [out])
        value = out
    return builder.build()


@pytest.fixture(scope="module")
def drivers() -> Iterator[Manager]:
    with two_halves() as manager:
        yield manager


def is_bound(request: CompiledRequest) -> bool:
    return request._bound is not None


def calls_of(request: CompiledRequest) -> int:
    """The fewest C calls of many runs: a run with a late result makes one more call, to wait."""
    return min(_calls_of_one(request) for _ in range(50))


def _calls_of_one(request: CompiledRequest) -> int:
    events: list[str] = []

    def note(_frame: FrameType, event: str, _arg: object) -> None:
        events.append(event)

    sys.setprofile(note)
    try:
        request.run()
    finally:
        sys.setprofile(None)
    return len(events)


def test_a_plan_of_many_steps_costs_no_more_python_than_one_of_one(drivers: Manager) -> None:
    counts = []
    for steps in (1, 2, 7):
        with (
            nnburst.compile(chain(steps=steps), BOTH, manager=drivers) as compiled,
            compiled.open_burst() as burst,
        ):
            request = burst.bind()
            request.inputs[0][...] = X
            request.run()
            assert is_bound(request)
            assert len(compiled.plan.steps) == (steps if steps > 1 else 0)
            counts.append(calls_of(request))
            expected = X
            for step in range(steps):
                expected = expected * X if step % 2 else expected + X
            assert request.outputs[0].tolist() == expected.tolist()
    assert len(set(counts)) == 1


def test_arrays_in_no_pool_are_copied_by_each_run(drivers: Manager) -> None:
    x, y = X.copy(), np.zeros_like(X)
    with (
        nnburst.compile(chain(), BOTH, manager=drivers) as compiled,
        compiled.open_burst() as burst,
    ):
        request = burst.bind([x], [y])
        assert is_bound(request)
        for value in range(5):
            x[...] = value
            assert request.run().outputs[0] is y
            assert y.tolist() == [[2.0 * value * value] * 3]


def test_arrays_beyond_4_gib_of_a_pool_are_copied_by_each_run(drivers: Manager) -> None:
    memory = Memory((4 << 30) + 4096)
    x, y = (memory.array(np.float32, X.shape, (4 << 30) + at) for at in (0, 64))
    with (
        nnburst.compile(chain(), BOTH, manager=drivers) as compiled,
        compiled.open_burst() as burst,
    ):
        request = burst.bind([x], [y])
        assert is_bound(request)
        for value in range(5):
            x[...] = value
            request.run()
            assert y.tolist() == [[2 * value * value] * 3]
            y[...] = 0
            burst.execute([x], [y])
            assert y.tolist() == [[2 * value * value] * 3]


@pytest.mark.parametrize("explicit", [False, True])
@pytest.mark.parametrize("stopped", BOTH)
def test_a_step_that_is_too_slow_is_a_missed_deadline(
    drivers: Manager, stopped: str, explicit: bool
) -> None:
    with (
        nnburst.compile(chain(), BOTH if explicit else None, manager=drivers) as compiled,
        compiled.open_burst() as burst,
    ):
        request = burst.bind()
        request.inputs[0][...] = X
        request.run()
        with standing_still(drivers.device(stopped)):  # type: ignore[arg-type]
            for _ in range(3):
                with pytest.raises(MissedDeadline):
                    request.run(0.2)
        for value in range(3):
            request.inputs[0][...] = value
            assert request.run().outputs[0].tolist() == [[2.0 * value * value] * 3]
        assert is_bound(request)


@pytest.mark.parametrize("victim", BOTH)
def test_only_the_step_whose_driver_died_goes_to_the_cpu(drivers: Manager, victim: str) -> None:
    with nnburst.compile(chain(), manager=drivers) as compiled, compiled.open_burst() as burst:
        request = burst.bind()
        request.inputs[0][...] = X
        request.run()
        counted: list[str] = []
        executable = compiled.compilation._finished_executable
        on_cpu = executable.step_on_cpu
        executable.step_on_cpu = lambda step, o: counted.append(BOTH[step]) or on_cpu(step, o)  # type: ignore[method-assign,func-returns-value]
        killed = 0
        while not counted:
            pid = drivers.device(victim).pid  # type: ignore[attr-defined]
            if pid != killed:  # the first, or one that was there again before a run met the death
                os.kill(killed := pid, signal.SIGKILL)
            assert request.run().outputs[0].tolist() == (2 * X * X).tolist()
        assert counted == [victim]
        assert request.run().outputs[0].tolist() == (2 * X * X).tolist()
        assert is_bound(request), "to the driver that came after"


def test_a_plan_that_cannot_be_bound_is_executed_all_the_same() -> None:
    from runtime.computing_device import ComputingDevice

    device = ComputingDevice("adder", lambda operation, _: operation.type == OperationType.ADD)
    with (
        nnburst.compile(chain(), manager=Manager([device])) as compiled,
        compiled.open_burst() as burst,
    ):
        request = burst.bind()
        request.inputs[0][...] = X
        assert request.run().outputs[0].tolist() == (2 * X * X).tolist()
        assert not is_bound(request)


# -- what lies between two steps ---------------------------------------------------------------------------


def test_large_tensors_between_steps_are_copied_nowhere(drivers: Manager) -> None:
    size = (
        96 * MIB
    )  # more than this process touches of its own meanwhile, however many tests came before
    with (
        nnburst.compile(chain(size // 4), BOTH, manager=drivers) as compiled,
        compiled.open_burst() as burst,
    ):
        request = burst.bind()
        bound = request._bound
        assert bound is not None
        assert bound.temporaries is not None
        ((pool, _, _),) = {value._place for value in bound.temporaries.values.values()}
        assert isinstance(pool, TemporaryPool)
        between = inode_of(pool._for_writers)
        found = find_memory(request.inputs[0])
        assert found is not None
        arguments = inode_of(found[0])
        request.inputs[0].fill(1)
        request.run()
        gc.collect()
        gc.disable()
        pids = ["self", *(drivers.device(name).pid for name in BOTH)]  # type: ignore[attr-defined]
        try:
            for pid in pids:
                forget_what_was_used(pid)
            for step in range(10):
                request.inputs[0].fill(step)
                request.run()
                assert request.outputs[0].max() == request.outputs[0].min() == 2 * step * step
            of_others = [used(pid, between, arguments).others for pid in pids]
            of_temporaries = [used(pid, between).pool for pid in pids]
            of_arguments = [used(pid, arguments).pool for pid in pids]
        finally:
            gc.enable()
    assert of_temporaries[0] < MIB, "this process does not look at what lies between steps"
    # The kernel forgets a few pages by itself when it looks for unused ones.
    for seen in of_temporaries[1:]:
        assert 0.7 * size < seen < size + MIB
    for seen, tensors in zip(of_arguments, (2, 1, 2), strict=True):
        assert 0.7 * tensors * size < seen < tensors * size + MIB
    assert max(of_others) < 0.7 * size, "there is a copy of a tensor"


def test_what_a_driver_reads_between_steps_it_cannot_write(drivers: Manager) -> None:
    with (
        nnburst.compile(chain(), BOTH, manager=drivers) as compiled,
        compiled.open_burst() as burst,
    ):
        request = burst.bind()
        request.run()
        for name, expected in (("first", "rw-s"), ("second", "r--s")):
            maps = Path(f"/proc/{drivers.device(name).pid}/maps").read_text()  # type: ignore[attr-defined]
            found = {line.split()[1] for line in maps.splitlines() if "memfd:temporaries" in line}
            assert expected in found


# -- the framework's own objects ---------------------------------------------------------------------------


def computing(drivers: Manager, *, explicit: bool) -> tuple[Compilation, Execution, np.ndarray]:
    """y = (x + x) * x, reusable."""
    built = Built()
    x, s, y = (built.tensor(3) for _ in range(3))
    built.add(x, x, s)
    built.add(s, x, y, OperationType.MUL)
    devices = [drivers.device(name) for name in BOTH] if explicit else None
    compilation = finished(built.finish([x], [y]), devices, drivers)
    execution, out = compilation.execution(), np.zeros(3, np.float32)
    execution.reusable = True
    execution.set_input(0, X)
    execution.set_output(0, out)
    return compilation, execution, out


@pytest.mark.parametrize("way", ["burst", "compute"])
def test_a_reusable_execution_runs_by_one_call_from_its_second_time_on(
    drivers: Manager, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compilation, execution, out = computing(drivers, explicit=True)
    ways: list[str] = []
    for name in ("_compute", "_compute_bound"):
        call = getattr(Execution, name)

        def note(self: Execution, *args: object, name: str = name, call: object = call) -> object:
            ways.append(name)
            return call(self, *args)  # type: ignore[operator]

        monkeypatch.setattr(Execution, name, note)
    with compilation.burst() as burst:
        for _ in range(4):
            out.fill(0)
            if way == "burst":
                execution.burst_compute(burst)
            else:
                execution.compute()
            assert out.tolist() == [2.0, 8.0, 18.0]
            assert execution.output_dimensions(0) == (3,)
    assert ways == ["_compute", *["_compute_bound"] * 3]


@pytest.mark.parametrize("explicit", [False, True])
def test_a_reusable_execution_whose_driver_died_ends_as_its_mode_requires(
    drivers: Manager, explicit: bool
) -> None:
    compilation, execution, out = computing(drivers, explicit=explicit)
    with compilation.burst() as burst:
        for _ in range(3):
            execution.burst_compute(burst)
        os.kill(drivers.device("second").pid, signal.SIGKILL)  # type: ignore[attr-defined]
        for _ in range(50):
            out.fill(0)
            try:
                execution.burst_compute(burst)
            except DeadObject:
                assert explicit
            else:
                assert out.tolist() == [2.0, 8.0, 18.0]
        execution.burst_compute(burst)
        assert out.tolist() == [2.0, 8.0, 18.0]


def test_a_burst_that_computes_refuses_a_second_execution(drivers: Manager) -> None:
    compilation, execution, out = computing(drivers, explicit=True)
    with compilation.burst() as burst:
        for _ in range(2):
            execution.burst_compute(burst)
        with burst._alone(), pytest.raises(BadState, match="burst: another execution"):
            execution.burst_compute(burst)
        out.fill(0)
        execution.burst_compute(burst)
        assert out.tolist() == [2.0, 8.0, 18.0]


def test_execute_on_arrays_becomes_one_c_call_and_stays_right(drivers: Manager) -> None:
    with (
        nnburst.compile(chain(), BOTH, manager=drivers) as compiled,
        compiled.open_burst() as burst,
    ):
        counts = []
        for scale in range(1, 9):
            events: list[str] = []
            given = [X * np.float32(scale)]
            sys.setprofile(lambda _frame, event, _argument, kept=events: kept.append(event))
            try:
                result = burst.execute(given)
            finally:
                sys.setprofile(None)
            counts.append(len(events))
            assert result.outputs[0].tolist() == [[2 * (v * scale) ** 2 for v in (1, 2, 3)]]
        # A collection of garbage or a signal may fall into one of them.
        assert min(counts[3:]) < counts[0] / 3


def test_bad_arrays_that_come_again_are_refused_by_name(drivers: Manager) -> None:
    # Arrays that come for the third time are bound.
    cases: list[tuple[list[Any], list[Any] | None, str]] = [
        ([], None, "inputs: 0 arrays"),
        ([X, X], None, "inputs: 2 arrays"),
        ([X], [], "outputs: 0 arrays"),
        ([X], [X, X], "outputs: 2 arrays"),
        ([X.astype(object)], None, r"inputs\[0\] has dtype object"),
    ]
    with (
        nnburst.compile(chain(), BOTH, manager=drivers) as compiled,
        compiled.open_burst() as burst,
    ):
        for inputs, outputs, message in cases * 4:
            with pytest.raises(InvalidArgument, match=message):
                burst.execute(inputs, outputs)


def test_results_of_executions_on_arrays_are_the_callers_own(drivers: Manager) -> None:
    with (
        nnburst.compile(chain(), BOTH, manager=drivers) as compiled,
        compiled.open_burst() as burst,
    ):
        results = [burst.execute([X * np.float32(n)]).outputs[0] for n in range(1, 6)]
        assert [result[0, 0] for result in results] == [2, 8, 18, 32, 50]
        mine = np.zeros_like(X)
        for _ in range(4):
            mine.fill(0)
            assert burst.execute([X], [mine]).outputs[0] is mine
            assert mine.tolist() == [[2, 8, 18]]


def test_arrays_of_other_shapes_and_measured_ones_go_the_ordinary_way(drivers: Manager) -> None:
    with (
        nnburst.compile(chain(), BOTH, manager=drivers) as compiled,
        compiled.open_burst() as burst,
    ):
        for _ in range(4):
            burst.execute([X])
        with pytest.raises(InvalidArgument):
            burst.execute([X[:, :2].copy()])
        with pytest.raises(InvalidArgument):
            burst.execute([X], timeout=-1)
        assert burst.execute([X], measure=True).outputs[0].tolist() == [[2, 8, 18]]
        assert burst.execute([X]).outputs[0].tolist() == [[2, 8, 18]]


@pytest.mark.parametrize("explicit", [True, False])
def test_a_driver_that_dies_between_executions_on_arrays_is_there_again(
    drivers: Manager, explicit: bool
) -> None:
    with (
        nnburst.compile(chain(), BOTH if explicit else None, manager=drivers) as compiled,
        compiled.open_burst() as burst,
    ):
        for _ in range(4):
            burst.execute([X])
        os.kill(drivers.device("second").pid, signal.SIGKILL)  # type: ignore[attr-defined]
        right = 0
        for _ in range(20):
            try:
                assert burst.execute([X]).outputs[0].tolist() == [[2, 8, 18]]
                right += 1
            except DeadObject:
                assert explicit
        assert right >= 18


def test_execution_on_arrays_is_recorded_if_records_are_kept(drivers: Manager) -> None:
    kept: list[object] = []
    with (
        nnburst.compile(chain(), BOTH, manager=drivers) as compiled,
        compiled.open_burst() as burst,
    ):
        for _ in range(4):
            burst.execute([X])
        drivers.records.callback = kept.append
        try:
            burst.execute([X])
        finally:
            drivers.records.callback = None
    assert len(kept) == 1


def test_executions_on_arrays_from_two_threads_are_refused_or_right(drivers: Manager) -> None:
    with (
        nnburst.compile(chain(), BOTH, manager=drivers) as compiled,
        compiled.open_burst() as burst,
    ):
        for _ in range(4):
            burst.execute([X])
        found: list[bool] = []

        def execute(scale: int, times: int) -> None:
            x = X * np.float32(scale)
            while times:
                with contextlib.suppress(BurstBusy):
                    result = burst.execute([x])
                    found.append(result.outputs[0].tolist() == (2 * x * x).tolist())
                    times -= 1

        threads = [threading.Thread(target=execute, args=(scale, 50)) for scale in (1, 2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [True] * 100


def test_arrays_are_bound_once_even_if_each_has_a_dtype_object_of_its_own(
    drivers: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[CompiledRequest] = []
    bind = CompiledRequest._bind
    monkeypatch.setattr(CompiledRequest, "_bind", lambda self: (made.append(self), bind(self)))
    pickled = pickle.dumps(X)
    with (
        nnburst.compile(chain(), BOTH, manager=drivers) as compiled,
        compiled.open_burst() as burst,
    ):
        for _ in range(6):
            assert burst.execute([pickle.loads(pickled)]).outputs[0].tolist() == [[2, 8, 18]]
    assert len(made) == 1


def test_plans_that_cannot_be_bound_are_not_tried_on_arrays(
    drivers: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_self: CompiledRequest) -> None:
        raise AssertionError

    monkeypatch.setattr(CompiledRequest, "_bind", refuse)
    with (
        nnburst.compile(chain(), [CPU_NAME], manager=drivers) as compiled,
        compiled.open_burst() as burst,
    ):
        for _ in range(4):
            assert burst.execute([X]).outputs[0].tolist() == [[2, 8, 18]]


def test_a_burst_that_executed_on_arrays_goes_with_its_last_reference(drivers: Manager) -> None:
    with nnburst.compile(chain(), BOTH, manager=drivers) as compiled:
        burst = compiled.open_burst()
        for _ in range(4):
            burst.execute([X])
        gone = weakref.ref(burst)
        gc.disable()
        try:
            del burst
            assert gone() is None
        finally:
            gc.enable()
