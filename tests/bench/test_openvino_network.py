"""Networks on a driver of the executor openvino beside OpenVINO in process: what is measured and refused."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

pytest.importorskip("openvino", reason="the executor's engine is not installed")
pytest.importorskip("onnx", reason="what writes the network")

from importer.onnx.graphs import model, node, value
from nnburst.bench.network import openvino

pytestmark = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="needs a core for each side"
)


def test_a_burst_is_compared_with_the_engine_on_the_same_graph(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    network, report = tmp_path / "relu.onnx", tmp_path / "report.json"
    broken = tmp_path / "broken.onnx"
    made = model([node("Relu", "x", "y")], [value("x", "f4", (1, 64))], [value("y", "f4", (1, 64))])
    network.write_bytes(made.SerializeToString())
    broken.write_bytes(b"this is no network")
    files = [str(broken), str(network)]
    assert openvino.main([*files, "--rounds", "2", "--json", str(report)]) == 1
    found = json.loads(report.read_text())
    (relu,) = found["networks"]
    assert (relu["network"], relu["different"]) == ("relu", False)
    assert relu["ratio"] > 0 < relu["undisturbed"]["openvino_ns"]
    assert [case["name"] for case in relu["cases"]] == ["burst", "openvino"]
    assert list(found["failures"]) == [str(broken)]
    assert "the same bits" in capsys.readouterr().out
