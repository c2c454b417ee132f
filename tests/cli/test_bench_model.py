"""`nnburst bench model` as it is typed, with few examples and rounds, and the parts that it is made of."""

from __future__ import annotations

import csv
import json
import os
import re
import webbrowser
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed (extra 'litert')")

from browser import chromium
from importer.onnx.graphs import model as onnx_model
from importer.onnx.graphs import node, value
from nnburst.bench.model import data_sets
from nnburst.bench.model.accuracy import Agreement, steps_in_words
from nnburst.bench.model.data_sets import random_input
from nnburst.cli import main
from nnburst.hal.enums import OperandType
from nnburst.hal.model import Operand
from nnburst.testing.models.network_file import NetworkFile
from nnburst.testing.models.tflite_builder import TfliteBuilder
from nnburst.testing.models.tflite_networks import NETWORKS

needs_two_cores = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="needs two cores: one for each side"
)
SHORT = ("--examples", "3", "--rounds", "2", "--prepares", "1", "--warm-up", "0")
PICTURE = Operand(OperandType.TENSOR_QUANT8_ASYMM, (1, 8, 8, 3), scale=1 / 128, zero_point=128)
SCORES = Operand(OperandType.TENSOR_QUANT8_ASYMM, (1, 3), scale=0.5, zero_point=10)


def write(folder: Path, name: str) -> Path:
    """A network as a file."""
    path = folder / f"{name}.tflite"
    path.write_bytes(NETWORKS[name]())
    return path


def classifier(folder: Path) -> Path:
    """The mean colour of a picture of 8 by 8 pixels."""
    b = TfliteBuilder()
    x = b.input("UINT8", (1, 8, 8, 3), scale=1 / 128, zero_point=128)
    y = b.output("UINT8", (1, 3), scale=1 / 128, zero_point=128)
    axes = b.constant("INT32", np.array([1, 2], "<i4"))
    b.operator("MEAN", [x, axes], [y], "ReducerOptions", keepDims=False)
    path = folder / "mean<colour>.tflite"
    path.write_bytes(b.finish())
    return path


def measured(path: Path, *words: str) -> dict[str, Any]:
    """The JSON of a short run."""
    target = path.with_suffix(".json")
    assert main(["bench", "model", str(path), *SHORT, "--json", str(target), *words]) == 0
    return dict(json.loads(target.read_text()))


@needs_two_cores
def test_network_is_compared_timed_and_prepared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = measured(write(tmp_path, "CONV_2D-same-INT8"))
    assert report["about"]["executor"] == "litert"
    [network] = report["networks"]
    [agreement] = network["accuracy"]
    assert (agreement["data_set"], agreement["examples"]) == ("random", 3)
    assert agreement["steps"] == {"0": agreement["elements"]}
    assert agreement["max_abs_difference"] == 0
    names = [case["name"] for case in network["latency"]["cases"]]
    assert [name.split()[0] for name in names] == ["burst", "execute", "LiteRT", "LiteRT"]
    assert all(case["median_ns"] > 0 for case in network["latency"]["cases"])
    assert network["latency"]["ratios"].keys() == {f"burst / {name}" for name in names[1:]}
    assert network["latency"]["device_us"] <= network["latency"]["driver_us"]
    times = network["preparation"]
    assert 0 < times["prepare_cold_ms"] < times["first_result_ms"]
    assert 0 < times["prepare_cached_ms"] < times["first_result_cached_ms"]
    assert 0 < times["first_run_ms"] < times["first_result_ms"]
    assert times["second_run_ms"] > 0
    assert times["prepare_cold_spread"] == 0  # of one driver
    assert network["latency"]["warm_up"] == {"seconds": 0, "rounds": 0, "unsettled": []}
    assert network["beside_baseline"] is None
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("accuracy beside", "latency by route", "preparation"))
    assert "random inputs, seed 1" in shown


