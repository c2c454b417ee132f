"""Sequences of a model whose states stay in the driver have slots there."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from shared_drivers import connect_to

pytest.importorskip("tritonclient.grpc", reason="extra grpc is not installed")
pytest.importorskip("onnxruntime", reason="the engine")

import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

import nnburst
from importer.onnx.graphs import model, node, value
from nnburst.testing.models.transformers import TransformerSize, decoder, decoder_states
from serving.served import PATIENCE, Served

SIZE = TransformerSize(2, 64, 2, 97, 64)
TOKENS = 10
#: As many as the model may have.
SEQUENCES = 4
PROMPTS = [[3, 1, 4, 1, 5], [2, 7, 1], [9], [1, 1, 2, 3]]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("networks")
    (folder / "decoder.onnx").write_bytes(decoder("scatter", SIZE))
    wide = model(
        [node("TensorScatter", "past k at", "present", axis=-2), node("Identity", "k", "y")],
        [
            value("past", "f4", (1, 1 << 33, 8)),
            value("k", "f4", (1, 1, 8)),
            value("at", "i8", (1,)),
        ],
        [value("present", "f4", (1, 1 << 33, 8)), value("y", "f4", (1, 1, 8))],
        opset=24,
    )
    (folder / "wide.onnx").write_bytes(wide.SerializeToString())
    words = ["--model", f"decoder={folder}/decoder.onnx", "--largest", "logits"]
    for before, after in decoder_states("scatter", SIZE).items():
        words += ["--state", f"{before}={after}"]
    words += ["--model", f"wide={folder}/wide.onnx", "--state", "past=present"]
    words += ["--max-sequences", str(SEQUENCES)]
    with Served(*words, executor="onnxruntime", models=()) as found:
        yield found


@pytest.fixture
def client(served: Served) -> Iterator[Any]:
    with served.client() as client:
        yield client


def alone(prompt: list[int]) -> list[int]:
    """The tokens of a sequence that has the engine to itself."""
    imported = nnburst.load(
        decoder("scatter", SIZE),
        as_graph=True,
        states=decoder_states("scatter", SIZE),
        resident=True,
        largest=["logits"],
    )
    with (
        connect_to("onnxruntime") as device,
        device.prepare(imported) as prepared,
        prepared.open_burst() as burst,
    ):
        return tokens_of(burst, prompt)


def tokens_of(burst: nnburst.Burst, prompt: list[int]) -> list[int]:
    ids, found = prompt, []
    for _ in range(TOKENS):
        found.append(int(burst.execute([np.array([ids])]).outputs[0][0]))
        ids = found[-1:]
    return found


def step(client: Any, key: object, ids: list[int], **words: bool) -> int:
    given = triton.InferInput("ids", [1, len(ids)], "INT64")
    given.set_data_from_numpy(np.array([ids]))
    result = client.infer("decoder", [given], sequence_id=key, client_timeout=PATIENCE, **words)
    return int(result.as_numpy("logits_largest")[0])


def tokens(client: Any, key: object, prompt: list[int], *, ends: bool = True) -> list[int]:
    found = [step(client, key, prompt, sequence_start=True)]
    while len(found) < TOKENS:
        last = ends and len(found) == TOKENS - 1
        found.append(step(client, key, found[-1:], sequence_end=last))
    return found


def test_sequences_at_the_same_time_have_the_tokens_of_one_alone(
    served: Served, client: Any
) -> None:
    assert [each.name for each in client.get_model_metadata("decoder").inputs] == ["ids"]
    assert client.get_model_config("decoder").config.HasField("sequence_batching")
    expected = [alone(prompt) for prompt in PROMPTS]

    def work(at: int) -> list[int]:
        with served.client() as own:
            return tokens(own, f"caller {at}", PROMPTS[at])

    with ThreadPoolExecutor(len(PROMPTS)) as threads:
        assert list(threads.map(work, range(len(PROMPTS)))) == expected
    assert tokens(client, 7, PROMPTS[0]) == expected[0], "one that begins anew"


def test_sequence_that_was_not_started_or_was_ended_has_no_state(client: Any) -> None:
    tokens(client, 5, [1])
    for key in (5, 6):
        with pytest.raises(InferenceServerException, match="not started, ended") as refused:
            step(client, key, [1])
        assert refused.value.status() == "StatusCode.INVALID_ARGUMENT"
    with pytest.raises(InferenceServerException, match="sequence_id is needed"):
        step(client, 0, [1])


def test_run_that_fails_ends_its_sequence_and_frees_its_place(client: Any) -> None:
    for key in range(1, 2 * SEQUENCES + 1):
        step(client, key, [1], sequence_start=True)
        with pytest.raises(InferenceServerException) as failed:
            step(client, key, [SIZE.words])
        assert failed.value.status() == "StatusCode.INTERNAL"
        with pytest.raises(InferenceServerException, match="its state is lost") as lost:
            step(client, key, [1])
        assert lost.value.status() == "StatusCode.INVALID_ARGUMENT"


def test_more_sequences_than_there_may_be_are_resource_exhausted(client: Any) -> None:
    for key in range(1, SEQUENCES + 1):
        step(client, key, [1], sequence_start=True)
    with pytest.raises(InferenceServerException, match="4 sequences are in use") as refused:
        step(client, 99, [1], sequence_start=True)
    assert refused.value.status() == "StatusCode.RESOURCE_EXHAUSTED"
    for key in range(1, SEQUENCES + 1):
        step(client, key, [1], sequence_end=True)
    assert step(client, 99, [1], sequence_start=True, sequence_end=True) >= 0


def test_state_beyond_the_memory_of_the_driver_is_resource_exhausted(client: Any) -> None:
    k = triton.InferInput("k", [1, 1, 8], "FP32")
    k.set_data_from_numpy(np.zeros((1, 1, 8), np.float32))
    at = triton.InferInput("at", [1], "INT64")
    at.set_data_from_numpy(np.zeros(1, np.int64))
    for _ in range(2):
        with pytest.raises(InferenceServerException, match="memory") as refused:
            client.infer("wide", [k, at], sequence_id=1, sequence_start=True)
        assert refused.value.status() == "StatusCode.RESOURCE_EXHAUSTED"


def test_program_on_the_host_opens_the_model_by_its_name_and_has_slots(served: Served) -> None:
    with (
        nnburst.connect(served.driver) as device,
        device.model("decoder") as found,
        found.open_burst() as burst,
        burst.slot() as slot,
    ):
        assert tokens_of(slot, PROMPTS[0]) == alone(PROMPTS[0])


def test_state_is_lost_with_its_worker_and_a_new_sequence_begins(
    served: Served, client: Any
) -> None:
    step(client, 1, [1], sequence_start=True)
    served.kill_workers()
    with pytest.raises(InferenceServerException, match="begin anew with sequence_start") as lost:
        step(client, 1, [1])
    assert lost.value.status() == "StatusCode.UNAVAILABLE"
    with pytest.raises(InferenceServerException, match="its state is lost"):
        step(client, 1, [1])
    assert tokens(client, 1, PROMPTS[0]) == alone(PROMPTS[0])
