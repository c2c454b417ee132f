"""Requests like earlier ones are answered as if they were read; the cache of requests is bounded."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tritonclient.grpc", reason="extra grpc is not installed")

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from nnburst.hal.errors import InvalidArgument, NnburstError, ResourceExhausted
from nnburst.importer.named_sources import NamedSource
from nnburst.serving import cached_requests, direct_calls
from nnburst.serving.cached_requests import KnownRequest, KnownRequests
from nnburst.serving.models import Models, Served, ServedModel
from nnburst.serving.network import Inference, Network
from nnburst.serving.options import Options
from nnburst.serving.queue import Clock
from nnburst.serving.sequences import SequenceWord
from nnburst.serving.server import Readers, Server, make_threads
from nnburst.serving.service import InferenceService
from nnburst.serving.statistics import Statistics
from nnburst.serving.tensors import Tensor, Value, data_type, value_of
from nnburst.serving.workers import Worker, Workers

FLOAT = data_type(np.dtype("<f4"))


class Differing(Network):
    """a - b and b - a, without a driver; it keeps what it was asked for."""

    def __init__(self, name: str = "differing") -> None:
        options = Options("", {}, "", max_message=1 << 20)
        super().__init__(NamedSource(name, 1, ""), options, Worker(""), Clock(1), Statistics())
        self.queue.open([self])
        self.inputs = [Tensor("a", FLOAT, (-1,)), Tensor("b", FLOAT, (-1,))]
        self.outputs = [Tensor("forth", FLOAT, (-1,)), Tensor("back", FLOAT, (-1,))]
        self.asked: list[tuple[tuple[int, ...], float, SequenceWord | None]] = []

    @property
    def is_served(self) -> bool:
        return True

    def execute(self, request: Inference) -> dict[int, Value] | None:
        """Execute a request as a lane does."""
        left = (request.deadline_ns - time.monotonic_ns()) / 1e9
        self.asked.append((tuple(request.wanted), left, request.sequence))
        assert request.settle()
        a, b = request.arrays
        return {each: value_of((a - b, b - a)[each]) for each in request.wanted}


def served_of(*networks: Network) -> Served:
    """Just these, each as the only version of its name."""
    return Served({each.name: ServedModel({each.version: each}) for each in networks})


def serving(*networks: Network, spans: Any = None) -> InferenceService:
    models = Models([], Options("", {}, ""), Workers(""), Clock(1))
    models.served = served_of(*networks)
    return InferenceService(models, None, 1, spans=spans)


class Stateful(Differing):
    """The same, whose requests belong to sequences."""

    has_state = True  # type: ignore[assignment]


class Answer:
    """Keeps the outcome of a request."""

    is_wanted = True
    response: Any = None

    def succeed(self, response: Any) -> None:
        self.response = response

    def fail(self, error: NnburstError) -> None:
        raise error


def infer(service: InferenceService, message: Any) -> Any:
    answer = Answer()
    job = service.read(message, None, None, answer)
    assert job is not None
    job.submit()
    return answer.response


def request(
    values: dict[str, Sequence[float]], outputs: Sequence[str] = (), identity: str = ""
) -> Any:
    found = service_pb2.ModelInferRequest(model_name="differing", id=identity)
    for name, numbers in values.items():
        found.inputs.add(name=name, datatype="FP32", shape=[len(numbers)])
        found.raw_input_contents.append(np.array(numbers, "<f4").tobytes())
    for name in outputs:
        found.outputs.add(name=name)
    return found


def answered(service: InferenceService, message: Any) -> tuple[str, dict[str, list[float]]]:
    """Id and outputs of the answer to a message, which travels as it does by gRPC."""
    travelled = service_pb2.ModelInferRequest.FromString(message.SerializeToString())
    response = infer(service, travelled)
    assert (response.model_name, response.model_version) == ("differing", "1")
    assert travelled.id == message.id, "errors of a stream name it"
    found = {}
    for output, raw in zip(response.outputs, response.raw_output_contents, strict=True):
        array = np.frombuffer(raw, "<f4")
        assert (output.datatype, list(output.shape)) == ("FP32", list(array.shape))
        found[output.name] = array.tolist()
    return response.id, found


@pytest.fixture
def network() -> Differing:
    return Differing()


@pytest.fixture
def service(network: Differing) -> InferenceService:
    return serving(network)


def test_request_like_an_earlier_one_has_values_and_id_of_its_own(
    service: InferenceService,
) -> None:
    for number in range(4):
        message = request({"a": [number, 5], "b": [1, 1]}, identity=f"id {number}")
        assert answered(service, message) == (
            f"id {number}",
            {"forth": [number - 1, 4], "back": [1 - number, -4]},
        )


def test_order_of_inputs_shapes_and_outputs_are_the_requests_own(service: InferenceService) -> None:
    for _ in range(3):
        assert answered(service, request({"a": [3], "b": [1]}))[1] == {"forth": [2], "back": [-2]}
        assert answered(service, request({"b": [3], "a": [1]}))[1] == {"forth": [-2], "back": [2]}
        assert answered(service, request({"a": [3, 4], "b": [1, 1]}, ["back"]))[1] == {
            "back": [-2, -3]
        }
        both = answered(service, request({"a": [3], "b": [1]}, ["back", "forth"]))[1]
        assert list(both.items()) == [("back", [-2]), ("forth", [2])]


def test_surplus_missing_and_short_contents_of_a_known_request_are_refused(
    service: InferenceService, network: Differing
) -> None:
    good = request({"a": [3, 4], "b": [1, 1]})
    answered(service, good)
    for contents in ([bytes(8)], [bytes(8)] * 3, [bytes(8), bytes(4)]):
        bad = request({"a": [3, 4], "b": [1, 1]})
        del bad.raw_input_contents[:]
        bad.raw_input_contents.extend(contents)
        with pytest.raises(InvalidArgument):
            answered(service, bad)
    assert answered(service, good)[1] == {"forth": [2, 3], "back": [-2, -3]}
    assert network.statistics.statuses == {"OK": 2, "INVALID_ARGUMENT": 3}


def test_parameters_are_read_each_time() -> None:
    network = Stateful()
    service = serving(network)
    for number in (1, 2):
        message = request({"a": [3], "b": [1]})
        answered(service, message)
        message.parameters["sequence_id"].int64_param = number
        message.parameters["timeout"].int64_param = number * 1_000_000
        answered(service, message)
    timeouts = [round(timeout) for _, timeout, _ in network.asked]
    assert timeouts == [30, 1, 30, 2]
    assert [word.key if word else None for _, _, word in network.asked] == [None, 1, None, 2]


def test_other_model_and_version_are_not_taken_for_a_known_one() -> None:
    networks = {name: Differing(name) for name in ("differing", "other")}
    service = serving(*networks.values())
    message = request({"a": [3], "b": [1]})
    answered(service, message)
    message.model_name = "other"
    infer(service, message)
    assert [len(network.asked) for network in networks.values()] == [1, 1]
    message.model_name, message.model_version = "differing", "2"
    message.raw_input_contents.extend([bytes(4)] * 2)
    with pytest.raises(InvalidArgument, match="version 2"):
        infer(service, message)


def test_what_is_remembered_is_bounded(network: Differing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cached_requests, "_MAX_REQUESTS", 3)
    monkeypatch.setattr(cached_requests, "_MAX_BYTES", 3000)
    known = KnownRequests(served_of(network))
    kinds = []
    for length in range(1, 9):
        message = request({"a": [0] * length, "b": [0] * length})
        found, key, raw = known.find(message)
        assert found is None
        assert list(message.raw_input_contents) == raw, "a request that is not known stays whole"
        known.add(key, message, network, [np.zeros(length, np.float32)] * 2, [])
        again = known.find(message)[0]
        assert isinstance(again, KnownRequest)
        kinds.append(known.find(request({"a": [0], "b": [0]}))[0])
    assert None not in kinds, "what is used stays"
    assert known.find(request({"a": [0] * 3, "b": [0] * 3}))[0] is None, "what is not used goes"
    padded = service_pb2.ModelInferRequest.FromString(
        request({"a": [0], "b": [0]}).SerializeToString() + b"\xfa\x7d\xb8\x17" + bytes(3000)
    )
    found, key, _ = known.find(padded)
    assert len(key) > 3000, "a field that the protocol does not have counts"
    known.add(key, padded, network, [np.zeros(1, np.float32)] * 2, [])
    assert known.find(padded)[0] is None


@pytest.mark.parametrize("direct", [True, False])
def test_calls_are_answered_with_and_without_functions_that_are_not_public(
    network: Differing, monkeypatch: pytest.MonkeyPatch, direct: bool
) -> None:
    assert direct_calls.HAS_DIRECT, "this version of grpcio has them"
    monkeypatch.setattr(direct_calls, "HAS_DIRECT", direct)
    options = Options("", {}, "127.0.0.1:0", max_message=2**31 - 1)
    server = Server(options, serving(network), make_threads(options, Readers()))
    server.start()
    try:
        with grpc.insecure_channel(server.address) as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            response = stub.ModelInfer(request({"a": [3], "b": [1]}, identity="x"), timeout=60)
            assert response.id == "x"
            assert [np.frombuffer(raw, "<f4")[0] for raw in response.raw_output_contents] == [2, -2]
            with pytest.raises(grpc.RpcError, match="inputs") as refused:
                stub.ModelInfer(request({"a": [3]}), timeout=60)
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    finally:
        server.begin_end(0)
        server.close()


def test_answer_beyond_the_size_of_messages_is_refused_and_counted(
    service: InferenceService, network: Differing
) -> None:
    network.max_message = 100
    long = {"a": [3.0] * 20, "b": [1.0] * 20}
    refusals: list[NnburstError] = []

    class Refused(Answer):
        def fail(self, error: NnburstError) -> None:
            refusals.append(error)

    for _ in range(2):
        job = service.read(request(long), None, None, Refused())
        assert job is not None
        job.submit()
        error = refusals.pop()
        assert isinstance(error, ResourceExhausted)
        assert str(error) == "outputs: 160 bytes, expected at most 100 (--max-message)"
        assert answered(service, request(long, ["back"]))[1] == {"back": [-2] * 20}
    assert network.statistics.statuses == {"RESOURCE_EXHAUSTED": 2, "OK": 2}


def test_request_finds_the_model_that_has_taken_the_place_of_a_retired_one() -> None:
    old, new = Differing(), Differing()
    models = Models([], Options("", {}, ""), Workers(""), Clock(1))
    models.served = served_of(old)
    service = InferenceService(models, None, 1)
    message = request({"a": [3], "b": [1]})
    answered(service, message)
    admit = old.admit

    def replaced() -> bool:
        models.served = served_of(new)
        old.admit_no_more()
        return admit()

    old.admit = replaced  # type: ignore[method-assign]
    for _ in range(2):
        assert answered(service, message)[1] == {"forth": [2], "back": [-2]}
    assert [len(old.asked), len(new.asked)] == [1, 2]
    assert old.wait_until_unused(60)
