"""Sequences keep to their limit and to deadlines, whoever starts and ends them at the same time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tritonclient.grpc", reason="extra grpc is not installed")

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from nnburst.client.launch import launch
from nnburst.hal.errors import InvalidArgument, MissedDeadline, NnburstError, ResourceExhausted
from nnburst.serving.network import Inference, _SequenceLane
from nnburst.serving.sequences import PoolState, Sequences, SequenceWord, State
from serving.networks import accumulate
from serving.served import PATIENCE, Served

LIMIT = 4


@pytest.fixture(scope="module")
def model() -> Iterator[Any]:
    with launch("reference") as device, device.prepare(accumulate()) as prepared:
        yield prepared


@contextmanager
def sequences(model: Any, before: Any = None) -> Iterator[Sequences]:
    """Of a real model; `before` is called when one begins."""

    def begin() -> Any:
        if before is not None:
            before()
        return PoolState(model.open_burst(spin_window=0, states=accumulate().states))

    with Sequences(begin, LIMIT) as found:
        yield found


def start(these: Sequences, key: object) -> str:
    try:
        these.take(key, starts=True, timeout=PATIENCE).lock.release()
    except NnburstError as error:
        return type(error).__name__
    return "started"


def test_starts_at_the_same_time_keep_to_the_limit(model: Any) -> None:
    begun, go_on = threading.Semaphore(0), threading.Event()

    def wait() -> None:
        begun.release()
        assert go_on.wait(PATIENCE)

    with sequences(model, wait) as these, ThreadPoolExecutor(9) as threads:
        first = [threads.submit(start, these, key) for key in range(LIMIT)]
        for _ in first:
            assert begun.acquire(timeout=PATIENCE)
        # All of them are being started, and none is there yet.
        more = [threads.submit(start, these, key) for key in range(LIMIT, 9)]
        assert [each.result(PATIENCE) for each in more] == ["ResourceExhausted"] * (9 - LIMIT)
        go_on.set()
        assert [each.result(PATIENCE) for each in first] == ["started"] * LIMIT
        assert len(these) == LIMIT


def test_sequence_that_is_being_started_is_not_started_twice(model: Any) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        assert go_on.wait(PATIENCE)

    with sequences(model, wait) as these, ThreadPoolExecutor(1) as threads:
        first = threads.submit(start, these, "key")
        assert begun.wait(PATIENCE)
        assert start(these, "key") == "InvalidArgument"
        go_on.set()
        assert first.result(PATIENCE) == "started"
        assert len(these) == 1


def test_start_of_a_busy_sequence_keeps_to_its_deadline(model: Any) -> None:
    with sequences(model) as these:
        busy = these.take("key", starts=True, timeout=PATIENCE)
        with pytest.raises(MissedDeadline, match="busy until the deadline"):
            these.take("key", starts=True, timeout=0.01)
        busy.lock.release()
        assert these.take("key", starts=False, timeout=PATIENCE) is busy
        busy.lock.release()
        assert start(these, "key") == "started"


def test_start_that_takes_longer_than_its_deadline_leaves_nothing(model: Any) -> None:
    late = time.monotonic() + 0.02

    def wait() -> None:
        while time.monotonic() < late:
            pass

    with sequences(model, wait) as these:
        with pytest.raises(MissedDeadline, match="while sequence key was started"):
            these.take("key", starts=True, timeout=0.01)
        assert len(these) == 0
        for key in range(LIMIT):
            assert start(these, key) == "started"
        with pytest.raises(ResourceExhausted):
            these.take("more", starts=True, timeout=PATIENCE)


def test_request_that_waited_for_an_ended_sequence_is_refused(model: Any) -> None:
    with sequences(model) as these, ThreadPoolExecutor(1) as threads:
        ending = these.take("key", starts=True, timeout=PATIENCE)
        waiting = threads.submit(these.take, "key", starts=False, timeout=PATIENCE)
        these.close_sequence("key", ending)
        ending.lock.release()
        with pytest.raises(InvalidArgument, match="not started, ended"):
            waiting.result(PATIENCE)
        assert start(these, "key") == "started"


def test_end_of_a_sequence_leaves_its_successor(model: Any) -> None:
    with sequences(model) as these:
        first = these.take("key", starts=True, timeout=PATIENCE)
        first.lock.release()
        second = these.take("key", starts=True, timeout=PATIENCE)
        these.close_sequence("key", first)
        second.lock.release()
        assert these.take("key", starts=False, timeout=PATIENCE) is second
        second.lock.release()


@pytest.mark.parametrize(
    ("field", "value"),
    [("double_param", float("nan")), ("double_param", 1.0), ("bool_param", True)],
)
def test_sequence_is_named_by_an_integer_or_a_string(
    served: Served, field: str, value: object
) -> None:
    with grpc.insecure_channel(served.address) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        request = service_pb2.ModelInferRequest(model_name="accumulate")
        request.inputs.add(name="x", datatype="FP32", shape=[2])
        request.raw_input_contents.append(np.zeros(2, "<f4").tobytes())
        request.parameters["sequence_start"].bool_param = True
        setattr(request.parameters["sequence_id"], field, value)
        with pytest.raises(grpc.RpcError, match="expected an integer or a string") as refused:
            stub.ModelInfer(request)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        request.parameters["sequence_id"].int64_param = 1
        request.parameters["sequence_start"].int64_param = 1
        with pytest.raises(grpc.RpcError, match="sequence_start: expected a boolean"):
            stub.ModelInfer(request)


class FailingState(State):
    """A state whose executions fail."""

    def __init__(self, error: NnburstError) -> None:
        self.error = error
        self.is_closed = False

    def execute(self, *_: object) -> Any:
        raise self.error

    def take_back(self) -> bool:
        return True

    def close(self) -> None:
        self.is_closed = True


class Request(Inference):
    """A request whose answer nobody looks at."""

    def succeed(self, _values: object) -> None: ...

    def refuse(self, _error: NnburstError) -> None: ...


@pytest.mark.parametrize("starts", [True, False])
@pytest.mark.parametrize("ends", [True, False])
def test_request_with_sequence_end_gives_the_place_back_even_if_it_fails(
    starts: bool, ends: bool
) -> None:
    state = FailingState(InvalidArgument("it fails"))
    network: Any = SimpleNamespace(
        name="failing",
        statistics=SimpleNamespace(execute=lambda: None),
        watchdog=60.0,
    )
    with Sequences(lambda: state, 1) as these:
        lane = _SequenceLane(network, these)
        if not starts:
            assert start(these, "key") == "started"
        deadline = time.monotonic_ns() + PATIENCE * 10**9
        request = Request([], [], SequenceWord("key", starts, ends), deadline, 5)
        with pytest.raises(InvalidArgument, match="it fails"):
            lane.execute(request)
        assert state.is_closed is ends
        assert start(these, "other") == ("started" if ends else "ResourceExhausted")
