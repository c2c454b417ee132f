"""One prepared model whose shapes are open, executed with several shapes at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from nnburst import Device, Model, PreparedModel
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
