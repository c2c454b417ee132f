"""Stock clients, unchanged: every call of KServe v2 and what is refused."""

from __future__ import annotations

import asyncio
import queue
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tritonclient.grpc", reason="extra grpc is not installed")

import grpc
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException, shared_memory

from serving.networks import SLEEP
from serving.served import MODELS, Served, region_key

A = np.arange(6, dtype=np.float32).reshape(2, 3)
B = np.full((2, 3), 100, np.float32)


def tensors(client: Any = triton, **arrays: np.ndarray[Any, Any]) -> list[Any]:
    found = []
    for name, array in arrays.items():
        kinds = {"float32": "FP32", "int32": "INT32", "uint8": "UINT8"}
        found.append(client.InferInput(name, list(array.shape), kinds[array.dtype.name]))
        found[-1].set_data_from_numpy(array)
    return found


def status_of(error: pytest.ExceptionInfo[InferenceServerException]) -> str:
    return str(error.value.status()).removeprefix("StatusCode.")


def test_server_and_models_are_live_and_ready(client: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert all(client.is_model_ready(name) for name in MODELS)
    metadata = client.get_server_metadata()
    assert metadata.name == "nnburst"
    assert list(metadata.extensions) == [
        "binary_tensor_data",
        "model_configuration",
        "model_repository",
        "schedule_policy",
        "sequence",
        "statistics",
        "system_shared_memory",
    ]


def test_metadata_and_configuration_say_names_types_shapes_and_scales(client: Any) -> None:
    found = client.get_model_metadata("both")
    assert [(t.name, t.datatype, list(t.shape)) for t in found.inputs] == [
        ("input_0", "INT32", [-1]),
        ("input_1", "INT32", [-1]),
    ]
    assert [t.name for t in found.outputs] == ["sum", "difference"]
    config = client.get_model_config("quantised").config
    assert config.max_batch_size == 0
    parameters = {name: value.string_value for name, value in config.parameters.items()}
    assert parameters["input_0.scale"] == "0.5"
    assert parameters["output_0.zero_point"] == "100"
    assert client.get_model_config("accumulate").config.HasField("sequence_batching")


def test_raw_tensors_are_added(client: Any) -> None:
    result = client.infer("add", tensors(a=A, b=B), request_id="seven")
    assert result.as_numpy("y").tolist() == (A + B).tolist()
    assert result.get_response().id == "seven"


def test_typed_contents_are_added(served: Served) -> None:
    stub = service_pb2_grpc.GRPCInferenceServiceStub(grpc.insecure_channel(served.address))
    request = service_pb2.ModelInferRequest(model_name="add")
    for name, array in (("a", A), ("b", B)):
        tensor = request.inputs.add(name=name, datatype="FP32", shape=array.shape)
        tensor.contents.fp32_contents.extend(array.ravel())
    response = stub.ModelInfer(request)
    assert (
        np.frombuffer(response.raw_output_contents[0], "<f4").tolist() == (A + B).ravel().tolist()
    )


def test_tensors_of_open_shape_have_any_length_and_outputs_are_selected(client: Any) -> None:
    for length in (1, 5, 300):
        a = np.arange(length, dtype=np.int32)
        wanted = [triton.InferRequestedOutput("difference")]
        result = client.infer("both", tensors(input_0=a, input_1=2 * a), outputs=wanted)
        assert result.as_numpy("difference").tolist() == (-a).tolist()
        assert result.as_numpy("sum") is None


def test_made_up_names_differ_from_those_of_the_file() -> None:
    with Served(models=("half_named",)) as served, served.client() as client:
        found = client.get_model_metadata("half_named")
        assert [each.name for each in found.inputs] == ["input_0_", "input_0"]
        assert [each.name for each in found.outputs] == ["output_1", "output_1_"]
        result = client.infer("half_named", tensors(input_0_=np.int32([5]), input_0=np.int32([3])))
        assert result.as_numpy("output_1").tolist() == [8]
        assert result.as_numpy("output_1_").tolist() == [2]


def test_shapes_that_an_operation_does_not_take_are_refused_with_the_drivers_reason(
    client: Any,
) -> None:
    given = tensors(input_0=np.zeros(5, np.int32), input_1=np.zeros(3, np.int32))
    with pytest.raises(InferenceServerException, match="do not broadcast") as refused:
        client.infer("both", given)
    assert status_of(refused) == "INVALID_ARGUMENT"
    assert "[[5], [3]]: ADD: " in str(refused.value)


def test_truth_values_go_in_and_out(client: Any) -> None:
    (x,) = client.get_model_metadata("conjunction").inputs[:1]
    assert (x.datatype, list(x.shape)) == ("BOOL", [4])
    given = []
    for name, values in (("x", [1, 0, 1, 0]), ("y", [1, 1, 0, 0])):
        given.append(triton.InferInput(name, [4], "BOOL"))
        given[-1].set_data_from_numpy(np.array(values, np.bool_))
    found = client.infer("conjunction", given).as_numpy("both")
    assert (found.dtype, found.tolist()) == (np.bool_, [True, False, False, False])


def test_event_loop_has_many_requests_in_flight(served: Served) -> None:
    async def run() -> list[float]:
        async with triton_aio.InferenceServerClient(served.address) as client:
            calls = [
                client.infer("add", tensors(triton_aio, a=A + number, b=B)) for number in range(20)
            ]
            return [float(result.as_numpy("y")[0, 0]) for result in await asyncio.gather(*calls)]

    assert asyncio.run(run()) == [100 + number for number in range(20)]


def test_stream_answers_in_order_and_goes_on_after_an_error(client: Any) -> None:
    answers: queue.Queue[Any] = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)))
    client.async_stream_infer("add", tensors(a=A, b=B), request_id="1")
    client.async_stream_infer("nothing", tensors(a=A, b=B), request_id="2")
    client.async_stream_infer(
        "add", tensors(a=B, b=B), request_id="3", enable_empty_final_response=True
    )
    first, second, third = (answers.get(timeout=60) for _ in range(3))
    client.stop_stream()
    assert first[0].as_numpy("y").tolist() == (A + B).tolist()
    assert "[NOT_FOUND] model 'nothing'" in str(second[1])
    assert third[0].as_numpy("y").tolist() == (B + B).tolist()
    assert third[0].get_response().parameters["triton_final_response"].bool_param


