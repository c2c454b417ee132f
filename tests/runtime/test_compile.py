"""`nnburst.compile`, the usual entry to the framework, over devices in this process and real drivers."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnburst
from descriptors import descriptors_with, inode_of
from forked_child import refused_in_child
from nnburst import ModelBuilder, OperandType, OperationType
from nnburst.client.session.gate import entries
from nnburst.hal.enums import OperandLifeTime
from nnburst.hal.errors import (
    BurstBusy,
    Closed,
    DeadObject,
    InvalidArgument,
    OutputInsufficientSize,
)
from nnburst.hal.model import DataLocation, MemoryPool, Operand
from nnburst.runtime import Compilation, Manager, Model
from nnburst.runtime.argument import Argument, Options, Outcome
from nnburst.runtime.compile import _open_own_burst
from nnburst.runtime.devices.driver_device import DriverBurst, DriverPart
from runtime.computing_device import ComputingDevice
from runtime.half_drivers import two_halves
from waiting import wait_for

T = OperandType.TENSOR_FLOAT32
X = np.array([[1.0, 2.0, 3.0]], np.float32)


def chain(*, open_output: bool = False) -> nnburst.Model:
    """(x + x) * x."""
    builder = ModelBuilder()
    x, s = builder.input(T, (1, 3)), builder.temporary(T, (1, 3))
    y = builder.output(T, (0, 0) if open_output else (1, 3))
    builder.operation(OperationType.ADD, [x, x, builder.scalar(0)], [s])
    builder.operation(OperationType.MUL, [s, x, builder.scalar(0)], [y])
    return builder.build()


def only(kind: OperationType) -> object:
    return lambda operation, _model: operation.type == kind


def two_devices() -> Manager:
    return Manager(
        [
            ComputingDevice("adder", only(OperationType.ADD), 0.5),  # type: ignore[arg-type]
            ComputingDevice("multiplier", only(OperationType.MUL), 0.6),  # type: ignore[arg-type]
        ]
    )


@pytest.fixture(scope="module")
def drivers() -> Iterator[Manager]:
    """Two driver processes, one for each operation of the chain."""
    with two_halves() as manager:
        yield manager


@pytest.mark.parametrize("devices", [None, ["first", "second"]])
def test_every_way_gives_the_same_over_two_drivers(
    drivers: Manager, devices: list[str] | None
) -> None:
    with nnburst.compile(chain(), devices, manager=drivers) as compiled:
        assert compiled.plan.devices == ("first", "second")
        expected = (2 * X * X).tolist()
        assert compiled.execute([X]).outputs[0].tolist() == expected
        assert asyncio.run(compiled.execute_async([X])).outputs[0].tolist() == expected
        with compiled.open_burst() as burst:
            for _ in range(3):
                assert burst.execute([X]).outputs[0].tolist() == expected
            bound = burst.bind()
            bound.inputs[0][...] = X
            for _ in range(3):
                bound.run()
                assert bound.outputs[0].tolist() == expected
        steps = str(compiled.plan).splitlines()[2::2]
        assert [line.split()[1] for line in steps] == ["first", "second"]
        assert all(" ms" in line for line in steps), "both steps were measured"
        assert all("0.50 × CPU" in line for line in steps), "as the drivers report"
        assert "digraph" in compiled.plan.dot()
        assert compiled.plan.mermaid()


def test_the_output_of_a_step_is_the_next_ones_input_without_a_copy(drivers: Manager) -> None:
    with nnburst.compile(chain(), manager=drivers) as compiled:
        executable = compiled.compilation._finished_executable
        first, second = executable.parts
        seen = []
        for part in (first, second):
            execute = part.execute

            def watched(
                inputs: list[Argument],
                outputs: list[Argument],
                options: Options,
                execute: Callable[..., Outcome] = execute,
            ) -> Outcome:
                seen.append((inputs, outputs))
                return execute(inputs, outputs, options)

            part.execute = watched  # type: ignore[method-assign]
        compiled.execute([X])
        from nnburst.client.memory import find_memory

        written, read = seen[0][1][0].bytes, seen[1][0][1].bytes
        assert find_memory(written) is not None
        assert find_memory(read) is not None
        assert not read.flags.writeable
        written[...] = 7
        assert set(read.tolist()) == {7}


def test_a_simple_plan_over_a_driver_runs_the_drivers_own_burst(drivers: Manager) -> None:
    builder = ModelBuilder()
    x, y = builder.input(T, (1, 3)), builder.output(T, (1, 3))
    builder.operation(OperationType.ADD, [x, x, builder.scalar(0)], [y])
    with nnburst.compile(builder.build(), ["first"], manager=drivers) as compiled:
        assert compiled.plan.steps == ()
        with compiled.open_burst() as burst:
            bound = burst.bind()
            bound.inputs[0][...] = X
            assert bound.run().outputs[0].tolist() == (2 * X).tolist()


@pytest.mark.every_day("True-first-bound", "False-second-execute")
@pytest.mark.parametrize("way", ["execute", "burst", "bound"])
@pytest.mark.parametrize("victim", ["first", "second"])
@pytest.mark.parametrize("explicit", [False, True])
def test_a_driver_that_dies_is_replaced(
    drivers: Manager, way: str, victim: str, explicit: bool
) -> None:
    devices = ["first", "second"] if explicit else None
    with (
        nnburst.compile(chain(), devices, manager=drivers) as compiled,
        compiled.open_burst() as burst,
    ):
        bound = burst.bind()
        bound.inputs[0][...] = X
        run = {
            "execute": lambda: compiled.execute([X]),
            "burst": lambda: burst.execute([X]),
            "bound": bound.run,
        }[way]
        run()
        driver = drivers.device(victim)
        os.kill(driver.pid, signal.SIGKILL)  # type: ignore[attr-defined]
        try:
            result = run()
            assert result.outputs[0].tolist() == (2 * X * X).tolist()
        except DeadObject:
            assert explicit
        assert run().outputs[0].tolist() == (2 * X * X).tolist()


def kill(drivers: Manager, name: str) -> None:
    """Kill a driver and wait until the client has noticed."""
    device: Any = drivers.device(name)
    pid = device.pid
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: device.pid != pid or not device._driver.is_alive)


def test_a_request_keeps_nothing_of_the_drivers_that_died(drivers: Manager) -> None:
    def survivor_is_watched() -> int:
        return len(drivers.device("second")._driver._session.connection._on_end._callbacks)  # type: ignore[attr-defined]

    with (
        nnburst.compile(chain(), ["first", "second"], manager=drivers) as compiled,
        compiled.open_burst() as burst,
    ):
        bound: Any = burst.bind()
        bound.inputs[0][...] = X
        bound.run()
        before, watched = weakref.ref(bound._bound), survivor_is_watched()
        for _ in range(2):
            kill(drivers, "first")
            with contextlib.suppress(DeadObject):
                bound.run()
            assert bound.run().outputs[0].tolist() == (2 * X * X).tolist()
        gc.collect()
        assert before() is None
        assert survivor_is_watched() == watched


def weighed_chain() -> nnburst.Model:
    """(x + w) * w, with w in a pool."""
    builder = ModelBuilder()
    x, s, y = builder.input(T, (1, 3)), builder.temporary(T, (1, 3)), builder.output(T, (1, 3))
    w = builder.operand(
        Operand(
            type=T,
            dimensions=(1, 3),
            lifetime=OperandLifeTime.CONSTANT_REFERENCE,
            location=DataLocation(0, 0, 12),
        )
    )
    builder.operation(OperationType.ADD, [x, w, builder.scalar(0)], [s])
    builder.operation(OperationType.MUL, [s, w, builder.scalar(0)], [y])
    return builder.build(pools=[MemoryPool(12)])


@pytest.mark.parametrize("devices", [None, ["first", "second"]])
def test_drivers_are_replaced_after_the_pools_of_constants_were_closed(
    drivers: Manager, devices: list[str] | None
) -> None:
    pool = nnburst.Memory(12)
    pool.array(np.float32, (3,))[...] = 10
    inode = inode_of(pool)
    compiled = nnburst.compile(
        weighed_chain(), devices, pools=[pool], manager=drivers, fallback=False
    )
    pool.close()
    for name in ("first", "second"):
        kill(drivers, name)
        assert compiled.execute([X], timeout=60).outputs[0].tolist() == (10 * (X + 10)).tolist()
    compiled.close()
    wait_for(lambda: not descriptors_with(inode))


def test_outputs_of_unknown_shape_grow_or_are_refused() -> None:
    with nnburst.compile(chain(open_output=True), manager=two_devices()) as compiled:
        assert compiled.execute([X]).outputs[0].tolist() == (2 * X * X).tolist()
        room = np.zeros(8, np.float32)
        assert compiled.execute([X], [room]).outputs[0].shape == (1, 3)
        with pytest.raises(OutputInsufficientSize) as error:
            compiled.execute([X], [np.zeros(2, np.float32)])
        assert error.value.output_shapes[0].dimensions == (1, 3)


@pytest.mark.parametrize("by_burst", [False, True])
def test_output_that_was_larger_than_expected_once_is_computed_once_from_then_on(
    *, by_burst: bool
) -> None:
    builder = ModelBuilder()
    x, shape = builder.input(T, (1,)), builder.input(OperandType.TENSOR_INT32, (1,))
    y = builder.output(T, (0,))
    builder.operation(OperationType.TILE, [x, shape], [y])
    device = ComputingDevice("tiler", only(OperationType.TILE))  # type: ignore[arg-type]
    few, many = np.array([3], np.int32), np.array([100_000], np.int32)
    with nnburst.compile(builder.build(), manager=Manager([device])) as compiled:
        burst = compiled.open_burst()
        execute = burst.execute if by_burst else compiled.execute
        for count, computations in ((few, 1), (many, 2), (many, 1), (few, 1), (many, 1)):
            before = device.executed
            found = execute([np.ones(1, np.float32), count]).outputs[0]
            assert found.tolist() == [1.0] * int(count[0])
            assert found.base is None or found.base.nbytes <= 4 * found.nbytes
            assert device.executed - before == computations
        burst.close()


def test_bad_arguments_are_refused_by_name() -> None:
    manager = two_devices()
    with pytest.raises(InvalidArgument, match="device: 'tpu' is unknown, known are adder"):
        nnburst.compile(chain(), ["tpu"], manager=manager)
    with pytest.raises(InvalidArgument, match=r"devices: 'adder', expected a list .*\['adder'\]"):
        nnburst.compile(chain(), "adder", manager=manager)
    with pytest.raises(InvalidArgument, match="devices: the list is empty"):
        nnburst.compile(chain(), [], manager=manager)
    with pytest.raises(InvalidArgument, match="validation:S2: priority: 7"):
        nnburst.compile(chain(), manager=manager, priority=7)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="model: of type int"):
        nnburst.compile(7, manager=manager)  # type: ignore[arg-type]
    with nnburst.compile(chain(), manager=manager) as compiled:
        for inputs in ([], [X, X], [X[0]], [X.astype(np.float64)]):
            with pytest.raises(InvalidArgument, match="inputs"):
                compiled.execute(inputs)
        with pytest.raises(InvalidArgument, match="timeout"):
            compiled.execute([X], timeout=-1)
        with compiled.open_burst() as burst, pytest.raises(InvalidArgument, match="outputs"):
            burst.bind(outputs=[X, X])
    with pytest.raises(Closed):
        compiled.execute([X])
    with pytest.raises(Closed):
        compiled.open_burst()


def test_a_plan_that_no_device_can_run_names_the_operation() -> None:
    manager = two_devices()
    with pytest.raises(InvalidArgument, match=r"MUL|operation 1"):
        nnburst.compile(chain(), ["adder"], manager=manager)


def test_a_closed_manager_compiles_nothing() -> None:
    manager = two_devices()
    manager.close()
    with pytest.raises(Closed, match="Manager"):
        nnburst.compile(chain(), manager=manager)
    with pytest.raises(Closed, match="Manager"):
        nnburst.compile(chain(), ["adder", "multiplier"], manager=manager)
    with pytest.raises(Closed, match="Manager"):
        Compilation(Model.of(chain()), manager=manager)


def test_forked_child_compiles_nothing_for_its_parents_manager() -> None:
    with two_devices() as manager:
        assert refused_in_child(lambda: nnburst.compile(chain(), manager=manager))
        assert nnburst.compile(chain(), manager=manager).execute([X]).outputs


def test_bound_requests_of_a_closed_device_raise_closed() -> None:
    with two_halves() as manager:
        model = nnburst.compile(chain(), ["first", "second"], manager=manager)
        with model.open_burst() as burst:
            bound, function = burst.bind(), burst.function()
            manager.close()
            for call in (bound.run, bound.submit, lambda: function(X), burst.bind):
                with pytest.raises(Closed, match="its device is closed"):
                    call()


def test_the_cpu_computes_for_bound_requests_whose_device_was_closed() -> None:
    with two_halves() as manager, nnburst.compile(chain(), manager=manager).open_burst() as burst:
        bound = burst.bind()
        manager.close()
        for request in (bound, burst.bind()):
            request.inputs[0][...] = X
            np.testing.assert_array_equal(request.run().outputs[0], 2 * X * X)


def test_a_model_that_is_closed_while_a_thread_gets_a_burst_logs_no_step_without_one(
    drivers: Manager, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    compiled = nnburst.compile(chain(), manager=drivers)
    original, kept = DriverPart.open_burst, []  # type: ignore[var-annotated]

    def closed_before(part: DriverPart, *, driver_spins: bool = True) -> DriverBurst:
        compiled.close()
        return original(part, driver_spins=driver_spins)

    monkeypatch.setattr(DriverPart, "open_burst", closed_before)
    with caplog.at_level("WARNING"), pytest.raises(Closed):
        _open_own_burst(weakref.ref(compiled), kept.append)
    assert not kept
    assert not caplog.messages


def test_a_second_thread_on_a_burst_is_refused() -> None:
    with (
        nnburst.compile(chain(), manager=two_devices()) as compiled,
        compiled.open_burst() as burst,
    ):
        gate = burst._bursts.gate
        gate.enter(next(entries))
        with pytest.raises(BurstBusy):
            burst.execute([X])


def test_compilations_are_cached_by_content(tmp_path: Path, drivers: Manager) -> None:
    found = []
    for _ in range(2):
        with nnburst.compile(chain(), manager=drivers, cache_dir=tmp_path / "cache") as compiled:
            parts = compiled.compilation._finished_executable.parts
            assert all(isinstance(part, DriverPart) for part in parts)
            found.append([part.prepared.from_cache for part in parts])  # type: ignore[attr-defined]
            assert compiled.execute([X]).outputs[0].tolist() == (2 * X * X).tolist()
    assert found == [[False, False], [True, True]]
    assert len(list((tmp_path / "cache").iterdir())) == 4


#: Compiles and executes on a thread when the main thread has ended.
_AFTER_THE_END = """
import asyncio, threading
import numpy as np
import nnburst

