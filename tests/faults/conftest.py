"""Fixtures for drivers, `stand_by` clients, and a table of measurements."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from faults.processes import STRICT, Client, Row, Supervisor

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of drivers that only this test sees."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def serve() -> Iterator[Callable[..., Supervisor]]:
    """Starts drivers that serve a name."""
    started: list[Supervisor] = []

    def start(name: str = "cam", executor: str = "reference") -> Supervisor:
        started.append(Supervisor(name, executor))
        return started[-1]

    yield start
    for supervisor in started:
        supervisor.kill()


@pytest.fixture
def client() -> Iterator[Callable[[str, str], Client]]:
    """Starts clients."""
    started: list[Client] = []

    def start(address: str, activity: str) -> Client:
        started.append(Client(address, activity))
        return started[-1]

    yield start
    for one in started:
        one.close()


@pytest.fixture(scope="session")
def failing_calls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that makes calls fail."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    made = tmp_path_factory.mktemp("failing") / "failing_calls.so"
    source = ROOT / "csrc" / "tests" / "failing_calls.c"
    command = [
        "gcc",
        "-shared",
        "-fPIC",
        "-O1",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-o",
        str(made),
        str(source),
    ]
    subprocess.run(command, check=True, timeout=60)
    return made


@pytest.fixture
def chance() -> random.Random:
    """Random generator for the times of kills, with another seed in each run."""
    return random.Random()


@pytest.fixture
def row(record_property: Callable[[str, object], None]) -> Row:
    """Adds a line to the table: the action, its number, and figures in ms."""

    def add(what: str, count: int, **figures: Sequence[float] | str) -> None:
        words = [
            f"{name}: {figure}"
            if isinstance(figure, str)
            else "{} p50 {:.1f}, p99 {:.1f}, max {:.1f} ms".format(
                name, *np.percentile(figure, [50, 99]), max(figure)
            )
            for name, figure in figures.items()
        ]
        record_property("faults", f"{what:<34} ×{count:<4} {'; '.join(words)}")

    return add


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the table."""
    reports = [r for kind in ("passed", "failed") for r in terminalreporter.stats.get(kind, [])]
    rows = [
        text
        for report in reports
        for name, text in getattr(report, "user_properties", ())
        if name == "faults" and report.when == "call"
    ]
    if rows:
        asserted = "asserted" if STRICT else "printed only (make faults STRICT=1 asserts them)"
        terminalreporter.section(f"faults; times {asserted}")
        for text in rows:
            terminalreporter.write_line(text)
