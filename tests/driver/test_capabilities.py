"""Capabilities of a device: which file counts, and what is refused."""

from __future__ import annotations

import json
import logging
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nnburst.driver.model.device import (
    UNMEASURED,
    CapabilitiesFile,
    capabilities_files,
    load_capabilities,
    store_capabilities,
)
from nnburst.hal.enums import OperandType
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.types import FLT_MAX, Capabilities, PerformanceInfo, lookup
from nnburst.hal.validation.values import validate_capabilities

FAST, SLOW = PerformanceInfo(0.25, 0.5), PerformanceInfo(2.0, 3.0)
FILE = CapabilitiesFile({"TENSOR_QUANT8_ASYMM": SLOW, "FLOAT32": FAST}, SLOW, FAST)
VERSION = "nnburst 1"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def written(content: dict[str, Any] | str, device: str = "device", which: int = 0) -> Path:
    path = capabilities_files(device)[which]
    path.parent.mkdir(parents=True, exist_ok=True)
    text = content if isinstance(content, str) else json.dumps(content)
    path.write_bytes(text.encode(errors="surrogateescape"))
    return path


def as_json(**changes: Any) -> dict[str, Any]:
    info = {"exec_time": 0.5, "power_usage": 0.5}
    content = {"operands": {"FLOAT32": info}, "relaxed_scalar": info, "relaxed_tensor": info}
    return {**content, **changes}


@pytest.mark.parametrize("which", [0, 1])
def test_a_fifo_in_place_of_the_file_is_ignored_at_once(
    which: int, caplog: pytest.LogCaptureFixture
) -> None:
    path = capabilities_files("device")[which]
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    found: list[Capabilities] = []
    reader = threading.Thread(
        target=lambda: found.append(load_capabilities("device", VERSION)), daemon=True
    )
    reader.start()
    reader.join(30)
    assert found == [UNMEASURED]
    assert "expected a regular file" in caplog.text


def test_a_device_that_was_not_measured_is_as_good_as_the_reference() -> None:
    assert load_capabilities("device", VERSION) is UNMEASURED
    validate_capabilities(UNMEASURED)
    listed = {entry.type for entry in UNMEASURED.operand_performance}
    assert listed == set(OperandType) - {OperandType.SUBGRAPH}
    assert {entry.info for entry in UNMEASURED.operand_performance} == {PerformanceInfo(1.0, 1.0)}


def test_what_was_stored_is_loaded_ascending_by_type() -> None:
    store_capabilities("device", FILE)
    found = load_capabilities("device", VERSION)
    assert [(e.type, e.info) for e in found.operand_performance] == [
        (OperandType.FLOAT32, FAST),
        (OperandType.TENSOR_QUANT8_ASYMM, SLOW),
    ]
    assert found.relaxed_float32_to_float16_performance_scalar == SLOW
    assert found.relaxed_float32_to_float16_performance_tensor == FAST
    assert found.if_performance == found.while_performance == PerformanceInfo(1.0, 1.0)


def test_types_that_a_file_does_not_list_count_as_infinitely_slow() -> None:
    store_capabilities("device", FILE)
    table = load_capabilities("device", VERSION).operand_performance
    assert lookup(table, OperandType.TENSOR_INT32) == PerformanceInfo(FLT_MAX, FLT_MAX)


def test_devices_have_files_of_their_own() -> None:
    store_capabilities("one", FILE)
    assert load_capabilities("other", VERSION) is UNMEASURED


def test_a_device_that_is_served_at_a_path_has_a_file_too(home: Path) -> None:
    path = store_capabilities("/run/x/../device", FILE)
    assert path.parent == home / "state/nnburst/capabilities"
    assert load_capabilities("/run/x/../device", VERSION) != UNMEASURED


def test_what_a_person_wrote_counts_more_than_what_was_measured() -> None:
    store_capabilities("device", FILE)
    written(as_json(operands={}))
    assert load_capabilities("device", VERSION).operand_performance == ()


