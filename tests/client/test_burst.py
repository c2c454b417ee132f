"""A burst gives results, times and shapes, with its pools and slots, through a real driver process."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

import nnburst
from client.burst_helpers import F32, copy_model
from nnburst import (
    Closed,
    DeadObject,
    Device,
    Model,
    ModelBuilder,
    OperandType,
    OperationType,
    OutputInsufficientSize,
    PreparedModel,
)
from nnburst.client.burst import bound_request
from nnburst.client.burst.core import SlotTable
from nnburst.client.burst.interface import Burst
from nnburst.client.execution.socket_request import execute_synchronously
from nnburst.hal.errors import GeneralFailure
from nnburst.hal.limits import NO_TIMING
from waiting import wait_for

Arrays = list[np.ndarray]


@pytest.fixture
def burst(prepared: PreparedModel) -> Iterator[Burst]:
    """Adds two float32 tensors of shape (2, 3)."""
    with prepared.open_burst() as opened:
        yield opened


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The slots of every getMemories upcall from now on."""
    calls: list[list[int]] = []
    real = SlotTable.memories

    def memories(table: SlotTable, slots: Sequence[int]) -> object:
        calls.append(list(slots))
        return real(table, slots)

    monkeypatch.setattr(SlotTable, "memories", memories)
    return calls