def test_sequences_have_states_of_their_own(client: Any) -> None:
    one, two = (np.float32([n, n]) for n in (1, 2))

    def step(sequence: object, x: Any, **words: bool) -> list[float]:
        result = client.infer("accumulate", tensors(x=x), sequence_id=sequence, **words)
        return [float(value) for value in result.as_numpy("y")]

    assert step(7, one, sequence_start=True) == [11, 21]
    assert step("camera", two, sequence_start=True) == [12, 22]
    assert step(7, one) == [12, 22]
    assert step("camera", two, sequence_end=True) == [14, 24]
    assert step(7, one, sequence_end=True) == [13, 23]
    with pytest.raises(InferenceServerException, match="not started, ended"):
        step(7, one)
    with pytest.raises(InferenceServerException, match="sequence_id is needed"):
        client.infer("accumulate", tensors(x=one))


def test_sequence_of_a_model_without_state_is_ignored(client: Any) -> None:
    result = client.infer("add", tensors(a=A, b=B), sequence_id=7, sequence_start=True)
    assert result.as_numpy("y").tolist() == (A + B).tolist()


def test_shared_memory_goes_in_and_out(client: Any) -> None:
    in_key, out_key = region_key("in"), region_key("out")
    room = shared_memory.create_shared_memory_region("in", in_key, 2 * A.nbytes)
    out = shared_memory.create_shared_memory_region("out", out_key, A.nbytes)
    try:
        shared_memory.set_shared_memory_region(room, [A, B])
        client.register_system_shared_memory("in", in_key, 2 * A.nbytes)
        client.register_system_shared_memory("out", out_key, A.nbytes)
        status = client.get_system_shared_memory_status()
        assert {name: region.byte_size for name, region in status.regions.items()} == {
            "in": 2 * A.nbytes,
            "out": A.nbytes,
        }
        inputs = [triton.InferInput(name, [2, 3], "FP32") for name in "ab"]
        inputs[0].set_shared_memory("in", A.nbytes)
        inputs[1].set_shared_memory("in", A.nbytes, A.nbytes)
        wanted = triton.InferRequestedOutput("y")
        wanted.set_shared_memory("out", A.nbytes)
        client.infer("add", inputs, outputs=[wanted])
        found = shared_memory.get_contents_as_numpy(out, np.float32, [2, 3])
        assert found.tolist() == (A + B).tolist()
        with pytest.raises(InferenceServerException, match="registered already"):
            client.register_system_shared_memory("in", in_key, 8)
        with Path(f"/dev/shm{in_key}").open("r+b") as file:
            file.truncate(10)
        with pytest.raises(InferenceServerException, match="10 bytes left"):
            client.infer("add", inputs)
        client.unregister_system_shared_memory()
        with pytest.raises(InferenceServerException, match="no region 'in'"):
            client.infer("add", inputs)
    finally:
        shared_memory.destroy_shared_memory_region(room)
        shared_memory.destroy_shared_memory_region(out)


