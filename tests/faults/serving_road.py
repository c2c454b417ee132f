"""The road through a front, which a client in another process calls by both protocols.

    python -m faults.serving_road client
    python -m faults.serving_road front CALL NUMBER FILE WORDS...
    python -m faults.serving_road supervisor CALL NUMBER FILE WORDS...

The client reads lines `PROTOCOL ADDRESS WHAT`: "load", "unload", or a number, for which it requests that
number + 1. It writes a line: empty for the right result, else the status and the message of the error. The
front, or the supervisor with its front and its workers, runs as usual, except that one call of the process
fails; it writes the number of calls so far to a file.
"""

from __future__ import annotations

import http.client
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import nnburst

#: Seconds that a call may take: one that takes longer is stuck.
LONGEST = 30
#: Seconds until a front must give right results again.
_PATIENCE = 20
#: Statuses of errors of ours, by gRPC's names and HTTP's numbers; and a connection that was lost.
_TYPED = {"UNAVAILABLE", "RESOURCE_EXHAUSTED", "INTERNAL", "503", "429", "500", "lost"}


class NotTyped(Exception):
    """A front's answer or log entry has an error that is not one of nnburst's."""


class Client:
    """A process that calls fronts."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "faults.serving_road", "client"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def ask(self, protocol: str, address: str, what: int | str) -> str:
        """The status and message of an error; empty for the right result."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{protocol} {address} {what}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the client has ended"
        return line.strip()

    def ask_until_right(self, addresses: dict[str, str], *loading: str) -> None:
        """Send requests by each protocol, and each again after an error of nnburst's.

        Args:
            addresses: the address of each protocol.
            loading: "load" or "unload", before the request for an inference.

        Raises:
            NotTyped: an error is not one of nnburst's, or the errors do not end.
        """
        deadline = time.monotonic() + _PATIENCE
        for number, (protocol, address) in enumerate(addresses.items()):
            for what in (*loading, number):
                while found := self.ask(protocol, address, what):
                    if found.split()[0] not in _TYPED or time.monotonic() > deadline:
                        raise NotTyped(f"{protocol} {what}: {found}")
                    time.sleep(0.02)  # the protocols have no other way to wait

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(LONGEST)
        self._process.stdout.close()


