"""Which tests run when: `make tiny`, `make test`, `make campaign`, and both of the last in CI."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from conftest import FAULTS, TIMING, group_of

ROOT = Path(__file__).resolve().parent.parent
CI = (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def recipe(*words: str) -> str:
    """What `make` would run."""
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
    assert 'NNBURST_RUNS=100 .venv/bin/python -m pytest -m "campaign or counted"' in short
    assert "NNBURST_KILLS=10 " in short
    for more in ("NNBURST_KILLS=100 ", "NNBURST_SOAK=", "csrc/spin/run.sh", "mutation_score"):
        assert more in full
        assert more not in short


def test_what_kills_processes_or_compares_times_is_one_group_and_comes_first(
    request: pytest.FixtureRequest,
) -> None:
    groups = [group_of(item) for item in request.session.items]
    alone = [group == TIMING for group in groups]
    assert alone == sorted(alone, reverse=True)
    of_faults = {group_of(i) for i in request.session.items if FAULTS in i.path.parents}
    assert of_faults <= {TIMING}
