"""Front, worker or supervisor is killed, clients break rules: typed errors, and the service goes on."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tritonclient.grpc", reason="extra grpc is not installed")

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from nnburst.hal.environment import KILLS
from nnburst.testing.faults.footprint import is_running
from serving.networks import DIE
from serving.served import PATIENCE, Served

pytestmark = pytest.mark.timing
#: Statuses that a client may get when something dies or is full.
TYPED = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
)
#: Statuses of messages that are not what they should be; INTERNAL is gRPC's for those it cannot decode.
REFUSALS = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.INTERNAL,
)
#: How often each fault happens.
TIMES = KILLS.read() if KILLS.is_set else 2


def request(value: float) -> Any:
    """value + 1 by the model `add`."""
    message = service_pb2.ModelInferRequest(model_name="add")
    for name, number in (("a", value), ("b", 1)):
        message.inputs.add(name=name, datatype="FP32", shape=[2, 3])
        message.raw_input_contents.append(np.full(6, number, "<f4").tobytes())
    return message


def check(response: Any, value: float) -> None:
    assert np.frombuffer(response.raw_output_contents[0], "<f4").tolist() == [value + 1] * 6


def stub(served: Served) -> Any:
    return service_pb2_grpc.GRPCInferenceServiceStub(grpc.insecure_channel(served.address))


def goes_on(served: Served, seconds: float = PATIENCE) -> float:
    """Seconds until a request is answered again; errors until then are typed."""
    began = time.monotonic()
    while True:
        try:
            channel = grpc.insecure_channel(served.address)
            check(service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(request(5)), 5)
        except grpc.RpcError as error:
            if error.code() not in TYPED or time.monotonic() - began > seconds:
                raise
            time.sleep(0.02)  # the protocol has no other way to wait
        else:
            return time.monotonic() - began
        finally:
            channel.close()


def until(condition: Callable[[], bool]) -> float:
    """Seconds until `condition` holds."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < PATIENCE
        time.sleep(0.005)  # of other processes, which do not notify anyone
    return time.monotonic() - began


