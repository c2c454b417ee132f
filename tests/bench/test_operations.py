"""`nnburst bench operations` takes one input and one output, and names the file of anything else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed (extra 'litert')")

from nnburst.bench.operations import compare
from nnburst.hal.errors import InvalidArgument
from nnburst.testing.conformance.vectors import SHIPPED
from nnburst.testing.models.tflite_builder import TfliteBuilder
from nnburst.testing.models.tflite_networks import NETWORKS


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("ADD-FLOAT32", "2 inputs and 1 outputs, expected one of each"),
        ("UNPACK-INT8", "1 inputs and 3 outputs, expected one of each"),
    ],
)
def test_network_of_several_inputs_or_outputs_is_refused_by_its_name(
    name: str, reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "network.tflite"
    path.write_bytes(NETWORKS[name]())
    with pytest.raises(InvalidArgument, match=f"^{path}: {reason}"):
        compare(path, 1, 1)


@pytest.mark.parametrize(
    ("name", "reason"),
    [("abs", "cannot be written as a .tflite file: .*ABS"), ("fill", "an input of FLOAT32")],
)
def test_vector_that_litert_cannot_take_is_refused_by_its_name(name: str, reason: str) -> None:
    path = SHIPPED / "vectors" / f"{name}.json.gz"
    with pytest.raises(InvalidArgument, match=f"^{path}: {reason}"):
        compare(path, 1, 1)


def test_results_that_are_no_numbers_on_both_sides_are_the_same(tmp_path: Path) -> None:
    b = TfliteBuilder()
    x, y = b.input("FLOAT32", (8,)), b.output("FLOAT32", (8,))
    b.operator("SQRT", [x], [y])
    path = tmp_path / "root.tflite"
    path.write_bytes(b.finish())
    found = compare(path, 1, 1).as_json()
    assert found["largest_difference"] < 1e-6
    json.dumps(found, allow_nan=False)
