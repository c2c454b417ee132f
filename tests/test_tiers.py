"""Which tests run when: `make tiny`, `make test`, `make campaign`, and both of the last in CI."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections import defaultdict
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from conftest import FAULTS, HOUSE, LONGEST, TIMING, group_of, send_if_it_counts, turn_of

ROOT = Path(__file__).resolve().parent.parent
CI = (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def recipe(*words: str) -> str:
    """The commands that `make` would run."""
    command = ["make", "--dry-run", "--always-make", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout


def test_tiny_names_only_files_that_exist() -> None:
    named = re.findall(r"tests/[\w/.]+", recipe("tiny"))
    assert len(named) > 5
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_ci_runs_lint_the_everyday_tests_and_a_short_campaign() -> None:
    words = ["make setup", "make lint", "make test", "make campaign SHORT=1"]
    assert re.findall(r"^make .*", CI, re.MULTILINE) == words


def test_campaign_in_full_also_kills_in_number_and_explores_the_model() -> None:
    full, short = recipe("campaign"), recipe("campaign", "SHORT=1")
    counts = "NNBURST_RUNS=100 NNBURST_RECORDS=1000000 NNBURST_RANDOM_CALLS=20000"
    assert f'{counts} .venv/bin/python -m pytest -m "campaign or counted"' in short
    assert "NNBURST_KILLS=10 " in short
    for more in ("NNBURST_KILLS=100 ", "NNBURST_SOAK=", "csrc/spin/run.sh", "mutation_score"):
        assert more in full
        assert more not in short


def test_faults_are_all_tests_of_their_folder() -> None:
    assert re.search(r'NNBURST_KILLS=100 .*pytest -m "" tests/faults', recipe("faults"))


def test_what_kills_processes_or_compares_times_is_one_group_and_comes_first(
    request: pytest.FixtureRequest,
) -> None:
    alone = [group_of(item.path) == TIMING for item in request.session.items]
    assert alone == sorted(alone, reverse=True)
    assert {group_of(path) for path in FAULTS.glob("test_*.py")} == {TIMING}


def test_groups_that_take_longest_come_first(request: pytest.FixtureRequest) -> None:
    turns = [turn_of(group_of(item.path)) for item in request.session.items]
    assert turns == sorted(turns)
    groups = ["tests/hal/test_codes", "tests/client/test_burst", "tests/csrc/test_arm", HOUSE]
    assert sorted(groups, key=turn_of) == groups[::-1]
    assert [folder for folder in LONGEST if not (ROOT / "tests" / folder).is_dir()] == []


def test_worker_sends_every_event_but_those_that_change_no_line() -> None:
    sent: list[str] = []

    def send(name: str, **values: Any) -> None:
        report = values.get("data")
        sent.append(" ".join([report["outcome"], report["when"]]) if report else name)

    for name in ("logstart", "logfinish", "runtest_protocol_complete", "warning_recorded"):
        send_if_it_counts(send, name)
    phases = ("setup", "call", "teardown")
    for when, outcome in product(phases, ("passed", "skipped", "failed")):
        report = {"when": when, "outcome": outcome, "duration": 0.001, "sections": []}
        send_if_it_counts(send, "testreport", data=report)
    said = {"when": "setup", "outcome": "passed", "duration": 0.001, "sections": [("log", "line")]}
    send_if_it_counts(send, "testreport", data=said)
    send_if_it_counts(send, "testreport", data={**said, "duration": 0.01, "sections": []})
    assert sent == [
        "runtest_protocol_complete",
        "warning_recorded",
        "skipped setup",
        "failed setup",
        "passed call",
        "skipped call",
        "failed call",
        "skipped teardown",
        "failed teardown",
        "passed setup",
        "passed setup",
    ]


SLOW = "import pytest, time\n\n@pytest.mark.parametrize('n', range(6))\ndef test_it(n):\n    pass\n"


@pytest.mark.campaign
def test_every_group_runs_in_one_process(tmp_path: Path) -> None:
    tests = tmp_path / "tests"
    for folder in ("faults", "hal"):
        (tests / folder).mkdir(parents=True)
    shutil.copy(ROOT / "tests" / "conftest.py", tests)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for place in ("hal/test_a", "hal/test_b", "faults/test_c", "faults/test_d"):
        (tests / f"{place}.py").write_text(SLOW)
    timed = SLOW.replace("@pytest", "@pytest.mark.timing\n@pytest", 1)
    (tests / "hal" / "test_e.py").write_text(timed)
    for place in ("test_f", "test_g"):
        (tests / f"{place}.py").write_text(SLOW)
    command = [sys.executable, "-m", "pytest", "-v", "-n2", "-p", "no:cacheprovider", "tests"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    workers: defaultdict[str, set[str]] = defaultdict(set)
    for worker, file in re.findall(r"\[(gw\d)\].* PASSED tests/(\S+)\.py::", done.stdout):
        timed_too = file.startswith("faults") or file == "hal/test_e"
        workers["timing" if timed_too else file if "/" in file else "house"].add(worker)
    assert {file: len(by) for file, by in workers.items()} == {
        "hal/test_a": 1,
        "hal/test_b": 1,
        "timing": 1,
        "house": 1,
    }
    assert "42 passed" in done.stdout