@pytest.mark.campaign
@needs_two_cores
def test_warm_up_comes_first_rounds_last_and_the_relaxed_network_is_measured_beside(
    tmp_path: Path,
) -> None:
    path = write(tmp_path, "CONV_2D-same-FLOAT32")
    words = ("--warm-up", "0.05", "--seconds", "0.5", "--relaxed")
    [network] = measured(path, *words)["networks"]
    assert network["latency"]["warm_up"]["rounds"] > 0
    assert network["latency"]["warm_up"]["seconds"] >= 0.05
    cases = {case["name"]: case for case in network["latency"]["cases"]}
    assert "burst, relaxed" in cases
    assert len({len(case["blocks_ns"]) for case in cases.values()}) == 1
    assert [found["device"] for found in network["accuracy"]] == ["", "relaxed"]


@pytest.mark.campaign
@needs_two_cores
def test_preparation_is_left_out_if_nothing_is_to_be_prepared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "table.csv"
    words = ("--prepares", "0", "--csv", str(table), "--html", str(tmp_path / "page.html"))
    pytest.importorskip("matplotlib", reason="matplotlib is not installed (extra 'cli')")
    [network] = measured(write(tmp_path, "CONV_2D-same-INT8"), *words)["networks"]
    assert set(network["preparation"].values()) == {None}
    assert network["latency"]["cases"]
    assert "not available" in (tmp_path / "page.html").read_text()
    assert "took nothing from a compilation cache" not in capsys.readouterr().out


@pytest.mark.campaign
@needs_two_cores
def test_network_that_keeps_a_state_goes_by_the_executor_in_process(tmp_path: Path) -> None:
    [network] = measured(write(tmp_path, "SVDF-FLOAT32"), "--executor", "reference")["networks"]
    names = [case["name"] for case in network["latency"]["cases"]]
    assert names[2:] == ["executor in process", "LiteRT Interpreter in process"]
    assert any("instead of LiteRT's C API" in remark for remark in network["remarks"])
    assert network["accuracy"][0]["max_abs_difference"] < 1e-4
    assert network["accuracy"][0]["steps"] == {}


@pytest.mark.campaign
@needs_two_cores
def test_page_has_every_network_its_data_sets_and_pictures_and_needs_no_other_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed (extra 'cli')")
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: opened.append(url) or True)
    target = tmp_path / "report.html"
    path = classifier(tmp_path)
    measured(path, "--html", str(target), "--open", "--reference", "litert-ref")
    text = target.read_text()
    assert opened == [target.as_uri()]
    assert "mean&lt;colour&gt;" in text
    assert "<colour>" not in text
    assert "reference kernels" in text
    assert "random inputs, seed 1" in text
    assert not re.search(r"""(src|href)=["'](?!#|data:)""", text)
    assert _is_balanced(text)
    pictures = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(pictures) == 3
    names = [e.get("id") for p in pictures for e in ET.fromstring(p).iter() if e.get("id")]
    assert len(names) == len(set(names))


@pytest.mark.campaign
@needs_two_cores
def test_baseline_and_expectations_decide_the_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("scipy", reason="scipy is not installed (extra 'data')")
    path = classifier(tmp_path)
    measured(path)
    old = path.with_suffix(".json").rename(tmp_path / "old.json")
    words = ["bench", "model", str(path), *SHORT, "--rounds", "5", "--prepares", "0"]
    status = main([*words, "--baseline", str(old)])
    assert status == 2  # an older report of two rounds decides nothing
    assert "noisy beside the baseline: 2 blocks" in capsys.readouterr().out
    other = str(write(tmp_path, "CONV_2D-same-INT8"))
    assert main(["bench", "model", other, *words[3:], "--baseline", str(old)]) == 2
    assert f"no verdict, {old} does not have it" in capsys.readouterr().out
    assert main([*words, "--expect", "top1=0.9", "--expect", "ratio=1e9"]) == 0
    assert main([*words, "--expect", "ratio=0.0001"]) == 1
    assert "expected at most 0.0001" in capsys.readouterr().out


