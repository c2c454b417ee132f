"""Measures the gRPC front beside its parts, and beside servers of the same library without a driver.

    python tools/grpc_front_cost.py MODEL.tflite [--rounds N] [--json FILE]

In turns, with stock stubs and one 8-bit image by value: an empty ServerLive, a burst on the same service, and
ModelInfer; and ModelInfer of two servers of grpcio with the same messages: one that answers at once ("echo"),
and one that computes with LiteRT in its own process, on the thread of the call ("in process"). The latter is
the floor: no server in Python with this library and this executor answers sooner. Prints ModelInfer ÷
(ServerLive + burst) of the front and of the floor, the front ÷ the floor, and calls a second with 1 and with
8 in flight. Nothing is asserted: other programs of the machine count.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import grpc
import numpy as np
from tritonclient.grpc import service_pb2, service_pb2_grpc

import nnburst

#: Calls of a block: one kind after the other would find warm caches that a single call has not.
_BLOCK: Final = 20
_PERCENTS: Final = {"minimum": 0, "10 %": 10, "median": 50}
_SERVER: Final = """
import sys
from concurrent.futures import ThreadPoolExecutor
import grpc
import numpy as np
from ai_edge_litert.interpreter import Interpreter
from tritonclient.grpc import service_pb2 as messages

network = Interpreter(sys.argv[1], num_threads=1)
network.allocate_tensors()
given, = network.get_input_details()
found, = network.get_output_details()
tensor, result = network.tensor(given["index"]), network.tensor(found["index"])

def answer(values):
    response = messages.ModelInferResponse(model_name="net", model_version="1")
    response.outputs.add(name=found["name"], datatype="UINT8", shape=values.shape)
    response.raw_output_contents.append(values.tobytes())
    return response

def compute(request, _context):
    tensor()[...] = np.frombuffer(request.raw_input_contents[0], np.uint8).reshape(given["shape"])
    network.invoke()
    return answer(result())

blank = answer(result())
behaviours = {"echo": lambda _request, _context: blank, "in process": compute}
server = grpc.server(ThreadPoolExecutor(1))
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(
    "inference.GRPCInferenceService",
    {"ModelInfer": grpc.unary_unary_rpc_method_handler(
        behaviours[sys.argv[2]],
        messages.ModelInferRequest.FromString,
        messages.ModelInferResponse.SerializeToString,
    )},
),))
port = server.add_insecure_port("127.0.0.1:0")
server.start()
print(f"gRPC at 127.0.0.1:{port}", flush=True)
server.wait_for_termination()
"""


@contextmanager
def served(command: list[str]) -> Iterator[Any]:
    """Stubs of a server that prints where it listens."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        try:
            assert process.stdout is not None
            address = next(line for line in process.stdout if line.startswith("gRPC at "))
            with grpc.insecure_channel(address.split()[-1]) as channel:
                yield service_pb2_grpc.GRPCInferenceServiceStub(channel)
        finally:
            process.terminate()


def calls_a_second(stub: Any, request: Any, in_flight: int, count: int) -> float:  # noqa: ANN401
    """Of `count` calls, so many at once."""
    room, ended = threading.Semaphore(in_flight), threading.Semaphore(0)

    def note(_call: Any) -> None:  # noqa: ANN401
        room.release()
        ended.release()

    began = time.perf_counter()
    for _ in range(count):
        room.acquire()
        stub.ModelInfer.future(request).add_done_callback(note)
    for _ in range(count):
        ended.acquire()
    return count / (time.perf_counter() - began)


def measure(model: Path, rounds: int) -> dict[str, Any]:
    """Microseconds of each call, and calls a second."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        serve = ["-m", "nnburst", "serve", f"{folder}/driver", "--executor", "litert"]
        serve += ["--model", f"net={model}", "--grpc", "127.0.0.1:0"]
        front = stack.enter_context(served([sys.executable, *serve]))
        echo, floor = (
            stack.enter_context(served([sys.executable, "-c", _SERVER, str(model), kind]))
            for kind in ("echo", "in process")
        )
        while not front.ServerReady(service_pb2.ServerReadyRequest()).ready:
            time.sleep(0.05)  # the protocol has no other way to wait
        device = stack.enter_context(nnburst.connect(f"{folder}/driver"))
        prepared = stack.enter_context(device.prepare(nnburst.load(str(model))))
        burst = stack.enter_context(prepared.open_burst())
        (parameter,) = prepared.inputs
        image = np.random.default_rng(1).integers(0, 256, parameter.dimensions, np.uint8)
        metadata = front.ModelMetadata(service_pb2.ModelMetadataRequest(name="net"))
        request = service_pb2.ModelInferRequest(model_name="net")
        request.inputs.add(
            name=metadata.inputs[0].name, datatype="UINT8", shape=parameter.dimensions
        )
        request.raw_input_contents.append(image.tobytes())
        expected = burst.execute([image]).outputs[0].tobytes()
        for stub in (front, floor):
            if stub.ModelInfer(request).raw_output_contents[0] != expected:
                raise RuntimeError("the servers answer differently from the burst")
        live = service_pb2.ServerLiveRequest()
        calls: dict[str, Callable[[], object]] = {
            "ServerLive": lambda: front.ServerLive(live),
            "burst": lambda: burst.execute([image]),
            "front": lambda: front.ModelInfer(request),
            "echo": lambda: echo.ModelInfer(request),
            "in process": lambda: floor.ModelInfer(request),
        }
        times: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(rounds):
            for name, call in calls.items():
                for _ in range(_BLOCK):
                    began = time.perf_counter_ns()
                    call()
                    times[name].append((time.perf_counter_ns() - began) / 1e3)
        found = {
            name: {what: float(np.percentile(each, share)) for what, share in _PERCENTS.items()}
            for name, each in times.items()
        }
        rates = {
            f"{name}, {count} in flight": max(
                calls_a_second(stub, request, count, 10 * rounds) for _ in range(3)
            )
            for name, stub in (("front", front), ("in process", floor))
            for count in (1, 8)
        }
    return {"microseconds": found, "calls_a_second": rates}


def main() -> int:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, help="one 8-bit input and one output")
    parser.add_argument("--rounds", type=int, default=60, help=f"of {_BLOCK} calls of each kind")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    args = parser.parse_args()
    found = measure(args.model, args.rounds)
    times, rates = found["microseconds"], found["calls_a_second"]
    for name, each in times.items():
        print(f"{name:11} " + "  ".join(f"{what} {us:7.0f} us" for what, us in each.items()))
    for name in ("front", "in process"):
        shares = {
            what: times[name][what] / (times["ServerLive"][what] + times["burst"][what])
            for what in _PERCENTS
        }
        print(f"{name} ÷ (ServerLive + burst): ", {w: round(s, 2) for w, s in shares.items()})
    beside = {what: times["front"][what] / times["in process"][what] for what in _PERCENTS}
    print("front ÷ in process: ", {what: round(share, 2) for what, share in beside.items()})
    for name, rate in rates.items():
        print(f"{name}: {rate:.0f} calls a second")
    allowed = 1e6 / (times["ServerLive"]["median"] + times["burst"]["median"])
    print(
        f"1 in flight ÷ what the sum of medians allows: {rates['front, 1 in flight'] / allowed:.2f}"
    )
    print(f"8 in flight ÷ 1: {rates['front, 8 in flight'] / rates['front, 1 in flight']:.2f}")
    if args.json:
        args.json.write_text(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
