"""Requests like earlier ones are answered as if they were read; what is remembered of them is bounded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tritonclient.grpc", reason="extra grpc is not installed")

from tritonclient.grpc import service_pb2

from nnburst.hal.errors import InvalidArgument
from nnburst.serving import known_requests
from nnburst.serving.datatypes import data_type
from nnburst.serving.known_requests import KnownRequest, KnownRequests
from nnburst.serving.network import Executed, Network, SequenceWord
from nnburst.serving.service import InferenceService
from nnburst.serving.statistics import Statistics
from nnburst.serving.tensors import Array, Tensor, value_of

FLOAT = data_type(np.dtype("<f4"))


class Differing(Network):
    """a - b and b - a, without a driver; it keeps what it was asked for."""

    def __init__(self, name: str = "differing") -> None:
        self.name = name
        self.failure = ""
        self.statistics = Statistics()
        self.inputs = [Tensor("a", FLOAT, (-1,)), Tensor("b", FLOAT, (-1,))]
        self.outputs = [Tensor("forth", FLOAT, (-1,)), Tensor("back", FLOAT, (-1,))]
        self.asked: list[tuple[tuple[int, ...], float, SequenceWord | None]] = []
        self._ready = True

    def execute(
        self,
        arrays: Sequence[Array],
        wanted: Sequence[int],
        timeout: float,
        sequence: SequenceWord | None,
    ) -> Executed:
        self.asked.append((tuple(wanted), timeout, sequence))
        a, b = arrays
        return Executed({each: value_of((a - b, b - a)[each]) for each in wanted}, 1, 2)


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
    response = service._infer(travelled, None, None)
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
    return InferenceService({network.name: network}, None, 1)


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


def test_parameters_are_read_each_time(service: InferenceService, network: Differing) -> None:
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
    service = InferenceService(networks, None, 1)
    message = request({"a": [3], "b": [1]})
    answered(service, message)
    message.model_name = "other"
    service._infer(message, None, None)
    assert [len(network.asked) for network in networks.values()] == [1, 1]
    message.model_name, message.model_version = "differing", "2"
    message.raw_input_contents.extend([bytes(4)] * 2)
    with pytest.raises(InvalidArgument, match="version 2"):
        service._infer(message, None, None)


def test_what_is_remembered_is_bounded(network: Differing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_requests, "_MAX_REQUESTS", 3)
    known = KnownRequests()
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
    assert None in kinds, "the first has been forgotten"
    padded = service_pb2.ModelInferRequest.FromString(
        request({"a": [0], "b": [0]}).SerializeToString() + b"\xfa\x7d\xb8\x17" + bytes(3000)
    )
    found, key, _ = known.find(padded)
    assert len(key) > 3000, "a field that the protocol does not have counts"
    known.add(key, padded, network, [np.zeros(1, np.float32)] * 2, [])
    assert known.find(padded)[0] is None