@pytest.fixture
def counting(tmp_path: Path) -> Path:
    """y = h + x * rate, which is the next h, as an .onnx file."""
    made = onnx_model(
        [node("Mul", "x rate", "a"), node("Add", "a h", "g"), node("Identity", "g", "y")],
        [value("x", "f4", ("n",)), value("h", "f4", ("n",)), value("rate", "f4", ())],
        [value("y", "f4", ("n",)), value("g", "f4", ("n",))],
    )
    path = tmp_path / "counting.onnx"
    path.write_bytes(made.SerializeToString())
    return path


ONNX = ("--shape", "x=3", "--shape", "h=3", "--constant", "rate=2", "--state", "h=g")


@pytest.mark.campaign
@needs_two_cores
def test_onnx_file_is_compared_with_its_own_engine(counting: Path) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    [network] = measured(counting, *ONNX, "--device", "reference")["networks"]
    assert network["reference"] == "onnxruntime in process"
    assert [found["device"] for found in network["accuracy"]] == ["", "reference"]
    assert all(found["max_abs_difference"] < 1e-6 for found in network["accuracy"])
    names = {case["name"] for case in network["latency"]["cases"]}
    assert {"burst", "burst, reference", "onnxruntime in process"} < names
    assert names == network["histograms"].keys()


@pytest.mark.campaign
@needs_two_cores
def test_list_file_decides_the_status_and_the_table_has_every_route(
    counting: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    np.save(tmp_path / "x.npy", np.ones((2, 3), np.float32))
    right = np.array([[2.0] * 3, [4.0] * 3], np.float32)
    entry = {
        "file": counting.name,
        "shapes": {"x": [3], "h": [3]},
        "constants": {"rate": 2},
        "states": {"h": "g"},
        "sequences": [{"inputs": ["x.npy"], "outputs": ["y.npy"]}],
        "largest": 0.001,
    }
    (tmp_path / "list.json").write_text(json.dumps([entry]))
    table = tmp_path / "table.csv"
    words = ["bench", "model", "--list", str(tmp_path / "list.json"), *SHORT, "--csv", str(table)]
    np.save(tmp_path / "y.npy", right)
    assert main(words) == 0
    about, *lines = table.read_text().splitlines()
    assert about.startswith("# executor: litert")
    rows = list(csv.DictReader(lines))
    assert [row["route"] for row in rows][:2] == ["burst", "execute"]
    for row in rows:
        bars = [int(row[f"bar{n}"]) for n in range(32)]
        assert sum(bars) == int(row["count"]) > 0
        assert row["evaluators"].startswith("sequences mean_squared=0")
    np.save(tmp_path / "y.npy", right + 1)
    assert main(words) == 1
    assert "counting: sequences: largest is 1, expected at most 0.001" in capsys.readouterr().out


@needs_two_cores
def test_layers_name_the_first_operation_that_differs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["bench", "model", str(classifier(tmp_path)), "--layers"]
    assert main(words) == 0
    assert "agrees in every operation, compared with reference" in capsys.readouterr().out
    assert main([*words, "--device", "null"]) == 1
    assert re.search(
        r"litert first differs in 0 MEAN.*, compared with null", capsys.readouterr().out
    )


@needs_two_cores
def test_layer_that_is_no_number_on_one_side_has_no_difference_in_json(tmp_path: Path) -> None:
    b = TfliteBuilder()
    x, y = b.input("FLOAT32", (64,)), b.output("FLOAT32", (64,))
    b.operator("SQRT", [x], [y])
    network, report = tmp_path / "root.tflite", tmp_path / "report.json"
    network.write_bytes(b.finish())
    words = ["bench", "model", str(network), "--layers", "--device", "null"]
    assert main([*words, "--json", str(report)]) == 1
    [layer] = json.loads(report.read_text())["networks"][0]["layers"]
    assert layer["largest"] is None
    assert layer["differs"]


@pytest.mark.parametrize(
    "option", ["--relaxed", "--baseline=x", "--expect=ratio=2", "--csv=x.csv", "--html=x.html"]
)
def test_options_of_measurements_are_refused_with_layers(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["bench", "model", str(classifier(tmp_path)), "--layers", option]
    assert main(words) == 1
    assert f"{option.partition('=')[0]}: given with --layers" in capsys.readouterr().err


def test_nothing_to_measure_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "model"]) == 1
    assert "MODEL: none is given" in capsys.readouterr().err


