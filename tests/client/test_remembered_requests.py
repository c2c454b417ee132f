"""Requests over the same shapes: bound once, right for every content, bounded, forgotten in time."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import nnburst
from client.scripted_driver import Gate, ScriptedDriver
from interrupting import interrupted_at
from nnburst import (
    Closed,
    Device,
    GeneralFailure,
    InvalidArgument,
    MissedDeadline,
    Model,
    ModelBuilder,
    OperandType,
    OperationType,
    PreparedModel,
)
from nnburst.client import arguments
from nnburst.client.execution import prepared as prepared_module
from nnburst.client.execution import socket_request
from nnburst.control.messages import CreateReusableExecution, ExecuteReusable, ExecuteSynchronously
from nnburst.executor.base import Outcome
from nnburst.hal.enums import ErrorStatus

HANG = 20.0


class Calls(Counter[str]):
    """Counts the calls of a device by their names."""

    def __init__(self, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        connection = device._session.connection
        call = connection.call

        def count(message: Any, *arguments: Any, **options: Any) -> Any:
            self[type(message).__name__] += 1
            return call(message, *arguments, **options)

        monkeypatch.setattr(connection, "call", count)

    def take(self) -> tuple[int, int, int]:
        """Executions the ordinary way, bindings, executions of what is bound; counts from 0 again."""
        kinds = (ExecuteSynchronously, CreateReusableExecution, ExecuteReusable)
        found = tuple(self[kind.__name__] for kind in kinds)
        self.clear()
        return found[0], found[1], found[2]


@pytest.fixture
def prepared(device: Device, make_model: Callable[..., Model]) -> Iterator[PreparedModel]:
    """Adds two float32 tensors of shape (2, 3), always over the socket."""
    with device.prepare(make_model(), bursts=False) as model:
        yield model


@pytest.fixture
def calls(device: Device, monkeypatch: pytest.MonkeyPatch) -> Calls:
    return Calls(device, monkeypatch)


def pair(number: float, dtype: Any = np.float32) -> list[np.ndarray]:
    return [np.full((2, 3), number, dtype), np.arange(6, dtype=dtype).reshape(2, 3)]


def total(number: float) -> list[list[float]]:
    return (np.arange(6).reshape(2, 3) + number).tolist()


def test_request_is_bound_when_it_comes_again_and_every_result_is_its_own(
    prepared: PreparedModel, calls: Calls
) -> None:
    results = [prepared.execute(pair(number)).outputs[0] for number in range(10)]
    assert calls.take() == (1, 1, 9)
    for number, result in enumerate(results):
        assert result.tolist() == total(number)


def test_result_goes_to_the_array_that_is_given(prepared: PreparedModel, calls: Calls) -> None:
    for number in range(5):
        target = np.zeros((2, 3), np.float32)
        result = prepared.execute(pair(number), [target])
        assert result.outputs[0] is target
        assert target.tolist() == total(number)
    assert calls.take() == (1, 1, 4)


def test_shapes_and_timing_are_as_ever(prepared: PreparedModel) -> None:
    found = [prepared.execute(pair(1), measure=True) for _ in range(4)]
    assert {result.output_shapes for result in found} == {found[0].output_shapes}
    assert all(result.timing.time_in_driver >= result.timing.time_on_device for result in found)
    assert all(result.timing.time_in_driver < 10_000_000 for result in found)  # microseconds
    assert all(result.timing_ns is None for result in found)
    assert prepared.execute(pair(1)).timing == nnburst.Timing()


@pytest.mark.parametrize(
    "inputs",
    [
        [np.ones((2, 3), np.float32), np.ones((3, 2), np.float32)],
        [np.ones((2, 3), np.float32), np.ones((2, 3), np.float64)],
        [np.ones((2, 3), np.float32), np.ones((3, 2), np.float32).T],
        [np.ones((2, 3), np.float32)],
        [np.ones((2, 3), np.float32), 1.0],
    ],
)
def test_what_does_not_fit_is_refused_though_others_are_remembered(
    prepared: PreparedModel, calls: Calls, inputs: list[Any]
) -> None:
    for _ in range(3):
        prepared.execute(pair(1))
    calls.take()
    for _ in range(3):
        with pytest.raises(InvalidArgument):
            prepared.execute(inputs)
    assert prepared.execute(pair(2)).outputs[0].tolist() == total(2)


def test_read_only_output_is_refused_though_a_writable_one_is_remembered(
    prepared: PreparedModel,
) -> None:
    target = np.zeros((2, 3), np.float32)
    for _ in range(3):
        prepared.execute(pair(1), [target])
    target.flags.writeable = False
    with pytest.raises(InvalidArgument, match="read-only"):
        prepared.execute(pair(1), [target])


def test_arrays_in_pools_stay_where_they_are(prepared: PreparedModel, calls: Calls) -> None:
    memory = nnburst.Memory(24)
    pooled = memory.array(np.float32, (2, 3))
    for number in range(4):
        pooled[...] = number
        result = prepared.execute([pooled, pair(0)[1]])
        assert result.outputs[0].tolist() == total(number)
    assert calls.take() == (4, 0, 0)


def boolean_model() -> Model:
    builder = ModelBuilder()
    x = builder.input(OperandType.TENSOR_BOOL8, (2,))
    y = builder.output(OperandType.TENSOR_BOOL8, (2,))
    builder.operation(OperationType.LOGICAL_NOT, [x], [y])
    return builder.build()


def test_booleans_come_as_bool_or_as_bytes(device: Device) -> None:
    with device.prepare(boolean_model(), bursts=False) as prepared:
        for dtype in (np.bool_, np.uint8, np.bool_, np.uint8):
            for _ in range(3):
                result = prepared.execute([np.array([0, 1], dtype)]).outputs[0]
                assert result.astype(int).tolist() == [1, 0]


def test_threads_with_the_same_shapes_get_their_own_results(prepared: PreparedModel) -> None:
    def run(me: int) -> list[int]:
        wrong = []
        for turn in range(60):
            number = me * 1000 + turn
            if prepared.execute(pair(number)).outputs[0].tolist() != total(number):
                wrong.append(turn)
        return wrong

    with ThreadPoolExecutor(12) as pool:
        assert [w for w in pool.map(run, range(12)) if w] == []


def open_model() -> Model:
    """a + b whose shapes are open on both sides."""
    builder = ModelBuilder()
    a = builder.input(OperandType.TENSOR_FLOAT32, (0,))
    b = builder.input(OperandType.TENSOR_FLOAT32, (0,))
    c = builder.output(OperandType.TENSOR_FLOAT32, (0,))
    builder.operation(OperationType.ADD, [a, b, builder.scalar(0)], [c])
    return builder.build()


def test_open_output_shapes_are_not_remembered(device: Device, calls: Calls) -> None:
    with device.prepare(open_model(), bursts=False) as prepared:
        calls.take()
        for length in (2, 2, 2, 5, 5, 5):
            x = np.arange(length, dtype=np.float32)
            assert prepared.execute([x, x]).outputs[0].tolist() == (2 * x).tolist()
        assert calls.take() == (6, 0, 0)


def shaped_model() -> Model:
    """The sum of an input of any length: the output's shape is known, the input's is not."""
    builder = ModelBuilder()
    x = builder.input(OperandType.TENSOR_FLOAT32, (0,))
    y = builder.output(OperandType.TENSOR_FLOAT32, (1,))
    axes = builder.constant(OperandType.TENSOR_INT32, np.array([0]))
    keep = builder.scalar(True, OperandType.BOOL)
    builder.operation(OperationType.REDUCE_SUM, [x, axes, keep], [y])
    return builder.build()


@pytest.fixture
def summing(device: Device) -> Iterator[PreparedModel]:
    with device.prepare(shaped_model(), bursts=False) as prepared:
        yield prepared


def test_no_more_requests_are_bound_than_may(summing: PreparedModel, calls: Calls) -> None:
    for _ in range(3):
        for length in range(1, 30):
            x = np.ones(length, np.float32)
            assert summing.execute([x]).outputs[0].tolist() == [length]
    remembered = summing._prepared.remembered
    assert len(remembered) == prepared_module._MOST


def test_large_requests_are_not_bound(summing: PreparedModel, calls: Calls) -> None:
    x = np.ones(prepared_module.LARGEST, np.float32)
    for _ in range(3):
        summing.execute([x])
    assert calls.take() == (3, 0, 0)


@pytest.fixture
def scripted() -> Iterator[ScriptedDriver]:
    with ScriptedDriver() as made:
        yield made


def bound(
    scripted: ScriptedDriver, make_model: Callable[..., Model]
) -> tuple[PreparedModel, Sequence[np.ndarray]]:
    """A model that has a request bound, and its arrays."""
    prepared = scripted.device.prepare(make_model(), bursts=False)
    for _ in range(3):
        prepared.execute(pair(1))
    assert len(prepared._prepared.remembered) == 1
    return prepared, pair(1)


def test_request_that_missed_its_deadline_is_never_used_again(
    scripted: ScriptedDriver, make_model: Callable[..., Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared, inputs = bound(scripted, make_model)
    gate = Gate()

    def held(_: object) -> Outcome:
        gate()
        return Outcome()

    scripted.script.on_run = held
    # The driver, which computes in this process, is to begin whenever it gets to it.
    far = arguments.boottime_deadline_ns(1000.0)
    monkeypatch.setattr(socket_request, "boottime_deadline_ns", lambda _seconds: far)
    with pytest.raises(MissedDeadline):
        prepared.execute(inputs, timeout=0.3)
    gate.wait()
    assert not len(prepared._prepared.remembered)
    scripted.script.on_run = lambda _execution: Outcome()
    prepared.execute(inputs)
    gate.opened.set()


def test_request_that_failed_is_bound_anew(
    scripted: ScriptedDriver, make_model: Callable[..., Model]
) -> None:
    prepared, inputs = bound(scripted, make_model)
    scripted.script.on_run = lambda _: Outcome(ErrorStatus.GENERAL_FAILURE, (), "no")
    with pytest.raises(GeneralFailure, match="no"):
        prepared.execute(inputs)
    assert not len(prepared._prepared.remembered)
    scripted.script.on_run = lambda _execution: Outcome()
    prepared.execute(inputs)
    assert len(prepared._prepared.remembered) == 1


def test_refusal_to_bind_leaves_the_ordinary_way(
    scripted: ScriptedDriver, make_model: Callable[..., Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = scripted.device.prepare(make_model(), bursts=False)
    monkeypatch.setattr(socket_request, "_bound", lambda *_: None)
    for _ in range(4):
        prepared.execute(pair(1))
    assert not len(prepared._prepared.remembered)


def test_close_lets_the_driver_forget_all(
    scripted: ScriptedDriver, make_model: Callable[..., Model]
) -> None:
    prepared, inputs = bound(scripted, make_model)
    prepared.close()
    assert scripted.script.closed.acquire(
        timeout=HANG
    )  # the prepared model, which each of them holds
    with pytest.raises(Closed):
        prepared.execute(inputs)


def test_close_while_an_execution_is_under_way_lets_it_finish(
    scripted: ScriptedDriver, make_model: Callable[..., Model]
) -> None:
    prepared, inputs = bound(scripted, make_model)
    gate = Gate()

    def held(_: object) -> Outcome:
        gate()
        return Outcome()

    scripted.script.on_run = held
    results: list[object] = []
    thread = threading.Thread(target=lambda: results.append(prepared.execute(inputs)))
    thread.start()
    gate.wait()
    prepared.close()
    gate.opened.set()
    thread.join(HANG)
    assert len(results) == 1
    assert scripted.script.closed.acquire(timeout=HANG)


def test_unclosed_model_is_released_with_its_requests(
    scripted: ScriptedDriver, make_model: Callable[..., Model]
) -> None:
    prepared, _ = bound(scripted, make_model)
    del prepared
    scripted.device.prepare(make_model(), bursts=False).close()  # what was to be released has been
    for _ in range(2):
        assert scripted.script.closed.acquire(timeout=HANG)


# An exception that a handler raises within a generator's end is lost: Python reports it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_execution_that_is_interrupted_anywhere_loses_no_bound_request(
    prepared: PreparedModel,
) -> None:
    def execute() -> None:
        prepared.execute(pair(1))

    execute()
    places = 0
    while True:
        execute()  # over a bound request
        if not interrupted_at(places + 1, execute):
            break
        places += 1
        for number in range(2):
            assert prepared.execute(pair(number)).outputs[0].tolist() == total(number), places
        assert len(prepared._prepared.remembered) == 1, places
    assert places > 10


@pytest.mark.every_day("execute-2", "execute_async-0")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("executions", [0, 1, 2])
@pytest.mark.parametrize("way", ["execute", "execute_async"])
def test_model_whose_execution_was_interrupted_anywhere_leaves_the_driver_when_it_is_closed(
    scripted: ScriptedDriver, make_model: Callable[..., Model], way: str, executions: int
) -> None:
    arrays, places, was_interrupted = pair(1), 0, True
    while was_interrupted:
        places += 1
        prepared = scripted.device.prepare(make_model(), bursts=False)
        for _ in range(executions):  # the second one binds a request
            prepared.execute(arrays)
        was_interrupted = interrupted_at(places, lambda: getattr(prepared, way)(arrays))  # noqa: B023 - called at once
        prepared.close()
        del prepared
        scripted.device.supported_operations(make_model())  # with it goes what is released later
        assert scripted.script.closed.acquire(timeout=HANG), places
    assert places > 10
