"""Files that are compiled by their path: by operations if all of them import, else as whole graphs."""

from __future__ import annotations

import logging
import os
import signal
import threading
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed (extra 'litert')")

import nnburst
from importer.onnx.graphs import model, node, value
from nnburst.hal.errors import DeviceUnavailable, InvalidArgument
from nnburst.runtime.devices.driver_device import DriverPart
from nnburst.runtime.devices.manager import Manager, Settings
from nnburst.runtime.execution.executable import EXECUTIONS
from nnburst.testing.models.tflite_builder import TfliteBuilder
from waiting import error_of


def sums(path: Path) -> Path:
    """x + x, which NNAPI has."""
    b = TfliteBuilder()
    x = b.input("FLOAT32", (3,))
    b.operator("ADD", [x, x], [b.output("FLOAT32", (3,))], "AddOptions")
    path.write_bytes(b.finish())
    return path


def remainders(path: Path) -> Path:
    """Remainders of 64 bits, which it has not."""
    b = TfliteBuilder()
    x, y = b.input("INT64", (3,)), b.input("INT64", (3,))
    b.operator("FLOOR_MOD", [x, y], [b.output("INT64", (3,))], "FloorModOptions")
    path.write_bytes(b.finish())
    return path


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> Manager:
    monkeypatch.setenv("NNBURST_DEVICES", "litert")
    return Manager(settings=Settings.of_environment())


def test_a_file_that_imports_runs_by_operations(
    tmp_path: Path, manager: Manager, caplog: pytest.LogCaptureFixture
) -> None:
    with manager, nnburst.compile(sums(tmp_path / "x.tflite"), manager=manager) as compiled:
        assert compiled.execute([np.float32([1, 2, 3])]).outputs[0].tolist() == [2, 4, 6]
    assert "whole graph" not in caplog.text


def test_a_file_that_does_not_is_a_whole_graph_and_the_log_has_the_reason(
    tmp_path: Path, manager: Manager, caplog: pytest.LogCaptureFixture
) -> None:
    path = remainders(tmp_path / "x.tflite")
    given = [np.array([2**40 + 3, 9, -1]), np.array([2**40, 5, 3])]
    with (
        caplog.at_level(logging.WARNING),
        manager,
        nnburst.compile(str(path), manager=manager) as compiled,
    ):
        assert compiled.execute(given).outputs[0].tolist() == [3, 4, 2]
    [said] = [r.getMessage() for r in caplog.records if r.name == "nnburst.importer"]
    assert said.startswith(f"{path} runs as a whole graph, on its own engine: ")
    assert "INT64" in said