class Notes(logging.Handler):
    """Keeps log entries with an exception that is not one of nnburst's."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, (nnburst.NnburstError, MemoryError)):
            self.found.append(f"logged {record.getMessage()}: {type(error).__name__}: {error}")


@contextmanager
def driver() -> Iterator[str]:
    """The address of a driver in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        address = f"{folder}/driver"
        command = [sys.executable, "-m", "nnburst", "serve", address, "--executor", "reference"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            yield address
        finally:
            process.terminate()
            process.wait(LONGEST)


#: Options of a front. It has one lane, since two requests at a time would first use another lane, which maps
#: memory for good.
FRONT = [
    *("--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--lanes", "1"),
    *("--model", "add=serving.networks:add", "--model-control", "explicit"),
]


def words(address: str) -> list[str]:
    """Options of a front of the driver at `address`."""
    return ["--connect", address, *FRONT]


@contextmanager
def front() -> Iterator[dict[str, str]]:
    """Addresses by protocol of a front in this process, over a driver in another one; its model is ready."""
    from nnburst.serving.models import Models
    from nnburst.serving.options import parse
    from nnburst.serving.queue import Clock
    from nnburst.serving.servers import Servers
    from nnburst.serving.sources import GivenModels
    from nnburst.serving.workers import Workers

    with driver() as address:
        options = parse(words(address))
        clock = Clock(0.5)
        models = Models([GivenModels(options.models)], options, Workers(address), clock)
        servers = Servers(options, models, clock, None, None, None)
        servers.start()
        try:
            while not models.is_ready:
                time.sleep(0.01)  # the protocols have no other way to wait
            yield servers.addresses
        finally:
            servers.close(5)
            clock.close()
            models.close()


_channels: dict[str, Any] = {}


def by_grpc(address: str, what: str) -> str:
    """See the module."""
    import grpc
    from tritonclient.grpc import service_pb2, service_pb2_grpc

    if address not in _channels:
        _channels[address] = grpc.insecure_channel(address)
    stub = service_pb2_grpc.GRPCInferenceServiceStub(_channels[address])
    try:
        if what == "load":
            message = service_pb2.RepositoryModelLoadRequest(model_name="add")
            stub.RepositoryModelLoad(message, timeout=LONGEST)
            return ""
        if what == "unload":
            message = service_pb2.RepositoryModelUnloadRequest(model_name="add")
            stub.RepositoryModelUnload(message, timeout=LONGEST)
            return ""
        return _infer_by_grpc(stub, int(what))
    except grpc.RpcError as error:
        if what == "unload" and error.code() == grpc.StatusCode.NOT_FOUND:
            return ""  # the answer to an earlier request was lost
        _channels.pop(address).close()  # the next one connects at once
        return f"{error.code().name} {error.details()}"


def _infer_by_grpc(stub: Any, number: int) -> str:
    from tritonclient.grpc import service_pb2

    request = service_pb2.ModelInferRequest(model_name="add")
    for name, value in (("a", number), ("b", 1)):
        request.inputs.add(name=name, datatype="FP32", shape=[2, 3])
        request.raw_input_contents.append(np.full(6, value, "<f4").tobytes())
    answer = stub.ModelInfer(request, timeout=LONGEST)
    found = np.frombuffer(answer.raw_output_contents[0], "<f4").tolist()
    return "" if found == [number + 1] * 6 else f"wrong {found}"


def by_http(address: str, what: str) -> str:
    """See the module."""
    if what in ("load", "unload"):
        path, body = f"repository/models/add/{what}", "{}"
    else:
        inputs = [
            {"name": name, "datatype": "FP32", "shape": [2, 3], "data": [value] * 6}
            for name, value in (("a", int(what)), ("b", 1))
        ]
        path, body = "models/add/infer", json.dumps({"inputs": inputs})
    connection = http.client.HTTPConnection(address, timeout=LONGEST)
    try:
        connection.request("POST", f"/v2/{path}", body)
        answer = connection.getresponse()
        read = answer.read()
    except TimeoutError:
        return f"stuck for {LONGEST} s"
    except (OSError, http.client.HTTPException) as error:
        return f"lost {type(error).__name__}"
    finally:
        connection.close()
    if what in ("load", "unload") and answer.status in (200, 404 if what == "unload" else 200):
        return ""  # 404: the answer to an earlier request was lost
    if answer.getheader("Content-Type", "") != "application/json":
        return f"foreign {answer.status} {read!r}"
    found = json.loads(read)
    if answer.status != 200:
        return f"{answer.status} {found['error']}"
    values = found["outputs"][0]["data"]
    return "" if values == [int(what) + 1] * 6 else f"wrong {values}"


def be_client() -> None:
    """See the module."""
    ask = {"gRPC": by_grpc, "HTTP": by_http}
    for line in sys.stdin:
        protocol, address, what = line.split()
        print(ask[protocol](address, what).replace("\n", " "), flush=True)


def be_front(call: str, number: str, place: str, *options: str) -> None:
    """See the module."""
    from faults.nth_call import FailingCall, name_code
    from nnburst.serving import front, http_server, servers

    del http_server, servers  # loading them is no call of the front's
    name_code()
    failure = FailingCall(call, int(number))
    with failure:
        code = front.main(options)
    Path(place).write_text(str(failure.seen))
    sys.exit(code)


def be_supervisor(call: str, number: str, place: str, *options: str) -> None:
    """See the module."""
    from faults.nth_call import FailingCall, name_code
    from nnburst.driver.service import main

    name_code()
    failure = FailingCall(call, int(number))
    os.register_at_fork(after_in_child=lambda: failure.__exit__())
    with failure:
        code = main.main(options)
    Path(place).write_text(str(failure.seen))
    sys.exit(code)


if __name__ == "__main__":
    roles = {"client": be_client, "front": be_front, "supervisor": be_supervisor}
    roles[sys.argv[1]](*sys.argv[2:])
