"""`nnburst inspect` as it is typed, and what it reports of models that an executor runs in parts."""

from __future__ import annotations

import importlib.metadata
import json
from importlib.metadata import EntryPoint
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed (extra 'litert')")

from executor.litert.networks import F32, I32, largest_doubled
from nnburst.cli import inspect, main
from nnburst.cli.inspect import ExecutorPlacement, colours_of, drawing_of, known_executors, place
from nnburst.cli.output import Coloured
from nnburst.driver.executors import GROUP
from nnburst.executor.reference.executor import ReferenceExecutor
from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.graph_dump import dot
from nnburst.hal.model import Model
from nnburst.hal.model_builder import ModelBuilder
from nnburst.testing.models.tflite_builder import TfliteBuilder
from nnburst.testing.models.tflite_networks import NETWORKS


@pytest.fixture
def network(tmp_path: Path) -> Path:
    """A convolution in 8 bits."""
    path = tmp_path / "conv.tflite"
    path.write_bytes(NETWORKS["CONV_2D-same-UINT8"]())
    return path


def inspected(path: Path, *words: str) -> dict[str, Any]:
    target = path.with_suffix(".json")
    assert main(["inspect", str(path), "--json", str(target), *words]) == 0
    return dict(json.loads(target.read_text()))


def test_contents_are_counted_and_described(
    network: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = inspected(network)
    assert report["file_bytes"] == network.stat().st_size
    assert report["operation_counts"] == {"CONV_2D": 1}
    [operation] = report["operations"]
    assert operation["from"] == "0 CONV_2D"
    assert operation["inputs"][0].startswith("TENSOR_QUANT8_ASYMM ")
    assert 0 < operation["constant_bytes"] == report["constant_bytes"]
    [given] = report["inputs"]
    assert given["bytes"] == np.prod(given["shape"])
    assert (given["scale"], given["zero_point"]) == (0.03125, 120)
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("CONV_2D", "executors", given["name"]))


def test_every_known_executor_is_asked(network: Path) -> None:
    executors = inspected(network)["executors"]
    assert [placement["executor"] for placement in executors] == known_executors()
    assert {"litert", "null", "reference"} <= set(known_executors())
    there = [placement for placement in executors if "pip install" not in placement["problem"]]
    assert {"null", "reference"} <= {placement["executor"] for placement in there}
    for placement in there:
        claimed = int(placement["executor"] != "onnxruntime")  # quantised operations are not
        assert (placement["supported"], len(placement["partitions"])) == (claimed, claimed)
        assert claimed or "CONV_2D" in placement["problem"]


def test_only_the_executors_that_are_named_are_asked(network: Path) -> None:
    [placement] = inspected(network, "--executor", "reference")["executors"]
    assert placement["partitions"][0]["why"] == "it supports every operation"


def test_states_are_shown_as_inputs_and_outputs(tmp_path: Path) -> None:
    path = tmp_path / "svdf.tflite"
    path.write_bytes(NETWORKS["SVDF-FLOAT32"]())
    report = inspected(path)
    assert report["states"] == [{"name": "state", "input": 1, "output": 1}]
    assert report["inputs"][1]["name"] == "state"


def test_partitions_say_who_runs_them_and_why() -> None:
    found = place("litert", largest_doubled(), ())
    shown = [(part.first, part.last, part.by) for part in found.partitions]
    assert shown == [
        (0, 0, "LiteRT"),
        (1, 1, "the reference executor"),
        (2, 2, "LiteRT"),
    ]
    assert found.partitions[1].why == "1 TOPK_V2: no lowering"
    assert found.partitions[0].why == "these can be lowered"


def test_what_the_engine_cannot_run_at_all_is_one_partition_of_the_reference_executor() -> None:
    builder = ModelBuilder()
    x = builder.input(F32, (4,))
    outputs = [builder.output(F32, (2,)), builder.output(I32, (2,))]
    builder.operation(OperationType.TOPK_V2, [x, builder.scalar(2)], outputs)
    [part] = place("litert", builder.build(), ()).partitions
    assert (part.by, part.why) == ("the reference executor", "0 TOPK_V2: no lowering")


