"""Buffers of a driver, as a client uses them."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import nnburst
from nnburst import (
    Closed,
    DeadObject,
    Device,
    ExecutionResult,
    GeneralFailure,
    InvalidArgument,
    MissedDeadline,
    Model,
    ModelBuilder,
    OperandType,
    OperationType,
    OutputInsufficientSize,
    PreparedModel,
)
from nnburst.client.device import allocate_buffer
from nnburst.client.execution.buffer import Buffer
from nnburst.client.execution.sync_fence import SyncFence
from nnburst.client.hal import create_reusable_execution, execute_fenced, open_aidl_burst

ONES = np.ones((2, 3), np.float32)


@pytest.fixture
def buffers(device: Device, prepared: PreparedModel) -> Iterator[tuple[Buffer, Buffer]]:
    """Two that may be anything of `prepared`, which adds two tensors."""
    made = [
        device.allocate_buffer(inputs=[(prepared, 0), (prepared, 1)], outputs=[(prepared, 0)])
        for _ in range(2)
    ]
    yield made[0], made[1]
    for buffer in made:
        buffer.close()


@pytest.fixture
def open_shape(device: Device) -> Iterator[PreparedModel]:
    """RELU of tensors of any length."""
    builder = ModelBuilder()
    x = builder.input(OperandType.TENSOR_FLOAT32, (0,))
    y = builder.output(OperandType.TENSOR_FLOAT32, (0,))
    builder.operation(OperationType.RELU, [x], [y])
    with device.prepare(builder.build()) as model:
        yield model


def test_content_comes_back(buffers: tuple[Buffer, Buffer], pair: list[np.ndarray]) -> None:
    buffer, _ = buffers
    buffer.copy_from(pair[0])
    assert np.array_equal(buffer.copy_to(), pair[0])
    target = np.zeros((2, 3), np.float32)
    assert buffer.copy_to(target) is target
    assert np.array_equal(target, pair[0])


def test_content_comes_and_goes_in_pools_without_a_copy(
    device: Device, buffers: tuple[Buffer, Buffer], monkeypatch: pytest.MonkeyPatch
) -> None:
    with device.allocate(64) as there, device.allocate(64) as back:
        source, target = (m.array(np.float32, (2, 3)) for m in (there, back))
        source[...] = 7
        monkeypatch.setattr(device, "allocate", None)
        buffers[0].copy_from(source)
        buffers[0].copy_to(target)
        assert np.all(target == 7)


def execute(model: PreparedModel, *arguments: Any) -> ExecutionResult:
    return model.execute(*arguments)


def execute_async(model: PreparedModel, *arguments: Any) -> ExecutionResult:
    return model.execute_async(*arguments).result(30)


def fenced_result(model: PreparedModel, *arguments: Any) -> ExecutionResult:
    with execute_fenced(model, *arguments) as fenced:
        return fenced.result(30)


def execute_reusable(model: PreparedModel, *arguments: Any) -> ExecutionResult:
    with create_reusable_execution(model, *arguments) as reusable:
        return reusable.run()


def execute_in_aidl_burst(model: PreparedModel, *arguments: Any) -> ExecutionResult:
    with open_aidl_burst(model) as burst:
        return burst.execute(*arguments)


def execute_in_burst(model: PreparedModel, *arguments: Any) -> ExecutionResult:
    with model.open_burst() as burst:
        return burst.execute(*arguments)


ways = pytest.mark.parametrize(
    "way",
    [
        execute,
        execute_async,
        fenced_result,
        execute_reusable,
        execute_in_aidl_burst,
        execute_in_burst,
    ],
)


@ways
def test_state_stays_in_the_driver_from_execution_to_execution(
    prepared: PreparedModel, buffers: tuple[Buffer, Buffer], way: Callable[..., ExecutionResult]
) -> None:
    state, other = buffers
    state.copy_from(ONES)
    for _ in range(3):
        result = way(prepared, [state, ONES], [other])
        assert result.outputs == [other]
        state, other = other, state
    assert np.all(state.copy_to() == 4)


def test_execution_object_sees_what_its_buffers_hold_at_each_run(
    prepared: PreparedModel, buffers: tuple[Buffer, Buffer]
) -> None:
    source, sink = buffers
    with create_reusable_execution(prepared, [source, ONES], [sink]) as reusable:
        with pytest.raises(GeneralFailure, match="not initialised"):
            reusable.run()
        for value in (1, 5):
            source.copy_from(value * ONES)
            reusable.run()
            assert np.all(sink.copy_to() == value + 1)


def test_fenced_executions_hand_a_buffer_on_without_the_client(
    prepared: PreparedModel, buffers: tuple[Buffer, Buffer]
) -> None:
    state, other = buffers
    state.copy_from(ONES)
    start, signaller = SyncFence.create()
    with (
        start,
        execute_fenced(prepared, [state, ONES], [other], wait_for=[start]) as first,
        execute_fenced(prepared, [other, other], [state], wait_for=[first.fence]) as second,
    ):
        signaller.signal()
        second.result(30)
        first.result(30)
    assert np.all(state.copy_to() == 4)


def test_buffers_and_arrays_mix_in_one_request(
    prepared: PreparedModel, device: Device, buffers: tuple[Buffer, Buffer]
) -> None:
    buffers[0].copy_from(ONES)
    with device.allocate(64) as memory:
        pooled = memory.array(np.float32, (2, 3))
        pooled[...] = 5
        (sum_,) = prepared.execute([pooled, buffers[0]]).outputs
    assert np.all(sum_ == 6)
    (doubled,) = prepared.execute([buffers[0], buffers[0]]).outputs
    assert np.all(doubled == 2)


def test_burst_sends_a_request_with_buffers_over_the_socket(
    prepared: PreparedModel, buffers: tuple[Buffer, Buffer]
) -> None:
    with prepared.open_burst() as burst:
        before = burst.execute([ONES, ONES]).outputs[0]
        buffers[0].copy_from(before)
        result = burst.execute([buffers[0], ONES], [buffers[1]], measure=True)
        assert result.outputs == [buffers[1]]
        assert result.timing.measured
        assert np.all(buffers[1].copy_to() == 3)
        assert np.all(burst.execute([ONES, ONES]).outputs[0] == 2)
        assert burst.statistics()["executions"] == 2


def test_burst_cannot_bind_a_buffer(
    prepared: PreparedModel, buffers: tuple[Buffer, Buffer], device: Device
) -> None:
    with prepared.open_burst() as burst, device.allocate(64) as memory:
        array = memory.array(np.float32, (2, 3))
        with pytest.raises(InvalidArgument, match=r"inputs\[1\] is a Buffer, which no burst"):
            burst.bind([array, buffers[0]])  # type: ignore[list-item]
        with pytest.raises(InvalidArgument, match=r"outputs\[0\] is a Buffer"):
            burst.bind([array, array], [buffers[0]])  # type: ignore[list-item]


def test_what_was_never_filled_cannot_be_read(
    prepared: PreparedModel, buffers: tuple[Buffer, Buffer]
) -> None:
    with pytest.raises(GeneralFailure, match="not initialised"):
        prepared.execute([buffers[0], ONES])
    with pytest.raises(GeneralFailure, match="not initialised"):
        buffers[0].copy_to()


@ways
def test_failed_execution_leaves_an_output_empty(
    prepared: PreparedModel, buffers: tuple[Buffer, Buffer], way: Callable[..., ExecutionResult]
) -> None:
    full, empty = buffers
    full.copy_from(ONES)
    with pytest.raises(GeneralFailure, match="not initialised"):
        way(prepared, [empty, ONES], [full])
    with pytest.raises(GeneralFailure, match="not initialised"):
        full.copy_to()


def test_released_buffer_lives_as_long_as_an_execution_uses_it(
    device: Device, prepared: PreparedModel, buffers: tuple[Buffer, Buffer]
) -> None:
    source = device.allocate_buffer([(prepared, 0)])
    source.copy_from(ONES)
    start, signaller = SyncFence.create()
    with start, execute_fenced(prepared, [source, ONES], [buffers[0]], wait_for=[start]) as fenced:
        source.close()
        with device.allocate_buffer([(prepared, 0)]) as other:
            assert other._token != source._token
            signaller.signal()
            fenced.result(30)
        assert np.all(buffers[0].copy_to() == 2)
    free = {other._token, source._token}
    with device.allocate_buffer([(prepared, 0)]) as a, device.allocate_buffer([(prepared, 0)]) as b:
        assert {a._token, b._token} == free


def test_shape_that_the_models_leave_open_is_that_of_the_content(
    device: Device, open_shape: PreparedModel
) -> None:
    uses = [(open_shape, 0)]
    a = device.allocate_buffer(uses, uses)
    b = device.allocate_buffer(uses, uses)
    with a, b:
        with pytest.raises(GeneralFailure, match="holds nothing"):
            open_shape.execute([a])
        for count in (3, 70_000, 2):
            values = np.linspace(-1, 1, count, dtype=np.float32)
            a.copy_from(values)
            result = open_shape.execute([a], [b])
            assert result.output_shapes[0].dimensions == b.dimensions == (count,)
            assert np.array_equal(b.copy_to(), np.maximum(values, 0))
        with pytest.raises(InvalidArgument, match=r"the buffer holds \(2,\)"):
            b.copy_to(np.zeros(3, np.float32))


def test_dimensions_can_be_settled_when_allocating(
    device: Device, open_shape: PreparedModel
) -> None:
    with device.allocate_buffer(outputs=[(open_shape, 0)], dimensions=(4,)) as buffer:
        open_shape.execute([np.ones(4, np.float32)], [buffer])
        with pytest.raises(GeneralFailure, match=r"declared are \[4\]"):
            open_shape.execute([np.ones(5, np.float32)], [buffer])
        with pytest.raises(InvalidArgument, match="shape"):
            buffer.copy_from(np.ones(5, np.float32))


def test_array_too_small_beside_a_buffer_is_reported_with_shapes(
    device: Device, make_model: Callable[..., Model]
) -> None:
    with device.prepare(make_model(output=(0, 0))) as model:
        uses = [(model, 0)]
        with device.allocate_buffer(uses) as buffer:
            buffer.copy_from(ONES)
            with pytest.raises(OutputInsufficientSize) as caught:
                model.execute([buffer, ONES], [np.zeros(1, np.float32)])
    assert caught.value.output_shapes[0].dimensions == (2, 3)


def test_execution_that_took_too_long_leaves_its_output_unknown(
    device: Device, open_shape: PreparedModel
) -> None:
    values = np.ones(4, np.float32)
    with device.allocate_buffer(outputs=[(open_shape, 0)]) as buffer:
        open_shape.execute([values], [buffer])
        with pytest.raises(MissedDeadline):
            open_shape.execute([values], [buffer], timeout=1e-9)
        assert buffer.dimensions == (0,)


def test_closed_buffer_is_refused_everywhere(device: Device, prepared: PreparedModel) -> None:
    buffer = device.allocate_buffer([(prepared, 0)], [(prepared, 0)])
    buffer.close()
    buffer.close()
    assert buffer.closed
    for use in (
        lambda: buffer.copy_from(ONES),
        buffer.copy_to,
        lambda: prepared.execute([buffer, ONES]),
        lambda: prepared.execute([ONES, ONES], [buffer]),
    ):
        with pytest.raises(Closed, match="the buffer is closed"):
            use()


def test_buffer_that_is_unreferenced_is_released(device: Device, prepared: PreparedModel) -> None:
    token = device.allocate_buffer([(prepared, 0)])._token
    gc.collect()
    device.supported_operations(prepared.model)
    with device.allocate_buffer([(prepared, 0)]) as buffer:
        assert buffer._token == token


def test_buffer_of_another_device_is_refused(prepared: PreparedModel) -> None:
    with nnburst.launch("null") as other, other.prepare(prepared.model) as theirs:
        buffer = other.allocate_buffer([(theirs, 0)])
        with pytest.raises(InvalidArgument, match=r"inputs\[0\] lies in a buffer of device null"):
            prepared.execute([buffer, ONES])
        with pytest.raises(InvalidArgument, match="D3"):
            allocate_buffer(prepared._prepared.session, [(theirs, 0)], (), (), 30.0)


def test_buffer_dies_with_its_driver(make_model: Callable[..., Model]) -> None:
    with (
        nnburst.launch("null", recover=True) as device,
        device.prepare(make_model()) as model,
    ):
        buffer = device.allocate_buffer([(model, 0)], [(model, 0)])
        os.kill(device.pid, signal.SIGKILL)
        with pytest.raises(DeadObject):
            buffer.copy_from(ONES)
        with pytest.raises(DeadObject):
            buffer.copy_to()
        with pytest.raises(InvalidArgument, match="lies in a buffer of device null"):
            model.execute([ONES, ONES], [buffer])
        assert model.execute([ONES, ONES]).outputs[0].shape == (2, 3)
        buffer.close()


def test_use_that_was_not_declared_is_refused(device: Device, prepared: PreparedModel) -> None:
    with device.allocate_buffer([(prepared, 0)]) as buffer:
        buffer.copy_from(ONES)
        with pytest.raises(InvalidArgument, match="E6: input 1"):
            prepared.execute([ONES, buffer])


@pytest.mark.parametrize(
    ("array", "named"),
    [
        (np.ones((2, 3), np.int32), "dtype int32"),
        (np.ones((3, 2), np.float32), "shape"),
        (np.ones((3, 2), np.float32).T, "not contiguous"),
        ([1.0], "type list"),
    ],
)
def test_array_that_does_not_fit_is_refused_before_anything_is_sent(
    buffers: tuple[Buffer, Buffer], array: np.ndarray, named: str
) -> None:
    buffers[0].copy_from(ONES)
    with pytest.raises(InvalidArgument, match=named):
        buffers[0].copy_from(array)
    with pytest.raises(InvalidArgument, match=named):
        buffers[0].copy_to(array)
    assert np.array_equal(buffers[0].copy_to(), ONES)


@pytest.mark.parametrize("uses", [[1], ["ab"], [(None, 0)], [(1, 2, 3)]])
def test_what_is_not_a_use_is_named(device: Device, uses: list[object]) -> None:
    with pytest.raises(InvalidArgument, match=r"inputs\[0\]: .*expected a prepared model"):
        device.allocate_buffer(uses)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="D1"):
        device.allocate_buffer()


def test_repr_shows_what_it_is(buffers: tuple[Buffer, Buffer]) -> None:
    assert repr(buffers[0]) == f"<nnburst.Buffer {buffers[0]._token}: [2, 3], open>"