@pytest.mark.parametrize("key", ["/../etc/passwd", "/a/b", "/.hidden", "", "/", "/nnburst_absent"])
def test_key_that_names_no_shared_memory_of_this_user_is_refused(client: Any, key: str) -> None:
    with pytest.raises(InferenceServerException) as error:
        client.register_system_shared_memory("x", key, 4)
    assert status_of(error) == "INVALID_ARGUMENT"


@pytest.mark.parametrize(
    ("model", "arrays", "status"),
    [
        ("nothing", {"a": A, "b": B}, "NOT_FOUND"),
        ("add", {"a": A}, "INVALID_ARGUMENT"),
        ("add", {"a": A, "c": B}, "INVALID_ARGUMENT"),
        ("add", {"a": A, "b": B.astype(np.int32)}, "INVALID_ARGUMENT"),
        ("add", {"a": A, "b": B.reshape(3, 2)}, "INVALID_ARGUMENT"),
        ("both", {"input_0": np.zeros(50_000, np.int32)}, "RESOURCE_EXHAUSTED"),
    ],
)
def test_what_does_not_fit_has_its_own_status(
    client: Any, model: str, arrays: dict[str, Any], status: str
) -> None:
    with pytest.raises(InferenceServerException) as error:
        client.infer(model, tensors(**arrays))
    assert status_of(error) == status


def test_bytes_and_unlisted_calls_are_refused_by_name(client: Any) -> None:
    words = triton.InferInput("a", [2, 3], "BYTES")
    words.set_data_from_numpy(np.full((2, 3), b"x", np.object_))
    with pytest.raises(InferenceServerException, match="datatype 'BYTES', expected FP32"):
        client.infer("add", [words, *tensors(b=B)])
    with pytest.raises(InferenceServerException, match="LogSettings is not part") as error:
        client.get_log_settings()
    assert status_of(error) == "UNIMPLEMENTED"


def test_deadline_of_the_call_is_the_executions(served: Served, client: Any) -> None:
    slow = np.full((2, 3), SLEEP, np.float32)
    stub = service_pb2_grpc.GRPCInferenceServiceStub(grpc.insecure_channel(served.address))
    request = service_pb2.ModelInferRequest(model_name="add")
    for name in "ab":
        request.inputs.add(name=name, datatype="FP32", shape=[2, 3])
        request.raw_input_contents.append(slow.tobytes())
    request.parameters["timeout"].int64_param = 100_000
    with pytest.raises(grpc.RpcError) as error:
        stub.ModelInfer(request)
    assert error.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert client.infer("add", tensors(a=A, b=B)).as_numpy("y").tolist() == (A + B).tolist()


