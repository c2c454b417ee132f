"""Attempts of another user against a front, its driver, their files and their processes.

    python another_user.py FACTS

FACTS is the JSON of `Facts`. The process must start as root and first gives up root's rights. Then it prints
a line of JSON for each attempt: its name, its outcome, and the outcomes that count as refusals. The outcome
of an attempt is the name of an error number (EACCES), a status of gRPC (UNAUTHENTICATED) or HTTP (401), an
error of nnburst (DeviceUnavailable), or DONE if nothing refused it.
"""

from __future__ import annotations

import contextlib
import ctypes
import encodings.idna  # noqa: F401 - a module that is first imported behind setuid may not be readable
import errno
import http.client
import itertools
import json
import os
import resource
import signal
import socket
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from nnburst.client.connect import connect
from nnburst.fmq.named_queue import open_named_queue
from nnburst.hal.errors import NnburstError

NOBODY: Final = 65534
SHM: Final = Path("/dev/shm")
DONE: Final = "DONE"
PATIENCE: Final = 60
#: The kernel refuses by one or the other, as its security modules have it.
DENIED: Final = (errno.EACCES, errno.EPERM)
#: Of <sys/ptrace.h> and <asm/unistd.h>; the number is the same on every machine.
PTRACE_ATTACH, PTRACE_SEIZE, PIDFD_GETFD = 16, 0x4206, 438
#: Calls with a message that a server may act on, each of which needs a token.
CALLS: Final = {
    "ServerMetadata": service_pb2.ServerMetadataRequest(),
    "ModelMetadata": service_pb2.ModelMetadataRequest(name="add"),
    "ModelConfig": service_pb2.ModelConfigRequest(name="add"),
    "ModelStatistics": service_pb2.ModelStatisticsRequest(),
    "ModelInfer": service_pb2.ModelInferRequest(model_name="add"),
    "RepositoryIndex": service_pb2.RepositoryIndexRequest(),
    "RepositoryModelLoad": service_pb2.RepositoryModelLoadRequest(model_name="add"),
    "RepositoryModelUnload": service_pb2.RepositoryModelUnloadRequest(model_name="add"),
    "SystemSharedMemoryStatus": service_pb2.SystemSharedMemoryStatusRequest(),
    "SystemSharedMemoryUnregister": service_pb2.SystemSharedMemoryUnregisterRequest(),
}
T = TypeVar("T")


class Facts(NamedTuple):
    """The service that is attacked, as its own user knows it.

    Attributes:
        grpc: HOST:PORT of a front that requires tokens.
        http: HOST:PORT of its HTTP server.
        metrics: HOST:PORT of its metrics.
        token: a token of that front, which permits calls only.
        token_file: file of mode 0600 in a folder that all users may enter.
        key: key of shared memory of mode 0600 that is registered as `victim`.
        queue: name of a queue of the service's user.
        names: folder of the service's user in which drivers have their names ($XDG_RUNTIME_DIR).
        private: folder of mode 0700 in which the driver has its socket.
        driver: socket of a driver that everyone may connect to, by its mode.
        sockets: of mode 0600, in a folder that everyone may enter.
        pids: processes of the service, and a client's.
    """

    grpc: str
    http: str
    metrics: str
    token: str
    token_file: str
    key: str
    queue: str
    names: str
    private: str
    driver: str
    sockets: list[str]
    pids: list[int]


class Attempt(NamedTuple):
    """An attempt, and the ends that count as refusals."""

    name: str
    call: Callable[[Facts], object]
    refusals: tuple[str, ...]


class Answered(Exception):
    """A server has answered with this status of HTTP."""


ATTEMPTS: Final[list[Attempt]] = []


def attempt(
    name: str, *refusals: int | str
) -> Callable[[Callable[[Facts], T]], Callable[[Facts], T]]:
    """Count a function as an attempt that is refused by one of these."""
    words = tuple(errno.errorcode[each] if isinstance(each, int) else each for each in refusals)

    def counted(call: Callable[[Facts], T]) -> Callable[[Facts], T]:
        ATTEMPTS.append(Attempt(name, call, words))
        return call

    return counted


