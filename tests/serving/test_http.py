"""KServe v2 over HTTP: the stock client, plain requests, Unix sockets, tokens, bounds and hostile bytes."""

from __future__ import annotations

import contextlib
import errno
import gzip
import http.client
import json
import os
import random
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example
from hypothesis import given as given_by
from hypothesis import strategies as st

pytest.importorskip("tritonclient.grpc", reason="extra grpc is not installed")
pytest.importorskip("aiohttp", reason="extra http is not installed")

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from nnburst.hal.environment import KILLS
from nnburst.hal.errors import InvalidArgument
from nnburst.serving import http_server, rest, service
from nnburst.serving.credentials import NotAuthenticated, Tokens
from nnburst.serving.http_server import HttpServer
from nnburst.serving.service import InferenceService
from serving.networks import SLEEP
from serving.served import MODELS, PATIENCE, Served, region_key
from waiting import wait_for

A = np.arange(6, dtype=np.float32).reshape(2, 3)
B = np.full((2, 3), 100, np.float32)
#: Hostile requests.
TIMES = 200 * (KILLS.read() if KILLS.is_set else 1)
Reply = tuple[int, Any]


class UnixConnection(http.client.HTTPConnection):
    """HTTP by a socket with a path."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=PATIENCE)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self._path)


def send(
    address: str, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
) -> Reply:
    """Status and JSON, or bytes, of an answer."""
    if address.startswith("unix:"):
        connection: http.client.HTTPConnection = UnixConnection(address.removeprefix("unix:"))
    else:
        connection = http.client.HTTPConnection(address, timeout=PATIENCE)
    with contextlib.closing(connection):
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        connection.request(method, path, data, headers or {})
        response = connection.getresponse()
        found = response.read()
        if response.getheader("Content-Type", "").startswith("application/json") and found:
            return response.status, json.loads(found)
        return response.status, found


def addition(value: float = 1, **more: Any) -> dict[str, Any]:
    inputs = [
        {"name": name, "datatype": "FP32", "shape": [2, 3], "data": [value] * 6} for name in "ab"
    ]
    return {"inputs": inputs, **more}


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    words = "--http 127.0.0.1:0 --http-metrics --shared-memory --max-message 100000"
    with Served(*words.split(), "--model-control", "explicit") as served:
        yield served


@pytest.fixture
def client(served: Served) -> Iterator[Any]:
    triton = pytest.importorskip("tritonclient.http", reason="tritonclient[http] is not installed")
    with triton.InferenceServerClient(served.http) as client:
        yield client


# -- the stock client --------------------------------------------------------------------------------


def inputs(binary: bool = True, **arrays: Any) -> list[Any]:
    import tritonclient.http as triton

    found = []
    for name, array in arrays.items():
        kind = {"float32": "FP32", "int32": "INT32", "uint8": "UINT8", "bool": "BOOL"}
        found.append(triton.InferInput(name, list(array.shape), kind[array.dtype.name]))
        found[-1].set_data_from_numpy(array, binary_data=binary)
    return found


def test_states_and_descriptions_by_the_stock_client(client: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert all(client.is_model_ready(name) for name in MODELS)
    assert client.get_server_metadata()["name"] == "nnburst"
    found = client.get_model_metadata("both")
    assert found["versions"] == ["1"]
    assert [(each["name"], each["datatype"], each["shape"]) for each in found["inputs"]] == [
        ("input_0", "INT32", [-1]),
        ("input_1", "INT32", [-1]),
    ]
    config = client.get_model_config("quantised", "1")
    assert config["input"][0]["data_type"] == "TYPE_UINT8"
    assert config["parameters"]["input_0.scale"]["string_value"] == "0.5"
    names = [each["name"] for each in client.get_inference_statistics()["model_stats"]]
    assert sorted(names) == sorted(MODELS)


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("compression", [None, "gzip", "deflate"])
def test_inference_by_the_stock_client(client: Any, binary: bool, compression: str | None) -> None:
    import tritonclient.http as triton

    result = client.infer(
        "add",
        inputs(binary, a=A, b=B),
        request_id="seven",
        outputs=[triton.InferRequestedOutput("y", binary_data=binary)],
        request_compression_algorithm=compression,
        response_compression_algorithm=compression,
    )
    assert result.as_numpy("y").tolist() == (A + B).tolist()
    assert result.get_response()["id"] == "seven"
    x = np.array([1, 0, 1, 0], bool)
    found = client.infer("conjunction", inputs(binary, x=x, y=x)).as_numpy("both")
    assert found.tolist() == x.tolist()


def test_requests_at_once_and_sequences_by_the_stock_client(served: Served) -> None:
    import tritonclient.http as triton

    with triton.InferenceServerClient(served.http, concurrency=4) as client:
        calls = [client.async_infer("add", inputs(a=A + n, b=B)) for n in range(12)]
        assert [float(call.get_result().as_numpy("y")[0, 0]) for call in calls] == [
            100 + n for n in range(12)
        ]
        sums = []
        for n in range(3):
            result = client.infer(
                "accumulate", inputs(x=np.float32([1, 1])), sequence_id=7,
                sequence_start=n == 0, sequence_end=n == 2,
            )  # fmt: skip
            sums.append(float(result.as_numpy("y")[0]))
        assert sums == [11, 12, 13]


def test_repository_by_the_stock_client(client: Any) -> None:
    for change in (client.load_model, client.unload_model, client.load_model):
        change("quantised")
    found = {each["name"]: each["state"] for each in client.get_model_repository_index()}
    assert found["quantised"] == "READY"


def test_shared_memory_by_the_stock_client(client: Any) -> None:
    import tritonclient.http as triton
    from tritonclient.utils import shared_memory

    key = region_key("http")
    room = shared_memory.create_shared_memory_region("http", key, 3 * A.nbytes)
    try:
        shared_memory.set_shared_memory_region(room, [A, B])
        client.register_system_shared_memory("http", key, 3 * A.nbytes)
        (status,) = client.get_system_shared_memory_status("http")
        assert status["byte_size"] == 3 * A.nbytes
        given = [triton.InferInput(name, [2, 3], "FP32") for name in "ab"]
        for number, each in enumerate(given):
            each.set_shared_memory("http", A.nbytes, number * A.nbytes)
        wanted = triton.InferRequestedOutput("y")
        wanted.set_shared_memory("http", A.nbytes, 2 * A.nbytes)
        client.infer("add", given, outputs=[wanted])
        found = shared_memory.get_contents_as_numpy(room, np.float32, [2, 3], 2 * A.nbytes)
        assert found.tolist() == (A + B).tolist()
        client.unregister_system_shared_memory("http")
        assert client.get_system_shared_memory_status() == []
        assert client.get_cuda_shared_memory_status() == []
    finally:
        shared_memory.destroy_shared_memory_region(room)


# -- plain requests ----------------------------------------------------------------------------------


def test_numbers_in_the_body_are_added(served: Served) -> None:
    status, found = send(served.http, "POST", "/v2/models/add/infer", addition(2, id="x"))
    assert status == 200
    assert found == {
        "model_name": "add",
        "model_version": "1",
        "id": "x",
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [2, 3], "data": [4.0] * 6}],
    }


def test_health_is_a_status_and_for_the_server_in_words_too(served: Served) -> None:
    assert send(served.http, "GET", "/v2/health/live") == (200, {"live": True})
    assert send(served.http, "GET", "/v2/health/ready") == (200, {"ready": True})
    assert send(served.http, "GET", "/v2/models/add/ready")[0] == 200
    assert send(served.http, "GET", "/v2/models/nothing/ready")[0] == 404


@pytest.mark.parametrize(
    "path", ["/v2", "/v2/health/ready", "/v2/models/add", "/v2/models/nothing", "/metrics", "/"]
)
def test_head_is_answered_as_get_without_a_body(served: Served, path: str) -> None:
    heads = []
    for method in ("GET", "HEAD"):
        connection = http.client.HTTPConnection(served.http, timeout=PATIENCE)
        connection.request(method, path)
        answer = connection.getresponse()
        assert (answer.read() == b"") == (method == "HEAD")
        heads.append((answer.status, answer.headers["Content-Type"]))
        connection.close()
    assert heads[0] == heads[1]


def test_metrics_are_there_if_they_are_asked_for(served: Served) -> None:
    status, text = send(served.http, "GET", "/metrics")
    assert status == 200
    assert b'nnburst_ready{model="add"} 1.0' in text


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/", None, 404),
        ("GET", "/v2/nothing", None, 404),
        ("DELETE", "/v2/models/add", None, 405),
        ("POST", "/v2/models/add", {}, 405),
        ("POST", "/v2/health/live", {}, 405),
        ("GET", "/v2/models/add/infer", None, 405),
        ("GET", "/v2/repository/index", None, 405),
        ("DELETE", "/v2/nothing", None, 404),
        ("GET", "/v2/models/nothing", None, 404),
        ("POST", "/v2/models/nothing/infer", addition(), 404),
        ("POST", "/v2/models/add/versions/2/infer", addition(), 404),
        ("POST", f"/v2/models/add/versions/{'9' * 5000}/infer", addition(), 404),
        ("GET", f"/v2/models/add/versions/{'9' * 5000}", None, 404),
        ("GET", "/v2/trace/setting", None, 501),
        ("GET", "/v2/logging", None, 501),
        ("POST", "/v2/models/add/infer", b"", 400),
        ("POST", "/v2/models/add/infer", b"{", 400),
        ("POST", "/v2/models/add/infer", b"[" * 50_000, 400),
        ("POST", "/v2/models/add/infer", {"inputs": 3}, 400),
        ("POST", "/v2/models/add/infer", {"inputs": []}, 400),
        ("POST", "/v2/models/add/infer", addition(parameters={"priority": -1}), 400),
        ("POST", "/v2/models/add/infer", addition(SLEEP, parameters={"timeout": 100_000}), 504),
        ("POST", "/v2/models/add/infer", addition(parameters={"timeout": "5"}), 400),
        ("POST", "/v2/models/add/infer", addition(parameters={"timeout": 5.5}), 400),
        ("POST", "/v2/models/add/infer", addition(parameters={"binary_data_output": 1}), 400),
        ("POST", "/v2/repository/models/nothing/load", {}, 404),
        ("POST", "/v2/repository/models/add/load", {"parameters": 5}, 400),
        ("POST", "/v2/repository/models/add/load", {"parameters": {"config": "{}"}}, 400),
        ("POST", "/v2/repository/index", b"3", 400),
        ("POST", "/v2/repository/index", {"ready": "true"}, 400),
        ("POST", "/v2/models/add/infer", bytes(200_000), 429),
    ],
)
def test_what_does_not_fit_has_its_own_status_and_a_reason(
    served: Served, method: str, path: str, body: Any, status: int
) -> None:
    found, reason = send(served.http, method, path, body)
    assert found == status, reason
    assert reason["error"]


def test_another_method_is_answered_with_those_that_the_path_takes(served: Served) -> None:
    with contextlib.closing(http.client.HTTPConnection(served.http, timeout=PATIENCE)) as caller:
        found = []
        for path in ("/v2/models/add", "/v2/models/add/infer", "/v2/health/ready"):
            caller.request("PUT", path, b"{}")
            response = caller.getresponse()
            response.read()
            found.append((response.status, response.getheader("Allow")))
    assert found == [(405, "GET, HEAD"), (405, "POST"), (405, "GET, HEAD")]


@pytest.mark.parametrize("encoding", ["x-snappy", "gzip, br", "br"])
def test_body_in_an_unknown_encoding_is_refused_by_its_name(served: Served, encoding: str) -> None:
    headers = {"Content-Encoding": encoding}
    status, reason = send(served.http, "POST", "/v2/models/add/infer", addition(), headers)
    assert status == 415, reason
    assert encoding in reason["error"]


@pytest.mark.parametrize(
    ("accepted", "encoding"),
    [
        ("gzip", "gzip"),
        ("GZIP", "gzip"),
        ("deflate, gzip", "deflate"),
        ("deflate;q=0.5, gzip;q=0.8, br", "gzip"),
        ("gzip;q=0, deflate", "deflate"),
        ("gzip;q=1, identity", "gzip"),
        ("gzip;q=0.5, identity", None),
        ("gzip;q=0", None),
        ("gzip ; q=0.000, *", None),
        ("gzip;q=much", None),
        ("x-gzip-like", None),
        ("identity", None),
        ("", None),
    ],
)
def test_answer_is_compressed_as_its_caller_takes_it(
    served: Served, accepted: str, encoding: str | None
) -> None:
    with contextlib.closing(http.client.HTTPConnection(served.http, timeout=PATIENCE)) as caller:
        caller.request("GET", "/v2", headers={"Accept-Encoding": accepted})
        response = caller.getresponse()
        found = response.read()
    assert response.getheader("Content-Encoding") == encoding
    decode = {"gzip": gzip.decompress, "deflate": zlib.decompress, None: bytes}[encoding]
    assert json.loads(decode(found))["name"] == "nnburst"


def test_bodies_under_way_are_bounded_together_and_short_ones_are_answered() -> None:
    size, words = 1 << 20, "--http 127.0.0.1:0 --max-message 1048576"
    head = f"POST /v2/models/both/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n"
    row = np.arange(50_000).tolist()
    tensors = [
        {"name": name, "datatype": "INT32", "shape": [len(row)], "data": row}
        for name in ("input_0", "input_1")
    ]
    long = ("POST", "/v2/models/both/infer", {"inputs": tensors})
    with Served(*words.split(), models=("add", "both")) as served:
        host, port = served.http.split(":")
        with contextlib.ExitStack() as held:
            answers = []
            for _ in range(40):
                each = held.enter_context(socket.create_connection((host, int(port)), PATIENCE))
                with contextlib.suppress(ConnectionError):  # it was refused
                    each.sendall(head.encode() + bytes(size - 1))
                answers.append(send(served.http, *long))
                if answers[-1][0] != 200:
                    break
            status, reason = answers[-1]
            assert status == 429, "bodies of 40 MiB are kept"
            assert "bodies" in reason["error"]
            assert len(answers) > 10
            assert send(served.http, "POST", "/v2/models/add/infer", addition())[0] == 200
        deadline = time.monotonic() + PATIENCE
        while send(served.http, *long)[0] != 200:  # the server notes the ends one by one
            assert time.monotonic() < deadline
        assert all(send(served.http, *long)[0] == 200 for _ in range(40))


def test_cancelled_requests_leave_the_queue(served: Served) -> None:
    slow = json.dumps(addition(SLEEP)).encode()
    head = f"POST /v2/models/add/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(slow)}\r\n\r\n"
    host, port = served.http.split(":")
    held = [socket.create_connection((host, int(port))) for _ in range(30)]
    for each in held:
        each.sendall(head.encode() + slow)
    for each in held:
        each.close()
    began = time.monotonic()
    assert send(served.http, "POST", "/v2/models/add/infer", addition())[0] == 200
    assert time.monotonic() - began < 10, "15 s if all were executed by two lanes"


def test_slow_model_holds_up_no_health(served: Served) -> None:
    threads = [
        threading.Thread(
            target=send, args=(served.http, "POST", "/v2/models/add/infer", addition(SLEEP))
        )
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for _ in range(10):
        assert send(served.http, "GET", "/v2/health/live")[0] == 200
    assert any(thread.is_alive() for thread in threads)
    for thread in threads:
        thread.join(PATIENCE)


def test_hostile_bytes_end_no_front_and_no_other_request(served: Served) -> None:
    noise, front = random.Random(7), served.front()
    body = json.dumps(addition(3)).encode()
    host, port = served.http.split(":")
    head = (
        f"POST /v2/models/add/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
        f"Inference-Header-Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    ).encode()
    for number in range(TIMES):
        bad, answer = bytearray(head + body), b""
        is_whole = number % 2 == 0  # then it is answered; what a caller half closes is cancelled
        for _ in range(1 + number % 6):
            bad[noise.randrange(len(head) if is_whole else 0, len(bad))] = noise.randrange(256)
        with socket.create_connection((host, int(port))) as plain, contextlib.suppress(OSError):
            plain.settimeout(PATIENCE)
            if is_whole:
                plain.sendall(bad)
            else:
                plain.sendall(bad[: len(bad) - noise.choice([0, 0, 1, 40])])
                plain.shutdown(socket.SHUT_WR)
            while part := plain.recv(65536):
                answer += part
        assert answer.startswith(b"HTTP/1.1 ") or not is_whole
        if number % 20 == 0:
            status, found = send(served.http, "POST", "/v2/models/add/infer", addition(number))
            assert (status, found["outputs"][0]["data"]) == (200, [2.0 * number] * 6)
    assert served.front() == front


# -- other ways to listen ----------------------------------------------------------------------------


def test_unix_sockets_serve_both_protocols(tmp_path: Path) -> None:
    paths = {name: tmp_path / name for name in ("grpc", "http")}
    words = [word for name, path in paths.items() for word in (f"--{name}", f"unix:{path}")]
    with Served(*words, grpc="", models=("add",)) as served:
        assert served.http == f"unix:{paths['http']}"
        assert send(served.http, "POST", "/v2/models/add/infer", addition(2))[0] == 200
        assert [path.stat().st_mode & 0o777 for path in paths.values()] == [0o600, 0o600]
        with grpc.insecure_channel(f"unix:{paths['grpc']}") as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            assert stub.ServerLive(service_pb2.ServerLiveRequest(), timeout=PATIENCE).live
        os.kill(served.front(), signal.SIGKILL)  # what it has left is replaced
        served.next_address()
        deadline = time.monotonic() + PATIENCE
        while send(served.http, "GET", "/v2/models/add/ready")[0] != 200:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    assert [path.exists() for path in paths.values()] == [False, False]


def test_token_is_asked_for_and_read_again(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    first, second = "first-secret-of-a-test", "second-secret-of-a-test"
    file.write_text(first + "\n")
    words = ["--http", "127.0.0.1:0", "--http-metrics", "--token-file", str(file)]
    with Served(*words, ready=False, models=("add",)) as served:

        def status(path: str, token: str = "") -> int:
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            return send(served.http, "GET", path, None, headers)[0]

        assert status("/v2/health/live") == 200
        for path in ("/v2", "/v2/models/stats", "/metrics"):
            assert [status(path), status(path, "wrong"), status(path, first)] == [401, 401, 200]
        with contextlib.closing(
            http.client.HTTPConnection(served.http, timeout=PATIENCE)
        ) as caller:
            caller.request("GET", "/v2")
            assert caller.getresponse().getheader("WWW-Authenticate") == "Bearer"
        file.write_text(second + "\n")
        assert [status("/v2", first), status("/v2", second)] == [401, 200]
        with grpc.insecure_channel(served.address) as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            for call, message in (
                (stub.ServerLive, service_pb2.ServerLiveRequest()),
                (stub.ModelInfer, service_pb2.ModelInferRequest(model_name="add")),
            ):
                with pytest.raises(grpc.RpcError) as refused:
                    call(message, timeout=PATIENCE)
                assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
            stream = stub.ModelStreamInfer(iter([]), timeout=PATIENCE)
            with pytest.raises(grpc.RpcError) as refused:
                next(stream)
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
            with_token = [("authorization", f"Bearer {second}")]
            request = service_pb2.ServerLiveRequest()
            assert stub.ServerLive(request, metadata=with_token, timeout=PATIENCE).live


def test_file_of_tokens_that_is_gone_lets_no_caller_in_until_it_is_back(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("short\n")
    with pytest.raises(InvalidArgument, match="no line of 16 characters"):
        Tokens(file)
    file.write_text("a-token-that-is-long-enough\n")
    tokens = Tokens(file)
    tokens.check("bearer a-token-that-is-long-enough")
    away = file.rename(tmp_path / "away")
    with pytest.raises(NotAuthenticated):
        tokens.check("Bearer a-token-that-is-long-enough")
    away.rename(file)
    tokens.check("Bearer a-token-that-is-long-enough")


def test_request_is_answered_although_the_server_has_a_defect(
    lone_server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def defective(*_: Any) -> Any:
        raise ZeroDivisionError("of a defect")

    given = {"datatype": "FP32", "shape": [1], "data": [1]}
    body = {"inputs": [{"name": name, **given} for name in "ab"]}
    address, infer, one = lone_server.address, "/v2/models/differing/infer", "/v2/models/differing"
    for owner, name, call in (
        (service, "read_inputs", ("POST", infer, body)),
        (http_server, "read_request", ("POST", infer, body)),
        (http_server, "write_response", ("POST", infer, body)),
        (InferenceService, "ModelMetadata", ("GET", one)),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(owner, name, defective)
            status, answer = send(address, *call)
        assert status == 500, name
        assert answer["error"] == "the server failed: ZeroDivisionError: of a defect"
        assert send(address, *call)[0] == 200, "the next one is right"


@pytest.fixture
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has servers wait for callers 0.2 s."""
    monkeypatch.setattr(http_server, "READING", 0.2)
    monkeypatch.setattr(http_server, "_PERIOD", 0.05)


