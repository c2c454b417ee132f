"""Whole graphs whose files leave extents open: their descriptions, requests of any shape, and batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tritonclient.grpc", reason="extra grpc is not installed")
pytest.importorskip("onnxruntime", reason="the engine")

import tritonclient.grpc as triton

from importer.onnx.graphs import model, node, value
from serving.served import PATIENCE, Served

WEIGHTS = np.float32([[1, 2], [3, 4], [5, 6]])
CLIENTS = 12


def write(file: Path, inputs: Sequence[int | str] | None, outputs: Sequence[int | str]) -> str:
    """y = x · WEIGHTS, of these shapes."""
    made = model(
        [node("MatMul", "x w", "y")],
        [value("x", "f4", inputs)],
        [value("y", "f4", outputs)],
        {"w": WEIGHTS},
    )
    file.write_bytes(made.SerializeToString())
    return f"{file.stem}={file}"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("networks")
    words = ["--max-batch", "8", "--max-delay-us", "20000", "--lanes", "1"]
    words += ["--model", write(folder / "rows.onnx", ("batch", 3), ("batch", 2))]
    words += ["--model", write(folder / "other.onnx", ("batch", 3), ("found", 2))]
    words += ["--model", write(folder / "any.onnx", None, ("batch", 2))]
    places = model(
        [node("NonZero", "x", "y")], [value("x", "f4", ("n",))], [value("y", "i8", (1, "found"))]
    )
    (folder / "places.onnx").write_bytes(places.SerializeToString())
    words += ["--model", f"places={folder}/places.onnx"]
    expanded = model(
        [node("Expand", "x extents", "y")],
        [value("x", "f4", (1,)), value("extents", "i8", (2,))],
        [value("y", "f4", (2, 2))],
    )
    (folder / "expanded.onnx").write_bytes(expanded.SerializeToString())
    words += ["--model", f"expanded={folder}/expanded.onnx"]
    with Served(*words, executor="onnxruntime", models=()) as found:
        yield found


@pytest.fixture
def client(served: Served) -> Iterator[Any]:
    with served.client() as client:
        yield client


def answer(client: Any, name: str, x: np.ndarray[Any, Any]) -> Any:
    given = triton.InferInput("x", list(x.shape), "FP32")
    given.set_data_from_numpy(x)
    return client.infer(name, [given], client_timeout=PATIENCE).as_numpy("y")


def test_outputs_are_described_as_the_file_declares_them(client: Any) -> None:
    for name, shape in (("rows", [-1, 3]), ("other", [-1, 3]), ("any", [-1])):
        found = client.get_model_metadata(name)
        assert [list(each.shape) for each in (*found.inputs, *found.outputs)] == [shape, [-1, 2]]


@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 2, 3)])
def test_input_of_open_rank_takes_any_shape(client: Any, shape: tuple[int, ...]) -> None:
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    assert answer(client, "any", x).tolist() == (x @ WEIGHTS).tolist()


def test_output_without_elements_is_answered(client: Any) -> None:
    for x, expected in (([0, 1, 1], [[1, 2]]), ([0, 0], [[]])):
        found = answer(client, "places", np.array(x, np.float32))
        assert (found.dtype, found.tolist()) == (np.int64, expected)


def test_requests_are_joined_if_rows_have_one_name_in_the_file(client: Any) -> None:
    sizes = {}
    for name in ("rows", "other", "any"):
        sizes[name] = client.get_model_config(name).config.max_batch_size
    assert sizes == {"rows": 8, "other": 0, "any": 0}

    def ask(number: int) -> None:
        for turn in range(8):
            x = np.full((1 + number % 3, 3), number + turn, np.float32)
            assert answer(client, "rows", x).tolist() == (x @ WEIGHTS).tolist()

    with ThreadPoolExecutor(CLIENTS) as threads:
        for future in [threads.submit(ask, number) for number in range(CLIENTS)]:
            future.result(PATIENCE)
    (found,) = client.get_inference_statistics("rows").model_stats
    assert found.inference_stats.success.count == 8 * CLIENTS
    assert found.inference_count == 8 * sum(1 + number % 3 for number in range(CLIENTS))
    assert found.execution_count < 8 * CLIENTS / 2


def test_answer_has_the_shape_that_is_computed_where_the_file_declares_another(client: Any) -> None:
    given = [triton.InferInput("x", [1], "FP32"), triton.InferInput("extents", [2], "INT64")]
    given[0].set_data_from_numpy(np.ones(1, np.float32))
    for shape in [(2, 2), (1, 2), (3, 3), (2, 2), (40, 40)]:
        given[1].set_data_from_numpy(np.array(shape, np.int64))
        found = client.infer("expanded", given, client_timeout=PATIENCE).as_numpy("y")
        np.testing.assert_array_equal(found, np.ones(shape, np.float32), strict=True)
