"""Calls of kserve's client against a front, in a Python that has kserve and nothing of nnburst.

    python kserve_calls.py GRPC_ADDRESS HTTP_ADDRESS

Prints a JSON object: each call's name, and the error that it ended by; empty if it was as it should be.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import httpx
import numpy as np
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest, RESTConfig
from kserve.errors import UnsupportedProtocol
from kserve.protocol.infer_type import RequestedOutput

A = np.arange(6, dtype=np.float32).reshape(2, 3)
B = np.full((2, 3), 100, np.float32)
#: Inputs of each model, and its outputs by name.
MODELS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "add": ({"a": A, "b": B}, {"y": A + B}),
    "both": (
        {"input_0": np.int32([5, 6]), "input_1": np.int32([1, 9])},
        {"sum": np.int32([6, 15]), "difference": np.int32([4, -3])},
    ),
    "quantised": (
        {"input_0": np.uint8([99, 100, 101, 255])},
        {"output_0": np.uint8([100, 100, 101, 255])},
    ),
    "conjunction": (
        {"x": np.array([True, True, False, False]), "y": np.array([True, False, True, False])},
        {"both": np.array([True, False, False, False])},
    ),
}
TYPES = {"float32": "FP32", "int32": "INT32", "uint8": "UINT8", "bool": "BOOL"}
Call = Callable[[Any], Awaitable[None]]
BY_GRPC: dict[str, Call] = {}
BY_REST: dict[str, Call] = {}


def call(table: dict[str, Call]) -> Callable[[Call], Call]:
    """Enter a call under its words."""

    def enter(function: Call) -> Call:
        table[function.__name__.replace("_", " ")] = function
        return function

    return enter


def request(name: str, binary: bool = True, **more: Any) -> Any:
    inputs = []
    for each, values in MODELS[name][0].items():
        given = InferInput(each, list(values.shape), TYPES[values.dtype.name])
        given.set_data_from_numpy(values, binary_data=binary)
        inputs.append(given)
    return InferRequest(name, inputs, **more)


def check(response: Any, name: str, only: str | None = None) -> None:
    found = {each.name: each for each in response.outputs}
    wanted = {k: v for k, v in MODELS[name][1].items() if only in (None, k)}
    assert found.keys() == wanted.keys(), found.keys()
    for key, values in wanted.items():
        assert found[key].datatype == TYPES[values.dtype.name]
        assert np.array_equal(found[key].as_numpy(), values), found[key].as_numpy()
    assert response.model_name == name
    assert response.model_version in ("1", None)  # the client keeps none by REST


async def fails(awaited: Awaitable[Any], kind: type[Exception]) -> Any:
    try:
        found = await awaited
    except kind as error:
        return error
    raise AssertionError(f"an error is wanted, not {found}")


async def every_type(infer: Callable[[Any], Awaitable[Any]], binary: bool) -> None:
    for name in MODELS:
        check(await infer(request(name, binary)), name)


@call(BY_GRPC)
async def is_server_live(client: Any) -> None:
    assert await client.is_server_live() is True


@call(BY_GRPC)
async def is_server_ready(client: Any) -> None:
    assert await client.is_server_ready(timeout=10, headers=[("name", "value")]) is True


@call(BY_GRPC)
async def is_model_ready(client: Any) -> None:
    assert await client.is_model_ready("add") is True


@call(BY_GRPC)
async def is_model_ready_of_none(client: Any) -> None:
    """ "RPCError for … specified model not found", by the client's own description."""
    error = await fails(client.is_model_ready("nothing"), grpc.RpcError)
    assert error.code() is grpc.StatusCode.NOT_FOUND, error


@call(BY_GRPC)
async def infer_bytes(client: Any) -> None:
    await every_type(client.infer, binary=True)


@call(BY_GRPC)
async def infer_numbers(client: Any) -> None:
    await every_type(client.infer, binary=False)


@call(BY_GRPC)
async def infer_with_all_options(client: Any) -> None:
    asked = request(
        "both",
        request_id="an id",
        model_version="1",
        parameters={"priority": 1, "timeout": 20_000_000},
        request_outputs=[RequestedOutput("difference")],
    )
    response = await client.infer(asked, timeout=20, headers=[("name", "value")])
    check(response, "both", only="difference")
    assert response.id == "an id"


@call(BY_GRPC)
async def infer_of_none(client: Any) -> None:
    wrong = request("add")
    wrong.model_name = "nothing"
    error = await fails(client.infer(wrong), grpc.RpcError)
    assert error.code() is grpc.StatusCode.NOT_FOUND, error


