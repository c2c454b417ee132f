"""Under load: what does not fit is refused by name and counted, what no caller waits for is not executed.

One model's slowness is its own, and so is its worker's.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest

pytest.importorskip("tritonclient.grpc", reason="extra grpc is not installed")
pytest.importorskip("prometheus_client", reason="extra metrics is not installed")

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from nnburst.cli.top import read
from serving.networks import SLEEP
from serving.served import MODELS, PATIENCE, Served
from waiting import wait_for

SERVING, NOT_SERVING = (
    health_pb2.HealthCheckResponse.SERVING,
    health_pb2.HealthCheckResponse.NOT_SERVING,
)
#: Two lanes, each of which sleeps for a second.
LANES = 2


def request(value: float = 1, model: str = "add", **parameters: int) -> Any:
    """value + value by `add`; SLEEP takes a second. RELU of four quantised values by `quantised`."""
    message = service_pb2.ModelInferRequest(model_name=model)
    if model == "add":
        for name in "ab":
            message.inputs.add(name=name, datatype="FP32", shape=[2, 3])
            message.raw_input_contents.append(np.full(6, value, "<f4").tobytes())
    else:
        message.inputs.add(name="input_0", datatype="UINT8", shape=[4])
        message.raw_input_contents.append(bytes([100, 101, 102, 103]))
    for name, number in parameters.items():
        message.parameters[name].int64_param = number
    return message


class Calls:
    """A channel of its own, and what its calls came to."""

    def __init__(self, served: Served) -> None:
        self.channel = grpc.insecure_channel(
            served.address, options=[("grpc.use_local_subchannel_pool", 1)]
        )
        self.stub = service_pb2_grpc.GRPCInferenceServiceStub(self.channel)
        self.health = health_pb2_grpc.HealthStub(self.channel)

    def check(self, model: str) -> Any:
        """The status that grpc-health reports of a model."""
        return self.health.Check(
            health_pb2.HealthCheckRequest(service=model), timeout=PATIENCE
        ).status

    def counted(self, model: str) -> tuple[int, int]:
        """Requests that were answered, and those that failed."""
        found = self.stub.ModelStatistics(service_pb2.ModelStatisticsRequest(name=model))
        (one,) = found.model_stats
        return one.inference_stats.success.count, one.inference_stats.fail.count

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.channel.close()


def in_flight(served: Served, model: str = "add") -> float:
    """Requests that the front has and has not answered."""
    return read(served.metrics)[model]["nnburst_in_flight"]


def threads(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    words = "--max-queue 80 --metrics 127.0.0.1:0"
    with Served(*words.split(), models=("add", "quantised")) as served:
        yield served


@pytest.fixture
def calls(served: Served) -> Iterator[Calls]:
    with Calls(served) as calls:
        yield calls


@pytest.mark.parametrize("count", [100, 1000, pytest.param(5000, marks=pytest.mark.campaign)])
def test_calls_in_flight_on_one_channel_are_answered_or_refused_by_name_and_counted(
    served: Served, calls: Calls, count: int
) -> None:
    answered, failed = calls.counted("add")
    lanes = [calls.stub.ModelInfer.future(request(SLEEP)) for _ in range(LANES)]
    flight = [calls.stub.ModelInfer.future(request()) for _ in range(count)]
    codes = Counter(call.code() for call in flight)
    assert set(codes) <= {grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED}, codes
    assert codes[grpc.StatusCode.OK] >= 80
    for call in flight:
        if call.code() is not grpc.StatusCode.OK:
            assert "model 'add': its queue is full" in call.details()
    assert all(call.code() is grpc.StatusCode.OK for call in lanes)
    assert calls.counted("add") == (
        answered + LANES + codes[grpc.StatusCode.OK],
        failed + codes[grpc.StatusCode.RESOURCE_EXHAUSTED],
    )


def test_100_calls_in_flight_wait_and_are_all_answered(calls: Calls) -> None:
    with Served(models=("add",)) as served, Calls(served) as unbounded:
        lanes = [unbounded.stub.ModelInfer.future(request(SLEEP)) for _ in range(LANES)]
        flight = [unbounded.stub.ModelInfer.future(request()) for _ in range(100)]
        assert {call.code() for call in (*lanes, *flight)} == {grpc.StatusCode.OK}


def test_threads_do_not_grow_with_the_calls_that_wait(served: Served, calls: Calls) -> None:
    def at(count: int) -> int:
        flight = [calls.stub.ModelInfer.future(request(SLEEP)) for _ in range(LANES)]
        flight += [calls.stub.ModelInfer.future(request()) for _ in range(count)]
        wait_for(lambda: sum(calls.counted("add")) >= before + count - 80)
        found = threads(served.front())
        for call in flight:
            call.result() if call.code() is grpc.StatusCode.OK else None
        return found

    before = sum(calls.counted("add"))
    few = at(80)
    before = sum(calls.counted("add"))
    assert at(1000) <= few + 20, "the readers, which are as many as they may be"


def test_cancelled_calls_leave_the_queue_and_are_not_counted_as_answered(
    served: Served, calls: Calls
) -> None:
    began = time.monotonic()
    calls.stub.ModelInfer(request(SLEEP))
    alone = time.monotonic() - began
    answered, failed = calls.counted("add")
    slow = [calls.stub.ModelInfer.future(request(SLEEP)) for _ in range(60)]
    wait_for(lambda: in_flight(served) == 60)
    for call in slow:
        call.cancel()
    began = time.monotonic()
    calls.stub.ModelInfer(request(), timeout=PATIENCE)
    assert time.monotonic() - began < 5 * alone, "30 lanes of a second, one after the other"
    wait_for(lambda: calls.counted("add") == (answered + 1, failed + 60))


def test_expired_requests_leave_the_queue_at_their_deadline(served: Served, calls: Calls) -> None:
    slow = [calls.stub.ModelInfer.future(request(SLEEP)) for _ in range(2 * LANES)]
    wait_for(lambda: in_flight(served) == 2 * LANES)
    short = [calls.stub.ModelInfer.future(request(timeout=100_000)) for _ in range(20)]
    assert {call.code() for call in short} == {grpc.StatusCode.DEADLINE_EXCEEDED}
    assert not all(call.done() for call in slow), "their deadlines were what ended them"
    assert {call.code() for call in slow} == {grpc.StatusCode.OK}


def test_slow_model_holds_up_neither_health_nor_descriptions_nor_other_models(
    calls: Calls, served: Served
) -> None:
    with Calls(served) as others:
        slow = [others.stub.ModelInfer.future(request(SLEEP)) for _ in range(60)]
        for _ in range(20):
            assert calls.stub.ServerLive(service_pb2.ServerLiveRequest(), timeout=10).live
            assert calls.check("") == calls.check("add") == SERVING
            calls.stub.ModelMetadata(service_pb2.ModelMetadataRequest(name="add"), timeout=10)
            calls.stub.ModelInfer(request(model="quantised"), timeout=10)
        assert not slow[-1].done(), "and all that while the slow model was busy"
        for call in slow:
            call.cancel()


def test_request_of_higher_priority_is_served_before_those_that_wait(
    served: Served, calls: Calls
) -> None:
    order: list[int] = []
    lock = threading.Lock()

    def note(number: int) -> Callable[[object], None]:
        def call(_: object) -> None:
            with lock:
                order.append(number)

        return call

    lanes = [calls.stub.ModelInfer.future(request(SLEEP)) for _ in range(LANES)]
    wait_for(lambda: in_flight(served) == LANES)
    waiting = [
        calls.stub.ModelInfer.future(request(SLEEP, priority=level)) for level in (9, 9, 9, 9)
    ]
    wait_for(lambda: in_flight(served) == LANES + 4)
    first = calls.stub.ModelInfer.future(request(priority=1))
    first.add_done_callback(note(1))
    for call in waiting:
        call.add_done_callback(note(9))
    for call in (*lanes, *waiting, first):
        call.result()
    wait_for(lambda: len(order) == 5)
    assert order[0] == 1


@pytest.mark.parametrize("value", [-1, -(2**40)])
def test_priority_below_0_is_refused(calls: Calls, value: int) -> None:
    with pytest.raises(grpc.RpcError, match="expected an integer of 0 or more") as refused:
        calls.stub.ModelInfer(request(priority=value))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_message_of_another_form_is_refused(calls: Calls) -> None:
    raw = calls.channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
    with pytest.raises(grpc.RpcError, match="no message that is a ModelInferRequest") as refused:
        raw(b"\xff" * 40)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_message_of_another_form_ends_its_stream(calls: Calls) -> None:
    raw = calls.channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")
    with pytest.raises(grpc.RpcError, match="no message that is a ModelInferRequest") as refused:
        next(raw(iter([b"\xff" * 40]), timeout=PATIENCE))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_call_without_a_message_is_refused(calls: Calls) -> None:
    for name in ("ModelInfer", "ModelMetadata"):
        raw = calls.channel.stream_unary(f"/inference.GRPCInferenceService/{name}")
        with pytest.raises(grpc.RpcError, match=f"no message that is a {name}Request") as refused:
            raw(iter([]), timeout=PATIENCE)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_calls_whose_messages_do_not_come_hold_up_no_others(served: Served, calls: Calls) -> None:
    never = threading.Event()

    def message() -> Iterator[bytes]:
        never.wait(PATIENCE)
        yield from ()

    paths = [f"/inference.GRPCInferenceService/{name}" for name in ("ModelInfer", "ServerLive")]
    paths.append("/grpc.health.v1.Health/Check")
    with Calls(served) as stalled:
        held = [
            stalled.channel.stream_unary(path).future(message())
            for path in paths
            for _ in range(60)
        ]
        # What comes by the same connection comes after them.
        for each in (stalled, calls):
            each.stub.ModelInfer(request(), timeout=10)
            assert each.stub.ServerLive(service_pb2.ServerLiveRequest(), timeout=10).live
            assert each.check("add") == SERVING
        assert not any(call.done() for call in held)
        for call in held:
            call.cancel()
        never.set()


def serving_workers(served: Served) -> list[int]:
    """Pids of workers that have clients; spares have none."""
    return [
        pid
        for pid in served.workers()
        if "spare" not in Path(f"/proc/{pid}/comm").read_text()
        and "weights" not in Path(f"/proc/{pid}/comm").read_text()
    ]


@pytest.mark.campaign
def test_stopped_worker_is_not_ready_meanwhile_and_replaced_and_others_serve() -> None:
    with Served("--watchdog", "3") as served, Calls(served) as calls:
        models = ("add", "quantised")
        victim = serving_workers(served)[0]
        os.kill(victim, signal.SIGSTOP)

        def sick() -> list[str]:
            return [name for name in MODELS if calls.check(name) == NOT_SERVING]

        wait_for(lambda: bool(sick()))
        (model,) = sick()
        assert calls.check("") == NOT_SERVING
        assert not calls.stub.ModelReady(service_pb2.ModelReadyRequest(name=model)).ready
        for other in set(models) - {model}:
            calls.stub.ModelInfer(request(model=other), timeout=PATIENCE)
        wait_for(lambda: not sick())
        assert victim not in serving_workers(served)
        for each in models:
            calls.stub.ModelInfer(request(model=each), timeout=PATIENCE)


@pytest.mark.campaign
def test_worker_that_is_stopped_now_and_then_and_answers_in_between_is_kept() -> None:
    with Served("--watchdog", "2", models=("quantised",)) as served, Calls(served) as calls:
        (worker,) = serving_workers(served)
        for _ in range(14):
            os.kill(worker, signal.SIGSTOP)
            time.sleep(0.2)  # the fault: most looks at the worker find it stopped
            os.kill(worker, signal.SIGCONT)
            calls.stub.ModelInfer(request(model="quantised"), timeout=PATIENCE)
        assert serving_workers(served) == [worker]


@pytest.mark.campaign
def test_execution_that_takes_longer_than_the_watchdog_ends_its_worker() -> None:
    with Served("--watchdog", "0.2") as served, Calls(served) as calls:
        with pytest.raises(grpc.RpcError, match=r"no result came for 0\.2 s") as error:
            calls.stub.ModelInfer(request(SLEEP), timeout=PATIENCE)
        assert error.value.code() is grpc.StatusCode.UNAVAILABLE

        def is_answered() -> bool:
            code = calls.stub.ModelInfer.future(request(), timeout=PATIENCE).code()
            assert code in {grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE}, code
            return code is grpc.StatusCode.OK

        wait_for(is_answered)  # the worker that is being replaced may take one more


@pytest.mark.campaign
@pytest.mark.parametrize("whom", ["front", "supervisor"])
def test_sigterm_lets_calls_finish_within_the_drain(whom: str) -> None:
    with Served("--metrics", "127.0.0.1:0") as served, Calls(served) as calls:
        slow = [calls.stub.ModelInfer.future(request(SLEEP)) for _ in range(3 * LANES)]
        wait_for(lambda: in_flight(served) == 3 * LANES)
        os.kill(served.front() if whom == "front" else served.process.pid, signal.SIGTERM)
        assert {call.code() for call in slow} == {grpc.StatusCode.OK}


@pytest.mark.campaign
def test_sigterm_ends_the_server_when_the_drain_has_passed() -> None:
    with Served("--drain", "0.2") as served, Calls(served) as calls:
        slow = [calls.stub.ModelInfer.future(request(SLEEP)) for _ in range(20 * LANES)]
        wait_for(lambda: calls.counted("add")[0] > 0)
        served.process.send_signal(signal.SIGTERM)
        codes = {call.code() for call in slow}
        assert codes <= {grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}
        assert served.process.wait(PATIENCE) == 0