@needs_two_cores
@pytest.mark.parametrize("words", [[], ["--layers"]])
def test_list_without_a_network_is_refused(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = tmp_path / "list.json"
    listed.write_text("[]")
    assert main(["bench", "model", "--list", str(listed), *words]) == 1
    assert f"--list: no network in {listed}" in capsys.readouterr().err


@pytest.mark.parametrize("expectation", ["fast=1", "ratio=fast", "ratio=nan"])
def test_an_expectation_without_a_key_and_a_number_is_wrong_usage(
    expectation: str, tmp_path: Path
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["bench", "model", str(tmp_path), "--expect", expectation])
    assert ended.value.code == 2


@pytest.mark.campaign
@needs_two_cores
@pytest.mark.parametrize("width", [400, 1400])
def test_page_is_legible_in_a_browser_and_asks_no_network(tmp_path: Path, width: int) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed (extra 'cli')")
    target = tmp_path / "report.html"
    measured(classifier(tmp_path), "--html", str(target))
    with chromium(tmp_path) as shown:
        shown.open(target.as_uri(), width)
        assert shown.value("window.innerWidth") == width
        assert shown.value("document.documentElement.scrollWidth") <= width
        assert [a for a in shown.requests if not a.startswith(("file:", "data:"))] == []
        assert shown.console == []
        lead = shown.value("document.querySelector('h1').nextElementSibling.textContent")
        assert "µs by a burst" in lead


def _is_balanced(text: str) -> bool:
    """Whether every element that is opened is closed, in order."""
    stack: list[str] = []

    class Parser(HTMLParser):
        def handle_starttag(self, tag: str, *_attributes: object) -> None:
            if tag not in ("meta", "link"):
                stack.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert stack.pop() == tag

    Parser().feed(text)
    return not stack


def test_photographs_and_digits_become_what_the_input_takes() -> None:
    for package in ("PIL", "skimage", "sklearn"):
        pytest.importorskip(package, reason=f"{package} is not installed (extra 'data')")
    photographs, digits, drawn = data_sets.data_sets([PICTURE], 20, seed=1)
    assert [s.name for s in (photographs, digits, drawn)] == ["photographs", "digits", "random"]
    assert "scikit-image" in photographs.source
    assert "astronaut" in photographs.source
    assert "scikit-learn" in digits.source
    for found in (photographs, digits, drawn):
        assert len(found.examples) == 20
        assert {values.shape for (values,) in found.examples} == {PICTURE.dimensions}
        assert {values.dtype for (values,) in found.examples} == {np.dtype(np.uint8)}
        assert len({values.tobytes() for (values,) in found.examples}) == 20
    grey = digits.examples[0][0]
    assert (grey[..., 0] == grey[..., 2]).all()
    assert any((values[..., 0] != values[..., 2]).any() for (values,) in photographs.examples)


def test_the_same_seed_gives_the_same_examples() -> None:
    first, again, other = (data_sets.data_sets([PICTURE], 5, seed=seed) for seed in (1, 1, 2))
    assert _bytes(first) == _bytes(again)
    assert _bytes(first) != _bytes(other)


def _bytes(sets: list[data_sets.DataSet]) -> list[bytes]:
    return [values.tobytes() for found in sets for (values,) in found.examples]


def test_without_the_packages_inputs_are_random_and_named_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(data_sets, "_missing", lambda *modules: list(modules))
    [found] = data_sets.data_sets([PICTURE], 4, seed=9)
    assert (found.name, found.source) == ("random", "random inputs, seed 9")
    assert data_sets.missing_packages([PICTURE]) == ["pillow", "scikit-image", "scikit-learn"]


@pytest.mark.parametrize(
    "dimensions", [(1, 49, 10, 1), (1, 16), (2, 8, 8, 3), (1, 8, 8, 64), (1, 0, 0, 3)]
)
def test_what_is_not_a_picture_gets_random_inputs_only(dimensions: tuple[int, ...]) -> None:
    operand = Operand(OperandType.TENSOR_FLOAT32, dimensions)
    assert [found.name for found in data_sets.data_sets([operand], 1, seed=1)] == ["random"]
    assert data_sets.missing_packages([operand]) == []


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [
        (OperandType.TENSOR_INT32, 0, 1),
        (OperandType.TENSOR_BOOL8, 0, 1),
        (OperandType.TENSOR_QUANT8_ASYMM, 0, 255),
        (OperandType.TENSOR_QUANT8_ASYMM_SIGNED, -128, 127),
    ],
)
def test_random_integers_fill_what_is_harmless(kind: OperandType, low: int, high: int) -> None:
    values = random_input(Operand(kind, (100, 100)), np.random.default_rng(1))
    assert (values.min(), values.max()) == (low, high)


