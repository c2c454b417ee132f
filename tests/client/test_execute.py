from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

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
    OutputInsufficientSize,
    PreparedModel,
)
from nnburst.control.channel import Fds
from nnburst.control.messages import SupportedOperations

Pair = list[np.ndarray]


def test_execution_gives_the_sum(prepared: PreparedModel, pair: Pair) -> None:
    result = prepared.execute(pair)
    np.testing.assert_array_equal(result.outputs[0], pair[0] + pair[1])
    assert not result.timing.measured


def test_measured_execution_reports_microseconds(prepared: PreparedModel, pair: Pair) -> None:
    began = time.perf_counter_ns()
    timing = prepared.execute(pair, measure=True).timing
    whole = (time.perf_counter_ns() - began) / 1000
    assert 0 <= timing.time_on_device <= timing.time_in_driver <= whole


def test_results_do_not_share_memory(prepared: PreparedModel, pair: Pair) -> None:
    first = prepared.execute(pair).outputs[0]
    kept = first.copy()
    prepared.execute([pair[0] * 100, pair[1]])
    np.testing.assert_array_equal(first, kept)


def test_given_output_is_filled_and_returned(prepared: PreparedModel, pair: Pair) -> None:
    output = np.zeros((2, 3), np.float32)
    assert prepared.execute(pair, [output]).outputs[0] is output
    np.testing.assert_array_equal(output, pair[0] + pair[1])


def test_arrays_in_a_pool_are_used_where_they_lie(
    prepared: PreparedModel, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepared._prepared.staging, "take", lambda _size: pytest.fail("copied"))
    memory = prepared._prepared.session.allocate(4096)
    a, b, c = (memory.array(np.float32, (2, 3), offset) for offset in (0, 64, 1024))
    a[...], b[...] = pair
    assert prepared.execute([a, b], [c]).outputs[0] is c
    np.testing.assert_array_equal(c, pair[0] + pair[1])


def test_pool_may_be_part_of_several_arguments_and_pools_may_mix(
    prepared: PreparedModel, pair: Pair
) -> None:
    first, second = (
        prepared._prepared.session.allocate(24),
        prepared._prepared.session.allocate(100),
    )
    a = first.array(np.float32, (2, 3))
    a[...] = pair[0]
    c = second.array(np.float32, (2, 3), offset=76)
    prepared.execute([a, a], [c])
    np.testing.assert_array_equal(c, pair[0] * 2)
    np.testing.assert_array_equal(prepared.execute([pair[1], a], [c]).outputs[0], pair[0] + pair[1])


def test_array_of_a_closed_pool_is_copied_like_any_other(
    prepared: PreparedModel, pair: Pair
) -> None:
    memory = prepared._prepared.session.allocate(64)
    a = memory.array(np.float32, (2, 3))
    a[...] = pair[0]
    memory.close()
    np.testing.assert_array_equal(prepared.execute([a, a]).outputs[0], pair[0] * 2)


def test_read_only_inputs_are_fine(prepared: PreparedModel, pair: Pair) -> None:
    pair[0].flags.writeable = False
    np.testing.assert_array_equal(prepared.execute(pair).outputs[0], pair[0] + pair[1])


def test_threads_share_a_prepared_model(prepared: PreparedModel) -> None:
    sums: dict[int, list[float]] = {}

    def work(number: int) -> None:
        a = np.full((2, 3), number, np.float32)
        sums[number] = [prepared.execute([a, a]).outputs[0].sum() for _ in range(20)]

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive()
    assert sums == {number: [12.0 * number] * 20 for number in range(4)}


@pytest.mark.parametrize("output", [(0, 3), (2, 0), (0, 0), ()])
def test_unknown_output_shape_is_reported(
    device: Device, make_model: Callable[..., Model], pair: Pair, output: tuple[int, ...]
) -> None:
    with device.prepare(make_model(output=output)) as model:
        result = model.execute(pair)
    assert result.outputs[0].shape == (2, 3)
    assert result.output_shapes[0].dimensions == (2, 3)
    np.testing.assert_array_equal(result.outputs[0], pair[0] + pair[1])


def test_unknown_input_shape_comes_from_the_array(
    device: Device, make_model: Callable[..., Model]
) -> None:
    with device.prepare(make_model((0, 3), output=(0, 3))) as model:
        for rows in (1, 5):
            a = np.ones((rows, 3), np.float32)
            np.testing.assert_array_equal(model.execute([a, a]).outputs[0], 2 * a)


def test_first_guess_of_an_output_grows_until_it_fits(
    device: Device, make_model: Callable[..., Model]
) -> None:
    a = np.arange(300_000, dtype=np.float32)
    with device.prepare(make_model((0,), output=(0,))) as model:
        np.testing.assert_array_equal(model.execute([a, a]).outputs[0], 2 * a)


def test_buffer_of_unknown_output_holds_the_result_in_its_own_shape(
    device: Device, make_model: Callable[..., Model], pair: Pair
) -> None:
    buffer = np.zeros(10, np.float32)
    with device.prepare(make_model(output=(0, 0))) as model:
        result = model.execute(pair, [buffer]).outputs[0]
    assert result.shape == (2, 3)
    assert np.shares_memory(result, buffer)
    np.testing.assert_array_equal(buffer[:6].reshape(2, 3), pair[0] + pair[1])


