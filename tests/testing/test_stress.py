"""`nnburst stress`, for seconds: outcomes are counted, killed clients harm no other, defects show."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nnburst.cli import main
from nnburst.hal.errors import DeadObject, InvalidArgument, MissedDeadline, ResourceExhausted
from nnburst.testing.stress.client import WrongAnswer, outcome_of
from nnburst.testing.stress.profiles import PROFILES

WRONG = '''
from nnburst.executor.reference.executor import ReferenceExecutor
from nnburst.executor.base import Execution, Prepared

class Forgetful(ReferenceExecutor):
    """Adds one from the fifth run on."""
    name = "forgetful"

    def prepare(self, *words, **options):
        prepared = super().prepare(*words, **options)
        bind = prepared.bind

        def bound(inputs, outputs):
            execution = bind(inputs, outputs)
            run, count = execution.run, [0]

            def counted(*words):
                outcome = run(*words)
                count[0] += 1
                if count[0] > 5:
                    outputs[0].buffer.view("float32")[0] += 1
                return outcome

            execution.run = counted
            return execution

        prepared.bind = bound
        return prepared
'''


def run(tmp_path: Path, status: int, *words: str) -> dict[str, dict[str, object]]:
    target = tmp_path / "stress.json"
    assert main(["stress", *words, "--json", str(target)]) == status
    return dict(json.loads(target.read_text()))


def test_parallel_clients_and_the_checker_get_right_results(tmp_path: Path) -> None:
    found = run(tmp_path, 0, "parallel", "--seconds", "3")["parallel"]
    assert found["clients"]["success"] >= 8  # type: ignore[index]
    assert found["checker"]["success"] > 0  # type: ignore[index]
    assert found["bad"] == found["killed"] == 0


def test_killed_clients_harm_no_other(tmp_path: Path) -> None:
    words = ["early-termination", "--seconds", "6", "--life", "3"]
    found = run(tmp_path, 0, *words)["early-termination"]
    assert found["killed"] == found["processes"]
    assert found["bad"] == 0
    assert found["checker"]["success"] > 0  # type: ignore[index]


def test_random_graphs_are_executed_or_refused(tmp_path: Path) -> None:
    found = run(tmp_path, 0, "random-graphs", "--seconds", "4")["random-graphs"]
    assert found["clients"]["success"] > 0  # type: ignore[index]
    assert found["bad"] == 0


def test_results_that_change_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "forgetful.py").write_text(WRONG)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = run(tmp_path, 1, "parallel", "--seconds", "4", "--device", "forgetful:Forgetful")
    assert found["parallel"]["clients"]["wrong result"] > 0  # type: ignore[index]


def test_each_error_has_its_outcome() -> None:
    errors = (WrongAnswer(), DeadObject(""), MissedDeadline(""), InvalidArgument(""))
    assert [outcome_of(error) for error in errors] == ["wrong result", "crash", "hang", "failure"]
    assert outcome_of(ResourceExhausted("")) == "refused"


def test_unknown_profile_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stress", "nonsense"]) == 1
    assert "expected one of parallel" in capsys.readouterr().err


@pytest.mark.campaign
@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_for_a_minute(tmp_path: Path, name: str) -> None:
    found = run(tmp_path, 0, name, "--seconds", "60", "--life", "20")[name]
    assert found["bad"] == 0, found["messages"]
