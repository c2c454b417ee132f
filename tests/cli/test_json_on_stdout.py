"""`--json -`: stdout is one JSON document, whatever a command prints for people."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nnburst.cli import main, top
from nnburst.hal.enums import OperandType
from nnburst.testing.conformance.vectors import write
from nnburst.testing.models.random_graphs import generate
from nnburst.testing.models.random_graphs.graphs import as_vector


def test_conformance_writes_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "x.json.gz", as_vector(generate("single", OperandType.TENSOR_FLOAT32, 0)))
    assert main(["conformance", str(tmp_path), "--suite", "run", "--json", "-"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["passed"] == 1
    assert "1 passed" in shown.err


def test_fuzz_graphs_writes_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["fuzz", "graphs", "--size", "single", "--seeds", "1", "--dump", str(tmp_path)]
    assert main([*words, "--json", "-"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["failed"] == 0
    assert "0 failed" in shown.err


def test_top_writes_nothing_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("rich", reason="needs the extra cli")
    counts = {"": {"nnburst_clients": 3.0}, "digits": {"nnburst_ready": 1.0}}
    monkeypatch.setattr(top, "read", lambda _address: counts)
    assert main(["top", "host:1", "--times", "1", "--json", "-"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["service"] == {"clients": 3}
    assert "digits" in shown.err


def test_top_without_rich_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(top, "find_spec", lambda _name: None)
    assert main(["top", "host:1", "--times", "1"]) == 1
    assert "nnburst[cli]" in capsys.readouterr().err