@pytest.mark.parametrize("in_pool", [False, True])
def test_buffer_that_is_too_small_is_an_error_with_what_is_needed(
    device: Device, make_model: Callable[..., Model], pair: Pair, in_pool: bool
) -> None:
    buffer = device.allocate(20).array(np.float32, (5,)) if in_pool else np.zeros(5, np.float32)
    with device.prepare(make_model(output=(0, 0))) as model:
        with pytest.raises(OutputInsufficientSize) as caught:
            model.execute(pair, [buffer])
        (shape,) = caught.value.output_shapes
        assert (shape.dimensions, shape.is_sufficient) == ((2, 3), False)
        assert model.execute(pair).outputs[0].shape == (2, 3)


def test_booleans_may_be_numpy_booleans(device: Device) -> None:
    builder = ModelBuilder()
    kind = OperandType.TENSOR_BOOL8
    a, b = builder.input(kind, (4,)), builder.output(kind, (4,))
    builder.operation(OperationType.LOGICAL_NOT, [a], [b])
    values = np.array([True, False, True, True])
    with device.prepare(builder.build()) as model:
        out = np.zeros(4, np.bool_)
        model.execute([values], [out])
        np.testing.assert_array_equal(out, ~values)
        np.testing.assert_array_equal(model.execute([values]).outputs[0], (~values).astype("u1"))


def test_constants_may_lie_in_a_pool(device: Device) -> None:
    from nnburst.hal.enums import OperandLifeTime
    from nnburst.hal.model import DataLocation, MemoryPool, Operand

    memory = device.allocate(256)
    memory.array(np.float32, (4,), offset=64)[...] = [1, 2, 3, 4]
    builder = ModelBuilder()
    kind = OperandType.TENSOR_FLOAT32
    x = builder.input(kind, (4,))
    constant = builder.operand(
        Operand(
            kind,
            (4,),
            lifetime=OperandLifeTime.CONSTANT_REFERENCE,
            location=DataLocation(0, 64, 16),
        )
    )
    y = builder.output(kind, (4,))
    builder.operation(OperationType.MUL, [x, constant, builder.scalar(0)], [y])
    model = builder.build(pools=[MemoryPool(256)])
    with device.prepare(model, pools=[memory]) as prepared:
        memory.array(np.float32, (4,), offset=64)[...] = 0  # the driver has made a copy
        result = prepared.execute([np.ones(4, np.float32)]).outputs[0]
    np.testing.assert_array_equal(result, [1, 2, 3, 4])
    with pytest.raises(InvalidArgument, match="pools: 0 given, the model has 1"):
        device.prepare(model)
    with pytest.raises(InvalidArgument, match=r"pools\[0\] has 16 bytes, the model declares 256"):
        device.prepare(model, pools=[device.allocate(16)])


def test_large_model_travels_in_a_memfd(device: Device) -> None:
    builder = ModelBuilder()
    kind = OperandType.TENSOR_FLOAT32
    weights = np.arange(500_000, dtype=np.float32)
    x, w = builder.input(kind, (500_000,)), builder.constant(kind, weights)
    y = builder.output(kind, (500_000,))
    builder.operation(OperationType.ADD, [x, w, builder.scalar(0)], [y])
    with device.prepare(builder.build()) as prepared:
        np.testing.assert_array_equal(prepared.execute([weights]).outputs[0], 2 * weights)


def test_supported_operations_are_reported_one_by_one(
    device: Device, make_model: Callable[..., Model]
) -> None:
    assert device.supported_operations(make_model()) == [True]


def test_driver_that_answers_for_other_operations_is_not_believed(
    device: Device, make_model: Callable[..., Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = SupportedOperations((True, True)), Fds()
    monkeypatch.setattr(device._session.connection, "call", lambda *_a, **_k: answer)
    with pytest.raises(GeneralFailure, match="for 2 operations, the model has 1"):
        device.supported_operations(make_model())


def test_invalid_model_is_refused_with_its_rule(
    device: Device, make_model: Callable[..., Model]
) -> None:
    with pytest.raises(InvalidArgument, match=r"^validation:[MOP]\d+: "):
        device.prepare(make_model(output=(9, 9, 9), kind=OperandType.TENSOR_BOOL8))


def test_releasing_twice_is_fine_and_a_released_model_refuses_calls(
    device: Device, make_model: Callable[..., Model], pair: Pair
) -> None:
    prepared = device.prepare(make_model())
    prepared.close()
    prepared.close()
    with pytest.raises(Closed, match="released"):
        prepared.execute(pair)


def test_execution_that_takes_too_long_ends_at_its_deadline(
    device: Device, make_model: Callable[..., Model]
) -> None:
    a = np.zeros(4_000_000, np.float32)
    with device.prepare(make_model((4_000_000,))) as model:
        began = time.monotonic()
        with pytest.raises(MissedDeadline):
            model.execute([a, a], timeout=0.000_001)
        assert time.monotonic() - began < 20, "it ended at the default timeout, not at its own"
        assert model.execute([a, a]).outputs[0].shape == a.shape
