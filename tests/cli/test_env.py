"""`nnburst env`: every variable with its value and origin, and what is wrong with those that are set."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from nnburst.cli import main
from nnburst.hal.environment import variables


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("NNBURST_")]:
        monkeypatch.delenv(name)


def test_every_variable_is_listed_with_its_value_and_origin(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("NNBURST_BURST_SERVER_POLLING_WINDOW", "7")
    file = tmp_path / "env.json"
    assert main(["env", "--all", "--json", str(file)]) == 0
    facts = json.loads(file.read_text())
    assert facts["problems"] == []
    assert [row["name"] for row in facts["variables"]] == [v.name for v in variables()]
    found = {row["name"]: (row["value"], row["origin"]) for row in facts["variables"]}
    assert found["NNBURST_BURST_SERVER_POLLING_WINDOW"] == ("7", "environment")
    assert found["NNBURST_LOG"] == ("WARNING", "default")
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["NNBURST_BURST_SERVER_POLLING_WINDOW", "7", "environment"] in [w[:3] for w in lines]


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("NNBURST_SANDBOX", "maybe", "NNBURST_SANDBOX is 'maybe', expected 0 or 1"),
        (
            "NNBURST_VLOG",
            "model,comp",
            "NNBURST_VLOG: 'comp' left out, expected words of model, compilation, execution,",
        ),
        ("NNBURST_SANDBOXX", "1", "NNBURST_SANDBOXX is set and means nothing"),
    ],
)
def test_wrong_values_are_printed_and_set_the_status(
    name: str,
    value: str,
    problem: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(name, value)
    assert main(["env", "--json", "-"]) == 1
    output = capsys.readouterr()
    assert json.loads(output.out)["problems"][0].startswith(problem)
    assert problem in output.err


def test_help_names_the_exit_status_of_wrong_values(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["env", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert "The exit status is 1 if a value is refused or a name is unknown." in said


def test_log_level_that_does_not_parse_ends_any_command_with_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NNBURST_LOG", "LOUD")
    assert main(["devices"]) == 1
    assert capsys.readouterr().err.startswith("nnburst: NNBURST_LOG is 'LOUD', expected DEBUG")