def test_open_extents_end_what_the_engine_runs() -> None:
    builder = ModelBuilder()
    x, shape = builder.input(F32, (4,)), builder.input(I32, (2,))
    doubled, y = builder.temporary(F32, (4,)), builder.output(F32, (0, 0))
    builder.operation(OperationType.ADD, [x, x, builder.scalar(0)], [doubled])
    builder.operation(OperationType.RESHAPE, [doubled, shape], [y])
    parts = place("litert", builder.build(), ()).partitions
    assert [part.by for part in parts] == ["LiteRT", "the reference executor"]
    assert parts[1].why == "from operation 1 on, extents depend on data"


def test_executor_that_lacks_an_operation_makes_no_partition_and_has_a_reason() -> None:
    builder = ModelBuilder()
    x, y = builder.input(OperandType.TENSOR_BOOL8, (4,)), builder.output(F32, (4,))
    builder.operation(OperationType.ADD, [x, x, builder.scalar(0)], [y])
    found = place("reference", builder.build(), ())
    assert (found.supported, found.partitions) == ((False,), ())
    assert found.problem.startswith("operation 0 is not supported: validation:P4")


def test_tooltip_of_each_unsupported_operation_is_its_own_reason() -> None:
    builder = ModelBuilder()
    x, y = builder.input(OperandType.TENSOR_BOOL8, (4,)), builder.output(F32, (4,))
    between = builder.temporary(F32, (4,))
    builder.operation(OperationType.ADD, [x, x, builder.scalar(0)], [between])
    builder.operation(OperationType.TANH, [x], [y])
    builder.operation(OperationType.RELU, [between], [builder.output(F32, (4,))])
    found = place("reference", builder.build(), ())
    absent = ExecutorPlacement("other", (), (), "executor other needs a package")
    drawn = drawing_of([absent, found]).unsupported
    assert sorted(drawn) == [0, 1]
    assert drawn[0].startswith("reference: operation 0 is not supported: ")
    assert drawn[1].startswith("reference: operation 1 is not supported: ")
    assert "TANH" in drawn[1]


