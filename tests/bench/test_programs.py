"""The two short programs in `bench/` run, and print what they measured."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"


def run(program: str, *words: str) -> str:
    """The output of a program."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(BENCH / program), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


def test_latency_prints_a_median_for_each_road() -> None:
    lines = run("latency.py", "null", "0.3").splitlines()
    found = [
        re.fullmatch(r"(.+?) +([\d.]+) µs, p99 +([\d.]+) µs, (\d+) .*", line) for line in lines
    ]
    rows = {row[1]: (float(row[2]), float(row[3])) for row in found if row}
    assert list(rows) == [
        "bound.run()",
        "burst.execute(arrays)",
        "prepared.execute(arrays)",
        "one byte over a socket",
    ]
    assert all(0 < middle <= late for middle, late in rows.values())


def test_packets_come_back_as_they_went() -> None:
    first, second = run("round_trip_fuzz.py", "1000", "7").splitlines()
    assert first.endswith(": 0 came back changed")
    refused = re.search(r"of 1000 damaged ones (\d+) were refused", second)
    assert refused is not None
    assert 0 < int(refused[1]) < 1000


@pytest.mark.parametrize("program", ["latency.py", "round_trip_fuzz.py"])
def test_each_program_is_short(program: str) -> None:
    assert len((BENCH / program).read_text().splitlines()) <= 60
