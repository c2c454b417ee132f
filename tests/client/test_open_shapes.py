"""One prepared model whose shapes are open: several shapes at once, and results that become inputs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from nnburst import (
    Burst,
    Device,
    Memory,
    Model,
    ModelBuilder,
    OperandType,
    OperationType,
    PreparedModel,
)
from nnburst.client.arguments import ExecutionResult

SHAPES = ((1, 1), (7, 3), (64, 2), (5, 40))
ROUNDS = 50

Way = Callable[[PreparedModel, list[np.ndarray]], Callable[[], ExecutionResult]]


def by_execute(prepared: PreparedModel, inputs: list[np.ndarray]) -> Callable[[], ExecutionResult]:
    return lambda: prepared.execute(inputs)


def by_launching(
    prepared: PreparedModel, inputs: list[np.ndarray]
) -> Callable[[], ExecutionResult]:
    return lambda: prepared.execute_async(inputs).result(30)


def by_burst(prepared: PreparedModel, inputs: list[np.ndarray]) -> Callable[[], ExecutionResult]:
    burst = prepared.open_burst()
    return lambda: burst.execute(inputs)


@pytest.mark.parametrize("way", [by_execute, by_launching, by_burst])
@pytest.mark.parametrize("dimensions", [(0, 0), ()], ids=["extents", "rank"])
def test_threads_execute_one_model_with_shapes_of_their_own(
    device: Device, make_model: Callable[..., Model], dimensions: tuple[int, ...], way: Way
) -> None:
    together = threading.Barrier(len(SHAPES))

    def work(shape: tuple[int, ...]) -> None:
        a = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        run = way(prepared, [a, np.full(shape, 0.5, np.float32)])
        together.wait(30)
        for _ in range(ROUNDS):
            result = run()
            assert result.output_shapes[0].dimensions == shape
            np.testing.assert_array_equal(result.outputs[0], a + np.float32(0.5))

    with (
        device.prepare(make_model(dimensions, output=dimensions)) as prepared,
        ThreadPoolExecutor(len(SHAPES)) as pool,
    ):
        list(pool.map(work, SHAPES))


@pytest.mark.parametrize("dimensions", [(0, 0, 0, 0), ()], ids=["extents", "rank"])
def test_result_with_many_shapes_fits_the_ring(device: Device, dimensions: tuple[int, ...]) -> None:
    builder = ModelBuilder()
    x = builder.input(OperandType.TENSOR_FLOAT32, (0, 1, 1, 1))
    for _ in range(4):
        y = builder.output(OperandType.TENSOR_FLOAT32, dimensions)
        builder.operation(OperationType.ABS, [x], [y])
    with (
        device.prepare(builder.build()) as prepared,
        prepared.open_burst(channel_length=16) as burst,
    ):
        results = burst.execute([np.full((3, 1, 1, 1), -7, np.float32)]).outputs
    assert [result.ravel().tolist() for result in results] == [[7] * 3] * 4


# -- results that become inputs --------------------------------------------------------------------


@pytest.fixture
def doubling(device: Device) -> Iterator[Burst]:
    """Doubles two vectors of any length, each apart."""
    builder = ModelBuilder()
    for _ in range(2):
        x = builder.input(OperandType.TENSOR_FLOAT32, (0,))
        y = builder.output(OperandType.TENSOR_FLOAT32, (0,))
        builder.operation(OperationType.ADD, [x, x, builder.scalar(0)], [y])
    with device.prepare(builder.build()) as prepared, prepared.open_burst() as burst:
        yield burst


def vector(length: int, value: float) -> np.ndarray:
    return np.full(length, value, np.float32)


def test_view_of_a_result_is_an_input_beside_a_private_one(doubling: Burst) -> None:
    y, _ = doubling.execute([vector(8, 1), vector(3, 1)], copy=False).outputs
    memory = Memory(1 << 17)
    outputs = [memory.array(np.float32, (8,)), memory.array(np.float32, (20000,), 4096)]
    doubling.execute([y, vector(20000, 7)], outputs)
    assert outputs[0].tolist() == [4] * 8
    assert set(outputs[1].tolist()) == {14}
    assert y.tolist() == [2] * 8


def test_view_of_a_result_is_an_output_beside_a_private_input(doubling: Burst) -> None:
    y, z = doubling.execute([vector(8, 1), vector(8, 1)], copy=False).outputs
    doubling.execute([vector(8, 5), vector(100, 3)], [y, np.empty(100, np.float32)])
    assert y.tolist() == [10] * 8
    assert z.tolist() == [2] * 8


def test_results_become_inputs_again_and_again_in_few_pools(doubling: Burst) -> None:
    y = z = vector(5, 1)
    for turn in range(1, 9):
        y, z = doubling.execute([y, z], copy=False).outputs
        assert y.tolist() == z.tolist() == [2**turn] * 5
    assert len(pool_sizes(doubling)) == 2


def test_pools_do_not_grow_if_inputs_lie_in_both(doubling: Burst) -> None:
    older = newer = vector(5, 1)
    for turn in range(1, 9):
        older, newer = newer, doubling.execute([older, newer], copy=False).outputs[1]
        assert newer.tolist() == [2**turn] * 5
    assert max(pool_sizes(doubling)) <= 1 << 18


def pool_sizes(burst: Burst) -> list[int]:
    return [memory.size for memory in burst._core.slots.pools()]  # type: ignore[attr-defined]