def named(model: str = "add", version: str = "") -> Any:
    """A request of (2, 3) ones."""
    request = service_pb2.ModelInferRequest(model_name=model, model_version=version)
    for name in "ab":
        request.inputs.add(name=name, datatype="FP32", shape=[2, 3])
        request.raw_input_contents.append(np.ones(6, np.float32).tobytes())
    return request


@pytest.mark.parametrize("version", ["9" * 5000, "01", "\N{ARABIC-INDIC DIGIT ONE}", "x"])
def test_version_is_not_found_unless_it_is_written_as_it_is_served(
    served: Served, version: str
) -> None:
    with grpc.insecure_channel(served.address) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        for call, request in (
            (stub.ModelInfer, named(version=version)),
            (stub.ModelReady, service_pb2.ModelReadyRequest(name="add", version=version)),
        ):
            with pytest.raises(grpc.RpcError) as error:
                call(request)
            assert error.value.code() is grpc.StatusCode.NOT_FOUND
        answers = list(stub.ModelStreamInfer(iter([named(version=version), named()])))
        assert answers[0].error_message.startswith("[NOT_FOUND] ")
        assert answers[1].infer_response.raw_output_contents, "the stream goes on"


@pytest.mark.parametrize("name", ["m" * 20_000, "\N{GREEK SMALL LETTER MU}" * 5_000])
def test_status_of_a_call_with_a_long_name_arrives(served: Served, name: str) -> None:
    with grpc.insecure_channel(served.address) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        for call, request in (
            (stub.ModelInfer, named(name)),
            (stub.ModelMetadata, service_pb2.ModelMetadataRequest(name=name)),
        ):
            with pytest.raises(grpc.RpcError) as error:
                call(request)
            assert error.value.code() is grpc.StatusCode.NOT_FOUND
            assert f"model '{name[:500]}" in error.value.details()


@pytest.mark.parametrize(
    "word",
    [
        {"double_param": 1.5},
        {"double_param": float("nan")},
        {"string_param": "5"},
        {"bool_param": True},
        {},
    ],
)
def test_timeout_that_is_no_integer_is_refused(served: Served, word: dict[str, Any]) -> None:
    request = named()
    request.parameters["timeout"].CopyFrom(service_pb2.InferParameter(**word))
    with grpc.insecure_channel(served.address) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        with pytest.raises(grpc.RpcError, match=r"timeout: .*expected an integer") as error:
            stub.ModelInfer(request)
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_unsigned_timeout_is_the_executions_too(served: Served) -> None:
    request = named()
    request.raw_input_contents[:] = [np.full(6, SLEEP, np.float32).tobytes()] * 2
    request.parameters["timeout"].uint64_param = 100_000
    with grpc.insecure_channel(served.address) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        with pytest.raises(grpc.RpcError) as error:
            stub.ModelInfer(request)
    assert error.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


def test_statistics_count_what_was_answered_and_what_was_refused(client: Any) -> None:
    def counted() -> tuple[int, int]:
        (found,) = client.get_inference_statistics("quantised").model_stats
        return found.inference_stats.success.count, found.inference_stats.fail.count

    succeeded, failed = counted()
    x = np.uint8([0, 99, 100, 200])
    for _ in range(3):
        result = client.infer("quantised", tensors(input_0=x))
        assert result.as_numpy("output_0").tolist() == [100, 100, 100, 200]
    with pytest.raises(InferenceServerException):
        client.infer("quantised", tensors(input_0=x[:2]))
    assert counted() == (succeeded + 3, failed + 1)
    (found,) = client.get_inference_statistics("quantised").model_stats
    times = found.inference_stats
    parts = (times.queue, times.compute_input, times.compute_infer, times.compute_output)
    assert {part.count for part in parts} == {succeeded + 3}, "perf_analyzer insists on it"
    assert sum(part.ns for part in parts) == times.success.ns


def test_health_service_reports_that_it_serves(served: Served) -> None:
    stub = health_pb2_grpc.HealthStub(grpc.insecure_channel(served.address))
    for name in ("", "inference.GRPCInferenceService"):
        answer = stub.Check(health_pb2.HealthCheckRequest(service=name))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
