from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from importer.onnx.graphs import model, node, normal, value
from nnburst.cli import main


@pytest.fixture
def counting(tmp_path: Path) -> Path:
    """y = h + x * rate, which is the next h; of an open number of elements."""
    made = model(
        [node("Mul", "x rate", "a"), node("Add", "a h", "g"), node("Identity", "g", "y")],
        [value("x", "f4", ("n",)), value("h", "f4", ("n",)), value("rate", "f4", ())],
        [value("y", "f4", ("n",)), value("g", "f4", ("n",))],
    )
    path = tmp_path / "counting.onnx"
    path.write_bytes(made.SerializeToString())
    np.save(tmp_path / "x.npy", np.ones(3, np.float32))
    return path


OPTIONS = ["--shape", "x=3", "--shape", "h=3", "--constant", "rate=2", "--state", "h=g"]


def test_run_executes_an_onnx_file_with_its_state(counting: Path, tmp_path: Path) -> None:
    x, y, report = (str(tmp_path / name) for name in ("x.npy", "y.npy", "report.json"))
    words = ["run", str(counting), *OPTIONS, "--executor", "reference", "--input", x, "--output", y]
    assert main([*words, "--repeat", "3", "--json", report]) == 0
    found = np.load(y)
    assert found.shape == (3,)
    assert found.tolist() in (
        [2.0] * 3,
        [6.0] * 3,
    )  # by whether the state goes round between repeats
    assert json.loads(Path(report).read_text())["executions"] == 3


def test_inspect_shows_what_became_of_an_onnx_file(counting: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    words = ["inspect", str(counting), *OPTIONS, "--executor", "reference", "--json", str(report)]
    assert main(words) == 0
    found = json.loads(report.read_text())
    assert [operation["from"] for operation in found["operations"]][:2] == ["0 Mul", "1 Add"]
    assert [state["name"] for state in found["states"]] == ["h"]


def test_inspect_names_the_node_that_cannot_be_expressed_and_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = model([node("Det", "x", "y")], [value("x", "f4", (2, 2))], [value("y", "f4", ())])
    path = tmp_path / "det.onnx"
    path.write_bytes(made.SerializeToString())
    assert main(["inspect", str(path), "--no-as-graph"]) == 1
    assert "node 0 (Det) cannot be imported" in (said := capsys.readouterr().err)
    assert "--as-graph runs" in said
    assert main(["inspect", str(path), "--json", "-"]) == 0
    assert "the whole graph" in capsys.readouterr().out


def test_a_file_that_cannot_be_operations_runs_on_its_own_engine(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An open dimension and an operator that NNAPI lacks: no option is needed."""
    pytest.importorskip("onnxruntime", reason="the executor's engine")
    made = model(
        [node("Det", "x", "y")], [value("x", "f4", ("n", 2, 2))], [value("y", "f4", ("n",))]
    )
    path, given, taken = (tmp_path / name for name in ("det.onnx", "x.npy", "y.npy"))
    path.write_bytes(made.SerializeToString())
    np.save(given, np.float32([[[1, 0], [0, 1]], [[2, 0], [0, 3]]]))
    assert main(["run", str(path), "--input", str(given), "--output", str(taken)]) == 0
    assert "det.onnx runs as a whole graph, on its own engine" in caplog.text
    assert np.load(taken).tolist() == [1, 6]


@pytest.mark.parametrize(
    "words", [["--shape", "x"], ["--shape", "x=0"], ["--constant", "r=a"], ["--state", "=g"]]
)
def test_options_that_cannot_be_meant_are_wrong_usage(words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["inspect", "network.onnx", *words])
    assert ended.value.code == 2


def test_two_outputs_for_one_state_are_refused(
    counting: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", str(counting), *OPTIONS, "--state", "h=y"]) == 1
    assert "--state h: from 'g' and from 'y', expected one output" in capsys.readouterr().err


def test_an_onnx_file_runs_as_it_is_named(tmp_path: Path) -> None:
    made = model(
        [node("MatMul", "x w", "y")], [value("x", "f4", (1, 4))], [value("y", "f4", (1, 2))],
        {"w": normal(4, 2)},
    )  # fmt: skip
    path = tmp_path / "product.onnx"
    path.write_bytes(made.SerializeToString())
    np.save(tmp_path / "x.npy", np.ones((1, 4), np.float32))
    words = ["run", str(path), "--executor", "reference", "--input", str(tmp_path / "x.npy")]
    assert main(words) == 0