def test_table_has_the_colours_of_the_picture(
    network: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = largest_doubled()
    placements = [place(name, model, ()) for name in ("reference", "litert")]
    found = colours_of(placements)
    assert list(found) == ["LiteRT", "the reference executor", "reference"]
    assert len(set(found.values())) == 3
    picture = dot(model, "x", drawing_of(placements))
    for by in ("LiteRT", "the reference executor"):
        assert f'fillcolor="{found[by]}"' in picture
    cells: list[object] = []
    monkeypatch.setattr(inspect, "table", lambda *words: cells.extend(chain(*words[2])))
    inspected(network, "--executor", "reference")
    assert Coloured("reference", colours_of([place("reference", model, ())])["reference"]) in cells


class Raising(ReferenceExecutor):
    """An executor with a defect."""

    def supported(self, model: Model) -> list[bool]:
        raise RuntimeError(f"a defect, with {len(model.main.operations)} operations")


def test_executors_of_others_that_fail_leave_the_rest_of_the_table(
    network: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = [
        EntryPoint("raising", f"{__name__}:Raising", GROUP),
        EntryPoint("missing", "there_is_no:Module", GROUP),
    ]

    def entry_points(group: str, name: str | None = None) -> list[EntryPoint]:
        return [p for p in points if p.group == group and name in (None, p.name)]

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    monkeypatch.setattr(inspect, "entry_points", entry_points)
    written = network.with_suffix(".json")
    assert main(["inspect", str(network), "--json", str(written)]) == 0
    found = {each["executor"]: each for each in json.loads(written.read_text())["executors"]}
    assert found["raising"]["problem"] == "RuntimeError: a defect, with 1 operations"
    assert "there_is_no" in found["missing"]["problem"]
    assert found["reference"]["partitions"]
    assert main(["inspect", str(network), "--executor", "missing"]) == 1


def test_unknown_executor_is_refused(network: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(network), "--executor", "nobody"]) == 1
    assert "'nobody' is not known" in capsys.readouterr().err


def test_file_that_is_not_a_network_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.tflite"
    path.write_bytes(b"nothing of the kind")
    assert main(["inspect", str(path)]) == 1
    assert str(path) in capsys.readouterr().err


def test_dot_file_labels_operands_and_operations(network: Path) -> None:
    pytest.importorskip("graphviz", reason="graphviz is not installed (extra 'cli')")
    target = network.with_suffix(".dot")
    inspected(network, "--dot", str(target))
    lines = target.read_text().splitlines()
    assert lines[0].startswith("digraph ")
    [given] = [line for line in lines if "= input[0]" in line]
    assert "TQ8A(" in given
    assert "fillcolor=black" in given
    assert "fontcolor=white" in given
    [operation] = [line for line in lines if '"0: CONV_2D"' in line]
    assert "shape=box" in operation
    assert "ordering=in" in operation
    assert any("I32 = 1" in line and ": COPY" in line for line in lines)
    assert any(line.strip().startswith("d0 -> n0 [label=0]") for line in lines)
    assert not any("->" in line and "label=" in line and "n0 -> " in line for line in lines)


def test_format_that_graphviz_lacks_is_refused(
    network: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("graphviz", reason="graphviz is not installed (extra 'cli')")
    assert main(["inspect", str(network), "--dot", str(network.with_suffix(".nonsense"))]) == 1
    assert "--dot: .nonsense is not a format" in capsys.readouterr().err


@pytest.mark.shared
def test_every_real_network_is_one_partition_of_every_executor_that_takes_its_types(
    shared_dir: Path,
) -> None:
    import nnburst

    paths = sorted((shared_dir / "models").glob("*.tflite"))
    assert paths
    for path in paths:
        imported = nnburst.load(path)
        for executor in known_executors():
            found = place(executor, imported.model, imported.pools)
            if "pip install" in found.problem:
                continue
            if executor == "onnxruntime" and not all(found.supported):
                assert "QUANT8" in found.problem, path.name
                continue
            assert len(found.partitions) == 1, (path.name, executor)
            assert all(found.supported)
    engine = [place("litert", m.model, m.pools) for m in map(nnburst.load, paths)]
    assert {found.partitions[0].by for found in engine} == {"LiteRT"}


def test_names_in_a_file_cannot_steer_a_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evil = "\x1b]0;owned\x07\r\n"
    b = TfliteBuilder()
    x, y = b.input("FLOAT32", (1, 4), name=evil), b.output("FLOAT32", (1, 4), name=evil)
    b.operator("RELU", [x], [y])
    b.model.description = evil
    b.signature(evil, {evil: x}, {evil: y})
    b.metadata(evil, b"1")
    path = tmp_path / "evil.tflite"
    path.write_bytes(b.finish())
    report = inspected(path, "--executor", "reference")
    assert report["description"] == evil  # machines get it as it is
    shown = capsys.readouterr().out
    assert all(line.isprintable() for line in shown.split("\n"))
    assert shown.count(r"\x1b]0;owned\x07\r\n") >= 5
    b.raw.operators[0].inputs[0] = 9
    b.raw.tensors[0].shape = [2] * 17
    path.write_bytes(b.finish())
    assert main(["inspect", str(path)]) == 1
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert told.strip().isprintable()


def test_pictures_need_no_package_and_show_who_runs_what(
    network: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nnburst.cli.inspect.find_spec", lambda _: None)
    target, flowchart = network.with_suffix(".dot"), network.with_suffix(".mmd")
    words = ["--dot", str(target), "--mermaid", str(flowchart), "--no-constants"]
    inspected(network, "--executor", "reference", *words)
    text = target.read_text()
    assert 'tooltip="it supports every operation"' in text
    assert 'label="part 0: reference"' in text
    assert "COPY" not in text
    assert flowchart.read_text().splitlines()[1] == "flowchart TD"


def test_focus_without_a_picture_is_refused(
    network: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", str(network), "--focus", "0"]) == 1
    assert "--focus: 0, but no picture is drawn" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--json", "--mermaid", "--dot"])
def test_file_that_a_write_does_not_fit_into_is_named(
    option: str, network: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    full = tmp_path / "full.dot"
    full.symlink_to("/dev/full")
    assert main(["inspect", str(network), "--executor", "reference", option, str(full)]) == 1
    assert capsys.readouterr().err == f"nnburst: {full}: No space left on device\n"


def test_focus_on_an_operation_that_is_not_there_is_refused(
    network: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--dot", str(network.with_suffix(".dot")), "--focus", "7"]
    assert main(["inspect", str(network), *words]) == 1
    assert "--focus: 7, expected an operation from 0 to 0" in capsys.readouterr().err
