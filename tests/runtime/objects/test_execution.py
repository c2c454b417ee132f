"""Execution: states, codes and order of checks (RTT:V20 to V26, V34, V37, E2, W2, W5, D2 to D7)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from nnburst.hal.enums import OperandType, OperationType, ResultCode
from nnburst.hal.errors import NnburstError, OutputInsufficientSize
from nnburst.runtime import (
    Compilation,
    Execution,
    Manager,
    Memory,
    OperandDescription,
)
from runtime.building import (
    Built,
    add_model,
    bad_data,
    bad_state,
    finished,
    floats,
    op_failed,
    unexpected_null,
)

ONES = np.ones(2, np.float32)


@pytest.fixture
def compilation() -> Compilation:
    return finished(add_model(2))


def with_arguments(compilation: Compilation) -> tuple[Execution, np.ndarray]:
    """An execution of a sum of two ones, and where the sum goes."""
    execution, out = compilation.execution(), np.zeros(2, np.float32)
    execution.set_input(0, ONES)
    execution.set_input(1, ONES)
    execution.set_output(0, out)
    return execution, out


def ways(compilation: Compilation) -> Sequence[Callable[[Execution], None]]:
    burst = compilation.burst()
    return (
        lambda e: e.compute(),
        lambda e: e.start().wait(),
        lambda e: e.burst_compute(burst),
        lambda e: e.start_after([]).wait(),
    )


@pytest.mark.parametrize("way", range(4), ids=["compute", "start", "burst", "fenced"])
def test_every_way_computes_and_completes(compilation: Compilation, way: int) -> None:
    execution, out = with_arguments(compilation)
    ways(compilation)[way](execution)
    assert out.tolist() == [2.0, 2.0]
    assert execution.output_dimensions(0) == (2,)
    assert execution.output_rank(0) == 1
    for other in ways(compilation):
        with bad_state():
            other(execution)


@pytest.mark.parametrize("direction", ["input", "output"])
def test_an_argument_fits_its_operand(compilation: Compilation, direction: str) -> None:
    execution = compilation.execution()
    set_pointer = getattr(execution, f"set_{direction}")
    set_memory = getattr(execution, f"set_{direction}_from_memory")
    memory = Memory.allocate(20)
    with unexpected_null():
        set_pointer(0, None, length=8)
    with unexpected_null():
        set_memory(0, None, 0, 8)
    for index in (999, -1):
        with bad_data():
            set_pointer(index, np.zeros(2, np.float32))
        with bad_data():
            set_memory(index, memory, 0, 8)
    for size in (20, 4, 0):
        with bad_data():
            set_pointer(0, np.zeros(size, np.uint8))
    for offset, length in ((0, 20), (0, 4), (21, 8), (13, 8), (-1, 8), (0, 0)):
        with bad_data():
            set_memory(0, memory, offset, length)
    malformed = OperandDescription(OperandType.TENSOR_FLOAT32, (2,), scale=1.0)
    for wrong in (malformed, floats(3), floats(2, 1), OperandDescription(OperandType.INT32, (1,))):
        with bad_data():
            set_pointer(0, np.zeros(2, np.float32), wrong)
    set_pointer(0, np.zeros(2, np.float32), floats(2))
    for again in (lambda: set_pointer(0, ONES.copy()), lambda: set_memory(0, memory, 0, 8)):
        with bad_state():
            again()


def test_an_argument_that_is_missing_completes_the_execution(compilation: Compilation) -> None:
    execution = compilation.execution()
    execution.set_input(0, ONES)
    with bad_data():
        execution.compute()
    with bad_state():
        execution.set_input(1, ONES)
    with bad_state():
        execution.compute()


def test_after_a_computation_nothing_can_be_set(compilation: Compilation) -> None:
    execution, _ = with_arguments(compilation)
    execution.reusable = True
    execution.compute()
    memory = Memory.allocate(8)
    for change in (
        lambda: execution.set_input(9, None, length=0),
        lambda: execution.set_output(9, ONES.copy()),
        lambda: execution.set_input_from_memory(9, memory, 0, 8),
        lambda: execution.set_output_from_memory(9, memory, 0, 8),
        lambda: setattr(execution, "loop_timeout", 1),
        lambda: setattr(execution, "padding", True),
        lambda: setattr(execution, "reusable", False),
    ):
        with bad_state():
            change()
    for way in ways(compilation):
        way(execution)


def test_timing_and_timeout_need_one_explicit_device() -> None:
    manager = Manager([])
    model = add_model(2)
    execution, _ = with_arguments(finished(model, None, manager))
    for measure in (True, False):
        with bad_data():
            execution.measure_timing = measure
    with bad_data():
        execution.timeout = 1
    execution.compute()
    with bad_data():
        execution.measure_timing = True
    execution, _ = with_arguments(finished(model, [manager.cpu], manager))
    execution.measure_timing, execution.timeout = True, 100
    with bad_state():
        execution.duration(0)
    execution.compute()
    assert [execution.duration(code) for code in range(4)] == [None] * 4
    for code in (-1, 4):
        with bad_data():
            execution.duration(code)
    for name in ("measure_timing", "timeout"):
        with bad_state():
            setattr(execution, name, 1)


def test_only_a_measured_success_has_durations() -> None:
    manager = Manager([])
    compilation = finished(add_model(2), [manager.cpu], manager)
    unmeasured, _ = with_arguments(compilation)
    unmeasured.compute()
    failed, _ = with_arguments(compilation)
    failed.measure_timing, failed.timeout = True, 1e-9
    with pytest.raises(NnburstError):
        failed.compute()
    for execution in (unmeasured, failed):
        for code in range(4):
            with bad_state():
                execution.duration(code)


def test_an_omitted_input_takes_a_type_that_is_as_exact_as_the_models() -> None:
    execution = finished(add_model(2)).execution()
    for less_exact in (floats(0), floats(3), floats(2, 1)):
        with bad_data():
            execution.set_input(0, None, less_exact)
    execution.set_input(0, None, floats(2))
    execution.set_input(1, None)


def test_a_deadline_that_has_passed_is_persistent() -> None:
    manager = Manager([])
    execution, _ = with_arguments(finished(add_model(2), [manager.cpu], manager))
    execution.timeout = 1e-9
    with pytest.raises(NnburstError) as error:
        execution.compute()
    assert error.value.code == ResultCode.MISSED_DEADLINE_PERSISTENT


def test_loop_timeouts_are_cut_to_15_seconds(compilation: Compilation) -> None:
    execution = compilation.execution()
    assert execution.loop_timeout == 2
    execution.loop_timeout = 100
    assert execution.loop_timeout == 15
    execution.loop_timeout = 0
    assert execution.loop_timeout == 0


def test_padding_is_enabled_before_arguments_or_never(compilation: Compilation) -> None:
    execution = compilation.execution()
    with bad_data():
        execution.set_input(0, np.zeros(20, np.uint8))
    with bad_state():
        execution.padding = True
    execution = compilation.execution()
    execution.padding = True
    padded = np.zeros(64, np.uint8)
    padded[:8] = ONES.view(np.uint8)
    out = np.zeros(64, np.uint8)
    memory = Memory.allocate(64)
    memory.bytes[:8] = padded[:8]
    execution.set_input(0, padded)
    execution.set_input_from_memory(1, memory, 0, 64)
    execution.set_output(0, out)
    execution.compute()
    assert out[:8].view(np.float32).tolist() == [2.0, 2.0]


def test_an_open_output_with_too_little_room_reports_what_it_needs() -> None:
    compilation = finished(add_model(2, 3, out=(0, 0)))
    x = np.ones((2, 3), np.float32)
    for room, enough in ((8, False), (24, True), (40, True)):
        execution, out = compilation.execution(), np.zeros(room, np.uint8)
        execution.set_input(0, x)
        execution.set_input(1, x)
        execution.set_output(0, out)
        if enough:
            execution.compute()
            assert execution.output_dimensions(0) == (2, 3)
            continue
        with pytest.raises(OutputInsufficientSize) as error:
            execution.compute()
        assert error.value.code == ResultCode.OUTPUT_INSUFFICIENT_SIZE
        for ask in (execution.output_dimensions, execution.output_rank):
            with pytest.raises(OutputInsufficientSize) as error:
                ask(0)
            assert error.value.output_shapes[0].dimensions == (2, 3)


def test_dimensions_that_contradict_the_computation_fail() -> None:
    compilation = finished(add_model(0, 0, out=(0, 0)))
    execution = compilation.execution()
    x = np.ones((2, 3), np.float32)
    execution.set_input(0, x, floats(2, 3))
    execution.set_input(1, x, floats(2, 3))
    execution.set_output(0, np.zeros(24, np.uint8), floats(3, 2))
    with op_failed():
        execution.compute()
    with bad_state():
        execution.output_dimensions(0)


def test_an_input_of_unknown_dimensions_needs_a_type() -> None:
    compilation = finished(add_model(0, 3, out=(0, 3)))
    execution = compilation.execution()
    x = np.ones((2, 3), np.float32)
    for wrong in (None, floats(0, 3), floats(2, 4), floats(2), floats()):
        with bad_data():
            execution.set_input(0, x, wrong)
    execution.set_input(0, x, floats(2, 3))


def test_outputs_are_asked_for_after_success_only(compilation: Compilation) -> None:
    execution, _ = with_arguments(compilation)
    with bad_state():
        execution.output_dimensions(0)
    execution.compute()
    for index in (1, -1):
        with bad_data():
            execution.output_rank(index)


def test_a_burst_is_one_compilations(compilation: Compilation) -> None:
    execution, _ = with_arguments(compilation)
    with bad_data():
        execution.burst_compute(finished(add_model(2)).burst())
    with unexpected_null():
        execution.burst_compute(None)  # type: ignore[arg-type]
    burst = compilation.burst()
    with burst._alone(), bad_state():
        execution.burst_compute(burst)
    execution.burst_compute(burst)


@pytest.mark.parametrize("reusable", [True, False])
def test_two_threads_that_compute_one_execution(compilation: Compilation, reusable: bool) -> None:
    execution, _ = with_arguments(compilation)
    execution.reusable = reusable
    codes: list[int] = []

    def run() -> None:
        try:
            execution.compute()
            codes.append(ResultCode.NO_ERROR)
        except NnburstError as error:
            codes.append(error.code)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(codes) <= {ResultCode.NO_ERROR, ResultCode.BAD_STATE}
    assert codes.count(ResultCode.NO_ERROR) >= 1
    assert reusable or codes.count(ResultCode.NO_ERROR) == 1


def test_staged_files_are_read_before_and_written_after(tmp_path: Path) -> None:
    path = tmp_path / "arguments"
    path.write_bytes(ONES.tobytes() + ONES.tobytes() + bytes(8))
    compilation = finished(add_model(2))
    with path.open("r+b") as file:
        memory = Memory.from_fd(24, file.fileno())
        execution = compilation.execution()
        execution.set_input_from_memory(0, memory, 0, 8)
        execution.set_input_from_memory(1, memory, 8, 8)
        execution.set_output_from_memory(0, memory, 16, 8)
        execution.compute()
    assert np.frombuffer(path.read_bytes(), np.float32).tolist() == [1, 1, 1, 1, 2, 2]
    assert not memory.is_shared


def test_a_kernel_that_needs_more_than_memory_fails_and_does_not_crash() -> None:
    built = Built()
    a, b = built.tensor(1, 1, 1, 1), built.tensor()
    tiles = built.model.add_operand(OperandDescription(OperandType.TENSOR_INT32, (4,)))
    built.model.set_operand_value(tiles, np.array([1 << 15, 1 << 15, 1 << 15, 1], np.int32))
    built.model.add_operation(OperationType.TILE, [a, tiles], [b])
    compilation = finished(built.finish([a], [b]))
    execution = compilation.execution()
    execution.set_input(0, np.ones(1, np.float32))
    execution.set_output(0, np.zeros(64, np.uint8))
    with pytest.raises(NnburstError) as error:
        execution.compute()
    assert error.value.code in (ResultCode.OP_FAILED, ResultCode.OUTPUT_INSUFFICIENT_SIZE)


def test_one_model_compiled_and_run_twice_gives_the_same() -> None:
    model = add_model(3, 4)
    for _ in range(2):
        compilation = finished(model)
        for _ in range(2):
            execution = compilation.execution()
            x = np.arange(12, dtype=np.float32)
            out = np.zeros(12, np.float32)
            execution.set_input(0, x)
            execution.set_input(1, x)
            execution.set_output(0, out)
            execution.compute()
            assert out.tolist() == (2 * x).tolist()
