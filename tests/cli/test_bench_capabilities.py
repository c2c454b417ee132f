"""`nnburst bench capabilities`: what is measured is what drivers report from then on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import nnburst
from nnburst.bench import capabilities as bench
from nnburst.bench.capabilities import Group, GroupTimes
from nnburst.cli import main
from nnburst.hal.enums import OperandType
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.model_builder import ModelBuilder
from nnburst.hal.types import PerformanceInfo, lookup

WORDS = ["bench", "capabilities", "--executor", "null", "--rounds", "1", "--models", "nowhere"]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def test_drivers_say_what_was_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "figures.json"
    assert main([*WORDS, "--json", str(file)]) == 0
    figures = json.loads(file.read_text())
    assert figures["stored"] in capsys.readouterr().out
    with nnburst.launch("null") as device:
        found = device.capabilities
    by_group = {
        group.value: PerformanceInfo(**figures["capabilities"][group.value]) for group in Group
    }
    table = found.operand_performance
    for kind, group in (
        (OperandType.TENSOR_FLOAT32, "float32"),
        (OperandType.TENSOR_QUANT8_ASYMM, "quant8"),
        (OperandType.TENSOR_FLOAT16, "float16"),
        (OperandType.FLOAT16, "float16"),
        (OperandType.TENSOR_INT32, "int32"),
        (OperandType.TENSOR_BOOL8, "bool"),
        (OperandType.TENSOR_QUANT16_ASYMM, "quant16"),
        (OperandType.TENSOR_QUANT16_SYMM, "quant16"),
    ):
        assert lookup(table, kind) == by_group[group], kind
    assert len(set(by_group.values())) == len(Group)  # each has a figure of its own
    assert lookup(table, OperandType.TENSOR_OEM_BYTE) == PerformanceInfo(1.0, 1.0)
    assert found.relaxed_float32_to_float16_performance_tensor == by_group["relaxed float32"]
    assert all(info.exec_time > 0 for info in by_group.values())


@pytest.mark.campaign
def test_every_workload_is_in_the_figures(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WORDS, "--dry-run", "--json", "-"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert [(w["name"], w["group"]) for w in figures["workloads"]] == [
        ("digits", "float32"),
        ("digits", "relaxed float32"),
        ("digits", "quant8"),
        ("products", "float32"),
        ("products", "relaxed float32"),
        ("products", "quant8"),
        ("products", "float16"),
        ("arithmetic", "int32"),
        ("logic", "bool"),
        ("boxes", "quant16"),
    ]
    assert figures["stored"] is None


def test_the_networks_of_products_have_more_than_a_mebibyte_of_weights() -> None:
    sizes = {
        workload.group: len(workload.model.operand_values)
        for workload in bench.built_in_workloads()
        if workload.name == "products"
    }
    assert set(sizes) == {Group.FLOAT32, Group.RELAXED, Group.QUANT8, Group.FLOAT16}
    assert min(sizes.values()) > 1 << 20


def test_every_type_but_those_of_oems_is_of_one_group() -> None:
    listed = [kind for types in bench.TYPES.values() for kind in types]
    unmeasured = {OperandType.OEM, OperandType.TENSOR_OEM_BYTE, OperandType.SUBGRAPH}
    assert sorted(listed) == sorted(set(OperandType) - unmeasured)


def test_a_network_that_takes_long_has_fewer_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "_LONGEST", 0.0)
    turns: list[str] = []
    block = bench._Contestant.block
    monkeypatch.setattr(bench._Contestant, "block", lambda self: turns.append("") or block(self))
    logic = next(each for each in bench.built_in_workloads() if each.name == "logic")
    with nnburst.launch("null") as device, nnburst.launch("reference") as reference:
        bench.measure(device, reference, logic, 9)
    assert len(turns) == 2 * bench._FEWEST_ROUNDS


@pytest.mark.campaign
def test_what_a_device_does_not_support_counts_as_the_reference_executor(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("onnxruntime", reason="its executor takes no quantised operations")
    words = [*WORDS, "--executor", "onnxruntime", "--dry-run", "--json", "-"]
    assert main(words) == 0
    figures = json.loads(capsys.readouterr().out)
    groups = {one["group"] for one in figures["workloads"]}
    assert {"float32", "relaxed float32"} <= groups
    assert "quant8" not in groups
    assert figures["capabilities"]["quant8"] == {"exec_time": 1.0, "power_usage": 1.0}


@pytest.mark.campaign
def test_networks_of_a_list_are_measured_if_they_are_small_enough(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnx", reason="what writes the network")
    from importer.onnx.graphs import model, node, value

    made = model([node("Relu", "x", "y")], [value("x", "f4", (1, 2))], [value("y", "f4", (1, 2))])
    content = made.SerializeToString()
    (tmp_path / "relu.onnx").write_bytes(content)
    (tmp_path / "list.json").write_text('[{"file": "relu.onnx"}]')
    words = [*WORDS, "--list", str(tmp_path / "list.json"), "--dry-run", "--json", "-"]
    for longest, there in ((len(content), True), (len(content) - 1, False)):
        assert main([*words, "--longest", str(longest)]) == 0
        found = json.loads(capsys.readouterr().out)["workloads"]
        assert ("relu" in {one["name"] for one in found}) == there


def test_a_dry_run_stores_nothing(home: Path) -> None:
    assert main([*WORDS, "--dry-run"]) == 0
    assert not (home / "state" / "nnburst" / "capabilities").exists()


@pytest.mark.campaign
def test_a_device_of_another_name_has_its_own_file(home: Path) -> None:
    assert main([*WORDS, "--device", "living-room"]) == 0
    (file,) = (home / "state" / "nnburst" / "capabilities").iterdir()
    assert file.name == "living-room.json"


@pytest.mark.shared
def test_networks_of_a_folder_are_workloads(shared_dir: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    found = bench.workloads_in(shared_dir / "models", 100_000)
    assert [(w.name, w.group) for w in found] == [
        ("kws_float", Group.FLOAT32),
        ("kws_float", Group.RELAXED),
        ("kws_int8", Group.QUANT8),
        ("resnet8_int8", Group.QUANT8),
    ]


def test_a_network_that_mixes_groups_stands_for_none() -> None:
    builder = ModelBuilder()
    table = builder.constant(OperandType.TENSOR_FLOAT32, np.zeros((4, 2)))
    tokens = builder.input(OperandType.TENSOR_INT32, (3,))
    found = builder.temporary(OperandType.TENSOR_FLOAT32, (3, 2))
    builder.operation(nnburst.OperationType.EMBEDDING_LOOKUP, [tokens, table], [found])
    for _ in range(2):
        y = builder.output(OperandType.TENSOR_FLOAT32, (3, 2))
        builder.operation(nnburst.OperationType.RELU, [found], [y])
    assert bench.workloads_of("text", builder.build()) == []


def test_a_group_is_the_geometric_mean_of_its_workloads() -> None:
    found = [GroupTimes("", Group.QUANT8, 1, 1, time, power) for time, power in [(1, 4), (4, 9)]]
    (info,) = bench.summary(found).values()
    assert info.exec_time == pytest.approx(2)
    assert info.power_usage == pytest.approx(6)


def test_a_group_that_was_not_measured_is_named() -> None:
    with pytest.raises(InvalidArgument, match="relaxed float32, quant8"):
        bench.as_file({Group.FLOAT32: PerformanceInfo(1.0, 1.0)}, "", {})
