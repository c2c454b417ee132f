"""The runner of Android's CTS survives crashes, resumes, and judges results by the list of expected ones."""

from __future__ import annotations

import math
import sys
import tempfile
from pathlib import Path

import msgspec
import pytest

from cts import report
from cts.devices import DEVICES, environment
from cts.expected import unexpected
from cts.program import Result, cases
from cts.run import Results, run
from nnburst.runtime import Manager

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


def carry_out(program: Path, *, resume: bool = False, until: float = math.inf) -> dict[str, Result]:
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
            until=until,
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


def test_what_time_ran_out_for_is_left_to_the_next_run(program: Path) -> None:
    assert carry_out(program, until=0.0) == {}
    assert not (program.parent / "ran").exists()
    assert len(carry_out(program, resume=True)) == 6


def test_executions_of_all_processes_are_added_up_with_the_share_on_drivers(tmp_path: Path) -> None:
    for pid, by_device, supported, on_drivers in (
        (17, {"litert": 3, "nnapi-reference": 4}, 4, 2),
        (18, {"nnapi-reference": 2}, 0, 0),
        (19, {"litert": 1}, 1, 1),
    ):
        counts = report.Executions(by_device, supported, on_drivers)
        (tmp_path / f"{pid}.json").write_bytes(msgspec.json.encode(counts))
    executions = report.added_up(tmp_path)
    assert report.text({}, executions, {}).splitlines()[-1] == (
        "4 executions by litert, 6 executions by nnapi-reference,"
        " 3 executions on drivers, of 5 that they support (60.0%)"
    )
    assert report.as_json({}, executions, {})["executions"] == {
        "by_device": {"litert": 4, "nnapi-reference": 6},
        "supported_by_drivers": 5,
        "on_drivers": 3,
        "share": 0.6,
    }


def test_the_share_is_unknown_without_drivers(tmp_path: Path) -> None:
    assert report.added_up(tmp_path).share == 0


@pytest.mark.parametrize(
    ("devices", "costs"),
    [
        ("cpu", {"nnapi-reference": 1.0}),
        ("halves", {"sample_a": 0.5, "sample_b": 0.6, "nnapi-reference": 1.0}),
    ],
)
def test_a_set_of_devices_is_what_it_is_called(
    monkeypatch: pytest.MonkeyPatch, devices: str, costs: dict[str, float]
) -> None:
    assert devices in DEVICES
    with tempfile.TemporaryDirectory() as folder:  # sockets have no room for pytest's path
        for name, value in environment(devices, Path(folder)).items():
            monkeypatch.setenv(name, value)
        with Manager() as manager:
            found = {
                device.name: device.capabilities.if_performance.exec_time
                for device in manager.devices
            }
            assert found == costs
            assert manager._settings.refuses_half == (devices == "halves")


def test_the_table_has_a_row_for_each_suite_and_the_reason_of_each_failure(program: Path) -> None:
    results = carry_out(program)
    assert report.rows(results)[-1][:6] == ("all", 6, 2, 1, 2, 1)
    assert "expected 1, got 2" in report.text(results, report.Executions(), {"minutes": 1})
    assert {
        row["name"] for row in report.as_json(results, report.Executions(), {})["unexpected"]
    } == {
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
