"""The front's process: what it tells its supervisor, what it does about bad models, and how it ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest

pytest.importorskip("tritonclient.grpc", reason="extra grpc is not installed")

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from programs import driver_environ_of_tests
from serving.served import PATIENCE, Served
from waiting import wait_for


def add(value: float = 1) -> Any:
    message = service_pb2.ModelInferRequest(model_name="add")
    for name in "ab":
        message.inputs.add(name=name, datatype="FP32", shape=[2, 3])
        message.raw_input_contents.append(np.full(6, value, "<f4").tobytes())
    return message


class Managed:
    """A driver with a front that tells a service manager of itself."""

    def __init__(self, folder: Path, address: str) -> None:
        self.manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.manager.bind(str(folder / "notify"))
        self.manager.settimeout(PATIENCE)
        environment = driver_environ_of_tests() | {"NOTIFY_SOCKET": str(folder / "notify")}
        words = ["serve", str(folder / "driver"), "--executor", "reference", "--grpc", address]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "nnburst", *words, "--model", "add=serving.networks:add"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.communicate(timeout=PATIENCE)
        self.manager.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_service_is_ready_when_its_port_listens(tmp_path: Path) -> None:
    port = free_port()
    with Managed(tmp_path, f"127.0.0.1:{port}") as managed:
        assert managed.manager.recv(4096).startswith(b"READY=1\n")
        socket.create_connection(("127.0.0.1", port)).close()


def test_service_whose_port_is_taken_is_never_ready(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with Managed(tmp_path, f"127.0.0.1:{port}") as managed:
            assert managed.process.stderr is not None
            line = ""
            while "the front ended with 1" not in line:
                line = managed.process.stderr.readline()
                assert line
            managed.manager.setblocking(False)
            with pytest.raises(BlockingIOError):
                managed.manager.recv(4096)


def test_front_starts_again_although_its_output_cannot_be_written_any_more() -> None:
    """As when the disk with its log is full, or the program that read it has ended."""
    with (
        Served(grpc=f"127.0.0.1:{free_port()}", models=("add",)) as served,
        grpc.insecure_channel(served.address) as channel,
    ):
        assert served.process.stdout is not None
        served.process.stdout.close()
        served.process.stdout = None
        os.kill(served.front(), signal.SIGKILL)
        ready = service_pb2_grpc.GRPCInferenceServiceStub(channel).ServerReady

        def is_ready() -> bool:
            try:
                return bool(ready(service_pb2.ServerReadyRequest(), timeout=PATIENCE).ready)
            except grpc.RpcError:
                return False

        wait_for(is_ready)
        errors = served.close()
    assert errors.count("the front ended") == 1
    assert "cannot print that gRPC is at" in errors


def test_model_that_cannot_be_read_fails_alone_with_its_reason(tmp_path: Path) -> None:
    bad = tmp_path / "bad.tflite"
    bad.write_bytes(b"no network at all")
    served = Served(
        "--model", f"bad={bad}", "--model", "gone=serving.networks:nowhere", models=("add",)
    )
    try:
        with grpc.insecure_channel(served.address) as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            health = health_pb2_grpc.HealthStub(channel)
            deadline = time.monotonic() + PATIENCE
            while not stub.ModelReady(service_pb2.ModelReadyRequest(name="add")).ready:
                assert time.monotonic() < deadline
                time.sleep(0.02)  # the protocol has no other way to wait
            stub.ModelInfer(add(), timeout=PATIENCE)
            for name, reason in (("bad", "bad.tflite"), ("gone", "nowhere")):
                while True:
                    with pytest.raises(grpc.RpcError) as error:
                        request = service_pb2.ModelInferRequest(model_name=name)
                        stub.ModelInfer(request, timeout=PATIENCE)
                    assert error.value.code() is grpc.StatusCode.UNAVAILABLE
                    if "preparing" not in error.value.details():
                        break
                    assert time.monotonic() < deadline
                assert reason in error.value.details()
                for call, kind in (
                    (stub.ModelMetadata, service_pb2.ModelMetadataRequest),
                    (stub.ModelConfig, service_pb2.ModelConfigRequest),
                ):
                    with pytest.raises(grpc.RpcError, match=reason) as error:
                        call(kind(name=name), timeout=PATIENCE)
                    assert error.value.code() is grpc.StatusCode.UNAVAILABLE
                answer = health.Check(health_pb2.HealthCheckRequest(service=name))
                assert answer.status == health_pb2.HealthCheckResponse.NOT_SERVING
    finally:
        served.close()


@pytest.mark.every_day("SIGHUP")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=lambda each: each.name)
def test_signal_to_end_cuts_no_call_off_and_refuses_those_that_come(
    number: signal.Signals,
) -> None:
    codes: Counter[grpc.StatusCode] = Counter()
    begun = threading.Semaphore(0)

    def call(served: Served) -> None:
        with grpc.insecure_channel(
            served.address, options=[("grpc.use_local_subchannel_pool", 1)]
        ) as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            stub.ModelInfer(add(), timeout=PATIENCE)
            begun.release()
            while True:
                try:
                    stub.ModelInfer(add(), timeout=PATIENCE)
                except grpc.RpcError as error:
                    codes[error.code()] += 1
                    return

    with Served(models=("add",)) as served:
        threads = [threading.Thread(target=call, args=(served,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for _ in threads:
            assert begun.acquire(timeout=PATIENCE)
        if number == signal.SIGHUP:  # a terminal that is closed sends it to all of them
            for pid in (served.front(), served.forking(), *served.workers()):
                os.kill(pid, number)
        served.process.send_signal(number)
        for thread in threads:
            thread.join(PATIENCE)
    assert codes == {grpc.StatusCode.UNAVAILABLE: 8}
