"""tools/trace_points_cost.py: a build without trace points beside two with them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import trace_points_cost


@pytest.mark.parametrize(
    ("plain", "again", "without", "status"),
    [
        (1000.0, 1010.0, 1000.0, 0),  # half a percent
        (1050.0, 1050.0, 1000.0, 1),  # five, and two builds are alike
        (1010.0, 1090.0, 1000.0, 0),  # five, and two builds differ by eight
    ],
)
def test_cost_counts_if_it_is_more_than_two_percent_and_than_two_builds_differ_by(
    plain: float,
    again: float,
    without: float,
    status: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = dict(
        zip(
            trace_points_cost.BUILDS,
            ([t] * 40 + [30_000.0] * 60 for t in (plain, again, without)),
            strict=True,
        )
    )
    monkeypatch.setattr(trace_points_cost, "measure", lambda *_: found)
    target = tmp_path / "cost.json"
    monkeypatch.setattr("sys.argv", ["cost", str(tmp_path), "--json", str(target)])
    assert trace_points_cost.main() == status
    assert "trace points that are off: +" in capsys.readouterr().out
    assert json.loads(target.read_text()) == found


def test_too_few_blocks_that_were_awake_give_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {name: [500.0] * 29 + [35_000.0] * 71 for name in trace_points_cost.BUILDS}
    monkeypatch.setattr(trace_points_cost, "measure", lambda *_: found)
    monkeypatch.setattr("sys.argv", ["cost", str(tmp_path)])
    assert trace_points_cost.main() == 2
    assert "noisy: fewer than 30" in capsys.readouterr().out


def test_folder_is_named_from_where_one_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Path] = []

    def measure(folder: Path, _rounds: int) -> dict[str, list[float]]:
        asked.append(folder)
        return {name: [500.0] for name in trace_points_cost.BUILDS}

    monkeypatch.setattr(trace_points_cost, "measure", measure)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["cost", "builds"])
    trace_points_cost.main()
    assert asked == [tmp_path / "builds"]


@pytest.mark.campaign
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_builds_with_and_without_trace_points_run_in_turn(tmp_path: Path) -> None:
    found = trace_points_cost.measure(tmp_path, 3)
    assert {name: len(blocks) for name, blocks in found.items()} == dict.fromkeys(found, 3)
    assert all(block > 0 for blocks in found.values() for block in blocks)