def work():
    threading.main_thread().join()
    builder = nnburst.ModelBuilder()
    x = builder.input(nnburst.OperandType.TENSOR_FLOAT32, (2,))
    y = builder.output(nnburst.OperandType.TENSOR_FLOAT32, (2,))
    builder.operation(nnburst.OperationType.ADD, [x, x, builder.scalar(0)], [y])
    with nnburst.compile(builder.build()) as compiled:
        inputs = [np.ones(2, np.float32)]
        print(compiled.execute(inputs).outputs[0].tolist())
        print(asyncio.run(compiled.execute_async(inputs)).outputs[0].tolist())

threading.Thread(target=work).start()
"""


@pytest.mark.parametrize("inline", ["1", "0"])
def test_a_thread_compiles_and_executes_on_the_cpu_after_the_end_of_the_main_thread(
    inline: str,
) -> None:
    environment = {**os.environ, "NNBURST_CPUONLY": "1", "NNBURST_SYNCEXEC_CPU": inline}
    done = subprocess.run(
        [sys.executable, "-c", _AFTER_THE_END],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("[2.0, 2.0]\n[2.0, 2.0]\n", "")


#: Executes in an exit handler that runs after those of nnburst, as a daemon thread may do at that time.
_AT_THE_END = """
import atexit

