"""Serves one network of LiteRT by another package, in a process that needs nothing of nnburst.

    python others.py {echo,grpcio} MODEL.tflite THREADS
    python others.py {fastapi,litserve,ray} MODEL.tflite THREADS PORT

All compute up to THREADS requests at once, each on one thread. "echo" and "grpcio" take the messages of
KServe v2 and print where they listen; "echo" computes nothing. The others take the input's bytes at /infer.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter


class Network:
    """A network of one 8-bit input and one output, with an interpreter for each thread that computes."""

    def __init__(self, file: str) -> None:
        self._file, self._own = file, threading.local()

    def compute(self, content: bytes) -> bytes:
        """The output's bytes."""
        if not hasattr(self._own, "network"):
            network = self._own.network = Interpreter(self._file, num_threads=1)
            network.allocate_tensors()
            (given,), (found,) = network.get_input_details(), network.get_output_details()
            self._own.shape = given["shape"]
            self._own.ends = [network.tensor(each["index"]) for each in (given, found)]
        tensor, result = self._own.ends
        tensor()[...] = np.frombuffer(content, np.uint8).reshape(self._own.shape)
        self._own.network.invoke()
        return bytes(result().tobytes())


def by_grpcio(network: Network, threads: int, computes: bool) -> None:
    """ModelInfer of KServe v2 by grpcio alone."""
    import grpc
    from tritonclient.grpc import service_pb2 as messages

    blank: list[Any] = []

    def answer(request: Any, _context: Any) -> Any:  # noqa: ANN401
        if blank and not computes:
            return blank[0]
        content = network.compute(request.raw_input_contents[0])
        response = messages.ModelInferResponse(model_name="net", model_version="1")
        response.outputs.add(name="output", datatype="UINT8", shape=[1, len(content)])
        response.raw_output_contents.append(content)
        blank[:] = [response]
        return response

    server = grpc.server(ThreadPoolExecutor(threads))
    method = grpc.unary_unary_rpc_method_handler(
        answer,
        messages.ModelInferRequest.FromString,
        messages.ModelInferResponse.SerializeToString,
    )
    service = "inference.GRPCInferenceService"
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(service, {"ModelInfer": method}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(f"gRPC at 127.0.0.1:{port}", flush=True)
    server.wait_for_termination()


def by_fastapi(network: Network, threads: int, port: int) -> None:
    """One process of uvicorn whose event loop hands each body to a thread."""
    import uvicorn
    from fastapi import FastAPI, Request, Response

    application, pool = FastAPI(), ThreadPoolExecutor(threads)

    async def infer(request: Request) -> Response:
        content, loop = await request.body(), asyncio.get_running_loop()
        return Response(await loop.run_in_executor(pool, network.compute, content))

    infer.__annotations__ = {"request": Request}  # this file's are text, in names of this function
    application.post("/infer")(infer)
    uvicorn.run(application, host="127.0.0.1", port=port, log_level="error")


def by_litserve(threads: int, port: int) -> None:
    """A process for each of `threads`. It reads JSON and forms only, so bytes come as base64."""
    import litserve
    from litserve_api import Computes

    server = litserve.LitServer(
        Computes(api_path="/infer"), accelerator="cpu", workers_per_device=threads
    )
    server.run(host="127.0.0.1", port=port, generate_client_file=False, log_level="error")


def by_ray(file: str, threads: int, port: int) -> None:
    """A replica for each of `threads`, behind Ray's proxy."""
    import ray
    from ray import serve
    from starlette.responses import Response

    class Computes:
        def __init__(self) -> None:
            self.network = Network(file)

        async def __call__(self, request: Any) -> Response:  # noqa: ANN401
            return Response(self.network.compute(await request.body()))

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    ray.init(num_cpus=threads + 1, include_dashboard=False, log_to_driver=False)
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    deployed = serve.deployment(num_replicas=threads, max_ongoing_requests=64)(Computes)
    serve.run(deployed.bind(), route_prefix="/infer")
    try:
        threading.Event().wait()
    finally:
        serve.shutdown()
        ray.shutdown()


def main() -> None:
    """Serve until SIGTERM."""
    name, file, threads, *rest = sys.argv[1:]
    if name in ("echo", "grpcio"):
        by_grpcio(Network(file), int(threads), computes=name == "grpcio")
    elif name == "fastapi":
        by_fastapi(Network(file), int(threads), int(rest[0]))
    elif name == "litserve":
        by_litserve(int(threads), int(rest[0]))
    elif name == "ray":
        by_ray(file, int(threads), int(rest[0]))
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main()
