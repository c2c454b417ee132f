"""Both stock clients, call by call: the table in docs/serving.md."""

from __future__ import annotations

import asyncio
import inspect
import queue
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tritonclient.grpc", reason="extra grpc is not installed")

import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from tritonclient.utils import InferenceServerException, shared_memory

from serving.served import MODELS, Served, region_key

A = np.arange(6, dtype=np.float32).reshape(2, 3)
B = np.full((2, 3), 100, np.float32)
DOCS = Path(__file__).resolve().parents[2] / "docs" / "serving.md"
Call = Callable[..., Coroutine[Any, Any, Any]]


def by(client: Any) -> Call:
    """A method of either client by its name."""

    async def call(name: str, *words: Any, **options: Any) -> Any:
        found = getattr(client, name)(*words, **options)
        return await found if inspect.isawaitable(found) else found

    return call


def given(**arrays: Any) -> list[Any]:
    """Inputs by value, for both clients, which share these classes."""
    found = []
    for name, array in arrays.items():
        found.append(triton.InferInput(name, list(array.shape), "FP32"))
        found[-1].set_data_from_numpy(array)
    return found


async def states(call: Call) -> None:
    assert await call("is_server_live")
    assert await call("is_server_ready")
    for name in MODELS:
        assert await call("is_model_ready", name)


async def descriptions(call: Call) -> None:
    assert (await call("get_server_metadata")).name == "nnburst"
    assert (await call("get_server_metadata", as_json=True))["name"] == "nnburst"
    assert (await call("get_model_metadata", "add")).versions == ["1"]
    assert (await call("get_model_config", "add")).config.name == "add"
    with pytest.raises(InferenceServerException, match="NOT_FOUND"):
        await call("get_model_metadata", "nothing")


async def statistics(call: Call) -> None:
    found = await call("get_inference_statistics")
    assert sorted(each.name for each in found.model_stats) == sorted(MODELS)
    (one,) = (await call("get_inference_statistics", "add")).model_stats
    assert one.version == "1"


async def infer(call: Call) -> None:
    result = await call("infer", "add", given(a=A, b=B), request_id="seven", client_timeout=30)
    assert result.as_numpy("y").tolist() == (A + B).tolist()
    assert result.get_response().id == "seven"
    wanted = [triton.InferRequestedOutput("y")]
    result = await call("infer", "add", given(b=B, a=A), model_version="1", outputs=wanted)
    assert result.as_numpy("y").tolist() == (A + B).tolist()
    for compression in ("gzip", "deflate"):
        result = await call("infer", "add", given(a=A, b=A), compression_algorithm=compression)
        assert result.as_numpy("y").tolist() == (2 * A).tolist()


async def refusals(call: Call) -> None:
    with pytest.raises(InferenceServerException, match="NOT_FOUND"):
        await call("infer", "nothing", given(a=A, b=B))
    with pytest.raises(InferenceServerException, match="NOT_FOUND"):
        await call("is_model_ready", "nothing")
    with pytest.raises(InferenceServerException, match="shape"):
        await call("infer", "add", given(a=A[:1], b=B))
    with pytest.raises(InferenceServerException, match="NOT_FOUND"):
        await call("load_model", "nothing")


async def repository(call: Call) -> None:
    for change in ("load_model", "unload_model", "load_model"):
        await call(change, "quantised")
    found = {each.name: each.state for each in (await call("get_model_repository_index")).models}
    assert found["quantised"] == "READY"