def end():
    for _ in range(3):
        print(compiled.execute(inputs).outputs[0].tolist())

atexit.register(end)
import numpy as np
import nnburst
builder = nnburst.ModelBuilder()
x = builder.input(nnburst.OperandType.TENSOR_FLOAT32, (2,))
y = builder.output(nnburst.OperandType.TENSOR_FLOAT32, (2,))
builder.operation(nnburst.OperationType.ADD, [x, x, builder.scalar(0)], [y])
compiled = nnburst.compile(builder.build())
inputs = [np.ones(2, np.float32)]
compiled.execute(inputs)
"""


def test_an_execution_at_the_end_of_the_program_warns_of_no_closed_device() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _AT_THE_END], capture_output=True, text=True, timeout=60, check=True
    )
    assert (done.stdout, done.stderr) == ("[2.0, 2.0]\n" * 3, "")


@pytest.mark.parametrize("room", [0, -1, True, "64"])
def test_room_that_makes_no_sense_is_refused_by_the_number_of_its_output(room: Any) -> None:
    with (
        nnburst.compile(chain(open_output=True), manager=two_devices()) as compiled,
        compiled.open_burst() as burst,
        pytest.raises(InvalidArgument, match=r"output_bytes\[0\] is "),
    ):
        burst.bind(output_bytes=[room])