def test_the_timeout_holds_for_a_file_system_that_does_not_answer(
    tmp_path: Path, manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, answers = sums(tmp_path / "x.tflite"), threading.Event()

    def read(path: Path) -> bytes:
        answers.wait()
        return path.read_bytes()

    monkeypatch.setattr("nnburst.importer.load.read_regular_file", read)
    with manager:
        said = error_of(lambda: nnburst.compile(path, manager=manager, timeout=0.1))
        answers.set()
    assert said == "timeout: 0.1 s: reading, placing and preparing have not ended"


def test_as_graph_decides_otherwise(tmp_path: Path, manager: Manager) -> None:
    with manager:
        with pytest.raises(InvalidArgument, match="INT64 is not one of NNAPI's"):
            nnburst.compile(remainders(tmp_path / "x.tflite"), as_graph=False, manager=manager)
        path = sums(tmp_path / "y.tflite")
        with nnburst.compile(path, as_graph=True, manager=manager) as compiled:
            assert compiled.execute([np.float32([1, 2, 3])]).outputs[0].tolist() == [2, 4, 6]
        with pytest.raises(InvalidArgument, match="the model is not the path of a file"):
            nnburst.compile(nnburst.load(path), as_graph=True, manager=manager)


def test_a_whole_onnx_graph_starts_its_engine_and_nothing_else_is_placed_on_it(
    tmp_path: Path, manager: Manager
) -> None:
    pytest.importorskip("onnxruntime", reason="the executor's engine")
    path = tmp_path / "det.onnx"
    made = model([node("Det", "x", "y")], [value("x", "f4", (2, 2))], [value("y", "f4", ())])
    path.write_bytes(made.SerializeToString())
    with manager:
        known = [device.name for device in manager.devices]
        with nnburst.compile(path, manager=manager) as compiled:
            found = compiled.execute([np.float32([[2, 0], [0, 3]])]).outputs[0]
            assert found.tolist() == [6]
        assert [device.name for device in manager.devices] == known


def running_sum() -> nnburst.ImportedModel:
    """y = the sum of all x so far, which stays in the driver."""
    pytest.importorskip("onnxruntime", reason="the executor's engine")
    return nnburst.load(
        model(
            [node("Add", "x past", "present"), node("Identity", "present", "y")],
            [value("x", "f4", (1,)), value("past", "f4", (1,))],
            [value("present", "f4", (1,)), value("y", "f4", (1,))],
        ).SerializeToString(),
        as_graph=True,
        states={"past": "present"},
        resident=True,
    )


def test_opening_and_closing_slots_counts_as_no_execution(
    manager: Manager, caplog: pytest.LogCaptureFixture
) -> None:
    before = EXECUTIONS.as_json()
    with (
        manager,
        nnburst.compile(running_sum(), manager=manager) as compiled,
        compiled.open_burst() as burst,
    ):
        slots = [burst.slot() for _ in range(1024)]
        with pytest.raises(nnburst.ResourceExhausted, match="1024 slots, as many as it may"):
            burst.slot()
        slots.pop().close()
        assert not compiled.compilation._finished_executable.measured
        assert EXECUTIONS.as_json() == before
        assert "the CPU computes" not in caplog.text
        assert slots[0].execute([np.ones(1, np.float32)]).outputs[0] == [1]
        assert EXECUTIONS.as_json() != before


def test_states_in_the_driver_have_slots_on_a_compiled_model_too(manager: Manager) -> None:
    imported = running_sum()
    one = [np.ones(1, np.float32)]

    def sums_of(burst: nnburst.Burst, runs: int) -> list[float]:
        return [float(burst.execute(one).outputs[0][0]) for _ in range(runs)]

    with manager, nnburst.compile(imported, manager=manager) as compiled:
        with pytest.raises(InvalidArgument, match="stay in the driver already"):
            compiled.open_burst(states=[nnburst.load])  # type: ignore[list-item]
        with compiled.open_burst() as burst, burst.slot() as slot:
            assert [len(each.inputs) for each in (burst, slot)] == [1, 1]
            assert sums_of(burst, 4) == [1, 2, 3, 4]
            bound = slot.bind()
            bound.inputs[0][...] = 5
            assert [bound.run().outputs[0][0] for _ in range(2)] == [5, 10]
            assert bound.submit().result().outputs[0] == [15]
            assert sums_of(slot, 1) == [16], "all requests of a slot share its state"
            (part,) = compiled.compilation._finished_executable.parts
            assert isinstance(part, DriverPart)
            driver = part.prepared.pid
            compiled.close()
            slot.reset()
            assert sums_of(slot, 2) == [1, 2]
            os.kill(driver, signal.SIGKILL)
            with pytest.raises(nnburst.StateLost):
                slot.execute(one)
            slot.reset()
            assert sums_of(slot, 2) == [1, 2], "on the next driver"
            with burst.slot() as another:
                assert sums_of(another, 2) == [1, 2]


def test_without_its_engine_a_whole_graph_is_refused_with_the_reason_and_the_way_out(
    tmp_path: Path,
) -> None:
    path = remainders(tmp_path / "x.tflite")
    with (
        Manager(settings=Settings(cpu_only=True)) as manager,
        pytest.raises(DeviceUnavailable, match=r"nnburst\[litert\].*INT64"),
    ):
        nnburst.compile(path, manager=manager)


def test_a_damaged_file_is_refused_and_not_handed_on(tmp_path: Path) -> None:
    path = sums(tmp_path / "x.tflite")
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(InvalidArgument, match=r"x\.tflite: not an intact \.tflite file"):
        nnburst.compile(path)