async def regions(call: Call) -> None:
    key = region_key("both")
    room = shared_memory.create_shared_memory_region("both", key, 3 * A.nbytes)
    try:
        shared_memory.set_shared_memory_region(room, [A, B])
        await call("register_system_shared_memory", "both", key, 3 * A.nbytes)
        status = await call("get_system_shared_memory_status", "both")
        assert status.regions["both"].byte_size == 3 * A.nbytes
        inputs = [triton.InferInput(name, [2, 3], "FP32") for name in "ab"]
        for number, each in enumerate(inputs):
            each.set_shared_memory("both", A.nbytes, number * A.nbytes)
        wanted = triton.InferRequestedOutput("y")
        wanted.set_shared_memory("both", A.nbytes, 2 * A.nbytes)
        for _ in range(2):
            await call("infer", "add", inputs, outputs=[wanted])
            found = shared_memory.get_contents_as_numpy(room, np.float32, [2, 3], 2 * A.nbytes)
            assert found.tolist() == (A + B).tolist()
        await call("unregister_system_shared_memory", "both")
        assert not (await call("get_cuda_shared_memory_status")).regions
    finally:
        shared_memory.destroy_shared_memory_region(room)


async def sequence(call: Call) -> None:
    x, sums = np.float32([1, 1]), []
    for number in range(3):
        result = await call(
            "infer", "accumulate", given(x=x), sequence_id=99,
            sequence_start=number == 0, sequence_end=number == 2,
        )  # fmt: skip
        sums.append(float(result.as_numpy("y")[0]))
    assert np.diff(sums).tolist() == [1, 1]


#: What is tried by both clients, and its row in the table of docs/serving.md.
TRIED = {
    states: "`is_server_live`, `is_server_ready`, `is_model_ready`",
    descriptions: "`get_server_metadata`, `get_model_metadata`, `get_model_config`",
    statistics: "`get_inference_statistics`",
    infer: "`infer`: raw, any order, outputs selected, `client_timeout`, gzip and deflate",
    refusals: "what is refused: unknown models, shapes, models that are not there",
    repository: "`get_model_repository_index`, `load_model`, `unload_model`",
    regions: "`register_system_shared_memory`, `…_status`, `unregister_…`, inputs and outputs in them",
    sequence: "`sequence_id`, `sequence_start`, `sequence_end`",
}


@pytest.mark.parametrize("tried", TRIED, ids=lambda tried: tried.__name__)
def test_call_works_by_the_synchronous_client(tried: Call, client: Any) -> None:
    asyncio.run(tried(by(client)))


@pytest.mark.parametrize("tried", TRIED, ids=lambda tried: tried.__name__)
def test_call_works_by_the_client_of_event_loops(tried: Call, served: Served) -> None:
    async def run() -> None:
        async with triton_aio.InferenceServerClient(served.address) as client:
            await tried(by(client))

    asyncio.run(run())


def test_call_with_a_callback_is_answered(client: Any) -> None:
    answers: queue.Queue[Any] = queue.Queue()
    for number in range(8):
        inputs = given(a=A + number, b=B)
        client.async_infer("add", inputs, lambda result, error: answers.put((result, error)))
    found = [answers.get(timeout=60) for _ in range(8)]
    assert [error for _, error in found] == [None] * 8
    firsts = sorted(float(result.as_numpy("y")[0, 0]) for result, _ in found)
    assert firsts == [100 + number for number in range(8)]


def test_stream_of_the_client_of_event_loops_answers_in_order(served: Served) -> None:
    async def questions() -> AsyncIterator[dict[str, Any]]:
        for number in range(5):
            name = "nothing" if number == 3 else "add"
            yield {"model_name": name, "inputs": given(a=A + number, b=B)}

    async def run() -> list[float | str]:
        async with triton_aio.InferenceServerClient(served.address) as client:
            found: list[float | str] = []
            async for result, error in client.stream_infer(questions()):
                found.append(str(error) if error else float(result.as_numpy("y")[0, 0]))
            return found

    *before, refused, last = asyncio.run(run())
    assert (before, last) == ([100, 101, 102], 104)
    assert "NOT_FOUND" in str(refused)


@pytest.mark.parametrize("tried", TRIED, ids=lambda tried: tried.__name__)
def test_table_of_clients_has_a_row(tried: Call) -> None:
    assert f"| {TRIED[tried]} | yes | yes |" in DOCS.read_text(encoding="utf-8")
