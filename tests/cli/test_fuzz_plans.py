"""`nnburst fuzz plans`."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from nnburst.cli import main
from nnburst.testing.partitioning.plan_runner import PlanRun


def plans(count: int, path: Path) -> tuple[int, dict[str, object]]:
    status = main(["fuzz", "plans", "--graphs", str(count), "--json", str(path)])
    return status, json.loads(path.read_text())


@pytest.mark.campaign
def test_plans_of_random_graphs_compute_what_the_whole_model_does(tmp_path: Path) -> None:
    status, report = plans(24, tmp_path / "report.json")
    assert (status, report["failed"], report["failures"]) == (0, 0, [])
    assert isinstance(counts := report["counts"], dict)
    assert counts["CompoundPlan"] > 0
    assert counts["steps"] > counts["CompoundPlan"]


@pytest.mark.campaign
def test_two_thousand_plans_compute_what_the_whole_model_does(tmp_path: Path) -> None:
    status, report = plans(2000, tmp_path / "report.json")
    assert (status, report["failures"]) == (0, [])


def test_wrong_result_ends_the_command_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = PlanRun.run

    def wrong(*args: object) -> object:
        result = run(*args)  # type: ignore[arg-type]
        return result._replace(outputs=tuple(bytes(len(o)) for o in result.outputs))

    monkeypatch.setattr(PlanRun, "run", wrong)
    status, report = plans(2, tmp_path / "report.json")
    assert status == 1
    assert "output 0 differs" in str(report["failures"])


def test_the_log_of_the_framework_is_as_before_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logger = logging.getLogger("nnburst.runtime")
    monkeypatch.setattr(logger, "level", logging.INFO)
    plans(1, tmp_path / "report.json")
    assert logger.level == logging.INFO
