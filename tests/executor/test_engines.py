"""Networks on either engine that takes what is lowered to ONNX: bursts, caches, deadlines, memory."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from executor.litert.networks import aligned
from executor.onnxruntime.networks import (
    computed,
    image,
    long_chain,
    network,
    run_two_bursts_at_once,
)
from nnburst.executor.base import Argument
from nnburst.executor.built_in import onnxruntime, openvino
from nnburst.executor.onnxruntime.executor import SessionPrepared
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.model import Model
from shared_drivers import connect_to

EXECUTORS: Final = {"onnxruntime": onnxruntime, "openvino": openvino}
#: Operations of a chain that takes longer than 5 ms.
LONG: Final = {"onnxruntime": 300, "openvino": 60}


@pytest.fixture(params=EXECUTORS)
def engine(request: pytest.FixtureRequest) -> str:
    """Name of an executor whose engine is installed."""
    name: str = request.param
    pytest.importorskip(name, reason=f"needs {name}, the executor's engine")
    return name


def by_executor(
    engine: str, model: Model, x: np.ndarray[tuple[int, ...], np.dtype[np.float32]]
) -> bytes:
    return computed(EXECUTORS[engine](), model, [x])[0].tobytes()


def test_a_burst_on_a_driver_gives_what_the_executor_gives(engine: str) -> None:
    model = network()
    with (
        connect_to(engine) as device,
        device.prepare(model) as prepared,
        prepared.open_burst() as burst,
    ):
        bound = burst.bind()
        for seed in range(5):
            bound.inputs[0][...] = image(seed)
            bound.run(timeout=10)
            assert bound.outputs[0].tobytes() == by_executor(engine, model, image(seed))


def test_two_bursts_at_once_on_one_network_give_what_one_gives(engine: str) -> None:
    model = network()
    given = [image(seed) for seed in (1, 2)]
    expected = [by_executor(engine, model, x) for x in given]
    with connect_to(engine) as device, device.prepare(model) as prepared:
        wrong, whole = run_two_bursts_at_once(prepared, given, expected, 200)
    assert wrong == []
    assert whole == [0, 1]


def test_a_request_runs_without_python_where_its_memory_lies(engine: str) -> None:
    prepared = EXECUTORS[engine]().prepare(network(), [])
    assert isinstance(prepared, SessionPrepared)
    given, taken = aligned(4 * 192), aligned(4 * 512)
    execution = prepared.bind([Argument(given, (1, 8, 8, 3))], [Argument(taken, (1, 8, 8, 8))])
    assert execution.native is not None
    assert execution._binding is not None
    assert execution._binding.copied_bytes == 0


def test_too_little_room_is_reported_with_what_it_takes(engine: str) -> None:
    prepared = EXECUTORS[engine]().prepare(network(), [])
    bound = prepared.bind(
        [Argument(aligned(768), (1, 8, 8, 3))], [Argument(aligned(16), (1, 8, 8, 8))]
    )
    outcome = bound.run()
    assert outcome.status is ErrorStatus.OUTPUT_INSUFFICIENT_SIZE
    shapes = [(shape.dimensions, shape.is_sufficient) for shape in outcome.output_shapes]
    assert shapes == [((1, 8, 8, 8), False)]


def test_a_prepared_network_comes_from_the_cache(engine: str, tmp_path: Path) -> None:
    model = network()
    for _ in range(2):
        with (
            connect_to(engine) as device,
            device.prepare(model, cache_dir=tmp_path) as prepared,
        ):
            found = prepared.execute([image()]).outputs[0]
            assert found.tobytes() == by_executor(engine, model, image())
    assert list(tmp_path.iterdir())


def test_a_run_ends_at_its_deadline_and_the_next_one_is_whole(engine: str) -> None:
    prepared = EXECUTORS[engine]().prepare(long_chain(LONG[engine]), [])
    given, taken = aligned(4 * 256 * 256), aligned(4 * 256 * 256)
    given.view(np.float32)[...] = np.arange(256 * 256)
    bound = prepared.bind([Argument(given, (256, 256))], [Argument(taken, (256, 256))])
    soon = time.clock_gettime_ns(time.CLOCK_BOOTTIME) + 5_000_000
    assert bound.run(soon).status is ErrorStatus.MISSED_DEADLINE_PERSISTENT
    assert bound.run(soon + 600 * 10**9).status is ErrorStatus.NONE
    assert taken.tobytes() == given.tobytes()