@pytest.mark.parametrize(
    "content",
    [
        json.dumps(as_json(measured={"a": 0})).replace("0}", "[" * 100_000 + "]" * 100_000 + "}"),
        '{"version_string": "\udcff"}',
    ],
    ids=["nested too deeply", "not UTF-8"],
)
def test_a_file_that_cannot_be_decoded_is_ignored_by_its_name(
    content: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = written(content)
    with caplog.at_level(logging.WARNING):
        assert load_capabilities("device", VERSION) is UNMEASURED
    assert f"the capabilities in {path} are ignored" in caplog.text


def test_measurements_of_another_version_do_not_count() -> None:
    store_capabilities("device", replace(FILE, version_string="nnburst 0"))
    assert load_capabilities("device", VERSION) is UNMEASURED
    store_capabilities("device", replace(FILE, version_string=VERSION))
    assert load_capabilities("device", VERSION) != UNMEASURED


def test_nothing_is_left_beside_a_stored_file() -> None:
    path = store_capabilities("device", FILE)
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        "\xff",
        as_json(operands={"FLOAT31": {"exec_time": 1, "power_usage": 1}}),
        as_json(operands={"SUBGRAPH": {"exec_time": 1, "power_usage": 1}}),
        as_json(operands={"FLOAT32": {"exec_time": 0, "power_usage": 1}}),
        as_json(operands={"FLOAT32": {"exec_time": 1, "power_usage": -1}}),
        as_json(operands={"FLOAT32": {"exec_time": "fast", "power_usage": 1}}),
        as_json(operands={"FLOAT32": {"exec_time": 1}}),
        as_json(relaxed_tensor={"exec_time": -0.0, "power_usage": 1}),
        as_json(relaxed="much"),
        json.dumps(as_json()).replace("0.5", "NaN"),
        json.dumps(as_json()).replace("0.5", "1e999"),
        json.dumps(as_json(measured={"long": "x" * (1 << 20)})),
    ],
)
def test_a_file_that_makes_no_sense_is_named_and_does_not_count(
    content: dict[str, Any] | str, caplog: pytest.LogCaptureFixture
) -> None:
    path = written(content)
    with caplog.at_level(logging.WARNING):
        assert load_capabilities("device", VERSION) is UNMEASURED
    assert str(path) in caplog.text


def test_what_was_measured_counts_where_a_person_wrote_nonsense() -> None:
    store_capabilities("device", FILE)
    written("nonsense")
    assert load_capabilities("device", VERSION) != UNMEASURED


def test_a_directory_in_place_of_a_file_does_not_count() -> None:
    capabilities_files("device")[0].mkdir(parents=True)
    assert load_capabilities("device", VERSION) is UNMEASURED


@given(
    st.text(max_size=60) | st.recursive(st.none() | st.floats(), st.lists, max_leaves=3).map(str)
)
def test_no_content_of_a_file_stops_a_driver(content: str) -> None:
    path = capabilities_files("device")[0]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, errors="surrogatepass")
    assert load_capabilities("device", VERSION) is UNMEASURED


@pytest.mark.parametrize("number", [0.0, -1.0, float("nan"), float("inf")])
def test_numbers_that_no_device_has_are_not_stored(number: float, home: Path) -> None:
    with pytest.raises(InvalidArgument, match="S3"):
        store_capabilities("device", replace(FILE, relaxed_scalar=PerformanceInfo(number, 1.0)))
    assert not (home / "state").exists()


def test_what_ships_with_an_executor_counts_last(tmp_path: Path) -> None:
    from nnburst.executor.litert.executor import LiteRtExecutor

    found = load_capabilities("device", VERSION, LiteRtExecutor.capabilities_file)
    table = {entry.type: entry.info.exec_time for entry in found.operand_performance}
    assert table[OperandType.TENSOR_FLOAT32] < 1
    assert table[OperandType.TENSOR_QUANT8_ASYMM] < 1
    assert found.relaxed_float32_to_float16_performance_tensor.exec_time < 1
    assert load_capabilities("device", VERSION, tmp_path / "missing") is UNMEASURED


def test_onnxruntime_ships_figures_for_real_numbers_alone() -> None:
    pytest.importorskip("onnxruntime", reason="the executor's engine")
    from nnburst.executor.built_in import onnxruntime

    found = load_capabilities("device", VERSION, onnxruntime().capabilities_file)
    table = {entry.type: entry.info.exec_time for entry in found.operand_performance}
    assert table[OperandType.TENSOR_FLOAT32] < 1
    assert table[OperandType.TENSOR_QUANT8_ASYMM] == 1
