"""A device answers the same about itself at every start, and is refused if that breaks a rule."""

from __future__ import annotations

import importlib.util
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import nnburst
from client.scripted_driver import ScriptedDriver
from nnburst.control.channel import Fds
from nnburst.control.messages import (
    DeviceCapabilities,
    GetCapabilities,
    GetNumberOfCacheFilesNeeded,
    NumberOfCacheFiles,
)
from nnburst.driver.calls import HANDLERS
from nnburst.driver.model.device import UNMEASURED, CapabilitiesFile, store_capabilities
from nnburst.hal.enums import DeviceType, OperandType
from nnburst.hal.errors import GeneralFailure, NnburstError
from nnburst.hal.limits import MAX_NUMBER_OF_CACHE_FILES
from nnburst.hal.types import FLT_MAX, OperandPerformance, PerformanceInfo, lookup

EXECUTORS = ["null", "reference"]
if importlib.util.find_spec("ai_edge_litert") is not None:
    EXECUTORS.append("litert")
FAST = PerformanceInfo(0.25, 0.5)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def answers(executor: str) -> tuple[Any, ...]:
    """The answers of a driver that was just started."""
    with nnburst.launch(executor) as device:
        return (
            device.version_string,
            device.type,
            device.capabilities,
            device.number_of_cache_files_needed,
            device.supported_extensions(),
        )


@pytest.mark.every_day("litert")
@pytest.mark.parametrize("executor", EXECUTORS)
def test_answers_are_the_same_at_every_start(executor: str) -> None:
    assert answers(executor) == answers(executor)


@pytest.mark.every_day("null", "litert")
@pytest.mark.parametrize("executor", EXECUTORS)
def test_answers_keep_the_rules_of_the_basic_tests(executor: str) -> None:
    version, kind, capabilities, files, _ = answers(executor)
    assert version
    assert kind is DeviceType.CPU
    assert all(0 <= count <= MAX_NUMBER_OF_CACHE_FILES for count in files)
    table = capabilities.operand_performance
    assert all(a.type < b.type for a, b in pairwise(table))
    infos = [entry.info for entry in table]
    assert all(info.exec_time > 0 and info.power_usage > 0 for info in infos)


def test_no_two_drivers_have_the_same_version() -> None:
    versions = [answers(executor)[0] for executor in EXECUTORS]
    assert len(set(versions)) == len(versions)


@pytest.mark.skipif("litert" not in EXECUTORS, reason="ai-edge-litert is not installed")
def test_the_version_names_the_engine() -> None:
    from importlib.metadata import version

    assert f"ai-edge-litert {version('ai-edge-litert')}" in answers("litert")[0]


def test_a_driver_reports_what_was_measured_and_keeps_to_it() -> None:
    with nnburst.launch("null") as before:
        store_capabilities("null", CapabilitiesFile({"TENSOR_FLOAT32": FAST}, FAST, FAST))
        assert before.capabilities == UNMEASURED
    with nnburst.launch("null") as after:
        table = after.capabilities.operand_performance
    assert table == (OperandPerformance(OperandType.TENSOR_FLOAT32, FAST),)
    assert lookup(table, OperandType.TENSOR_INT32).exec_time == FLT_MAX


def test_a_wrong_file_does_not_keep_a_driver_from_starting(tmp_path: Path) -> None:
    file = tmp_path / "config/nnburst/capabilities/null.json"
    file.parent.mkdir(parents=True)
    file.write_text("{")
    with nnburst.launch("null") as device:
        assert device.capabilities == UNMEASURED


def lie(monkeypatch: pytest.MonkeyPatch, kind: Any, answer: Any) -> list[Any]:
    """Make drivers of this process give this answer; the calls that arrived."""
    calls: list[Any] = []

    def handler(_session: Any, call: Any, _fds: Fds) -> tuple[Any, Fds]:
        calls.append(call)
        return answer, Fds()

    monkeypatch.setitem(HANDLERS, kind, handler)
    return calls


TABLE = UNMEASURED.operand_performance


@pytest.mark.parametrize(
    "wrong",
    [
        replace(UNMEASURED, operand_performance=TABLE[::-1]),
        replace(UNMEASURED, operand_performance=(TABLE[0], TABLE[0])),
        replace(UNMEASURED, operand_performance=(OperandPerformance(OperandType.SUBGRAPH, FAST),)),
        replace(UNMEASURED, operand_performance=(OperandPerformance(9_999, FAST),)),
        replace(UNMEASURED, if_performance=PerformanceInfo(0.0, 1.0)),
        replace(UNMEASURED, while_performance=PerformanceInfo(1.0, float("nan"))),
    ],
    ids=["unsorted", "repeated", "subgraph", "unknown", "zero", "nan"],
)
def test_capabilities_that_break_a_rule_are_a_general_failure(
    wrong: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lie(monkeypatch, GetCapabilities, DeviceCapabilities(wrong))
    with ScriptedDriver() as driver, pytest.raises(GeneralFailure, match="S3"):
        _ = driver.device.capabilities


@pytest.mark.parametrize("counts", [(33, 0), (0, 33), (-1, 0)])
def test_a_number_of_files_that_cannot_be_is_not_believed(
    counts: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    lie(monkeypatch, GetNumberOfCacheFilesNeeded, NumberOfCacheFiles(*counts))
    with ScriptedDriver() as driver, pytest.raises(NnburstError):
        _ = driver.device.number_of_cache_files_needed


def test_answers_are_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = lie(monkeypatch, GetCapabilities, DeviceCapabilities(UNMEASURED))
    others = lie(monkeypatch, GetNumberOfCacheFilesNeeded, NumberOfCacheFiles(2, 3))
    with ScriptedDriver() as driver:
        for _ in range(2):
            assert driver.device.capabilities == UNMEASURED
            assert driver.device.number_of_cache_files_needed == (2, 3)
    assert (len(calls), len(others)) == (1, 1)


def test_an_executor_that_caches_nothing_needs_no_files() -> None:
    with ScriptedDriver() as driver:
        assert driver.device.number_of_cache_files_needed == (0, 0)
