"""Measures the gRPC front beside its parts, and beside servers of the same library without a driver.

    python tools/grpc_front_cost.py MODEL.tflite [--rounds N] [--json FILE]

In turns, with stock stubs and one 8-bit image by value: an empty ServerLive, a burst on the same service, and
ModelInfer; and ModelInfer of two servers of grpcio with the same messages: one that answers at once ("echo"),
and one that computes with LiteRT in its own process, on the thread of the call ("grpcio"). The latter is the
floor: no server in Python with this library and this executor answers sooner. Prints ModelInfer ÷
(ServerLive + burst) of the front and of the floor, and the front ÷ the floor. Calls a second of many clients
are measured by `python -m tools.fronts`. Nothing is asserted: other programs of the machine count.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
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
_OTHERS: Final = Path(__file__).parent / "fronts" / "others.py"


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


def measure(model: Path, rounds: int) -> dict[str, dict[str, float]]:
    """Microseconds of each call."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        serve = ["-m", "nnburst", "serve", f"{folder}/driver", "--executor", "litert"]
        serve += ["--model", f"net={model}", "--grpc", "127.0.0.1:0"]
        front = stack.enter_context(served([sys.executable, *serve]))
        echo, floor = (
            stack.enter_context(served([sys.executable, str(_OTHERS), kind, str(model), "1"]))
            for kind in ("echo", "grpcio")
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
            "grpcio": lambda: floor.ModelInfer(request),
        }
        times: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(rounds):
            for name, call in calls.items():
                for _ in range(_BLOCK):
                    began = time.perf_counter_ns()
                    call()
                    times[name].append((time.perf_counter_ns() - began) / 1e3)
        return {
            name: {what: float(np.percentile(each, share)) for what, share in _PERCENTS.items()}
            for name, each in times.items()
        }


def main() -> int:
    """Print the table and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, help="one 8-bit input and one output")
    parser.add_argument("--rounds", type=int, default=60, help=f"of {_BLOCK} calls of each kind")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    args = parser.parse_args()
    times = measure(args.model, args.rounds)
    for name, each in times.items():
        print(f"{name:10} " + "  ".join(f"{what} {us:7.0f} us" for what, us in each.items()))
    for name in ("front", "grpcio"):
        shares = {
            what: times[name][what] / (times["ServerLive"][what] + times["burst"][what])
            for what in _PERCENTS
        }
        print(f"{name} ÷ (ServerLive + burst): ", {w: round(s, 2) for w, s in shares.items()})
    beside = {what: times["front"][what] / times["grpcio"][what] for what in _PERCENTS}
    print("front ÷ grpcio: ", {what: round(share, 2) for what, share in beside.items()})
    if args.json:
        args.json.write_text(json.dumps(times, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
