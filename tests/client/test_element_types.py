"""Truth values, 64-bit integers and 16-bit floats arrive as the engine in process has them, on every road."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from importer.onnx.graphs import Array, TensorProto, helper, model, node
from shared_drivers import connect_to

pytest.importorskip("onnxruntime", reason="the engine")

import nnburst
from nnburst import InvalidArgument, ModelBuilder, OperandType, OperationType
from nnburst.hal import whole_graph
from nnburst.hal.utils import driver_environment

NUMBERS = {
    "f": TensorProto.FLOAT16,
    "b": TensorProto.BFLOAT16,
    "t": TensorProto.BOOL,
    "i": TensorProto.INT64,
}


def file_of_types() -> bytes:
    """Each input is given back; truth values are inverted, and integers and halves added to themselves."""
    ends = [
        [
            helper.make_tensor_value_info(side + name, number, (2, 3))
            for name, number in NUMBERS.items()
        ]
        for side in "xy"
    ]
    nodes = [
        node("Add", "xf xf", "yf"),
        node("Identity", "xb", "yb"),
        node("Not", "xt", "yt"),
        node("Add", "xi xi", "yi"),
    ]
    return bytes(model(nodes, *ends).SerializeToString())


def arrays() -> list[Array]:
    bfloat16 = whole_graph.BY_NAME["bfloat16"].array_dtype
    bits = np.array([0x3F80, 0xC000, 0x7F80, 0x0001, 0x4049, 0], np.uint16).reshape(2, 3)
    return [
        np.array([[1.5, -2, 65504], [1e-7, 0, np.inf]], np.float16),
        bits.view(bfloat16),
        np.array([[True, False, True], [False, False, True]]),
        np.array([[2**40, -1, 0], [2**62 - 1, -(2**62), 7]], np.int64),
    ]


def in_process(content: bytes, values: list[Array]) -> list[bytes]:
    ort = import_module("onnxruntime")
    session = ort.InferenceSession(content, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    taken = []
    for name, array in zip(NUMBERS, values, strict=True):
        number = NUMBERS[name]
        stored = np.ascontiguousarray(array)
        given = (
            ort.OrtValue.ortvalue_from_numpy_with_onnx_type(stored.view(np.uint16), number)
            if (name in "fb")
            else ort.OrtValue.ortvalue_from_numpy(stored)
        )
        binding.bind_ortvalue_input("x" + name, given)
        room = np.zeros(stored.shape, np.uint16 if name in "fb" else stored.dtype)
        kept = (
            ort.OrtValue.ortvalue_from_numpy_with_onnx_type(room, number)
            if (name in "fb")
            else ort.OrtValue.ortvalue_from_numpy(room)
        )
        taken.append((room, kept))
        binding.bind_ortvalue_output("y" + name, kept)
    session.run_with_iobinding(binding)
    return [
        room.tobytes() if name in "fb" else kept.numpy().tobytes()
        for name, (room, kept) in zip(NUMBERS, taken, strict=True)
    ]


@pytest.fixture(scope="module")
def device() -> Iterator[nnburst.Device]:
    with connect_to("onnxruntime") as made:
        yield made


def check(found: Any) -> None:
    for array, given, wanted in zip(
        found, arrays(), in_process(file_of_types(), arrays()), strict=True
    ):
        assert array.dtype == given.dtype
        assert array.tobytes() == wanted


def test_by_socket_and_burst_in_every_way_to_execute(device: nnburst.Device) -> None:
    imported = nnburst.load(file_of_types(), as_graph=True)
    with device.prepare(imported) as prepared, prepared.open_burst() as burst:
        for _ in range(3):  # the first time, and as a request that is bound already
            check(prepared.execute(arrays()).outputs)
            check(burst.execute(arrays()).outputs)
        check(burst.function()(*arrays()))
        bound = burst.bind()
        for view, array in zip(bound.inputs, arrays(), strict=True):
            view[...] = array
        for _ in range(3):
            check(bound.run().outputs)
        check(bound.submit().result().outputs)


def test_by_a_plan(tmp_path: Path) -> None:
    path = tmp_path / "types.onnx"
    path.write_bytes(file_of_types())
    with nnburst.compile(path) as compiled, compiled.open_burst() as burst:
        check(compiled.execute(arrays()).outputs)
        check(burst.execute(arrays()).outputs)
        check(burst.function()(*arrays()))


@pytest.mark.campaign
def test_by_grpc(tmp_path: Path) -> None:
    triton = pytest.importorskip("tritonclient.grpc", reason="extra grpc is not installed")
    path = tmp_path / "types.onnx"
    path.write_bytes(file_of_types())
    command = [sys.executable, "-m", "nnburst", "serve", str(tmp_path / "driver")]
    command += ["--executor", "onnxruntime", "--grpc", "127.0.0.1:0", "--model", f"types={path}"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, **driver_environment()}
    )
    try:
        assert process.stdout is not None
        address = next(
            line.removeprefix("gRPC at ").strip()
            for line in process.stdout
            if line.startswith("gRPC at ")
        )
        client = triton.InferenceServerClient(address)
        deadline = time.monotonic() + 60
        while not client.is_model_ready("types"):
            assert time.monotonic() < deadline
            time.sleep(0.02)  # the protocol has no other way to wait
        metadata = client.get_model_metadata("types")
        assert [t.datatype for t in metadata.inputs] == ["FP16", "BF16", "BOOL", "INT64"]
        given = []
        for tensor, array in zip(metadata.inputs, arrays(), strict=True):
            given.append(triton.InferInput(tensor.name, [2, 3], tensor.datatype))
            given[-1]._raw_content = array.tobytes()
        result = client.infer("types", given, client_timeout=60)
        found = result.get_response().raw_output_contents
        assert list(found) == in_process(file_of_types(), arrays())
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        if process.stdout:
            process.stdout.close()


# -- truth values ----------------------------------------------------------------------------------


def inverting() -> nnburst.Model:
    """not x, of any length."""
    builder = ModelBuilder()
    x = builder.input(OperandType.TENSOR_BOOL8, (0,))
    y = builder.output(OperandType.TENSOR_BOOL8, (0,))
    builder.operation(OperationType.LOGICAL_NOT, [x], [y])
    return builder.build()


def being_true() -> nnburst.Model:
    """Whether x equals true, which compares stored bytes."""
    builder = ModelBuilder()
    x = builder.input(OperandType.TENSOR_BOOL8, (2, 2))
    y = builder.output(OperandType.TENSOR_BOOL8, (2, 2))
    true = builder.constant(OperandType.TENSOR_BOOL8, np.ones((2, 2)))
    builder.operation(OperationType.EQUAL, [x, true], [y])
    return builder.build()


@pytest.mark.parametrize("executor", ["reference", "litert", "onnxruntime"])
def test_bytes_other_than_0_and_1_count_as_true_wherever_they_lie(executor: str) -> None:
    with (
        connect_to(executor) as device,
        device.prepare(being_true()) as prepared,
        prepared.open_burst() as burst,
        device.allocate(64) as memory,
    ):
        memory.array(np.uint8, (4,))[...] = [2, 0, 255, 1]
        x = memory.array(np.bool_, (2, 2))
        for _ in range(2):
            for executes in (prepared.execute, burst.execute):
                (y,) = executes([x]).outputs
                assert y is not None
                assert y.dtype == np.bool_
                assert y.tobytes() == bytes([1, 0, 1, 1])


SEVENS = """
from nnburst.executor.base import Execution, Outcome, Prepared
from nnburst.executor.null import NullExecutor
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.types import OutputShape

