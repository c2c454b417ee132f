"""Models of core operations on drivers of the executor: bursts, caches, deadlines, parts of a model."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="the executor's engine")

import nnburst
from executor.litert.networks import aligned
from executor.onnxruntime.networks import (
    F32,
    I32,
    computed,
    image,
    long_chain,
    network,
    run_two_bursts_at_once,
)
from nnburst.executor.base import DEFAULT_OPTIONS, Argument, Cached
from nnburst.executor.built_in import onnxruntime
from nnburst.executor.onnxruntime.executor import NetworkPrepared, OnnxRuntimeExecutor
from nnburst.hal.enums import ErrorStatus, OperandType, OperationType
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.model import Model
from nnburst.hal.model_builder import ModelBuilder
from nnburst.runtime import Manager
from nnburst.runtime.devices.cpu_device import CPU_NAME
from nnburst.runtime.devices.driver_device import DriverDevice
from nnburst.testing.partitioning.run import uniform


def by_executor(model: Model, x: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> bytes:
    return computed(onnxruntime(), model, [x])[0].tobytes()


def test_a_burst_on_a_driver_gives_what_the_executor_gives() -> None:
    model = network()
    with (
        nnburst.launch("onnxruntime") as device,
        device.prepare(model) as prepared,
        prepared.open_burst() as burst,
    ):
        bound = burst.bind()
        for seed in range(5):
            bound.inputs[0][...] = image(seed)
            bound.run(timeout=10)
            assert bound.outputs[0].tobytes() == by_executor(model, image(seed))


def test_a_request_runs_without_python_where_its_memory_lies() -> None:
    prepared = onnxruntime().prepare(network(), [])
    assert isinstance(prepared, NetworkPrepared)
    given, taken = aligned(4 * 192), aligned(4 * 512)
    execution = prepared.bind([Argument(given, (1, 8, 8, 3))], [Argument(taken, (1, 8, 8, 8))])
    assert execution.native is not None
    assert execution._binding is not None
    assert execution._binding.copied_bytes == 0


def test_indices_are_copied_before_they_are_used() -> None:
    builder = ModelBuilder()
    table, places = builder.input(F32, (32, 4)), builder.input(I32, (2,))
    y = builder.output(F32, (2, 4))
    builder.operation(OperationType.GATHER, [table, builder.scalar(0), places], [y])
    prepared = onnxruntime().prepare(builder.build(), [])
    inputs = [Argument(aligned(512), (32, 4)), Argument(aligned(8), (2,))]
    execution = prepared.bind(inputs, [Argument(aligned(32), (2, 4))])
    assert execution._binding.copied_bytes == 8  # type: ignore[attr-defined]


def test_too_little_room_is_reported_with_what_it_takes() -> None:
    prepared = onnxruntime().prepare(network(), [])
    bound = prepared.bind(
        [Argument(aligned(768), (1, 8, 8, 3))], [Argument(aligned(16), (1, 8, 8, 8))]
    )
    outcome = bound.run()
    assert outcome.status is ErrorStatus.OUTPUT_INSUFFICIENT_SIZE
    shapes = [(shape.dimensions, shape.is_sufficient) for shape in outcome.output_shapes]
    assert shapes == [((1, 8, 8, 8), False)]


def test_what_is_kept_has_no_weights_but_apart_and_gives_the_same() -> None:
    model, executor = network(), onnxruntime()
    assert isinstance(executor, OnnxRuntimeExecutor)
    prepared = executor.prepare(model, [])
    assert isinstance(prepared, NetworkPrepared)
    kept = prepared.to_cache()
    assert kept.model.operand_values == b""
    assert len(kept.program) < 2048 < len(kept.constants)
    again = executor.prepare_from_cache(kept, DEFAULT_OPTIONS)
    given, taken = image(), np.zeros((1, 8, 8, 8), np.float32)
    execution = again.bind(
        [Argument(given.reshape(-1).view(np.uint8), given.shape)],
        [Argument(taken.reshape(-1).view(np.uint8), taken.shape)],
    )
    assert execution.run().status is ErrorStatus.NONE
    assert taken.tobytes() == by_executor(model, given)
    other = Cached(kept.model, kept.program, bytes(len(kept.constants)))
    executor.prepare_from_cache(other, DEFAULT_OPTIONS)  # other values are other results, no more


def test_a_prepared_network_comes_from_the_cache(tmp_path: Path) -> None:
    model = network()
    for _ in range(2):
        with (
            nnburst.launch("onnxruntime") as device,
            device.prepare(model, cache_dir=tmp_path) as prepared,
        ):
            found = prepared.execute([image()]).outputs[0]
            assert found.tobytes() == by_executor(model, image())
    assert list(tmp_path.iterdir())


def test_a_run_ends_at_its_deadline_and_the_next_one_is_whole() -> None:
    prepared = onnxruntime().prepare(long_chain(300), [])
    given, taken = aligned(4 * 256 * 256), aligned(4 * 256 * 256)
    given.view(np.float32)[...] = np.arange(256 * 256)
    bound = prepared.bind([Argument(given, (256, 256))], [Argument(taken, (256, 256))])
    soon = time.clock_gettime_ns(time.CLOCK_BOOTTIME) + 5_000_000
    assert bound.run(soon).status is ErrorStatus.MISSED_DEADLINE_PERSISTENT
    assert bound.run(soon + 600 * 10**9).status is ErrorStatus.NONE
    assert taken.tobytes() == given.tobytes()


def test_two_bursts_at_once_on_one_network_give_what_one_gives() -> None:
    model = network()
    given = [image(seed) for seed in (1, 2)]
    expected = [by_executor(model, x) for x in given]
    with nnburst.launch("onnxruntime") as device, device.prepare(model) as prepared:
        wrong, whole = run_two_bursts_at_once(prepared, given, expected, 200)
    assert wrong == []
    assert whole == [0, 1]


def rounded() -> Model:
    """RELU, then rounded to 8 bits and back, which the engine does not claim, then doubled."""
    quantised = OperandType.TENSOR_QUANT8_ASYMM
    builder = ModelBuilder()
    x, clamped = builder.input(F32, (2, 3)), builder.temporary(F32, (2, 3))
    stored = builder.temporary(quantised, (2, 3), scale=0.5)
    again, y = builder.temporary(F32, (2, 3)), builder.output(F32, (2, 3))
    builder.operation(OperationType.RELU, [x], [clamped])
    builder.operation(OperationType.QUANTIZE, [clamped], [stored])
    builder.operation(OperationType.DEQUANTIZE, [stored], [again])
    builder.operation(OperationType.ADD, [again, again, builder.scalar(0)], [y])
    return builder.build()


def test_a_driver_refuses_what_is_not_claimed_by_number() -> None:
    with (
        nnburst.launch("onnxruntime") as device,
        pytest.raises(InvalidArgument, match="operation 1"),
    ):
        device.prepare(rounded())


def test_the_framework_gives_the_rest_to_another_device() -> None:
    driver = DriverDevice(lambda: nnburst.launch("onnxruntime"), name="onnxruntime")
    driver.capabilities = uniform(0.5)
    x = np.array([[-1.0, 0.3, 0.7], [1.0, 2.2, 3.0]], np.float32)
    with (
        Manager([driver]) as manager,
        nnburst.compile(rounded(), ["onnxruntime", CPU_NAME], manager=manager) as compiled,
    ):
        assert "onnxruntime" in str(compiled.plan)
        assert CPU_NAME in str(compiled.plan)
        found = compiled.execute([x]).outputs[0]
        assert found.tolist() == [[0.0, 1.0, 1.0], [2.0, 4.0, 6.0]]


def test_another_provider_runs_networks_too(monkeypatch: pytest.MonkeyPatch) -> None:
    from nnburst.executor.onnxruntime.native import library

    if "Azure" not in library().providers:
        pytest.skip("this wheel has the CPU's provider only")
    expected = by_executor(network(), image())
    monkeypatch.setenv("NNBURST_ONNXRUNTIME_PROVIDER", "Azure")
    assert by_executor(network(), image()) == expected
