"""`nnburst fuzz importer` as it is typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed (extra 'litert')")

from nnburst.cli import main


def test_mutated_files_are_counted_by_what_became_of_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "fuzz.json"
    assert main(["fuzz", "importer", "--files", "200", "--seed", "5", "--json", str(target)]) == 0
    figures = json.loads(target.read_text())
    assert figures["passed"]
    assert sum(figures["outcomes"].values()) == figures["files"] == 200
    assert "refused" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["importer", "--files", "50"], ["onnx", "--graphs", "1"]])
@pytest.mark.parametrize("size", [0, 3])
def test_file_smaller_than_any_network_is_refused_by_name(
    words: list[str], size: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "small.onnx"
    path.write_bytes(bytes(size))
    assert main(["fuzz", *words, str(path)]) == 1
    assert f"{path}: {size} bytes, expected an intact network" in capsys.readouterr().err


@pytest.mark.parametrize(("kind", "format_of"), [("onnx", "ONNX"), ("tflite", "TFLite")])
def test_file_that_is_no_network_is_refused_by_name_and_format(
    kind: str, format_of: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "story.onnx"
    path.write_bytes(b"Once upon a time there was no network.")
    assert main(["fuzz", kind, "--graphs", "1", str(path)]) == 1
    error = capsys.readouterr().err
    assert f"{path}: expected a network in {format_of} format: not an intact" in error
    assert ("tflite" in error) is (kind == "tflite")


def test_file_that_cannot_be_read_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fuzz", "importer", "--files", "1", "absent.tflite"]) == 1
    assert "absent.tflite" in capsys.readouterr().err
