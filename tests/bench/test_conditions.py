"""The conditions of the machine are reported beside a measurement."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from nnburst.bench.rounds import Conditions, Watch
from nnburst.cli import main

QUIET = Conditions(0.1, 0.2, 0.0, 0.0, "tsc", "performance")


def test_a_quiet_machine_gives_no_doubt() -> None:
    assert QUIET.doubts == ()
    assert str(QUIET).count("\n") == 0


@pytest.mark.parametrize(
    ("conditions", "word"),
    [
        (Conditions(0, 0, 0.5, 0, "tsc", "performance"), "the host took 50% of a core"),
        (Conditions(0, 0, 0, 0.5, "tsc", "performance"), "other processes took 50%"),
        (Conditions(0, 0, 0, 0, "hpet", "performance"), "clock source hpet"),
        (Conditions(0, 0, 0, 0, "tsc", "ondemand"), "governor ondemand"),
    ],
)
def test_each_disturbance_is_a_doubt(conditions: Conditions, word: str) -> None:
    [doubt] = conditions.doubts
    assert word in doubt
    assert f"not quiet: {doubt}" in str(conditions)


def test_unknown_governors_and_clocks_raise_no_doubt() -> None:
    assert Conditions(0, 0, 0, 0, "unknown", "unknown").doubts == ()


def test_own_work_is_not_that_of_others() -> None:
    watch = Watch()
    until = time.process_time() + 0.3
    while time.process_time() < until:
        pass
    found = watch.conditions()
    assert found.others_share >= 0
    assert found.stolen_share >= 0
    assert found.as_json()["clock_source"] == found.clock_source


def test_every_benchmark_prints_for_people_and_machines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "planning.json"
    words = ["bench", "planning", "--operations", "40", "--rounds", "1", "--json"]
    assert main([*words, str(path)]) == 0
    assert "\nmachine: load " in capsys.readouterr().out
    assert {"load_before", "stolen_share", "clock_source", "governor", "doubts"} <= set(
        json.loads(path.read_text())["conditions"]
    )
    assert main([*words, "-"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["conditions"]["clock_source"]
    assert "machine: load" in shown.err
