"""`nnburst bench network` measures every contestant and reports what it found."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path

import pytest

pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed (extra 'litert')")

from importer.onnx.graphs import model, node, value
from nnburst.cli import main
from nnburst.cli.bench_compare import blocks_of
from nnburst.testing.models.tflite_builder import TfliteBuilder
from nnburst.testing.models.tflite_networks import NETWORKS

pytestmark = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="needs a core for each side"
)


def test_every_contestant_computes_the_same_and_is_timed(tmp_path: Path) -> None:
    network, report = tmp_path / "sum.tflite", tmp_path / "report.json"
    network.write_bytes(NETWORKS["ADD-FLOAT32"]())
    assert main(["bench", "network", str(network), "--rounds", "2", "--json", str(report)]) == 0
    found = json.loads(report.read_text())["networks"]
    assert [n["network"] for n in found] == ["one ADD", "sum"]
    assert len(blocks_of(found)) == sum(len(n["cases"]) for n in found)
    names = ["litert", "litert, as lowered"]
    if importlib.util.find_spec("onnx") and importlib.util.find_spec("onnxruntime"):
        names.append("onnxruntime")
    for network_found in found:
        for key in ("ratios", "typical_ratios"):
            assert list(network_found[key]) == names
            assert all(ratio > 0 for ratio in network_found[key].values())
        undisturbed = network_found["undisturbed"]
        assert undisturbed["burst_ns"] > 0 < undisturbed["litert_ns"]
        beyond = undisturbed["burst_ns"] - 1.01 * undisturbed["litert_ns"]
        assert undisturbed["beyond_ns"] == pytest.approx(beyond)
        assert network_found["differences"] == dict.fromkeys(names, 0.0)
        assert network_found["cases"][0]["name"] == "floor_spin"
        assert all(case["median_ns"] > 0 for case in network_found["cases"])


def test_results_that_are_no_numbers_on_both_sides_are_the_same(tmp_path: Path) -> None:
    b = TfliteBuilder()
    x, y = b.input("FLOAT32", (64,)), b.output("FLOAT32", (64,))
    b.operator("SQRT", [x], [y])
    network, report = tmp_path / "root.tflite", tmp_path / "report.json"
    network.write_bytes(b.finish())
    assert main(["bench", "network", str(network), "--rounds", "1", "--json", str(report)]) == 0
    _, found = json.loads(report.read_text())["networks"]
    assert found["differences"]["litert"] < 1e-6


def test_whole_graphs_without_a_file_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "network", "--as-graph"]) == 1
    assert "networks: none is given, expected .onnx files" in capsys.readouterr().err


def half_network(folder: Path) -> Path:
    """A network of 2 operators with an open extent and a number of its own."""
    made = model(
        [node("Mul", "x rate", "a"), node("Relu", "a", "y")],
        [value("x", "f4", (1, "n")), value("rate", "f4", ())],
        [value("y", "f4", (1, "n"))],
    )
    network = folder / "half.onnx"
    network.write_bytes(made.SerializeToString())
    return network


@pytest.mark.campaign
def test_onnx_file_is_run_by_onnxruntime_as_it_is(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    network, report = half_network(tmp_path), tmp_path / "report.json"
    words = ["bench", "network", str(network), "--shape", "x=1,64", "--constant", "rate=0.5"]
    assert main([*words, "--rounds", "2", "--json", str(report)]) == 0
    _, found = json.loads(report.read_text())["networks"]
    assert found["network"] == "half"
    names = ["litert", "litert, as lowered", "onnxruntime"]
    assert found["differences"] == dict.fromkeys(names, 0.0)


def test_whole_graph_is_compared_with_the_engine_on_bound_buffers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    network, report = half_network(tmp_path), tmp_path / "report.json"
    (tmp_path / "broken.onnx").write_bytes(b"this is no network")
    words = ["bench", "network", "--as-graph", str(tmp_path / "broken.onnx"), str(network)]
    words += ["--shape", "x=1,64", "--constant", "rate=0.5", "--rounds", "2"]
    assert main([*words, "--json", str(report)]) == 1
    found = json.loads(report.read_text())
    (half,) = found["networks"]
    assert (half["network"], half["different"]) == ("half", False)
    burst, bound = half["cases"]
    assert (burst["name"], bound["name"]) == ("graph", "bound")
    within = [b - 1.01 * a for a, b in zip(bound["typical_ns"], burst["typical_ns"], strict=True)]
    assert half["beyond_ns"] == pytest.approx(sum(within) / 2, abs=1)
    assert half["ratio"] > 0
    assert list(found["failures"]) == [str(tmp_path / "broken.onnx")]
    assert "the same bits" in capsys.readouterr().out


@pytest.mark.campaign
def test_network_that_fails_is_named_and_the_others_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken, network = tmp_path / "broken.tflite", tmp_path / "sum.tflite"
    broken.write_bytes(b"this is no network")
    network.write_bytes(NETWORKS["ADD-FLOAT32"]())
    report = tmp_path / "report.json"
    files = [str(broken), str(network)]
    assert main(["bench", "network", *files, "--rounds", "2", "--json", str(report)]) == 1
    found = json.loads(report.read_text())
    assert [n["network"] for n in found["networks"]] == ["one ADD", "sum"]
    assert list(found["failures"]) == [str(broken)]
    assert f"{broken} failed: InvalidArgument" in capsys.readouterr().out