def rss(pid: int) -> float:
    """MiB."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 / 2**20


def test_execution_that_killed_its_driver_is_unavailable_not_repeated_and_the_next_is_right(
    served: Served,
) -> None:
    calls = stub(served)
    for number in range(TIMES):
        before = set(served.workers())
        with pytest.raises(grpc.RpcError) as error:
            calls.ModelInfer(request(DIE))
        assert error.value.code() is grpc.StatusCode.UNAVAILABLE
        check(calls.ModelInfer(request(number)), number)
        assert len(set(served.workers()) - before) == 1, "one worker took the place of one"


def test_front_that_was_killed_is_back_at_once_and_harms_no_worker_of_others(capsys: Any) -> None:
    took = []
    with Served(models=("add", "both")) as served:
        forking = served.forking()
        assert len(os.listdir(f"/proc/{forking}/task")) == 1, "else it could not fork"
        for _ in range(TIMES):
            pid = served.front()
            began = time.monotonic()
            os.kill(pid, signal.SIGKILL)
            served.address = served.next_address()
            goes_on(served)
            took.append(time.monotonic() - began)
            assert served.front() != pid
            assert served.forking() == forking
    with capsys.disabled():
        print(
            f"\nfront killed x{TIMES}: right again after {sorted(took)[len(took) // 2]:.2f} s,"
            f" at most {max(took):.2f}"
        )


@pytest.mark.campaign
def test_front_ends_with_the_process_that_forked_it_and_both_are_back() -> None:
    with Served(models=("add", "both")) as served:
        front, forking = served.front(), served.forking()
        os.kill(forking, signal.SIGKILL)
        until(lambda: not is_running(front))
        served.address = served.next_address()
        goes_on(served)
        assert served.forking() != forking


def test_all_ends_with_the_supervisor(capsys: Any) -> None:
    took = []
    for _ in range(TIMES):
        with Served(models=("add", "both")) as served:
            assert {served.forking(), *served.workers()} == set(served.children())
            pids = [served.front(), *served.children()]
            served.process.kill()
            took.append(until(lambda pids=pids: not any(map(is_running, pids))))  # type: ignore[misc]
    with capsys.disabled():
        print(f"\nsupervisor killed x{TIMES}: all gone after at most {max(took):.3f} s")


def test_worker_that_is_killed_amid_requests_gives_typed_errors_and_no_wrong_result(
    served: Served,
) -> None:
    stopped = threading.Event()
    wrong: list[object] = []
    right = []

    def call(number: int) -> None:
        calls = stub(served)
        while not stopped.is_set():
            try:
                check(calls.ModelInfer(request(number), timeout=20), number)
                right.append(number)
            except grpc.RpcError as error:
                if error.code() not in TYPED:
                    wrong.append(error)
            except AssertionError as error:
                wrong.append(error)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(TIMES):
            seen = len(right)
            until(lambda seen=seen: len(right) > seen + 20)  # type: ignore[misc]
            served.kill_workers()
        seen = len(right)
        until(lambda: len(right) > seen + 20)
    finally:  # or a failure would wait for the threads for ever
        stopped.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert wrong == []


def test_200_clients_at_once_get_results_or_typed_errors(served: Served, capsys: Any) -> None:
    pid, before = served.front(), rss(served.front())
    outcomes: list[str] = []

    def call(number: int) -> None:
        with grpc.insecure_channel(
            served.address, options=[("grpc.use_local_subchannel_pool", 1)]
        ) as channel:
            calls = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            for _ in range(TIMES):
                try:
                    check(calls.ModelInfer(request(number), timeout=PATIENCE), number)
                    outcomes.append("right")
                except grpc.RpcError as error:
                    outcomes.append(error.code().name)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert len(outcomes) == 200 * TIMES
    assert set(outcomes) <= {"right", *(code.name for code in TYPED)}
    goes_on(served)
    assert served.front() == pid
    counts = {outcome: outcomes.count(outcome) for outcome in set(outcomes)}
    with capsys.disabled():
        print(f"\n200 clients x{TIMES}: {counts}, front {before:.0f} to {rss(pid):.0f} MiB")


def test_malformed_and_oversized_messages_are_refused_and_the_front_goes_on(served: Served) -> None:
    pid = served.front()
    noise = np.random.default_rng(7)
    channel = grpc.insecure_channel(served.address)
    raw = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
    good = request(3).SerializeToString()
    for number in range(100 * TIMES):
        broken = bytearray(good)
        for at in noise.integers(0, len(good), 1 + number % 5):
            broken[at] = noise.integers(256)
        try:
            raw(bytes(broken[: len(good) - number % 7]))
        except grpc.RpcError as error:
            if error.code() not in (*TYPED, *REFUSALS):
                raise
    for _ in range(TIMES):
        with pytest.raises(grpc.RpcError) as refused:
            raw(bytes(2_000_000))
        assert refused.value.code() in TYPED  # alone it is RESOURCE_EXHAUSTED: test_calls.py
        with socket.create_connection(served.address.split(":")) as plain:
            plain.sendall(noise.bytes(10_000))
    channel.close()
    goes_on(served)
    assert served.front() == pid


@pytest.mark.campaign
def test_clients_that_stop_reading_hold_a_bounded_number_of_streams(
    served: Served, capsys: Any
) -> None:
    pid = served.front()
    held = []
    refused = 0
    never = threading.Event()

    def requests() -> Any:
        for _ in range(200):
            yield request(1)
        never.wait(PATIENCE)

    count = min(10 * TIMES, 200)  # of the 256 connections
    for _ in range(count):
        channel = grpc.insecure_channel(
            served.address, options=[("grpc.use_local_subchannel_pool", 1)]
        )
        stream = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelStreamInfer(requests())
        try:
            next(stream)  # and nothing after it
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                raise
            refused += 1
        held.append((channel, stream))
    goes_on(served)
    used = rss(pid)
    never.set()
    for channel, stream in held:
        stream.cancel()
        channel.close()
    assert refused == max(0, count - 16)
    assert served.front() == pid
    with capsys.disabled():
        print(f"\n{len(held)} streams that are not read: {refused} refused, front {used:.0f} MiB")
