"""Measures calls a second of nnburst's front beside other servers, with 1, 4, 16 and 64 clients.

    python -m tools.fronts MODEL.tflite [--folder DIR] [--rounds N] [--seconds S] [--json FILE]

MODEL has one 8-bit input and one output. nnburst answers by gRPC and by REST with bytes. Beside it stand
grpcio with the network in its own process ("grpcio"), grpcio that computes nothing ("echo"), and by HTTP
FastAPI, LitServe and Ray Serve, which are installed into DIR and stay there. All compute up to two requests
at once, one thread each, and none joins requests. Answers are compared before anything is measured; servers
then take turns in each round. Prints tables of calls a second and of nnburst's ÷ each other one's, and the
servers that are ahead by a quarter. What cannot be installed is left out by name; without any, nothing is
measured.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
from tools.fronts.load import BadAnswer, Block, Connection, over_grpc, over_http, post

import nnburst
from nnburst.bench.rounds import Watch

CLIENTS: Final = (1, 4, 16, 64)
#: Environments of the other servers, and what is installed into each.
PACKAGES: Final = {
    "litserve": ("litserve", "fastapi", "uvicorn", "ai-edge-litert"),
    "ray": ("ray[serve]", "ai-edge-litert"),
}
#: Each other server by HTTP, and its environment.
BY_HTTP: Final = {"FastAPI": "litserve", "LitServe": "litserve", "Ray Serve": "ray"}
#: Of nnburst's share: a server is ahead by a quarter if nnburst answers less of its calls.
A_QUARTER_AHEAD: Final = 1 / 1.25
_OTHERS: Final = Path(__file__).with_name("others.py")
#: Ray sends nothing about its use, leaves no token at home, may start slowly, and has the priority of all.
_RAY: Final = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "disabled",
    "RAY_worker_niceness": "0",
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "120",
    "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "120",
}
#: Requests that each server computes at once.
_THREADS: Final = 2
#: Seconds for a server to start, and for an installation.
_PATIENCE: Final = 180
_INSTALLING: Final = 900


@dataclass(frozen=True)
class Server:
    """A server that runs.

    Attributes:
        name: in the tables.
        load: puts so many clients on it for so many seconds.
        answer: of the network to the request of all.
        is_ours: whether it is nnburst's front.
        computes: whether it answers what the network does.
    """

    name: str
    load: Callable[[int, float], Block]
    answer: bytes
    is_ours: bool = False
    computes: bool = True


#: Blocks of each server and number of clients, one a round.
Blocks = Mapping[tuple[str, int], Sequence[Block]]


def main(arguments: Sequence[str]) -> int:
    """Print the tables; 1 if servers answer differently."""
    parser = argparse.ArgumentParser(prog="python -m tools.fronts", description=__doc__)
    parser.add_argument("model", type=Path, help="one 8-bit input and one output")
    parser.add_argument(
        "--folder", type=Path, default=Path("build/fronts"), help="where others are installed"
    )
    parser.add_argument("--rounds", type=int, default=5, help="in which all servers take turns")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each turn")
    parser.add_argument("--json", type=Path, help="write all figures here, too")
    args = parser.parse_args(arguments)
    pythons = installed(args.folder.absolute())
    if not pythons:
        print("skipped: no other server can be installed here")
        return 0
    with ExitStack() as stack:
        found = servers(args.model.absolute(), pythons, stack)
        ours = next(each.answer for each in found if each.is_ours)
        different = [each.name for each in found if each.computes and each.answer != ours]
        if different:
            print("answers differ from nnburst's:", ", ".join(different))
            return 1
        watch = Watch()
        blocks = measured(found, args.rounds, args.seconds)
        print(tables(found, blocks))
        conditions = watch.conditions()
    print(conditions)
    if args.json:
        figures = {
            f"{name}, {clients} clients": [vars(each) for each in of_rounds]
            for (name, clients), of_rounds in blocks.items()
        }
        content = {"blocks": figures, "conditions": conditions.as_json()}
        args.json.write_text(json.dumps(content, indent=1) + "\n")
    return 0


def installed(folder: Path) -> dict[str, str]:
    """Make the environments that are missing; return the interpreter of each that could be made, by name."""
    pythons = {}
    for name, packages in PACKAGES.items():
        python = folder / name / "bin" / "python"
        ready = folder / name / ".installed"
        if not ready.exists():
            made = [sys.executable, "-m", "venv", "--clear", str(folder / name)]
            pip = [str(python), "-m", "pip", "--disable-pip-version-check", "-qq", "install"]
            pip += ["--only-binary", ":all:", *packages]
            problem = _problem(made) or _problem(pip)
            if problem:
                print(
                    f"left out: {', '.join(packages)} cannot be installed ({problem})", flush=True
                )
                continue
            ready.touch()
        pythons[name] = str(python)
    return pythons


def _problem(command: Sequence[str]) -> str:
    """The last line of what a command says if it fails; empty if it succeeds."""
    try:
        done = subprocess.run(  # noqa: S603 - Python itself
            command, check=False, capture_output=True, text=True, timeout=_INSTALLING
        )
    except subprocess.TimeoutExpired:
        return f"not done after {_INSTALLING} s"
    if done.returncode == 0:
        return ""
    return (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]


def servers(model: Path, pythons: Mapping[str, str], stack: ExitStack) -> list[Server]:
    """Start each server and have it answer once."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    serve = ["-m", "nnburst", "serve", str(folder / "driver"), "--executor", "litert"]
    serve += ["--model", f"net={model}", "--lanes", str(_THREADS)]
    serve += ["--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    front = stack.enter_context(running([sys.executable, *serve]))
    others = [str(_OTHERS), "{}", str(model), str(_THREADS)]
    imported = nnburst.load(str(model))
    main_graph = imported.model.main
    shape = main_graph.operands[main_graph.input_indexes[0]].dimensions
    content = np.random.default_rng(1).integers(0, 256, shape, np.uint8).tobytes()
    message = grpc_request(imported.input_names[0], shape, content)
    addresses = dict(_said(front, line).split(" at ") for line in ("gRPC", "HTTP"))
    found = [
        _by_grpc("nnburst gRPC", addresses["gRPC"], message, is_ours=True),
        _by_http(
            "nnburst REST",
            int(addresses["HTTP"].rpartition(":")[2]),
            rest_request(imported.input_names[0], shape, content),
            is_ours=True,
        ),
    ]
    for name in ("echo", "grpcio"):
        command = [sys.executable, *(word.format(name) for word in others)]
        process = stack.enter_context(running(command))
        address = _said(process, "gRPC").split(" at ")[1]
        found.append(_by_grpc(name, address, message, computes=name != "echo"))
    text = json.dumps({"content": base64.b64encode(content).decode()}).encode()
    requests = {"litserve": post("/infer", text, {"Content-Type": "application/json"})}
    for name, environment in BY_HTTP.items():
        if environment in pythons:
            port, word = free_port(), name.lower().split()[0]
            command = [pythons[environment], *(each.format(word) for each in others), str(port)]
            request = requests.get(word, post("/infer", content, {}))
            with ExitStack() as own:
                own.enter_context(running(command))
                try:
                    found.append(_by_http(name, port, request))
                except (OSError, BadAnswer) as error:
                    print(f"left out: {name} does not answer ({error})", flush=True)
                else:
                    stack.push(own.pop_all())
    return found


def grpc_request(name: str, shape: Sequence[int], content: bytes) -> Any:  # noqa: ANN401
    """ModelInfer with one input as bytes."""
    from tritonclient.grpc import service_pb2

    message = service_pb2.ModelInferRequest(model_name="net")
    message.inputs.add(name=name, datatype="UINT8", shape=shape)
    message.raw_input_contents.append(content)
    return message


def rest_request(name: str, shape: Sequence[int], content: bytes) -> bytes:
    """The same over HTTP, with the binary extension both ways."""
    sized = {"binary_data_size": len(content)}
    given = {"name": name, "datatype": "UINT8", "shape": list(shape), "parameters": sized}
    head = json.dumps({"inputs": [given], "parameters": {"binary_data_output": True}}).encode()
    lengths = {"Inference-Header-Content-Length": str(len(head))}
    return post("/v2/models/net/infer", head + content, lengths)


@contextmanager
def running(command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """A process in a group of its own, which is ended behind it."""
    environment = {**os.environ, **_RAY, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(  # noqa: S603 - Python itself
        command, stdout=subprocess.PIPE, text=True, start_new_session=True, env=environment
    ) as process:
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(_PATIENCE)
            finally:
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass  # all of it has ended


def _said(process: subprocess.Popen[str], word: str) -> str:
    """The next line of a process that begins with `word`."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(f"{word} at "):
            return line.strip()
    raise RuntimeError(f"a server has ended and not said where it listens by {word}")


def free_port() -> int:
    """A port that nothing has now."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def _by_grpc(
    name: str,
    address: str,
    message: Any,  # noqa: ANN401
    *,
    is_ours: bool = False,
    computes: bool = True,
) -> Server:
    import grpc
    from tritonclient.grpc import service_pb2_grpc

    with grpc.insecure_channel(address) as channel:
        infer = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer
        answer = _when_it_answers(lambda: infer(message).raw_output_contents[0], grpc.RpcError)
    load = lambda clients, seconds: over_grpc(address, message, clients, seconds)  # noqa: E731
    return Server(name, load, answer, is_ours, computes)


def _by_http(name: str, port: int, request: bytes, *, is_ours: bool = False) -> Server:
    def once() -> bytes:
        connection = Connection(port)
        try:
            return connection.call(request)
        finally:
            connection.socket.close()

    body = _when_it_answers(once, (OSError, BadAnswer))
    load = lambda clients, seconds: over_http(port, request, clients, seconds)  # noqa: E731
    server = Server(name, load, body, is_ours)
    return replace(server, answer=_behind_json(body)) if is_ours else server


def _behind_json(body: bytes) -> bytes:
    """The bytes of the one output, which end an answer with the binary extension."""
    head, end = json.JSONDecoder().raw_decode(body.decode("latin-1"))
    size = head["outputs"][0]["parameters"]["binary_data_size"]
    content = body[end:]
    if len(content) != size:
        raise RuntimeError(f"an answer has {len(content)} bytes behind its head, which says {size}")
    return content


def _when_it_answers(
    call: Callable[[], bytes], failure: type[Exception] | tuple[type[Exception], ...]
) -> bytes:
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            return call()
        except failure:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)  # of another process, which notifies no one


def measured(servers: Sequence[Server], rounds: int, seconds: float) -> Blocks:
    """All servers in turns, so often for each number of clients."""
    blocks: dict[tuple[str, int], list[Block]] = {}
    for _ in range(rounds):
        for clients in CLIENTS:
            for each in servers:
                found = each.load(clients, seconds)
                blocks.setdefault((each.name, clients), []).append(found)
    return blocks


def tables(servers: Sequence[Server], blocks: Blocks) -> str:
    """Calls a second, nnburst's share of the others', and which others are ahead by a quarter."""
    heads = "".join(f" {clients} |" for clients in CLIENTS)
    rule = "|---" * (len(CLIENTS) + 1) + "|"
    lines = [f"| calls a second (ms that 1 % take longer than), clients: |{heads}", rule]
    for each in servers:
        cells = [
            f" {median(b.rate for b in found):.0f} ({median(b.slowest for b in found) * 1e3:.1f}) |"
            for found in (blocks[each.name, clients] for clients in CLIENTS)
        ]
        lines.append(f"| {each.name} |{''.join(cells)}")
    lines += ["", f"| calls a second ÷ (least to most of a round) |{heads}", rule]
    ahead = []
    for ours, other in pairs(servers):
        cells = []
        for clients in CLIENTS:
            ratios = shares(blocks[ours.name, clients], blocks[other.name, clients])
            cells.append(f" {median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) |")
            if other.computes and not other.is_ours and median(ratios) < A_QUARTER_AHEAD:
                ahead.append(f"{other.name} with {clients} clients")
        lines.append(f"| {ours.name} ÷ {other.name} |{''.join(cells)}")
    lines += ["", f"ahead by a quarter: {', '.join(ahead) or 'none'}"]
    return "\n".join(lines)


def pairs(servers: Sequence[Server]) -> list[tuple[Server, Server]]:
    """The servers that are compared: nnburst with each of the same protocol, and REST with gRPC."""
    by_grpc, by_rest = (each for each in servers if each.is_ours)
    others = [each for each in servers if not each.is_ours]
    found = [(by_rest if each.name in BY_HTTP else by_grpc, each) for each in others]
    return [*found, (by_rest, by_grpc)]


def shares(ours: Sequence[Block], others: Sequence[Block]) -> list[float]:
    """Our calls a second ÷ theirs, round by round."""
    return [one.rate / other.rate for one, other in zip(ours, others, strict=True)]


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))  # after the servers
    raise SystemExit(main(sys.argv[1:]))
