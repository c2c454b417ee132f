"""Arrays through a burst: the quick ways give what the others give, and write nowhere else."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from client.burst_helpers import copy_model, standing_still
from client.conftest import add_model
from nnburst import (
    Burst,
    BurstBusy,
    Closed,
    DeadObject,
    Device,
    InvalidArgument,
    Memory,
    MissedDeadline,
    ModelBuilder,
    OperandType,
    OperationType,
    PreparedModel,
)

Arrays = list[np.ndarray]


@pytest.fixture
def burst(prepared: PreparedModel) -> Iterator[Burst]:
    with prepared.open_burst() as opened:
        yield opened


def numbers(value: float) -> Arrays:
    return [np.full((2, 3), value, np.float32), np.arange(6, dtype=np.float32).reshape(2, 3)]


def total(value: float) -> list[list[float]]:
    return (np.arange(6).reshape(2, 3) + value).tolist()


def pooled(value: float = 0.0) -> np.ndarray:
    array = Memory(24).array(np.float32, (2, 3))
    array[...] = value
    return array


def test_contents_that_change_give_results_that_change(burst: Burst) -> None:
    results = [burst.execute(numbers(value)).outputs[0] for value in range(20)]
    assert [result.tolist() for result in results] == [total(value) for value in range(20)]


def test_views_are_overwritten_by_the_next_and_copies_are_not(burst: Burst) -> None:
    burst.execute(numbers(0))
    view = burst.execute(numbers(1), copy=False).outputs[0]
    copied = burst.execute(numbers(2)).outputs[0]
    burst.execute(numbers(3))
    assert view.tolist() == total(3)
    assert copied.tolist() == total(2)


def test_callers_own_output_is_not_written_by_a_later_execution(burst: Burst) -> None:
    own = pooled()
    burst.execute(numbers(1), [own])
    burst.execute(numbers(1), [own])
    assert own.tolist() == total(1)
    assert burst.execute(numbers(2)).outputs[0].tolist() == total(2)
    other = np.zeros((2, 3), np.float32)
    burst.execute(numbers(1), [own])
    burst.execute(numbers(3), [other])
    assert other.tolist() == total(3)
    assert own.tolist() == total(1)


def test_callers_own_input_is_not_written_by_a_later_execution(burst: Burst) -> None:
    own = pooled(7)
    for _ in range(2):
        assert burst.execute([own, numbers(0)[1]]).outputs[0].tolist() == total(7)
    assert burst.execute(numbers(2)).outputs[0].tolist() == total(2)
    assert own.tolist() == [[7] * 3] * 2


def test_another_array_of_a_pool_is_another_request(burst: Burst) -> None:
    first, second = pooled(1), pooled(2)
    inputs = numbers(0)
    for _ in range(3):
        for own, value in ((first, 1), (second, 2)):
            assert burst.execute([own, inputs[1]]).outputs[0].tolist() == total(value)


def test_only_measured_executions_are_timed(burst: Burst) -> None:
    for _ in range(2):
        assert burst.execute(numbers(1), measure=True).timing.time_in_driver < 2**63
        assert burst.execute(numbers(1)).timing.time_in_driver == 2**64 - 1


@pytest.mark.parametrize(
    "wrong",
    [
        np.ones((3, 2), np.float32),
        np.ones((2, 3), np.float64),
        np.ones((3, 2), np.float32).T,
        np.ones((2, 3), np.float32).tolist(),
        1.0,
    ],
)
def test_what_does_not_fit_is_refused_after_what_did(burst: Burst, wrong: Any) -> None:
    for _ in range(2):
        burst.execute(numbers(1))
    with pytest.raises(InvalidArgument):
        burst.execute([numbers(1)[0], wrong])
    with pytest.raises(InvalidArgument):
        burst.execute(numbers(1)[:1])
    with pytest.raises(InvalidArgument, match="timeout"):
        burst.execute(numbers(1), timeout=-1)
    read_only = np.zeros((2, 3), np.float32)
    burst.execute(numbers(1), [read_only])
    read_only.flags.writeable = False
    with pytest.raises(InvalidArgument, match="read-only"):
        burst.execute(numbers(1), [read_only])
    assert burst.execute(numbers(4)).outputs[0].tolist() == total(4)


def test_closed_burst_executes_no_arrays(prepared: PreparedModel) -> None:
    burst = prepared.open_burst()
    function = burst.function()
    for _ in range(2):
        burst.execute(numbers(1))
    burst.close()
    with pytest.raises(Closed):
        burst.execute(numbers(1))
    with pytest.raises(Closed):
        function(*numbers(1))
    with pytest.raises(Closed):
        burst.function()
    assert "BurstFunction" in repr(function)


def test_function_gives_what_execute_gives(burst: Burst) -> None:
    add = burst.function()
    for value in range(20):
        (result,) = add(*numbers(value))
        assert result.tolist() == burst.execute(numbers(value)).outputs[0].tolist() == total(value)


def test_function_gives_views_or_copies(burst: Burst) -> None:
    views, copies = burst.function(), burst.function(copy=True)
    (view,), (copied,) = views(*numbers(1)), copies(*numbers(1))
    views(*numbers(2))
    copies(*numbers(2))
    assert view.tolist() == total(2)
    assert copied.tolist() == total(1)


def test_function_takes_any_layout(burst: Burst) -> None:
    add = burst.function()
    wide = np.zeros((2, 6), np.float32)
    wide[:, ::2] = 5
    assert add(wide[:, ::2], numbers(0)[1])[0].tolist() == total(5)
    assert add(np.asfortranarray(numbers(5)[0]), numbers(0)[1])[0].tolist() == total(5)
    assert add(pooled(5), numbers(0)[1])[0].tolist() == total(5)


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        (np.ones((3, 2), np.float32), "shape"),
        (np.ones(3, np.float32), "rank"),
        (np.ones((2, 3), np.float64), "dtype"),
        ([[1.0] * 3] * 2, "list"),
        (None, r"^inputs\[1\] is None, expected an array of float32 of shape \(2, 3\)$"),
        (np.float32(1), "rank"),
    ],
)
def test_function_refuses_what_does_not_fit(burst: Burst, wrong: Any, match: str) -> None:
    add = burst.function()
    with pytest.raises(InvalidArgument, match=match):
        add(numbers(1)[0], wrong)
    for count in (0, 1, 3):
        with pytest.raises(InvalidArgument, match="arrays given, expected 2"):
            add(*[numbers(1)[0]] * count)
    assert add(*numbers(3))[0].tolist() == total(3)


def test_function_of_open_shapes_is_bound_for_the_arrays_it_is_shown(device: Device) -> None:
    builder = ModelBuilder()
    x = builder.input(OperandType.TENSOR_FLOAT32, (0, 3))
    y = builder.output(OperandType.TENSOR_FLOAT32, (0, 3))
    builder.operation(OperationType.RELU, [x], [y])
    with device.prepare(builder.build()) as prepared, prepared.open_burst() as burst:
        with pytest.raises(InvalidArgument, match="no fixed shape"):
            burst.function()
        relu = burst.function([np.zeros((4, 3), np.float32)])
        x4 = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
        (result,) = relu(x4)
        assert result.tolist() == np.maximum(x4, 0).tolist()
        with pytest.raises(InvalidArgument, match="which was bound"):
            relu(np.zeros((5, 3), np.float32))


def test_function_on_booleans_takes_bool_and_bytes(device: Device) -> None:
    builder = ModelBuilder()
    x = builder.input(OperandType.TENSOR_BOOL8, (2,))
    y = builder.output(OperandType.TENSOR_BOOL8, (2,))
    builder.operation(OperationType.LOGICAL_NOT, [x], [y])
    with device.prepare(builder.build()) as prepared, prepared.open_burst() as burst:
        invert = burst.function()
        for dtype in (np.bool_, np.uint8):
            assert invert(np.array([0, 1], dtype))[0].astype(int).tolist() == [1, 0]


def test_function_has_a_deadline(still: Device) -> None:
    with still.prepare(copy_model()) as prepared, prepared.open_burst() as burst:
        relu = burst.function(timeout=0.05)
        x = np.ones(2, np.float32)
        with standing_still(still), pytest.raises(MissedDeadline):
            relu(x)
        late = burst.function()
        assert late(2 * x)[0].tolist() == [2, 2]
        with pytest.raises(InvalidArgument, match="timeout"):
            burst.function(timeout=0)


def test_second_thread_is_refused_and_disturbs_nothing(still: Device) -> None:
    with still.prepare(copy_model()) as prepared, prepared.open_burst() as burst:
        relu, x = burst.function(), np.ones(2, np.float32)
        relu(x)
        inside = threading.Event()

        def run() -> list[float]:
            inside.set()
            (result,) = relu(x)
            return result.tolist()

        with ThreadPoolExecutor(1) as pool:
            with standing_still(still):
                first = pool.submit(run)
                assert inside.wait(20)
                while burst._core.client.in_flight == 0:
                    pass
                for use in (lambda: relu(9 * x), lambda: burst.execute([x])):
                    with pytest.raises(BurstBusy):
                        use()
            assert first.result(20) == [1, 1]


def test_forked_child_is_refused_before_anything_is_copied(burst: Burst) -> None:
    add = burst.function()
    add(*numbers(1))
    for _ in range(2):
        burst.execute(numbers(1))
    child = os.fork()
    if not child:
        told = 0
        for use in (lambda: add(*numbers(2)), lambda: burst.execute(numbers(2))):
            try:
                use()
            except Closed:
                told += 1
        os._exit(told)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2


def test_dead_driver_is_a_dead_object(own_device: Device) -> None:
    with own_device.prepare(add_model()) as prepared, prepared.open_burst() as burst:
        add = burst.function()
        add(*numbers(1))
        os.kill(own_device.pid, signal.SIGKILL)
        with pytest.raises(DeadObject):
            add(*numbers(1))