@call(BY_GRPC)
async def infer_of_a_wrong_shape(client: Any) -> None:
    wrong = request("add")
    wrong.inputs[0].shape = [3, 2]
    error = await fails(client.infer(wrong), grpc.RpcError)
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT, error


@call(BY_GRPC)
async def infer_at_once(client: Any) -> None:
    for response in await asyncio.gather(*(client.infer(request("add")) for _ in range(32))):
        check(response, "add")


class Rest:
    """The client for REST of a front, whose calls take its address first."""

    def __init__(self, address: str) -> None:
        self.base = f"http://{address}"
        self.client = InferenceRESTClient(RESTConfig(protocol="v2", retries=0))

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        return lambda *words, **more: getattr(self.client, name)(self.base, *words, **more)

    async def infer_model(self, asked: Any, **more: Any) -> Any:
        return await self.infer(asked, model_name=asked.model_name, **more)


@call(BY_REST)
async def is_server_live_(rest: Rest) -> None:
    assert await rest.is_server_live() is True


@call(BY_REST)
async def is_server_ready_(rest: Rest) -> None:
    assert await rest.is_server_ready(timeout=10, headers={"name": "value"}) is True


@call(BY_REST)
async def is_model_ready_(rest: Rest) -> None:
    assert await rest.is_model_ready("add") is True


@call(BY_REST)
async def is_model_ready_of_none_(rest: Rest) -> None:
    assert await rest.is_model_ready("nothing") is False


@call(BY_REST)
async def infer_bytes_(rest: Rest) -> None:
    await every_type(rest.infer_model, binary=True)


@call(BY_REST)
async def infer_numbers_(rest: Rest) -> None:
    await every_type(rest.infer_model, binary=False)


@call(BY_REST)
async def infer_with_all_options_(rest: Rest) -> None:
    answered: dict[str, str] = {}
    asked = request(
        "both",
        request_id="an id",
        parameters={"priority": 1, "timeout": 20_000_000},
        request_outputs=[RequestedOutput("difference", {"binary_data": True})],
    )
    response = await rest.infer_model(
        asked, timeout=20, headers={"name": "value"}, response_headers=answered
    )
    check(response, "both", only="difference")
    assert response.id == "an id"
    assert "inference-header-content-length" in answered


@call(BY_REST)
async def infer_bytes_for_bytes_(rest: Rest) -> None:
    asked = request("both", parameters={"binary_data_output": True})
    check(await rest.infer_model(asked), "both")


@call(BY_REST)
async def infer_of_a_whole_address_(rest: Rest) -> None:
    """A graph's address is taken as it is, and the answer is JSON."""
    address = f"{rest.base}/v2/models/add/infer"
    asked, _ = request("add", binary=False).to_rest()
    found = await rest.client.infer(address, asked, is_graph_endpoint=True)
    assert found["outputs"][0]["data"] == (A + B).ravel().tolist()


@call(BY_REST)
async def infer_of_none_(rest: Rest) -> None:
    error = await fails(rest.infer(request("add"), model_name="nothing"), httpx.HTTPStatusError)
    assert error.response.status_code == 404
    assert "nothing" in str(error)


@call(BY_REST)
async def infer_of_a_wrong_shape_(rest: Rest) -> None:
    wrong = request("add")
    wrong.inputs[0].shape = [3, 2]
    error = await fails(rest.infer_model(wrong), httpx.HTTPStatusError)
    assert error.response.status_code == 400


@call(BY_REST)
async def infer_at_once_(rest: Rest) -> None:
    for response in await asyncio.gather(*(rest.infer_model(request("add")) for _ in range(32))):
        check(response, "add")


@call(BY_REST)
async def explain_(rest: Rest) -> None:
    """Of the older protocol: the client refuses it itself."""
    await fails(rest.explain("add", {}), UnsupportedProtocol)


async def outcomes(table: dict[str, Call], client: Any) -> dict[str, str]:
    found = {}
    for name, function in table.items():
        try:
            await asyncio.wait_for(function(client), 60)
            found[name.strip()] = ""
        except Exception as error:
            found[name.strip()] = f"{type(error).__name__}: {error}"
    return found


async def main() -> None:
    logging.disable()
    of_grpc, of_rest = sys.argv[1:]
    async with InferenceGRPCClient(of_grpc, retries=0) as client:
        found = {f"gRPC {k}": v for k, v in (await outcomes(BY_GRPC, client)).items()}
    rest = Rest(of_rest)
    found |= {f"REST {k}": v for k, v in (await outcomes(BY_REST, rest)).items()}
    await rest.client.close()
    print(json.dumps(found))


if __name__ == "__main__":
    asyncio.run(main())
