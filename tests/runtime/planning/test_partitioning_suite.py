"""The suite of expected plans: every case of the reference data, and that a wrong plan fails."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from nnburst.cli import main
from nnburst.hal.errors import InvalidArgument
from nnburst.testing.partitioning import run_partitioning
from nnburst.testing.partitioning.run import (
    CaseDevice,
    CaseModel,
    CaseOperand,
    PartitioningCase,
    difference,
)


def two_adds(**expected: object) -> PartitioningCase:
    """Two ADDs in a chain; the device takes only the one without activation."""
    tensor, scalar = CaseOperand(3, (1,)), CaseOperand(1, (), 0)
    relu = CaseOperand(1, (), 1)
    model = CaseModel(
        (tensor, tensor, scalar, tensor, relu, tensor),
        ((0, (0, 1, 2), (3,)), (0, (3, 1, 4), (5,))),
        (0, 1),
        (5,),
    )
    device = CaseDevice("half", 4, 0.5, ((0, 0),))
    return PartitioningCase("two adds", 1, (model,), (device, "nnapi-reference"), dict(expected))


@pytest.mark.shared
def test_every_expected_plan_is_made(shared_dir: Path, tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    vectors = shared_dir / "vectors_runtime" / "partitioning.json"
    assert main(["conformance", "--suite", "partitioning", str(vectors), "--json", str(path)]) == 0
    report = json.loads(path.read_text())
    assert report["failed"] == 0
    assert report["passed"] == len(report["tests"]) == 117


def test_case_passes_only_with_every_field_as_expected() -> None:
    assert difference(two_adds(result="NO_ERROR", kind="COMPOUND")) == ""
    reason = difference(two_adds(result="NO_ERROR", kind="SIMPLE"))
    assert reason == "kind is COMPOUND, expected SIMPLE (no error)"
    assert difference(two_adds(fell_back=True)).startswith("fell_back is False")
    assert difference(two_adds(nonsense=1)).startswith("nonsense is missing")


def test_failed_case_ends_the_command_with_1(tmp_path: Path) -> None:
    path = tmp_path / "cases.json"
    cases = [two_adds(kind="COMPOUND"), two_adds(kind="SIMPLE")]
    path.write_bytes(msgspec.json.encode({"cases": cases}))
    assert main(["conformance", "--suite", "partitioning", str(path)]) == 1
    assert [r.outcome for r in run_partitioning(path)] == ["passed", "failed"]
    assert run_partitioning(path, "three") == run_partitioning(path, "", "MUL") == []
    assert len(run_partitioning(path, "^two", "ADD")) == 2


@pytest.mark.parametrize("content", [b"[]", b'{"cases": "\xff"}', b'{"cases": [{"name": "\xff"}]}'])
def test_file_of_another_form_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "cases.json"
    path.write_bytes(content)
    with pytest.raises(InvalidArgument, match="not a file of expected plans"):
        run_partitioning(path)
    with pytest.raises(InvalidArgument, match="not a file of expected plans"):
        run_partitioning(tmp_path / "missing.json")
