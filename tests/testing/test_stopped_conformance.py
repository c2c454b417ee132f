"""A conformance run that is stopped: it reports what was tried until then, and leaves nothing running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from nnburst.cli import conformance, main
from nnburst.testing.assessment import Advance, Plan, assess
from nnburst.testing.conformance.campaign import CaseResult, Selection
from nnburst.testing.driver_under_test import DriverUnderTest
from nnburst.testing.report import Report, page
from waiting import wait_for

PATIENCE = 120.0
RELU = ("conformance", "--device", "reference", "--operation", "RELU", "--profile", "generated")


@pytest.fixture(scope="module")
def reference() -> Iterator[DriverUnderTest]:
    with DriverUnderTest.start("reference") as driver:
        yield driver


def stopping(step: str, when: int) -> Advance:
    """Presses Ctrl-C once so much of a step is done."""

    def advance(name: str, done: int, _of: int) -> None:
        if name == step and done >= when:
            raise KeyboardInterrupt

    return advance


def test_what_was_tried_before_a_stop_is_in_the_report(reference: DriverUnderTest) -> None:
    plan = Plan("basic", "^RELU-TENSOR_FLOAT32-1-", "RELU", required=("ADD",))
    report = assess(reference, plan, stopping("checks", 2))
    assert report.unfinished.startswith("stopped in checks, 2 of")
    assert {t.operation for t in report.triples if t.passed} == {"RELU"}
    assert [check.outcome for check in report.checks] == ["passed", "passed"]
    assert report.failures == [f"unfinished: {report.unfinished}"]
    assert report.unfinished in page(report)


@pytest.mark.campaign
def test_tests_of_the_suites_that_ran_before_a_stop_are_in_the_report(
    reference: DriverUnderTest,
) -> None:
    report = assess(reference, Plan("faults"), stopping("suites", 2))
    assert report.unfinished.startswith("stopped in suites, ")
    assert len(report.checks) >= 2
    assert {check.suite for check in report.checks} == {"test_contract"}


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A folder with a name so short that a socket can lie two folders below."""
    with tempfile.TemporaryDirectory(prefix="stop-") as name:
        yield Path(name)


def test_sigterm_ends_the_command_with_a_report_and_without_a_driver(
    tmp_path: Path, temporary: Path
) -> None:
    folder = tmp_path / "report"
    printed = tmp_path / "stdout"
    with printed.open("w") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "nnburst", *RELU, "--report", str(folder)],
            cwd=tmp_path,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, "TMPDIR": str(temporary)},
        )
        try:
            wait_for(
                lambda: process.poll() is not None or "conformance: pack" in printed.read_text(),
                PATIENCE,
            )
            assert process.poll() is None, printed.read_text()
            process.send_signal(signal.SIGTERM)
            status = process.wait(PATIENCE)
        finally:
            process.kill()
            process.wait()
    assert status == 128 + signal.SIGTERM, printed.read_text()
    report = msgspec.json.decode((folder / "report.json").read_bytes(), type=Report)
    assert report.unfinished.startswith("stopped in ")
    assert f"reference was {report.unfinished}" in printed.read_text()
    assert not list(temporary.glob("nnburst-*")), "its driver is there"


def test_results_of_vector_files_before_a_stop_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_files = conformance.run_files

    def stopped(
        files: Sequence[Path], selection: Selection, jobs: int
    ) -> Iterator[list[CaseResult]]:
        for found in run_files(files, selection, jobs):
            yield found
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(conformance, "run_files", stopped)
    words = ["conformance", "--shipped", "--operation", "RELU", "--json", str(tmp_path / "json")]
    assert main(words) == 128 + signal.SIGTERM
    written = msgspec.json.decode((tmp_path / "json").read_bytes())
    assert written["unfinished"] is True
    assert written["failed"] == 0
    assert "unfinished: it was stopped" in capsys.readouterr().out


def test_each_step_has_a_line_of_its_own_on_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    with conformance._advancing(()) as advance:
        advance("choosing cases", 0, 1)
        for done in range(4):
            advance("pack", done, 3)
        advance("checks", 1, 2)
    assert capsys.readouterr().out.splitlines() == [
        "conformance: choosing cases ...",
        "conformance: pack ...",
        "conformance: checks ...",
    ]