def end_of(call: Callable[[], object]) -> str:
    """The end of a call; see above."""
    try:
        call()
    except grpc.RpcError as error:
        return str(error.code().name)
    except Answered as error:
        return str(error)
    except NnburstError as error:
        return type(error).__name__
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, repr(error))
    return DONE


# Ports: gRPC.


@contextlib.contextmanager
def stub_of(facts: Facts) -> Iterator[Any]:
    with grpc.insecure_channel(facts.grpc) as channel:
        yield service_pb2_grpc.GRPCInferenceServiceStub(channel)


def called(facts: Facts, name: str, request: Any, authorization: str | None) -> Any:
    metadata = [] if authorization is None else [("authorization", authorization)]
    with stub_of(facts) as stub:
        return getattr(stub, name)(request, metadata=metadata, timeout=PATIENCE)


def with_token(facts: Facts, name: str, request: Any) -> Any:
    return called(facts, name, request, f"Bearer {facts.token}")


def add_calls() -> None:
    """An attempt of each call without a token."""
    for name, request in CALLS.items():
        attempt(f"gRPC: {name} without a token", "UNAUTHENTICATED")(
            lambda facts, name=name, request=request: called(facts, name, request, None)
        )


add_calls()


@attempt("gRPC: SystemSharedMemoryRegister without a token", "UNAUTHENTICATED")
def _(facts: Facts) -> None:
    called(facts, "SystemSharedMemoryRegister", registering(f"/{facts.key}"), None)


@attempt("gRPC: ModelStreamInfer without a token", "UNAUTHENTICATED")
def _(facts: Facts) -> None:
    with stub_of(facts) as stub:
        list(stub.ModelStreamInfer(iter([CALLS["ModelInfer"]]), timeout=PATIENCE))


@attempt("gRPC: reflection without a token", "UNAUTHENTICATED")
def _(facts: Facts) -> None:
    method = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
    with grpc.insecure_channel(facts.grpc) as channel:
        list(channel.stream_stream(method)(iter([b":\x00"]), timeout=PATIENCE))


def add_tokens() -> None:
    """An attempt of each way to write a token that is not good."""
    ways: dict[str, Callable[[str], str]] = {
        "of zeros": lambda token: "Bearer " + "0" * len(token),
        "cut short": lambda token: f"Bearer {token[:-1]}",
        "with more behind it": lambda token: f"Bearer {token}x",
        "in capitals": lambda token: f"Bearer {token.upper()}",
        "that is empty": lambda _: "Bearer ",
        "of another scheme": lambda token: f"Basic {token}",
        "without a scheme": lambda token: token,
        "twice": lambda token: f"Bearer {token},Bearer {token}",
        "many times over": lambda token: "Bearer " + token * 100,
    }
    for name, way in ways.items():
        attempt(f"gRPC: a token {name}", "UNAUTHENTICATED")(
            lambda facts, way=way: called(
                facts, "ServerMetadata", CALLS["ServerMetadata"], way(facts.token)
            )
        )
        attempt(f"HTTP: a token {name}", "401")(
            lambda facts, way=way: asked(facts.http, "GET", "/v2", way(facts.token))
        )
        attempt(f"metrics: a token {name}", "401")(
            lambda facts, way=way: asked(facts.metrics, "GET", "/metrics", way(facts.token))
        )


# Ports: HTTP and metrics.


def asked(
    address: str, method: str, path: str, authorization: str | None, body: Any = None
) -> None:
    connection = http.client.HTTPConnection(address, timeout=PATIENCE)
    with contextlib.closing(connection):
        headers = {} if authorization is None else {"Authorization": authorization}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        if answer.status != http.HTTPStatus.OK:
            raise Answered(answer.status)


