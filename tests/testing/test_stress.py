"""`nnburst stress`, for seconds: outcomes are counted, killed clients harm no other, defects show."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from nnburst.cli import main
from nnburst.hal.enums import OperandType
from nnburst.hal.environment import STRESS
from nnburst.hal.errors import DeadObject, InvalidArgument, MissedDeadline, ResourceExhausted
from nnburst.testing.driver_under_test import DriverUnderTest
from nnburst.testing.load import stress, stress_client
from nnburst.testing.load.stress import PROFILES, WrongAnswer, outcome_of
from nnburst.testing.load.stress_client import of_ratios
from nnburst.testing.models.random_graphs import generate

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
    found = run(tmp_path, 0, "parallel", "--seconds", "1")["parallel"]
    assert found["clients"]["success"] >= 8  # type: ignore[index]
    assert found["checker"]["success"] > 0  # type: ignore[index]
    assert found["bad"] == found["killed"] == 0


@pytest.mark.campaign
def test_killed_clients_harm_no_other(tmp_path: Path) -> None:
    words = ["early-termination", "--seconds", "3", "--life", "2"]
    found = run(tmp_path, 0, *words)["early-termination"]
    assert found["killed"] == found["processes"]
    assert found["bad"] == 0
    assert found["checker"]["success"] > 0  # type: ignore[index]


@pytest.mark.campaign
def test_random_graphs_are_executed_or_refused(tmp_path: Path) -> None:
    found = run(tmp_path, 0, "random-graphs", "--seconds", "1")["random-graphs"]
    assert found["clients"]["success"] > 0  # type: ignore[index]
    assert found["bad"] == 0


@pytest.mark.campaign
def test_mapped_models_outlive_the_memory_that_they_were_made_of(tmp_path: Path) -> None:
    found = run(tmp_path, 0, "mapped-models", "--seconds", "1")["mapped-models"]
    assert found["clients"]["success"] > 0  # type: ignore[index]
    assert found["bad"] == 0


@pytest.mark.campaign
def test_executions_beside_preparations_are_compared_with_executions_alone(tmp_path: Path) -> None:
    target = tmp_path / "stress.json"
    assert main(["stress", "degradation", "--seconds", "2", "--json", str(target)]) in (0, 1)
    found = json.loads(target.read_text())["degradation"]
    [said] = [message for message in found["messages"] if message.startswith("executions took")]
    assert int(said.split(" beside ")[1].split()[0]) > 0
    assert found["clients"].keys() <= {"success", "failure"}
    assert found["checker"]["success"] > 0


def test_degradation_fails_above_a_half_and_has_no_verdict_on_blocks_that_spread() -> None:
    assert not of_ratios([1.45] * 9, 100).failed
    assert of_ratios([1.55] * 9, 100).failed
    assert "+55% beside 100 preparations" in str(of_ratios([1.55] * 9, 100))
    for noisy in (of_ratios([1.55] * 6, 100), of_ratios([1.2, 2.0] * 9, 100)):
        assert noisy.noisy
        assert not noisy.failed
        assert "noisy" in str(noisy)


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("size", "graphs", "operations", "extent"), [("wide", 8, 10, 40), ("long", 1, 600, 4)]
)
def test_random_graphs_are_as_large_as_their_profile(
    size: str, graphs: int, operations: int, extent: int
) -> None:
    """A graph of few operations may happen to be of those that keep their operands small; eight are not."""
    made = [generate(size, OperandType.TENSOR_FLOAT32, seed) for seed in range(graphs)]
    assert {len(graph.operations) for graph in made} == {operations}
    assert max(max(o.value.array.shape, default=0) for g in made for o in g.operands) > extent


@pytest.mark.campaign
def test_results_that_change_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "forgetful.py").write_text(WRONG)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = run(tmp_path, 1, "parallel", "--seconds", "1", "--device", "forgetful:Forgetful")
    assert found["parallel"]["clients"]["wrong result"] > 0  # type: ignore[index]


def test_each_error_has_its_outcome() -> None:
    errors = (WrongAnswer(), DeadObject(""), MissedDeadline(""), InvalidArgument(""))
    assert [outcome_of(error) for error in errors] == ["wrong result", "crash", "hang", "failure"]
    assert outcome_of(ResourceExhausted("")) == "refused"


def test_thread_that_ends_by_any_error_counts_as_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("a defect of the test itself")

    monkeypatch.setattr(stress_client, "infer", broken)
    with DriverUnderTest.start("reference") as driver:
        found = stress_client.run(driver.address, "inference", 2, 5.0, "")
    assert found["counts"] == {"failure": 2}
    assert "a defect of the test itself" in found["messages"][0]


def test_checker_counts_any_error_as_a_failure_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = threading.Semaphore(0)

    def broken(*_: object, **__: object) -> None:
        tried.release()
        raise KeyError("a defect of the test itself")

    monkeypatch.setattr(stress, "connect", broken)
    with stress.Checker("nowhere") as checking:
        assert all(tried.acquire(timeout=30) for _ in range(2))
    assert checking.counts["failure"] >= 2
    assert "a defect of the test itself" in checking.messages[0]


def test_driver_ends_with_the_program_that_started_it_and_is_killed() -> None:
    text = (
        "from nnburst.testing.driver_under_test import DriverUnderTest\n"
        "driver = DriverUnderTest.start('null')\n"
        "print(driver.pid, flush=True)\n"
        "input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None
        driver = os.pidfd_open(int(program.stdout.readline()))
        program.kill()
    try:
        assert select.select([driver], [], [], 60)[0], "the driver goes on"
    finally:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(driver, signal.SIGTERM)
        os.close(driver)


def test_unknown_profile_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stress", "nonsense"]) == 1
    assert "expected one of parallel" in capsys.readouterr().err


@pytest.mark.campaign
@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_bears_its_load(tmp_path: Path, name: str) -> None:
    seconds = STRESS.read()
    found = run(tmp_path, 0, name, "--seconds", f"{seconds:g}", "--life", f"{seconds / 3:g}")[name]
    assert found["bad"] == 0, found["messages"]
