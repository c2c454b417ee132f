"""Mutated files, read by the importer and run whole through a driver."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from importer.onnx.graphs import model, node, normal, value
from nnburst.cli import main
from nnburst.testing.fuzzing.file_fuzzers import fuzz_importer


def files() -> list[bytes]:
    """A convolution, integers of 64 bits, and a length that is left open."""
    made = [
        model(
            [node("Conv", "x w", "a", pads=[1, 1, 1, 1]), node("Reshape", "a s", "y")],
            [value("x", "f4", (1, 3, 6, 6))],
            [value("y", "f4", (1, 144))],
            {"w": normal(4, 3, 3, 3), "s": np.array([1, -1], np.int64)},
        ),
        model(
            [node("Add", "x c", "y")],
            [value("x", "i8", (3,))],
            [value("y", "i8", (3,))],
            {"c": np.arange(3)},
        ),
        model([node("Relu", "x", "y")], [value("x", "f4", ("n",))], [value("y", "f4", ("n",))]),
    ]
    return [bytes(one.SerializeToString()) for one in made]


def test_mutated_onnx_files_are_read_or_refused_in_bounded_time_and_memory() -> None:
    report = fuzz_importer(files(), 600, seed=3)
    assert report.failures == []
    assert report.outcomes["imported"] > 5
    assert report.outcomes["refused"] > 100


@pytest.mark.campaign
def test_mutated_graphs_are_run_or_refused_and_the_driver_lives_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnxruntime", reason="the executor's engine")
    paths = [tmp_path / f"{number}.onnx" for number in range(3)]
    for path, content in zip(paths, files(), strict=True):
        path.write_bytes(content)
    words = [*map(str, paths), "--graphs", "250", "--seed", "1", "--json", str(tmp_path / "json")]
    assert main(["fuzz", "onnx", *words]) == 0
    figures = json.loads((tmp_path / "json").read_text())
    assert figures["failures"] == []
    assert sum(figures["outcomes"].values()) == figures["graphs"] == 250
    assert figures["outcomes"]["run"] > 5
    assert figures["outcomes"]["refused"] > 50
    assert "refused" in capsys.readouterr().out


def test_mutated_tflite_graphs_are_run_or_refused_and_the_driver_lives_on(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert", reason="the executor's engine")
    words = ["--graphs", "300", "--seed", "1", "--json", str(tmp_path / "json")]
    assert main(["fuzz", "tflite", *words]) == 0
    figures = json.loads((tmp_path / "json").read_text())
    assert figures["failures"] == []
    assert sum(figures["outcomes"].values()) == figures["graphs"] == 300
    assert figures["outcomes"]["run"] > 5
    assert figures["outcomes"]["refused"] > 50
