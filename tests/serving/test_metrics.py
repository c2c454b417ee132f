"""Metrics have exactly what the clients have counted, for this user only, in a bounded number of series."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnburst.hal.environment import KILLS

pytest.importorskip("tritonclient.grpc", reason="extra grpc is not installed")
pytest.importorskip("prometheus_client", reason="extra metrics is not installed")

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from nnburst.cli.top import quantile, read, row
from nnburst.hal.errors import DeviceUnavailable
from nnburst.serving.statistics import BOUNDS, Durations, Statistics
from serving.networks import DIE
from serving.served import PATIENCE, Served

CLIENTS = 6
ROUNDS = (KILLS.read() if KILLS.is_set else 2) * 20


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with Served("--metrics", "127.0.0.1:0") as served:
        yield served


def request(value: float, width: int = 3) -> Any:
    message = service_pb2.ModelInferRequest(model_name="add")
    for name in "ab":
        message.inputs.add(name=name, datatype="FP32", shape=[2, width])
        message.raw_input_contents.append(np.full(2 * width, value, "<f4").tobytes())
    return message


def test_counters_equal_what_the_clients_counted(served: Served) -> None:
    counted: Counter[str] = Counter()
    lock = threading.Lock()

    def call(number: int) -> None:
        with grpc.insecure_channel(served.address) as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            for turn in range(ROUNDS):
                dies = number == 0 and turn == ROUNDS // 2 + 1
                try:
                    stub.ModelInfer(request(DIE if dies else turn, 3 if turn % 5 else 4))
                    status = "OK"
                except grpc.RpcError as error:
                    status = error.code().name
                with lock:
                    counted[status] += 1

    threads = [threading.Thread(target=call, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    found = read(served.metrics)["add"]
    shown = {
        name.partition(" ")[2]: int(value)
        for name, value in found.items()
        if name.startswith("nnburst_requests_total")
    }
    assert shown == dict(counted)
    assert sum(counted.values()) == CLIENTS * ROUNDS
    assert found["nnburst_total_seconds_count"] == counted["OK"]
    assert found["nnburst_executions_total NONE"] == counted["OK"]
    assert found["nnburst_in_flight"] == 0
    assert found["nnburst_recoveries_total"] >= 1


def test_series_do_not_grow_with_what_clients_send(served: Served) -> None:
    with grpc.insecure_channel(served.address) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        for number in range(20):
            with pytest.raises(grpc.RpcError):
                stub.ModelInfer(service_pb2.ModelInferRequest(model_name=f"made up {number}"))
    assert not [name for name in read(served.metrics) if name.startswith("made up")]


#: Becomes another user once it has imported what it needs, and prints how each request was answered.
OTHER_USER = """
import encodings.idna, http.client, os, socket, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
host, port = sys.argv[1].split(":")

def status(source):
    connection = http.client.HTTPConnection(host, int(port), timeout=60, source_address=source)
    connection.request("GET", "/metrics")
    return connection.getresponse().status

def end_first(source):
    with socket.socket() as ended:  # who closes first keeps the address in TIME_WAIT
        ended.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        ended.bind(source)
        ended.connect((host, int(port)))

print(status(None))
for turn in range(3):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number = free.getsockname()[1]
    for last in range(2, 6):
        end_first((f"127.0.0.{last}", number))
    print(status(("127.0.0.1", number)))
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
def test_another_user_is_refused_also_beside_connections_that_have_ended(served: Served) -> None:
    done = subprocess.run(
        [sys.executable, "-c", OTHER_USER, served.metrics],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["403"] * 4


def test_other_paths_are_not_found(served: Served) -> None:
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"http://{served.metrics}/secrets")


def test_top_shows_each_model_and_prints_each_look_into_a_pipe(
    served: Served, tmp_path: Path
) -> None:
    file = tmp_path / "top.json"
    command = [sys.executable, "-m", "nnburst", "top", served.metrics, "--times", "2"]
    done = subprocess.run(
        [*command, "--json", str(file)],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    assert "quantised" in done.stdout
    assert done.stdout.count("┏") == 2 * 2  # the corners of two tables
    assert {each["model"] for each in json.loads(file.read_text())["models"]} >= {"add", "both"}


def test_address_without_metrics_is_named() -> None:
    with pytest.raises(DeviceUnavailable, match="has no metrics"):
        read("127.0.0.1:1")


@pytest.mark.parametrize("address", ["a b:9100", "127.0.0.1:x"])
def test_text_that_is_no_address_is_named(address: str) -> None:
    with pytest.raises(DeviceUnavailable, match=f"address: {address} has no metrics"):
        read(address)


@pytest.mark.parametrize(
    "answer",
    [
        b"\0\0\x12\4\0",  # of gRPC's port
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\n\r\n<html></html>",
        b"HTTP/1.1 200 OK\r\n\r\n# TYPE python_info gauge\npython_info 1.0\n",
    ],
)
def test_address_of_another_server_is_refused(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"

        def serve() -> None:
            with server.accept()[0] as connection:
                connection.recv(4096)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(DeviceUnavailable, match=f"address: {address} has no metrics"):
            read(address)
        thread.join()


def test_row_has_what_happened_between_two_looks() -> None:
    before = {"nnburst_requests_total OK": 5.0, "nnburst_requests_total INTERNAL": 1.0}
    now = {"nnburst_requests_total OK": 8.0, "nnburst_requests_total INTERNAL": 1.0}
    assert row("m", before, now)["succeeded"] == 3
    assert row("m", before, now)["failed"] == {}


def test_row_of_a_service_that_was_started_again_has_its_counts_since_then() -> None:
    series = (
        "nnburst_requests_total OK",
        *(f"nnburst_total_seconds_bucket {end}" for end in ("0.1", "+Inf")),
    )
    found = row("m", dict.fromkeys(series, 1000.0), dict.fromkeys(series, 3.0))
    assert found["succeeded"] == 3
    assert found["p50_ms"] == 100


def test_quantile_is_the_end_of_its_bucket() -> None:
    statistics = Statistics()
    for nanoseconds in [50_000] * 98 + [BOUNDS[-1] + 1, 400_000_000]:
        statistics.begin()
        statistics.succeed(Durations(0, 0, nanoseconds))
    found = statistics.snapshot()
    assert found.in_flight == 0
    below = np.cumsum(found.histograms["total"].counts)
    ends = [*(bound / 1e9 for bound in BOUNDS), "+Inf"]
    series = {
        f"nnburst_total_seconds_bucket {end}": float(count)
        for end, count in zip(ends, below, strict=True)
    }
    assert quantile(series, 0.5) == 0.1
    assert quantile(series, 0.99) == 500
    assert quantile(series, 1.0) is None
    assert quantile({}, 0.5) is None
