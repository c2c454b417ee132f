"""Sequences of a whole .tflite file have its variables for themselves, each in a slot of the driver."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tritonclient.grpc", reason="extra grpc is not installed")
pytest.importorskip("ai_edge_litert", reason="the engine")

import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

import nnburst
from executor.litert.test_whole_graphs import Peer, counter
from nnburst.importer.load import load_named
from nnburst.importer.named_sources import NamedSource
from nnburst.testing.models.tflite_builder import TfliteBuilder
from serving.served import PATIENCE, Served

#: As many as a model may have.
SEQUENCES = 8
STEPS = [
    [0.5, 0.25, 2.0, 0.125],
    [1.0, 1.5, -3.0, 0.5],
    [0.0, 0.0, 7.25, 1.0],
    [-0.5, 4.0, 4.0, 0.5],
]


def random_number() -> bytes:
    """An output that differs with each run, by no variable."""
    b = TfliteBuilder()
    shape = b.constant("INT32", np.array([3], "<i4"))
    x, y, z = (
        b.input("FLOAT32", (3,), name="x"),
        b.tensor("FLOAT32", (3,)),
        b.output("FLOAT32", (3,), name="z"),
    )
    b.operator("RANDOM_UNIFORM", [shape], [y], "RandomOptions", seed=3, seed2=4)
    b.operator("ADD", [x, y], [z], "AddOptions")
    return b.finish()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("networks")
    (folder / "total.tflite").write_bytes(counter(rounds=True))
    (folder / "random.tflite").write_bytes(random_number())
    (folder / "repository/kept/1").mkdir(parents=True)
    (folder / "repository/kept/1/model.tflite").write_bytes(counter(rounds=True))
    words = ["--model", f"total={folder}/total.tflite"]
    words += ["--model", f"random={folder}/random.tflite"]
    words += ["--repository", f"{folder}/repository", "--max-sequences", str(SEQUENCES)]
    with Served(*words, executor="litert", models=()) as found:
        yield found


@pytest.fixture
def client(served: Served) -> Iterator[Any]:
    with served.client() as client:
        yield client


def alone(steps: Sequence[float]) -> list[float]:
    """The outputs of an engine in process that one sequence has for itself."""
    peer = Peer(counter(rounds=True))
    return [float(peer.run([np.array([step], np.float32)])[0][0]) for step in steps]


def step(client: Any, model: str, key: object, value: float, **words: bool) -> float:
    given = triton.InferInput("x", [1], "FP32")
    given.set_data_from_numpy(np.array([value], np.float32))
    result = client.infer(model, [given], sequence_id=key, client_timeout=PATIENCE, **words)
    return float(result.as_numpy("y")[0])


def stream(client: Any, model: str, key: object, steps: Sequence[float]) -> list[float]:
    last = len(steps) - 1
    return [
        step(client, model, key, value, sequence_start=not at, sequence_end=at == last)
        for at, value in enumerate(steps)
    ]


@pytest.mark.parametrize("model", ["total", "kept"])
def test_sequences_at_the_same_time_are_equal_to_engines_of_their_own(
    served: Served, client: Any, model: str
) -> None:
    assert [each.name for each in client.get_model_metadata(model).inputs] == ["x"]
    assert client.get_model_config(model).config.HasField("sequence_batching")

    def work(at: int) -> list[float]:
        with served.client() as own:
            return stream(own, model, f"caller {at}", STEPS[at])

    with ThreadPoolExecutor(len(STEPS)) as threads:
        assert list(threads.map(work, range(len(STEPS)))) == [alone(steps) for steps in STEPS]


def test_variables_of_an_ended_sequence_are_gone(client: Any) -> None:
    assert stream(client, "total", 1, STEPS[0]) == alone(STEPS[0])
    for key, words in [(1, "not started, ended"), (0, "sequence_id is needed")]:
        with pytest.raises(InferenceServerException, match=words) as refused:
            step(client, "total", key, 1.0)
        assert refused.value.status() == "StatusCode.INVALID_ARGUMENT"
    assert stream(client, "total", 1, STEPS[1]) == alone(STEPS[1]), "one that begins anew"


def test_program_on_the_host_has_slots_beside_the_sequences_of_the_front(
    served: Served, client: Any
) -> None:
    step(client, "total", 1, 100.0, sequence_start=True)
    with (
        nnburst.connect(served.driver) as device,
        device.model("total") as found,
        found.open_burst() as burst,
    ):
        slots = [burst.slot() for _ in STEPS]
        rows = [
            [float(slot.execute([np.array([value], np.float32)]).outputs[0][0]) for value in steps]
            for slot, steps in zip(slots, STEPS, strict=True)
        ]
    assert rows == [alone(steps) for steps in STEPS]
    assert step(client, "total", 1, 1.0, sequence_end=True) == 101.0


def test_state_is_lost_with_its_worker_and_a_new_sequence_begins(
    served: Served, client: Any
) -> None:
    step(client, "total", 1, 1.0, sequence_start=True)
    served.kill_workers()
    with pytest.raises(InferenceServerException) as lost:
        step(client, "total", 1, 1.0)
    assert lost.value.status() == "StatusCode.UNAVAILABLE"
    with pytest.raises(InferenceServerException, match="its state is lost"):
        step(client, "total", 1, 1.0)
    assert stream(client, "total", 1, STEPS[2]) == alone(STEPS[2])


def test_file_whose_runs_differ_by_no_variable_needs_no_sequence(client: Any) -> None:
    given = triton.InferInput("x", [3], "FP32")
    given.set_data_from_numpy(np.zeros(3, np.float32))
    rows = [client.infer("random", [given]).as_numpy("z").tolist() for _ in range(2)]
    assert rows[0] != rows[1]


def test_service_keeps_variables_in_slots_unlike_load_without_options(tmp_path: Path) -> None:
    file = tmp_path / "total.tflite"
    file.write_bytes(counter(rounds=True))
    served = load_named(NamedSource("total", 1, str(file)))
    assert "CEIL" in served.refusal
    assert served.input_names == ("x", "slot")
    assert nnburst.load(file).input_names == ("x",)
    assert nnburst.load(file, as_graph=True, resident=True).input_names == ("x", "slot")
