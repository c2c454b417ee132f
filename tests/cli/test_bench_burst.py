"""`nnburst bench burst` measures every road and reports what it found."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from nnburst.bench.rounds import line_of, stolen_seconds, stolen_ticks
from nnburst.cli import main
from nnburst.cli.bench_compare import blocks_of


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs a core for each side")
@pytest.mark.campaign
def test_every_road_is_timed_by_single_trips_and_by_blocks(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    words = ["bench", "burst", "--rounds", "2", "--no-rivals", "--no-periodic"]
    assert main([*words, "--json", str(report)]) == 0
    found = json.loads(report.read_text())
    cases = {case["name"]: case for case in found["cases"]}
    assert {"execute", "unix_socket_echo", "execute_arrays", "run_async", "connect"} <= set(cases)
    assert {"compiled_1in1out", "plan_of_two_steps", "two_steps_in_c", "futex_two_cores"} <= set(
        cases
    )
    assert blocks_of(found).keys() == cases.keys()
    for case in cases.values():
        assert 0 < case["median_ns"] <= case["p99_ns"] <= case["p999_ns"]
        assert case["mean_ns"] > 0
        assert case["stolen_share"] >= 0
    assert found["ratios"]["execute / unix_socket_echo"] > 0
    assert found["stolen_share"] >= 0


def test_no_two_cases_are_drawn_alike() -> None:
    lines = [line_of(number) for number in range(40)]
    assert len({(line["color"], line["linestyle"]) for line in lines}) == len(lines)


def test_steal_is_the_eighth_figure_of_all_cores() -> None:
    stat = "cpu  1 2 3 4 5 6 7 80 9 10\ncpu0 1 2 3 4 5 6 7 40 9 10\nintr 5\n"
    assert stolen_ticks(stat) == 80


def test_kernel_without_steal_counts_as_zero() -> None:
    assert stolen_ticks("cpu 1 2 3 4\n") == 0
    assert stolen_ticks("") == 0


def test_steal_never_shrinks() -> None:
    before = stolen_seconds()
    assert stolen_seconds() >= before >= 0
