"""A soak finds leaks and counts kills, and a short one passes."""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from nnburst.hal import environment
from nnburst.testing.driver_under_test import DriverUnderTest
from nnburst.testing.faults.activities import BrokenLife
from nnburst.testing.faults.footprint import footprint
from nnburst.testing.load.soak import ALLOWANCES, Process, Samples, Series, SoakReport, main

SECONDS = environment.SOAK.read()


def series(an_hour: float, allowance: float = 2.0, warm_up: float = 0.0) -> Series:
    """A number that rises."""
    seconds = np.arange(0, 3600, 3.6)
    return Series(allowance, warm_up, seconds.tolist(), (7 + seconds / 3600 * an_hour).tolist())


def test_leaked_descriptor_of_this_process_shows_in_its_series() -> None:
    samples, opened = Samples({"me": os.getpid()}), []
    for _ in range(40):
        opened.append(os.open("/dev/null", os.O_RDONLY))
        samples.take()
    for fd in opened:
        os.close(fd)
    for each in samples.series.values():
        each.times = [float(second) for second in range(40)]  # a busy machine takes them in spurts
    fds, threads = (samples.series[f"me: {what}"].trend() for what in ("fds", "threads"))
    assert fds is not None
    assert fds.growth == pytest.approx(29)
    assert not fds.is_flat
    assert threads is not None
    assert threads.is_flat


def test_warm_up_is_that_of_the_process() -> None:
    samples = Samples({"early": os.getpid(), "late": os.getpid()}, {"late": 60.0})
    assert {name: each.warm_up for name, each in samples.series.items()} == {
        f"{name}: {what}": warm_up
        for name, warm_up in (("early", 0.0), ("late", 60.0))
        for what in ALLOWANCES
    }


def test_soak_in_which_nothing_could_be_judged_has_not_passed() -> None:
    report = SoakReport(3600.0, series={"young": series(0, warm_up=3600)})
    assert report.not_judged == ["young"]
    assert not report.passed
    assert SoakReport(3600.0, series={"old": series(0)}).passed
    assert not SoakReport(3600.0, errors=["one"], series={"old": series(0)}).passed


def test_what_grows_is_named_with_growth_uncertainty_and_allowance(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = SoakReport(3600.0, {"a": 3}, {"b": 4}, [], {"leak": series(8), "calm": series(0)})
    file, other = tmp_path / "soak.json", tmp_path / "again.json"
    file.write_text(json.dumps(report.facts()))
    assert main(["--again", str(file), "--json", str(other)]) == 1
    text = capsys.readouterr().out
    assert text == report.text()
    assert [line.split() for line in text.splitlines() if "GROWS" in line] == [
        ["9.0", "+5.99", "0.00", "2.0", "leak", "GROWS"]
    ]
    assert json.loads(other.read_text()) == json.loads(file.read_text())


def test_verdict_is_computed_again_and_not_believed(tmp_path: Path) -> None:
    facts = SoakReport(3600.0, series={"leak": series(8)}).facts()
    file = tmp_path / "soak.json"
    file.write_text(json.dumps({**facts, "passed": True, "growing": [], "trends": {}}))
    assert main(["--again", str(file)]) == 1
    calm = SoakReport(3600.0, series={"calm": series(0)}).facts()
    file.write_text(json.dumps({**calm, "passed": False}))
    assert main(["--again", str(file)]) == 0


def test_file_that_cannot_be_written_is_found_out_before_the_load(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        main(["--json", str(tmp_path / "nowhere" / "soak.json")])


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with DriverUnderTest.start("reference") as driver:
        yield driver.address


@pytest.mark.campaign
def test_victim_that_is_at_work_counts_as_killed(address: str) -> None:
    Process.busy(address, "burst_runs").kill()


@pytest.mark.campaign
def test_victim_that_had_died_of_its_own_error_is_an_error(address: str) -> None:
    victim = Process.busy(address, "burst_runs")
    os.kill(victim.worker, 9)
    os.waitid(os.P_PID, victim.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(BrokenLife, match="client burst_runs had ended with 1 before it was killed"):
        victim.kill()
    assert victim.close() == 1


@pytest.mark.campaign
def test_soak_finds_nothing_that_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "soak.json"
    status = main(["--seconds", str(SECONDS), "--json", str(file)])
    facts, text = json.loads(file.read_text()), capsys.readouterr().out
    assert facts["errors"] == [], text
    assert all(count > 0 for count in facts["counts"].values()), text
    assert all(count > 0 for count in facts["rounds"].values()), text
    assert {f"supervisor: {what}" for what in ALLOWANCES} <= set(facts["trends"]), text
    assert status == 0, text
    assert SoakReport.of(facts).text() == text


def test_mapped_file_whose_name_is_no_text_is_no_obstacle(tmp_path: Path) -> None:
    before = footprint(os.getpid())
    path = tmp_path / os.fsdecode(b"ger\xe4te")
    path.write_bytes(b"bytes")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ):
        assert footprint(os.getpid()).maps == before.maps