@pytest.fixture
def freed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The slots that are free again from now on, after the driver forgot them."""
    slots: list[int] = []
    real = SlotTable.release

    def release(table: SlotTable, slot: int) -> None:
        real(table, slot)
        slots.append(slot)

    monkeypatch.setattr(SlotTable, "release", release)
    return slots


# --- results ---


def test_bound_request_computes_what_execute_does(burst: Burst, pair: Arrays) -> None:
    bound = burst.bind()
    for factor in (1, 2, -3):
        for mine, theirs in zip(bound.inputs, pair, strict=True):
            mine[...] = theirs * np.float32(factor)
        result = bound.run()
        assert result.outputs[0] is bound.outputs[0]
        np.testing.assert_array_equal(result.outputs[0], (pair[0] + pair[1]) * np.float32(factor))
        expected = execute_synchronously(
            burst._core.prepared,
            list(bound.inputs),
            None,
            measure=False,
            deadline=time.monotonic() + 30.0,
        ).outputs[0]
        np.testing.assert_array_equal(result.outputs[0], expected)


def test_shapes_that_the_model_fixes_are_reported_by_every_route(
    prepared: PreparedModel, burst: Burst, pair: Arrays
) -> None:
    expected = (nnburst.OutputShape((2, 3), True),)
    assert prepared.execute(pair).output_shapes == expected
    assert burst.execute(pair).output_shapes == expected
    assert burst.bind(measure=True).run().output_shapes == expected


def test_execute_copies_its_results_by_default(burst: Burst, pair: Arrays) -> None:
    copied = burst.execute(pair).outputs[0]
    viewed = burst.execute(pair, copy=False).outputs[0]
    burst.execute([pair[0] * 2, pair[1]])
    np.testing.assert_array_equal(copied, pair[0] + pair[1])
    np.testing.assert_array_equal(viewed, pair[0] * 2 + pair[1])


@pytest.mark.parametrize("pooled", [False, True])
def test_execute_writes_to_given_outputs(burst: Burst, pair: Arrays, pooled: bool) -> None:
    memory = burst._core.prepared.session.allocate(64)
    output = memory.array("f4", (2, 3)) if pooled else np.empty((2, 3), np.float32)
    for factor in (1, 2):
        result = burst.execute([pair[0] * np.float32(factor), pair[1]], [output])
        assert result.outputs[0] is output
        np.testing.assert_array_equal(output, pair[0] * np.float32(factor) + pair[1])


def test_pooled_arrays_are_used_where_they_are(burst: Burst, pair: Arrays) -> None:
    memory = burst._core.prepared.session.allocate(256)
    views = [memory.array("f4", (2, 3), 64 * i) for i in range(3)]
    for view, array in zip(views, pair, strict=False):
        view[...] = array
    burst.execute(views[:2], views[2:])
    bound = burst._arrays._last
    assert bound is not None
    again = [memory.array("f4", (2, 3), 64 * i) for i in range(3)]
    again[0][...] = 7
    burst.execute(again[:2], again[2:])
    assert burst._arrays._last is bound, "other views of the same memory are the same request"
    np.testing.assert_array_equal(views[2], pair[1] + 7)


@pytest.mark.parametrize("open_output", [False, True])
def test_pooled_arrays_are_not_copied(
    burst: Burst, open_shape: Burst, open_output: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = open_shape if open_output else burst
    shape = (1, 6) if open_output else (2, 3)
    memory = user._core.prepared.session.allocate(256)
    for _ in range(2):
        a, b, c = (memory.array("f4", shape, 64 * i) for i in range(3))
        a[...], b[...] = 1, 2
        with monkeypatch.context() as patch:
            patch.setattr(np, "copyto", lambda *_, **__: pytest.fail("an array was copied"))
            result = user.execute([a, b], [c])
        assert np.shares_memory(result.outputs[0], c)
        assert c.min() == c.max() == 3


def test_same_arrays_in_other_roles_are_another_request(burst: Burst, pair: Arrays) -> None:
    memory = burst._core.prepared.session.allocate(256)
    a, b, c = (memory.array("f4", (2, 3), 64 * i) for i in range(3))
    a[...], b[...] = pair
    burst.execute([a, b], [c])
    burst.execute([a, a], [b])
    np.testing.assert_array_equal(b, pair[0] * 2)
    np.testing.assert_array_equal(c, pair[0] + pair[1])


def test_many_requests_in_turn_keep_their_own_memory(burst: Burst, pair: Arrays) -> None:
    requests = [burst.bind() for _ in range(300)]  # more than the driver remembers
    for number, bound in enumerate(requests):
        bound.inputs[0][...] = number
        bound.inputs[1][...] = pair[1]
    for number, bound in enumerate(requests):
        np.testing.assert_array_equal(bound.run().outputs[0], pair[1] + number)


def test_views_stay_valid_after_everything_is_closed(device: Device, pair: Arrays) -> None:
    prepared = device.prepare(_add())
    burst = prepared.open_burst()
    output = burst.execute(pair, copy=False).outputs[0]
    burst.close()
    prepared.close()
    del burst, prepared
    gc.collect()
    np.testing.assert_array_equal(output, pair[0] + pair[1])


def test_nothing_is_bound_once_the_device_is_closed(own_device: Device) -> None:
    burst = own_device.prepare(_add()).open_burst()
    memory = own_device.allocate(72)
    a, b, c = (memory.array(np.float32, (2, 3), offset) for offset in (0, 24, 48))
    own_device.close()
    with pytest.raises(Closed, match="device"):
        burst.bind()
    with pytest.raises(Closed, match="device"):
        burst.bind([a, b], [c])


def test_a_request_is_bound_without_a_driver_and_its_run_is_a_dead_object(
    own_device: Device,
) -> None:
    burst = own_device.prepare(_add()).open_burst()
    noticed = threading.Event()
    own_device.on_death(noticed.set)
    os.kill(own_device.pid, signal.SIGKILL)
    assert noticed.wait(20)
    bound = burst.bind()
    with pytest.raises(DeadObject):
        bound.run()


def _add() -> Model:
    builder = ModelBuilder()
    a, b, c = builder.input(F32, (2, 3)), builder.input(F32, (2, 3)), builder.output(F32, (2, 3))
    builder.operation(OperationType.ADD, [a, b, builder.scalar(0)], [c])
    return builder.build()


# --- timing ---


def test_only_measured_runs_are_timed(burst: Burst) -> None:
    timed, untimed = burst.bind(measure=True), burst.bind()
    for _ in range(3):
        timing = timed.run().timing
        assert 0 <= timing.time_on_device <= timing.time_in_driver < 20_000_000
        timing = untimed.run().timing
        assert timing.time_on_device == timing.time_in_driver == NO_TIMING


def test_failed_run_is_not_taken_for_the_last_good_one(device: Device) -> None:
    builder = ModelBuilder()
    source, target = builder.input(F32, (4,)), builder.output(F32, ())
    shape = builder.input(OperandType.TENSOR_INT32, (1,))
    builder.operation(OperationType.RESHAPE, [source, shape], [target])
    with device.prepare(builder.build()) as prepared, prepared.open_burst() as burst:
        bound = burst.bind(output_bytes=[16])
        for extent in (4, -1, 4):
            bound.inputs[1][:] = extent
            assert bound.run().outputs[0].shape == (4,)
            bound.inputs[1][:] = 3
            with pytest.raises((nnburst.InvalidArgument, GeneralFailure)):
                bound.run()


# --- shapes that the model leaves open ---


@pytest.fixture
def open_model(device: Device) -> Iterator[nnburst.PreparedModel]:
    """Adds two tensors of one row each, with any number of columns."""
    builder = ModelBuilder()
    a, b = builder.input(F32, (1, 0)), builder.input(F32, (1, 0))
    c = builder.output(F32, (1, 0))
    builder.operation(OperationType.ADD, [a, b, builder.scalar(0)], [c])
    with device.prepare(builder.build()) as prepared:
        yield prepared


@pytest.fixture
def open_shape(open_model: nnburst.PreparedModel) -> Iterator[Burst]:
    """A burst on it."""
    with open_model.open_burst() as burst:
        yield burst


@pytest.mark.parametrize("columns", [1, 5, 40_000])
def test_open_shapes_are_reported_and_rooms_grow(open_shape: Burst, columns: int) -> None:
    row = np.arange(columns, dtype=np.float32).reshape(1, columns)
    for _ in range(2):
        result = open_shape.execute([row, row])
        assert result.output_shapes[0].dimensions == (1, columns)
        np.testing.assert_array_equal(result.outputs[0], row * 2)


def test_shapes_may_change_from_call_to_call(open_shape: Burst) -> None:
    for columns in (3, 7, 3, 1):
        row = np.ones((1, columns), np.float32)
        assert open_shape.execute([row, row]).outputs[0].shape == (1, columns)


def test_room_that_is_too_small_is_an_error_with_what_is_needed(open_shape: Burst) -> None:
    memory = open_shape._core.prepared.session.allocate(256)
    row = memory.array("f4", (1, 4))
    bound = open_shape.bind([row, row], [memory.array("f4", (2,), 64)])
    for _ in range(2):
        needed = r"outputs\[0\] has shape \(1, 4\), which its array has no room for"
        with pytest.raises(OutputInsufficientSize, match=needed) as refused:
            bound.run()
        assert refused.value.output_shapes[0].dimensions == (1, 4)
        assert not refused.value.output_shapes[0].is_sufficient
    assert open_shape.execute([row, row]).outputs[0].shape == (1, 4)
    with pytest.raises(OutputInsufficientSize):
        open_shape.execute([row, row], [np.empty((1,), np.float32)])


def test_larger_room_than_needed_gives_the_right_shape(open_shape: Burst) -> None:
    memory = open_shape._core.prepared.session.allocate(256)
    row = memory.array("f4", (1, 4))
    row[...] = 3
    bound = open_shape.bind([row, row], output_bytes=[64])
    assert bound.outputs[0].shape == (16,)
    result = bound.run()
    assert result.outputs[0].tolist() == [[6, 6, 6, 6]]


def test_omitted_input_takes_the_operations_default(device: Device) -> None:
    builder = ModelBuilder()
    source = builder.input(F32, (2, 3))
    permutation = builder.input(OperandType.TENSOR_INT32, (2,))
    target = builder.output(F32, (0, 0))
    builder.operation(OperationType.TRANSPOSE, [source, permutation], [target])
    image = np.arange(6, dtype=np.float32).reshape(2, 3)
    with device.prepare(builder.build()) as prepared, prepared.open_burst() as burst:
        same = np.array([0, 1], np.int32)
        np.testing.assert_array_equal(burst.execute([image, same]).outputs[0], image)
        np.testing.assert_array_equal(burst.execute([image, None]).outputs[0], image.T)
        memory = burst._core.prepared.session.allocate(64)
        view = memory.array("f4", (2, 3))
        view[...] = image
        bound = burst.bind([view, None], output_bytes=[24])
        np.testing.assert_array_equal(bound.run().outputs[0], image.T)


# --- pools and slots ---


def test_pools_are_asked_for_once(asked: list[list[int]], burst: Burst) -> None:
    pools = [burst._core.prepared.session.allocate(64) for _ in range(3)]
    a, b, c = (pool.array("f4", (2, 3)) for pool in pools)
    for inputs, output in (((a, b), c), ((b, a), c), ((c, c), a)):
        bound = burst.bind(inputs, [output])
        bound.run()
        bound.run()
    assert asked == [[0, 1, 2]]


def test_slots_are_reused_last_freed_first_and_mean_new_memory(
    asked: list[list[int]], freed: list[int], burst: Burst
) -> None:
    pools = [burst._core.prepared.session.allocate(128) for _ in range(3)]
    for pool in pools:
        burst.bind([pool.array("f4", (2, 3))] * 2, [pool.array("f4", (2, 3), 64)]).run()
    for count, pool in enumerate(pools[:2], start=1):
        pool.close()
        wait_for(lambda count=count: len(freed) == count)  # type: ignore[misc]
    for value, slot in ((5, 1), (6, 0), (7, 3)):
        pool = burst._core.prepared.session.allocate(128)
        view = pool.array("f4", (2, 3))
        view[...] = value
        bound = burst.bind([view, view], [pool.array("f4", (2, 3), 64)])
        assert bound.run().outputs[0].max() == 2 * value
        assert asked[-1] == [slot]
        pools.append(pool)
    assert asked[:3] == [[0], [1], [2]]


def test_request_of_a_closed_pool_is_refused_and_others_go_on(burst: Burst) -> None:
    pool = burst._core.prepared.session.allocate(128)
    bound = burst.bind([pool.array("f4", (2, 3))] * 2, [pool.array("f4", (2, 3), 64)])
    other = burst.bind()
    bound.run()
    pool.close()
    for call in (bound.run, bound.submit):
        with pytest.raises(Closed, match="pool of the bound request"):
            call()
    assert bound.closed
    assert other.run()
    assert not other.closed
    burst.close()
    assert other.closed


def test_forgotten_arrays_free_their_slot(burst: Burst, freed: list[int]) -> None:
    burst.bind().run()
    gc.collect()
    wait_for(lambda: freed == [0])


def test_pool_found_dead_inside_the_slot_table_does_not_block_it(burst: Burst) -> None:
    # The garbage collector may close a pool in the middle of any other call.
    table, pool = burst._core.slots, burst._core.prepared.session.allocate(64)
    burst.bind([pool.array("f4", (2, 3))] * 2)
    done = threading.Event()

    def collect_inside() -> None:
        with table._lock:
            pool.close()
        done.set()

    threading.Thread(target=collect_inside, daemon=True).start()
    assert done.wait(20)


# --- several at once ---


def test_bursts_and_models_are_released_in_any_order(device: Device, pair: Arrays) -> None:
    models = [device.prepare(_add()) for _ in range(2)]
    bursts = [model.open_burst() for model in models for _ in range(2)]
    models[0].close()
    for burst in bursts:
        np.testing.assert_array_equal(burst.execute(pair).outputs[0], pair[0] + pair[1])
    bursts[0].close()
    models[1].close()
    bursts[3].close()
    for burst in (bursts[1], bursts[2]):
        np.testing.assert_array_equal(burst.execute(pair).outputs[0], pair[0] + pair[1])
        burst.close()
        burst.close()


def test_bursts_on_several_threads_do_not_disturb_each_other(prepared: PreparedModel) -> None:
    wrong: list[int] = []

    def work(number: int) -> None:
        with prepared.open_burst(spin_window=0) as burst:
            bound = burst.bind()
            for step in range(100):
                bound.inputs[0][...] = number * 1000 + step
                if bound.run().outputs[0].min() != number * 1000 + step:
                    wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# --- channels ---


def test_request_that_does_not_fit_takes_the_ordinary_path(
    prepared: PreparedModel, pair: Arrays, monkeypatch: pytest.MonkeyPatch
) -> None:
    with prepared.open_burst(channel_length=5) as burst:  # the packet has six elements
        routes: list[str] = []
        real = bound_request.execute_synchronously

        def execute(*arguments: object, **options: object) -> object:
            routes.append("execute")
            return real(*arguments, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(bound_request, "execute_synchronously", execute)
        bound = burst.bind(measure=True)
        bound.inputs[0][...], bound.inputs[1][...] = pair
        result = bound.run()
        np.testing.assert_array_equal(result.outputs[0], pair[0] + pair[1])
        assert result.timing.time_in_driver != NO_TIMING
        with pytest.raises(GeneralFailure, match="does not fit"):
            bound.submit()
        np.testing.assert_array_equal(burst.execute(pair).outputs[0], pair[0] + pair[1])
        assert routes == ["execute"] * 2


def test_result_that_does_not_fit_is_a_general_failure_and_no_fallback(
    open_model: nnburst.PreparedModel,
) -> None:
    row = np.ones((1, 4), np.float32)
    with open_model.open_burst(result_channel_length=3) as burst:
        for _ in range(2):
            with pytest.raises(GeneralFailure, match="GENERAL_FAILURE"):
                burst.execute([row, row])


@pytest.mark.parametrize("kind", ["window 0", "LOW_POWER"])
def test_burst_that_must_not_spin_does_not(device: Device, pair: Arrays, kind: str) -> None:
    preference = nnburst.ExecutionPreference.LOW_POWER
    options = {"preference": preference} if kind == "LOW_POWER" else {}
    with device.prepare(_add(), **options) as prepared:
        window = 0 if kind == "window 0" else None
        with prepared.open_burst(spin_window=window) as burst:
            for _ in range(5):
                np.testing.assert_array_equal(burst.execute(pair).outputs[0], pair[0] + pair[1])
            statistics = burst.statistics()
            assert statistics["executions"] == 5
            assert statistics["spun_ns"] == 0


def test_released_model_opens_no_burst_and_leaves_nothing(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = device.prepare(copy_model())
    prepared.close()
    registered = dict(device._session.upcalls._callbacks)
    with pytest.raises(Closed, match="released"):
        prepared.open_burst()
    assert device._session.upcalls._callbacks == registered
