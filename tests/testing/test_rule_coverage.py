"""Every rule of validation has its tests, and the command that checks it can fail."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from rule_coverage import EXEMPT, RULES, SIDES, Coverage, lines, problems

ROOT = Path(__file__).resolve().parent.parent.parent


def complete() -> Coverage:
    return {
        rule: {
            side: Counter({"test.py::test_it": 2})
            for side in SIDES
            if side not in EXEMPT.get(rule, ((), ""))[0]
        }
        for rule in RULES
    }


def test_every_rule_has_an_accepting_and_a_rejecting_test() -> None:
    marked = [
        path for path in (ROOT / "tests").rglob("test_*.py") if "mark.rule(" in path.read_text()
    ]
    command = [sys.executable, "tools/rule_coverage.py", *map(str, marked)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "MISSING" not in done.stdout


def test_list_has_a_line_for_every_rule_and_side() -> None:
    text = list(lines(complete()))
    assert len(text) == 2 * len(RULES) == 2 * 123
    assert text[0] == "M1    accepts  test.py::test_it (2)"
    assert any("(pointers cannot be sent)" in line for line in text)


@pytest.mark.parametrize(
    ("rule", "sides", "problem"),
    [
        ("O16", ("accepts",), "O16: no test that rejects"),
        ("O16", ("rejects",), "O16: no test that accepts"),
        ("R12", ("rejects",), "R12: exempt (pointers cannot be sent), but there is a test"),
        ("X1", SIDES, "X1: not a rule"),
    ],
)
def test_what_is_missing_or_too_much_is_a_problem(
    rule: str, sides: tuple[str, ...], problem: str
) -> None:
    coverage = complete()
    assert list(problems(coverage)) == []
    coverage[rule] = {side: Counter({"test": 1}) for side in sides}
    (found,) = problems(coverage)
    assert found.startswith(problem)


def test_exempt_rules_exist_and_have_a_reason() -> None:
    assert set(EXEMPT) <= set(RULES)
    assert all(sides and reason for sides, reason in EXEMPT.values())
