"""The runner of Android's CTS survives crashes, resumes, and judges results by the list of expected ones."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cts import report
from cts.expected import unexpected
from cts.program import Result, cases
from cts.run import Results, run

#: A program as gtest makes them: Good.One passes, Bad.Fails fails, Bad.Dies dies, Bad.Hangs hangs.
PROGRAM = """#!{python}
import os, sys, time
CASES = {{"Good": ["One", "Two/0  # GetParam() = 7"], "Bad": ["Fails", "Dies", "Skips", "Hangs"]}}
if sys.argv[1:] == ["--gtest_list_tests"]:
    for suite, names in CASES.items():
        print(suite + ".")
        for name in names:
            print("  " + name)
    sys.exit()
wanted = next(a for a in sys.argv if a.startswith("--gtest_filter=")).partition("=")[2].split(":")
for name in wanted:
    with open("ran", "a") as file:
        file.write(name + "\\n")
    print("[ RUN      ] " + name, flush=True)
    case = name.partition(".")[2]
    if case == "Dies":
        os.abort()
    if case == "Hangs":
        time.sleep(60)
    if case == "Fails":
        print("expected 1, got 2")
    outcome = {{"Fails": "  FAILED  ", "Skips": "  SKIPPED "}}.get(case, "       OK ")
    print("[" + outcome + "] " + name + " (3 ms)", flush=True)
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "program"
    path.write_text(PROGRAM.format(python=sys.executable))
    path.chmod(0o755)
    return path


def carry_out(program: Path, *, resume: bool = False) -> dict[str, Result]:
    results = Results(program.parent / "results.jsonl", resume=resume)
    try:
        run(
            program,
            cases(program),
            results,
            shards=1,
            patience=1.0,
            environment={},
            progress=lambda _done: None,
        )
    finally:
        results.close()
    return results.by_name


def test_all_cases_are_listed(program: Path) -> None:
    assert cases(program)[:3] == ["Good.One", "Good.Two/0", "Bad.Fails"]


def test_a_crash_and_a_case_that_hangs_cost_only_themselves(program: Path) -> None:
    outcomes = {name: result.outcome for name, result in carry_out(program).items()}
    assert outcomes == {
        "Good.One": "passed",
        "Good.Two/0": "passed",
        "Bad.Fails": "failed",
        "Bad.Dies": "crashed",
        "Bad.Skips": "skipped",
        "Bad.Hangs": "crashed",
    }


def test_what_has_a_result_is_not_run_again(program: Path) -> None:
    carry_out(program)
    (program.parent / "ran").unlink()
    results = program.parent / "results.jsonl"
    kept = [line for line in results.read_text().splitlines() if "Good.One" not in line]
    results.write_text("\n".join([*kept, '{"name":"Good.O']))  # the last line was cut off
    assert len(carry_out(program, resume=True)) == 6
    assert (program.parent / "ran").read_text() == "Good.One\n"


def test_the_table_has_a_row_for_each_suite_and_the_reason_of_each_failure(program: Path) -> None:
    results = carry_out(program)
    assert report.rows(results)[-1][:6] == ("all", 6, 2, 1, 2, 1)
    assert "expected 1, got 2" in report.text(results, {"minutes": 1})
    assert {row["name"] for row in report.as_json(results, {}, {})["unexpected"]} == {
        "Bad.Fails",
        "Bad.Dies",
        "Bad.Hangs",
    }


def test_a_listed_case_that_passes_is_unexpected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cts.expected.CANNOT_HOLD", {"Bad.*": "a reason"})
    results = {
        name: Result(name, outcome, 0.0)
        for name, outcome in (("Bad.A", "failed"), ("Bad.B", "passed"), ("Good.C", "passed"))
    }
    assert [result.name for result in unexpected(results)] == ["Bad.B"]
