"""`nnburst bench capabilities`: what is measured is what drivers report from then on."""

from __future__ import annotations

import json
from pathlib import Path

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
        name: PerformanceInfo(**figures["capabilities"][name])
        for name in ("float32", "relaxed float32", "quant8")
    }
    table = found.operand_performance
    assert lookup(table, OperandType.TENSOR_FLOAT32) == by_group["float32"]
    assert lookup(table, OperandType.TENSOR_QUANT8_ASYMM) == by_group["quant8"]
    assert lookup(table, OperandType.TENSOR_INT32) == PerformanceInfo(1.0, 1.0)
    assert found.relaxed_float32_to_float16_performance_tensor == by_group["relaxed float32"]
    assert all(info.exec_time > 0 for info in by_group.values())


def test_every_workload_is_in_the_figures(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WORDS, "--dry-run", "--json", "-"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert [(w["name"], w["group"]) for w in figures["workloads"]] == [
        ("digits", "float32"),
        ("digits", "relaxed float32"),
        ("digits", "quant8"),
    ]
    assert figures["stored"] is None


def test_what_a_device_does_not_support_counts_as_the_reference_executor(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("onnxruntime", reason="its executor takes no quantised operations")
    words = [*WORDS, "--executor", "onnxruntime", "--dry-run", "--json", "-"]
    assert main(words) == 0
    figures = json.loads(capsys.readouterr().out)
    assert {one["group"] for one in figures["workloads"]} == {"float32", "relaxed float32"}
    assert figures["capabilities"]["quant8"] == {"exec_time": 1.0, "power_usage": 1.0}


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


def test_a_network_of_other_operands_stands_for_no_group() -> None:
    builder = ModelBuilder()
    kind = OperandType.TENSOR_INT32
    x, y = builder.input(kind, (1,)), builder.output(kind, (1,))
    builder.operation(nnburst.OperationType.ADD, [x, x, builder.scalar(0)], [y])
    assert bench.workloads_of("sum", builder.build()) == []


def test_a_group_is_the_geometric_mean_of_its_workloads() -> None:
    found = [GroupTimes("", Group.QUANT8, 1, 1, time, power) for time, power in [(1, 4), (4, 9)]]
    (info,) = bench.summary(found).values()
    assert info.exec_time == pytest.approx(2)
    assert info.power_usage == pytest.approx(6)


def test_a_group_that_was_not_measured_is_named() -> None:
    with pytest.raises(InvalidArgument, match="relaxed float32, quant8"):
        bench.as_file({Group.FLOAT32: PerformanceInfo(1.0, 1.0)}, "", {})
