"""Models of core operations on drivers of onnxruntime: kept networks, parts of a model, another provider."""

from __future__ import annotations

import numpy as np
import pytest

from shared_drivers import connect_to

pytest.importorskip("onnxruntime", reason="the executor's engine")

import nnburst
from executor.onnxruntime.networks import (
    F32,
    computed,
    image,
    network,
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
        connect_to("onnxruntime") as device,
        pytest.raises(InvalidArgument, match="operation 1"),
    ):
        device.prepare(rounded())


def test_the_framework_gives_the_rest_to_another_device() -> None:
    driver = DriverDevice(lambda: connect_to("onnxruntime"), name="onnxruntime")
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