class SevensExecution(Execution):
    def __init__(self, output):
        self.output = output

    def run(self, *deadlines, **more):
        self.output.buffer[...] = 7
        return Outcome(ErrorStatus.NONE, (OutputShape((2, 2), True),))

    def close(self):
        self.output = None

class SevensPrepared(Prepared):
    def bind(self, inputs, outputs):
        return SevensExecution(outputs[0])

    def close(self):
        pass

class Sevens(NullExecutor):
    name = "sevens"

    def prepare(self, model, pools, options=None):
        return SevensPrepared()
"""


def test_what_a_driver_writes_for_truth_becomes_0_or_1_before_a_caller_sees_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "sevens.py").write_text(SEVENS)
    with (
        nnburst.launch("sevens:Sevens", env={"PYTHONPATH": str(tmp_path)}) as device,
        device.prepare(being_true()) as prepared,
        prepared.open_burst() as burst,
    ):
        x = np.zeros((2, 2), np.bool_)
        for _ in range(3):
            for result in (prepared.execute([x]), burst.execute([x])):
                assert result.outputs[0].tobytes() == bytes(4 * [1])
        bound = burst.bind()
        for _ in range(3):  # later results are taken for the same as the first
            assert np.count_nonzero(bound.run().outputs[0]) == 4
        assert bound.submit().result().outputs[0].tobytes() == bytes(4 * [1])


def test_an_array_of_bytes_is_still_taken_for_truth_and_any_other_is_refused() -> None:
    with connect_to("reference") as device, device.prepare(inverting()) as prepared:
        assert [p.dtype for p in (*prepared.inputs, *prepared.outputs)] == 2 * [np.dtype(np.bool_)]
        (y,) = prepared.execute([np.array([0, 3], np.uint8)]).outputs
        assert y is not None
        assert y.tolist() == [True, False]
        with pytest.raises(
            InvalidArgument, match=r"has dtype int8, expected bool of shape \(any\)"
        ):
            prepared.execute([np.array([0, 3], np.int8)])


def test_bfloat16_is_uint16_by_that_name_where_ml_dtypes_is_not_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    whole_graph._bfloat16.cache_clear()
    try:
        imported = nnburst.load(file_of_types(), as_graph=True)
        described = whole_graph.described(whole_graph.ONNX)
        parameters = nnburst.client.arguments.parameters(imported.model, lambda: [described])
        assert parameters[0][1].dtype == np.uint16
        with pytest.raises(
            InvalidArgument, match=r"expected uint16 \(bfloat16\) of shape \(2, 3\)"
        ):
            parameters[0][1].check_input(np.zeros((2, 3), np.float32))
    finally:
        whole_graph._bfloat16.cache_clear()