@pytest.fixture
def impatient_server(impatience: None, lone_server: HttpServer) -> HttpServer:
    """A server in this process that waits for callers 0.2 s, with a model `differing`."""
    return lone_server


@pytest.fixture
def impatient(impatient_server: HttpServer) -> str:
    """Its address."""
    return impatient_server.address


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (b"", b""),
        (b"POST /v2/models/differing/infer HTTP/1.1\r\nHost: ", b""),
        (
            b"POST /v2/models/differing/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{",
            b"HTTP/1.1 408 ",
        ),
    ],
)
def test_request_that_does_not_come_ends_its_connection(
    impatient: str, sent: bytes, answer: bytes
) -> None:
    host, port = impatient.split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as slow:
        slow.sendall(sent)
        found = b""
        with contextlib.suppress(ConnectionResetError):
            while chunk := slow.recv(4096):
                found += chunk
        assert found.startswith(answer)
        assert bool(found) == bool(answer)
    assert send(impatient, "GET", "/v2/health/live")[0] == 200


def test_call_that_the_system_refuses_to_the_loop_is_one_line_of_the_log(
    impatient_server: HttpServer, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse() -> None:
        raise OSError(errno.ENOMEM, "no memory")

    impatient_server._loop.call_soon_threadsafe(refuse)
    wait_for(lambda: caplog.records)
    assert send(impatient_server.address, "GET", "/v2/health/live")[0] == 200
    (record,) = caplog.records
    assert record.exc_info is None
    assert "no memory; serving goes on" in record.getMessage()


def test_answer_that_is_not_taken_ends_its_connection(impatient: str) -> None:
    host, port = impatient.split(":")
    given = [
        {
            "name": name,
            "datatype": "FP32",
            "shape": [400_000],
            "parameters": {"binary_data_size": 1_600_000},
        }
        for name in "ab"
    ]
    head = json.dumps({"inputs": given, "parameters": {"binary_data_output": True}}).encode()
    body = head + bytes(3_200_000)
    words = (
        f"POST /v2/models/differing/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
        f"Inference-Header-Content-Length: {len(head)}\r\n\r\n"
    )
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect((host, int(port)))
        slow.sendall(words.encode() + body)
        deadline = time.monotonic() + PATIENCE
        while True:  # until it is aborted, which a further byte shows
            assert time.monotonic() < deadline
            try:
                slow.sendall(b"x")
            except OSError:
                break
            time.sleep(0.02)  # of the server's clock, which does not notify anyone


def test_connections_beyond_the_bound_are_refused(impatient: str) -> None:
    host, port = impatient.split(":")
    deadline = time.monotonic() + PATIENCE
    refused = False
    while not refused:  # idle connections end, on a busy machine before the next one comes
        assert time.monotonic() < deadline
        with contextlib.ExitStack() as held:
            for _ in range(3):
                held.enter_context(socket.create_connection((host, int(port))))
            try:
                send(impatient, "GET", "/v2/health/live")
            except (OSError, http.client.HTTPException):
                refused = True
    while True:
        with contextlib.suppress(OSError, http.client.HTTPException):
            if send(impatient, "GET", "/v2/health/live")[0] == 200:
                break
        assert time.monotonic() < deadline


@pytest.mark.parametrize(("version", "interim"), [("1.0", 0), ("1.1", 1)])
def test_continue_is_sent_to_callers_that_know_it(
    lone_server: HttpServer, version: str, interim: int
) -> None:
    head = f"POST /v2/repository/index HTTP/{version}\r\nHost: x\r\nConnection: close\r\n"
    with socket.create_connection(lone_server.address.split(":"), PATIENCE) as caller:
        caller.sendall(head.encode() + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n{}")
        found = b"".join(iter(lambda: caller.recv(4096), b""))
    assert found.count(b"HTTP/1.1 100 Continue\r\n\r\n") == interim
    assert f"HTTP/{version} 200 OK".encode() in found


@pytest.mark.campaign
@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")
def test_certificate_that_has_changed_is_used_for_new_connections(tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"

    def renew() -> None:
        made = [tmp_path / "new.pem", tmp_path / "new.key"]
        words = [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-subj",
            "/CN=localhost",
        ]
        words += ["-days", "2", "-out", str(made[0]), "-keyout", str(made[1])]
        subprocess.run(words, check=True, capture_output=True, timeout=PATIENCE)
        made[1].rename(key)
        made[0].rename(certificate)

    def shown(address: str, protocol: str) -> bytes:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols([protocol])
        host, port = address.split(":")
        plain = socket.create_connection((host, int(port)), timeout=PATIENCE)
        with context.wrap_socket(plain) as secured:
            return secured.getpeercert(binary_form=True) or b""

    renew()
    words = ["--http", "127.0.0.1:0", "--tls-cert", str(certificate), "--tls-key", str(key)]
    with Served(*words, ready=False, models=("add",)) as served:
        places = [(served.address, "h2"), (served.http, "http/1.1")]
        first = {shown(*place) for place in places}
        assert len(first) == 1
        renew()
        second = {shown(*place) for place in places}
        assert len(second) == 1
        assert second != first


# -- the parser --------------------------------------------------------------------------------------


@given_by(
    st.sampled_from(["INT8", "UINT8", "INT16", "UINT16", "INT32", "UINT32", "INT64", "UINT64"]),
    st.lists(st.integers(-(2**64), 2**65), min_size=1, max_size=4),
)
@example("UINT64", [0, 2**63])
@example("UINT64", [2**53 + 1, 2**64 - 1])
@example("UINT64", [2**63, 2**64])
@example("INT8", [0, 2**63])
def test_integers_arrive_as_they_are_or_are_refused(kind: str, values: list[int]) -> None:
    width = int(kind.lstrip("UINT"))
    low, high = (0, 2**width) if kind[0] == "U" else (-(2 ** (width - 1)), 2 ** (width - 1))
    given = {"name": "x", "datatype": kind, "shape": [len(values)], "data": values}
    body = json.dumps({"inputs": [given]}).encode()
    if all(low <= value < high for value in values):
        message, _ = rest.read_request(body, len(body), "m", "")
        found = np.frombuffer(message.raw_input_contents[0], rest.DATA_TYPES[kind])
        assert found.tolist() == values
    else:
        with pytest.raises(InvalidArgument):
            rest.read_request(body, len(body), "m", "")


def read_data(kind: str, data: Any) -> bytes:
    given = {"name": "x", "datatype": kind, "shape": [len(data)], "data": data}
    body = json.dumps({"inputs": [given]}).encode()
    message, _ = rest.read_request(body, len(body), "m", "")
    return bytes(message.raw_input_contents[0])


def test_strings_among_numbers_are_refused_before_they_become_an_array() -> None:
    words = ["a" * 8_000_000] + [""] * 1_500_000
    for kind in ("FP32", "INT8", "BOOL", "BF16"):
        with pytest.raises(InvalidArgument, match=f"values that are not of {kind}"):
            read_data(kind, words)


@pytest.mark.parametrize(
    ("kind", "data"), [("INT32", [True, 2]), ("FP32", [True, 2.5]), ("BOOL", [True, 1])]
)
def test_truth_values_and_numbers_are_not_mixed(kind: str, data: list[Any]) -> None:
    with pytest.raises(InvalidArgument, match=f"^input 'x' has values that are not of {kind}"):
        read_data(kind, data)


def test_whole_number_beyond_64_bits_is_a_real_number() -> None:
    assert np.frombuffer(read_data("FP64", [10**20, -(2**64)]), "<f8").tolist() == [
        1e20,
        -(2.0**64),
    ]
    assert np.frombuffer(read_data("FP32", [2**64, 1e39]), "<f4").tolist() == [2.0**64, np.inf]


@given_by(st.binary(max_size=80), st.integers(-5, 100))
def test_any_bytes_are_read_or_refused(body: bytes, head_size: int) -> None:
    with contextlib.suppress(InvalidArgument):
        rest.read_request(body, head_size, "m", "")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda each: (
        st.lists(each, max_size=3) | st.dictionaries(st.text(max_size=5), each, max_size=3)
    ),
    max_leaves=6,
)
FIELDS = ("name", "shape", "datatype", "data", "parameters")


@given_by(
    st.lists(st.fixed_dictionaries({}, optional=dict.fromkeys(FIELDS, JSON)), max_size=2), JSON
)
def test_any_json_is_read_or_refused(tensors: Any, more: Any) -> None:
    for document in ({"inputs": tensors, "outputs": more}, {"inputs": tensors}, more):
        body = json.dumps(document).encode()
        with contextlib.suppress(InvalidArgument):
            rest.read_request(body, len(body), "m", "")


@pytest.mark.parametrize("value", [0.0, 1.0, -2.5, 3.1415927, 1e-40, float("inf"), 65280.0])
def test_bfloat16_is_rounded_to_the_nearest(value: float) -> None:
    bits = np.frombuffer(rest._to_bfloat16(np.float32([value])), "<u2")
    found = (bits.astype("<u4") << 16).view("<f4")[0]
    assert found == pytest.approx(value, rel=2**-8)
