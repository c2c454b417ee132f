"""Requests that are joined are answered as if they had been alone."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tritonclient.grpc", reason="extra grpc is not installed")

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from nnburst.hal.errors import DeadObject, GeneralFailure, NnburstError
from nnburst.serving.network import Inference
from nnburst.serving.queue import DEFAULT_PRIORITY
from nnburst.serving.tensors import Value, value_of
from serving.served import PATIENCE, Served
from serving.test_queue import LATER

CLIENTS = 16


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    words = "--max-batch 8 --max-delay-us 20000 --lanes 1"
    with Served(*words.split(), models=("add", "both")) as served:
        yield served


@pytest.fixture
def stub(served: Served) -> Iterator[Any]:
    with grpc.insecure_channel(served.address) as channel:
        yield service_pb2_grpc.GRPCInferenceServiceStub(channel)


def request(values: list[int], others: list[int] | None = None) -> Any:
    message = service_pb2.ModelInferRequest(model_name="both")
    for name, numbers in (("input_0", values), ("input_1", others or [1] * len(values))):
        message.inputs.add(name=name, datatype="INT32", shape=[len(numbers)])
        message.raw_input_contents.append(np.array(numbers, "<i4").tobytes())
    return message


def sums(response: Any) -> list[int]:
    assert [list(each.shape) for each in response.outputs] == [
        [len(response.raw_output_contents[0]) // 4]
    ] * 2
    return [int(each) for each in np.frombuffer(response.raw_output_contents[0], "<i4")]


def counted(stub: Any) -> tuple[int, int, int]:
    """Requests that were answered, their rows, and executions."""
    (found,) = stub.ModelStatistics(service_pb2.ModelStatisticsRequest(name="both")).model_stats
    return found.inference_stats.success.count, found.inference_count, found.execution_count


def test_joined_requests_have_their_own_answers(stub: Any, capsys: Any) -> None:
    before = counted(stub)

    def ask(number: int) -> None:
        for turn in range(10):
            values = [1000 * number + turn + row for row in range(1 + number % 3)]
            found = sums(stub.ModelInfer(request(values), timeout=PATIENCE))
            assert found == [value + 1 for value in values]

    with ThreadPoolExecutor(CLIENTS) as threads:
        for future in [threads.submit(ask, number) for number in range(CLIENTS)]:
            future.result(PATIENCE)
    answered, rows, executed = (now - then for now, then in zip(counted(stub), before, strict=True))
    assert answered == 10 * CLIENTS
    assert rows == 10 * sum(1 + number % 3 for number in range(CLIENTS))
    assert executed < answered / 2
    with capsys.disabled():
        print(f"\n{answered} requests of {CLIENTS} clients in {executed} executions")


def test_request_that_cannot_be_executed_fails_alone(stub: Any) -> None:
    good = [stub.ModelInfer.future(request([n, n]), timeout=PATIENCE) for n in range(6)]
    bad = stub.ModelInfer.future(request([1, 2, 3], [1, 2]), timeout=PATIENCE)
    with pytest.raises(grpc.RpcError, match="do not broadcast"):
        bad.result()
    assert [sums(each.result()) for each in good] == [[n + 1, n + 1] for n in range(6)]


def test_configuration_has_the_size_of_batches(stub: Any) -> None:
    config = stub.ModelConfig(service_pb2.ModelConfigRequest(name="both")).config
    assert (config.max_batch_size, list(config.input[0].dims)) == (8, [1])
    fixed = stub.ModelConfig(service_pb2.ModelConfigRequest(name="add")).config
    assert (fixed.max_batch_size, list(fixed.input[0].dims)) == (0, [2, 3])


class Kept(Inference):
    """Keeps its answer."""

    def __init__(self, value: int) -> None:
        array = np.array([value], np.int32)
        super().__init__([array], [0], None, LATER, DEFAULT_PRIORITY)
        self.answer: object = None

    def succeed(self, values: dict[int, Value]) -> None:
        self.answer = int(np.frombuffer(values[0][1], np.int32)[0])

    def refuse(self, error: NnburstError) -> None:
        if self.settle():
            self.answer = type(error)


class Lane:
    """Doubles; a 13 fails, and every batch that has one."""

    def __init__(self, failure: type[NnburstError]) -> None:
        self.failure = failure
        self.executions = 0
        self.late: Kept | None = None

    def execute(self, request: Inference) -> dict[int, Value] | None:
        return self.execute_joined([request])[0] if request.settle() else None

    def execute_joined(self, requests: Any) -> list[dict[int, Value]]:
        self.executions += 1
        if any(int(each.arrays[0][0]) == 13 for each in requests):
            raise self.failure("of a test")
        if self.late is not None:
            self.late.refuse(GeneralFailure("too late"))
        return [{0: value_of(2 * each.arrays[0])} for each in requests]


@pytest.mark.parametrize("failure", [GeneralFailure, DeadObject])
def test_failed_batch_is_executed_one_by_one(failure: type[NnburstError]) -> None:
    lane = Lane(failure)
    requests = [Kept(value) for value in (1, 13, 3)]

    def execute(request: Inference) -> dict[int, Value] | None:
        found = lane.execute_joined([request])
        return found[0] if request.settle() else None

    lane.execute = execute  # type: ignore[method-assign]
    requests[0].run_with(list(requests[1:]), lane)
    assert [each.answer for each in requests] == [2, failure, 6]
    assert lane.executions == 4


def test_request_that_is_answered_meanwhile_holds_up_no_other() -> None:
    lane, requests = Lane(GeneralFailure), [Kept(value) for value in (1, 2, 3)]
    lane.late = requests[1]
    gone = requests[2]
    assert gone.settle()
    requests[0].run_with(requests[1:], lane)
    assert [each.answer for each in requests] == [2, GeneralFailure, None]


def test_requests_that_are_given_up_before_their_batch_begins_are_not_executed() -> None:
    lane, requests = Lane(GeneralFailure), [Kept(value) for value in (1, 2)]
    for each in requests:
        assert each.settle()
    requests[0].run(lane)
    requests[0].run_with(requests[1:], lane)
    assert lane.executions == 0
    assert [each.answer for each in requests] == [None, None]