def test_agreement_counts_steps_and_real_differences() -> None:
    agreement = Agreement("random", "")
    agreement.add(
        [np.array([[10, 12, 11]], np.uint8)], [np.array([[10, 12, 14]], np.uint8)], [SCORES]
    )
    agreement.add(
        [np.array([[9, 12, 11]], np.uint8)], [np.array([[9, 12, 12]], np.uint8)], [SCORES]
    )
    found = agreement.as_json()
    assert found["steps"] == {"0": 4, "1": 1, "3": 1}
    assert (found["examples"], found["elements"]) == (2, 6)
    assert found["top1_agreement"] == 0.5
    assert found["max_abs_difference"] == 1.5
    assert found["mean_abs_difference"] == pytest.approx(2 / 6)


def test_steps_that_are_far_apart_are_reported_as_one() -> None:
    assert steps_in_words({}) == ""
    assert steps_in_words({"0": 7, "1": 2}) == "0: 7, 1: 2"
    assert steps_in_words({"0": 7, "3": 2, "4": 1, "30": 5}) == "0: 7, 3: 2, 4 to 30: 6"


def test_nans_agree_only_with_each_other() -> None:
    operand = Operand(OperandType.TENSOR_FLOAT32, (2, 2))
    same = np.array([[np.nan, np.inf], [1, 2]], np.float32)
    agreement = Agreement("random", "")
    agreement.add([same], [same.copy()], [operand])
    assert agreement.as_json()["max_abs_difference"] == 0
    assert agreement.as_json()["top1_agreement"] is None
    other = same.copy()
    other[0, 0] = 1
    agreement.add([same], [other], [operand])
    assert agreement.as_json()["max_abs_difference"] is None


def test_states_are_not_inputs_of_a_network_file(tmp_path: Path) -> None:
    network = NetworkFile.read(write(tmp_path, "SVDF-FLOAT32"))
    assert len(network.imported.model.main.input_indexes) == 2
    assert [operand.dimensions for operand in network.inputs] == [(2, 3)]
    assert network.output_positions == (0,)


def test_page_that_is_to_be_opened_needs_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "model", "any.tflite", "--open"]) == 1
    assert "--open needs --html" in capsys.readouterr().err


@needs_two_cores
def test_file_that_is_missing_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "model", "absent.tflite"]) == 1
    assert capsys.readouterr().err == "nnburst: absent.tflite: No such file or directory\n"