add_tokens()


def add_paths() -> None:
    """An attempt of each path without a token, and of paths that only seem to be about health."""
    for method, path in (
        ("GET", "/v2"),
        ("GET", "/v2/models/add"),
        ("GET", "/v2/models/stats"),
        ("POST", "/v2/models/add/infer"),
        ("POST", "/v2/repository/index"),
        ("POST", "/v2/repository/models/add/unload"),
        ("GET", "/v2/systemsharedmemory/status"),
        ("POST", "/v2/systemsharedmemory/unregister"),
        ("GET", "/metrics"),
        ("GET", "/v2/health/live/../../models/add"),
        ("GET", "/v2/health/live/..%2f..%2fmodels%2fadd"),
        ("GET", "//v2/health/ready/../models/stats"),
        ("GET", "/v2/models/..%2f..%2f..%2fetc%2fpasswd"),
    ):
        attempt(f"HTTP: {method} {path} without a token", "401", "404")(
            lambda facts, method=method, path=path: asked(facts.http, method, path, None, {})
        )


add_paths()


def add_smuggled() -> None:
    """Attempts to hide a request in the body of another, by two lengths that differ."""
    for name, lengths in (
        ("chunks", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0"),
        ("two lengths", "Content-Length: 0\r\nContent-Length: 5"),
    ):
        attempt(f"HTTP: a request smuggled behind {name}", "400")(
            lambda facts, lengths=lengths: smuggled(facts.http, lengths)
        )


def smuggled(address: str, lengths: str) -> None:
    """Fail by the one status that comes; nothing that was hidden is answered."""
    host, _, port = address.rpartition(":")
    outer = f"POST /v2/models/add/infer HTTP/1.1\r\nHost: x\r\n{lengths}\r\n\r\n"
    hidden = "GET /v2/models/stats HTTP/1.1\r\nHost: x\r\n\r\n"
    with socket.create_connection((host, int(port)), PATIENCE) as connection:
        connection.sendall((outer + hidden).encode())
        with connection.makefile("rb") as answer:
            (status,) = [line.split()[1] for line in answer if line.startswith(b"HTTP/1.")]
    if status != b"200":
        raise Answered(status.decode())


add_smuggled()


@attempt("metrics: without a token", "401")
def _(facts: Facts) -> None:
    asked(facts.metrics, "GET", "/metrics", None)


@attempt("HTTP: load a model with a token", "403")
def _(facts: Facts) -> None:
    asked(facts.http, "POST", "/v2/repository/models/add/load", f"Bearer {facts.token}", {})


@attempt("HTTP: unload a model with a token", "403")
def _(facts: Facts) -> None:
    asked(facts.http, "POST", "/v2/repository/models/add/unload", f"Bearer {facts.token}", {})


@attempt("HTTP: a file as a model", "404")
def _(facts: Facts) -> None:
    asked(facts.http, "GET", "/v2/models/..%2F..%2Fetc", f"Bearer {facts.token}")


@attempt("gRPC: load a model with a token", "PERMISSION_DENIED")
def _(facts: Facts) -> None:
    with_token(facts, "RepositoryModelLoad", CALLS["RepositoryModelLoad"])


@attempt("gRPC: unload a model with a token", "PERMISSION_DENIED")
def _(facts: Facts) -> None:
    with_token(facts, "RepositoryModelUnload", CALLS["RepositoryModelUnload"])


@attempt("gRPC: a file as a model", "NOT_FOUND")
def _(facts: Facts) -> None:
    with_token(facts, "ModelInfer", service_pb2.ModelInferRequest(model_name="../../etc/passwd"))


def add_ports() -> None:
    """An attempt to take each port that is served, by each way to share one."""
    ways = {
        "plainly": [],
        "by SO_REUSEADDR": [socket.SO_REUSEADDR],
        "by SO_REUSEPORT": [socket.SO_REUSEPORT],
    }
    for protocol, (way, options), host in itertools.product(
        ("grpc", "http", "metrics"),
        ways.items(),
        ("127.0.0.1", "0.0.0.0"),
    ):
        if host == "127.0.0.1" or way == "plainly":
            attempt(f"ports: take {protocol}'s at {host} {way}", errno.EADDRINUSE)(
                lambda facts, protocol=protocol, options=options, host=host: taken(
                    host, int(getattr(facts, protocol).rpartition(":")[2]), options
                )
            )


def taken(host: str, port: int, options: Sequence[int]) -> None:
    with socket.socket() as thief:
        for option in options:
            thief.setsockopt(socket.SOL_SOCKET, option, 1)
        thief.bind((host, port))
        thief.listen()


add_ports()


# Regions, with a token.


def registering(key: str, offset: int = 0, size: int = 64, name: str = "mine") -> Any:
    return service_pb2.SystemSharedMemoryRegisterRequest(
        name=name, key=key, offset=offset, byte_size=size
    )


def registered(facts: Facts, key: str, **more: Any) -> None:
    with_token(facts, "SystemSharedMemoryRegister", registering(key, **more))


@contextlib.contextmanager
def own_object(facts: Facts) -> Iterator[tuple[str, Path]]:
    """Key and path of shared memory of this user."""
    key = f"{facts.key}_own"
    path = SHM / key
    with path.open("xb") as file:
        file.truncate(64)
    try:
        yield key, path
    finally:
        path.unlink()


def inferring(region: str, output: str = "") -> Any:
    request = service_pb2.ModelInferRequest(model_name="add")
    for name in "ab":
        tensor = request.inputs.add(name=name, datatype="FP32", shape=[2, 3])
        if output:
            tensor.contents.fp32_contents.extend(range(6))
        else:
            put_in(tensor, region)
    if output:
        put_in(request.outputs.add(name="y"), output)
    return request


def put_in(tensor: Any, region: str) -> None:
    tensor.parameters["shared_memory_region"].string_param = region
    tensor.parameters["shared_memory_byte_size"].int64_param = 24


@attempt("regions: register another's object", "INVALID_ARGUMENT")
def _(facts: Facts) -> None:
    registered(facts, f"/{facts.key}")


@attempt("regions: register another's queue", "INVALID_ARGUMENT")
def _(facts: Facts) -> None:
    registered(facts, facts.queue)


@attempt("regions: register a file by a path", "INVALID_ARGUMENT")
def _(facts: Facts) -> None:
    registered(facts, f"/../..{facts.token_file}", size=1)


@attempt("regions: register a link to another's object", "INVALID_ARGUMENT")
def _(facts: Facts) -> None:
    link = f"{facts.key}_link"
    (SHM / link).symlink_to(SHM / facts.key)
    try:
        registered(facts, link)
    finally:
        (SHM / link).unlink()


@attempt("regions: register a pipe", "INVALID_ARGUMENT")
def _(facts: Facts) -> None:
    os.mkfifo(SHM / f"{facts.key}_pipe")
    try:
        registered(facts, f"{facts.key}_pipe")
    finally:
        (SHM / f"{facts.key}_pipe").unlink()


@attempt("regions: register more than an object has", "INVALID_ARGUMENT")
def _(facts: Facts) -> None:
    with own_object(facts) as (key, _):
        registered(facts, key, size=65)


@attempt("regions: register by an offset that overflows", "INVALID_ARGUMENT")
def _(facts: Facts) -> None:
    with own_object(facts) as (key, _):
        registered(facts, key, offset=2**64 - 32)


@attempt("regions: read another's region as an input", "INVALID_ARGUMENT")
def _(facts: Facts) -> None:
    with_token(facts, "ModelInfer", inferring("victim"))


@attempt("regions: write an output into another's region", "INVALID_ARGUMENT")
def _(facts: Facts) -> None:
    with_token(facts, "ModelInfer", inferring("", output="victim"))


@attempt("regions: ask where another's region is", "INVALID_ARGUMENT")
def _(facts: Facts) -> None:
    with_token(
        facts,
        "SystemSharedMemoryStatus",
        service_pb2.SystemSharedMemoryStatusRequest(name="victim"),
    )


@attempt("regions: end a front by an object that shrinks", "INVALID_ARGUMENT")
def _(facts: Facts) -> None:
    with own_object(facts) as (key, path):
        registered(facts, key)
        os.truncate(path, 0)
        try:
            with_token(facts, "ModelInfer", inferring("mine"))
        finally:
            with_token(facts, "SystemSharedMemoryUnregister", CALLS["SystemSharedMemoryUnregister"])


# Shared memory and names, without the service.


@attempt("shared memory: open another's object", *DENIED)
def _(facts: Facts) -> None:
    opened(SHM / facts.key)


@attempt("shared memory: cut another's object short", *DENIED)
def _(facts: Facts) -> None:
    os.truncate(SHM / facts.key, 0)


@attempt("shared memory: take another's object away", *DENIED)
def _(facts: Facts) -> None:
    (SHM / facts.key).unlink()


@attempt("shared memory: put an own object in its place", *DENIED)
def _(facts: Facts) -> None:
    with own_object(facts) as (_, path):
        path.rename(SHM / facts.key)


@attempt("names: open another's queue", "InvalidArgument")
def _(facts: Facts) -> None:
    open_named_queue(facts.queue, "u1", timeout=1).close()


@attempt("names: find another's driver by its name", "DeviceUnavailable")
def _(facts: Facts) -> None:
    os.environ["XDG_RUNTIME_DIR"] = facts.names
    connect("driver", any_user=True).close()


# Files and sockets.


@attempt("files: read the tokens", *DENIED)
def _(facts: Facts) -> None:
    opened(facts.token_file)


@attempt("files: write the tokens", *DENIED)
def _(facts: Facts) -> None:
    opened(facts.token_file, os.O_WRONLY)


@attempt("files: take the tokens away", *DENIED)
def _(facts: Facts) -> None:
    Path(facts.token_file).unlink()


@attempt("files: open the tokens to all", *DENIED)
def _(facts: Facts) -> None:
    Path(facts.token_file).chmod(0o666)


@attempt("files: list the driver's folder", *DENIED)
def _(facts: Facts) -> None:
    list(Path(facts.private).iterdir())


@attempt("files: put the driver's folder elsewhere", *DENIED)
def _(facts: Facts) -> None:
    Path(facts.private).rename(f"{facts.private}_taken")


@attempt("sockets: connect in the driver's folder", *DENIED)
def _(facts: Facts) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as thief:
        thief.connect(f"{facts.private}/driver")


@attempt("sockets: a driver whose socket is open to all", "DeviceUnavailable")
def _(facts: Facts) -> None:
    assert Path(facts.driver).stat().st_mode & stat.S_IWOTH  # so it is the driver that refuses
    connect(facts.driver, any_user=True).close()


def add_sockets() -> None:
    """Attempts at both protocols' sockets with paths."""
    for number, protocol in enumerate(("gRPC", "HTTP")):
        attempt(f"sockets: connect to {protocol}'s", *DENIED)(
            lambda facts, number=number: connected(facts.sockets[number])
        )
        attempt(f"sockets: take {protocol}'s away", *DENIED)(
            lambda facts, number=number: Path(facts.sockets[number]).unlink()
        )
        attempt(f"sockets: listen in {protocol}'s place", *DENIED, errno.EADDRINUSE)(
            lambda facts, number=number: bound(facts.sockets[number])
        )


def connected(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as thief:
        thief.connect(path)


def bound(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as thief:
        thief.bind(path)


add_sockets()


# Processes: signals, ptrace, /proc. Each attempt is made at every process.

LIBC: Final = ctypes.CDLL(None, use_errno=True)
LIBC.ptrace.restype = ctypes.c_long


def checked(result: int) -> None:
    if result == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def moved(pid: int, name: str) -> None:
    """Read or write memory of a process by `process_vm_readv` or `process_vm_writev`."""
    here = ctypes.create_string_buffer(8)
    part = (ctypes.c_void_p * 2)(ctypes.addressof(here), 8)
    checked(getattr(LIBC, name)(pid, part, 1, part, 1, 0))


def stolen(pid: int) -> None:
    own = os.pidfd_open(pid)
    try:
        checked(LIBC.syscall(PIDFD_GETFD, own, 1, 0))
    finally:
        os.close(own)


def signalled_by_descriptor(pid: int) -> None:
    own = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(own, signal.SIGKILL)
    finally:
        os.close(own)


def opened(path: str | Path, flags: int = os.O_RDONLY) -> None:
    os.close(os.open(path, flags))


ON_PROCESSES: Final[dict[str, Callable[[int], object]]] = {
    "signals: SIGTERM": lambda pid: os.kill(pid, signal.SIGTERM),
    "signals: SIGSTOP": lambda pid: os.kill(pid, signal.SIGSTOP),
    "signals: SIGKILL by a descriptor": signalled_by_descriptor,
    "processes: priority": lambda pid: os.setpriority(os.PRIO_PROCESS, pid, 19),
    "processes: cores": lambda pid: os.sched_setaffinity(pid, os.sched_getaffinity(0)),
    "processes: limits": lambda pid: resource.prlimit(pid, resource.RLIMIT_NOFILE, (0, 0)),
    "processes: a descriptor of another": stolen,
    "ptrace: attach": lambda pid: checked(LIBC.ptrace(PTRACE_ATTACH, pid, None, None)),
    "ptrace: seize": lambda pid: checked(LIBC.ptrace(PTRACE_SEIZE, pid, None, None)),
    "ptrace: read memory": lambda pid: moved(pid, "process_vm_readv"),
    "ptrace: write memory": lambda pid: moved(pid, "process_vm_writev"),
    "/proc: write mem": lambda pid: opened(f"/proc/{pid}/mem", os.O_RDWR),
    "/proc: write oom_score_adj": lambda pid: opened(f"/proc/{pid}/oom_score_adj", os.O_WRONLY),
    "/proc: write coredump_filter": lambda pid: opened(f"/proc/{pid}/coredump_filter", os.O_WRONLY),
    "/proc: list fd": lambda pid: os.listdir(f"/proc/{pid}/fd"),
    "/proc: list map_files": lambda pid: os.listdir(f"/proc/{pid}/map_files"),
    "/proc: enter root": lambda pid: os.listdir(f"/proc/{pid}/root/"),
    "/proc: enter cwd": lambda pid: os.listdir(f"/proc/{pid}/cwd/"),
    "/proc: read exe": lambda pid: os.readlink(f"/proc/{pid}/exe"),
    **{
        f"/proc: read {name}": lambda pid, name=name: opened(f"/proc/{pid}/{name}")
        for name in ("mem", "environ", "maps", "smaps", "auxv", "io", "pagemap")
    },
}


def at_every_process(facts: Facts, call: Callable[[int], object]) -> None:
    """Fail as the last process refuses, if all of them do."""
    errors = []
    for pid in facts.pids:
        try:
            call(pid)
        except OSError as error:
            errors.append(error)
        else:
            return
    raise next((each for each in errors if each.errno not in DENIED), errors[-1])


for each_name, each_call in ON_PROCESSES.items():
    attempt(each_name, *DENIED)(lambda facts, call=each_call: at_every_process(facts, call))


def main() -> None:
    """Become another user, make every attempt, and print the ends."""
    facts = Facts(**json.loads(sys.argv[1]))
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    for each in ATTEMPTS:
        print(json.dumps([each.name, end_of(lambda each=each: each.call(facts)), each.refusals]))


if __name__ == "__main__":
    main()
