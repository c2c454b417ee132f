"""`bench model` compares a network's ratios with an older report's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("scipy", reason="scipy is not installed (extra 'data')")
pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed (extra 'litert')")

from nnburst.bench.model.latency import BURST, C_API, INTERPRETER
from nnburst.bench.model.report import differences, judge, missed, read_baseline, sentence
from nnburst.bench.rounds import Measured
from nnburst.bench.verdict import Verdict
from nnburst.hal.errors import InvalidArgument


def figures(
    ratio: float, sigma: float = 0.02, seed: int = 1, engine: str = C_API
) -> dict[str, Any]:
    """A network whose machine changes its pace from round to round."""
    random = np.random.default_rng(seed)
    pace = 1e5 * random.uniform(0.7, 1.5, 41)
    burst = pace * ratio * random.normal(1, sigma, 41)
    cases = [(BURST, burst), (engine, pace)]
    return {
        "network": "kws",
        "accuracy": [
            {
                "data_set": "digits",
                "examples": 20,
                "top1_agreement": 0.95,
                "max_abs_difference": 0.5,
            }
        ],
        "latency": {
            "cases": [
                {"name": name, "median_ns": float(np.median(b)), "typical_ns": list(map(float, b))}
                for name, b in cases
            ]
        },
    }


@pytest.mark.parametrize(
    ("now", "sigma", "expected"),
    [
        (1.05, 0.02, Verdict.SAME),
        (1.20, 0.02, Verdict.WORSE),
        (0.90, 0.02, Verdict.BETTER),
        (1.20, 0.5, Verdict.NOISY),
    ],
)
def test_ratios_are_judged_whatever_the_pace_of_the_machine(
    now: float, sigma: float, expected: Verdict
) -> None:
    found = judge(figures(now, sigma, seed=2), {"kws": figures(1.05)})
    assert found is not None
    assert found.verdict is expected
    assert expected.value in sentence(figures(now, sigma, seed=2), found)


def test_rounds_that_lose_a_time_slice_do_not_make_a_network_slower() -> None:
    random = np.random.default_rng(3)
    calm, hit = (
        {BURST: Measured(BURST), C_API: Measured(C_API)},
        {BURST: Measured(BURST), C_API: Measured(C_API)},
    )
    for cases, slices in ((calm, 0), (hit, 1)):
        for measured in cases.values():
            for _ in range(41):
                singles = random.normal(1e5, 2e3, 9)
                singles[:slices] += 3e6
                measured.blocks.append(float(singles.mean()))
                measured.samples_by_round.append(singles.astype(np.uint64))
    old, new = (
        {**figures(1.0), "latency": {"cases": [case.as_json() for case in cases.values()]}}
        for cases in (calm, hit)
    )
    found = judge(new, {"kws": old})
    assert found is not None
    assert found.verdict is Verdict.SAME


def test_another_engine_gives_no_verdict_and_another_network_no_comparison() -> None:
    found = judge(figures(1.0), {"kws": figures(1.0, engine=INTERPRETER)})
    assert found is not None
    assert found.verdict is Verdict.NOISY
    assert judge(figures(1.0), {}) is None


def test_sentence_has_time_ratio_and_agreement() -> None:
    text = sentence(figures(1.05))
    assert "µs by a burst" in text
    assert f"1.05 × {C_API}" in text
    assert "same top class for 95.0% of 20 digits" in text
    assert "too noisy for a ratio" in sentence(figures(1.05, 0.6))


def test_routes_differ_from_the_engine_by_a_share_or_by_noise() -> None:
    found = differences(figures(1.05))
    assert found.keys() == {BURST}
    assert found[BURST] == pytest.approx(0.05, abs=0.01)
    assert differences(figures(1.05, 0.6)) == {BURST: None}


def test_expectations_that_are_missed_are_named_with_their_bound() -> None:
    assert missed(figures(1.05), {"top1": 0.9, "largest": 0.6, "ratio": 1.2}) == []
    lines = missed(figures(1.05), {"top1": 0.99, "largest": 0.1, "ratio": 1.0})
    assert [line.split()[1] for line in lines] == ["top1", "largest", "ratio"]
    assert "top1 is 0.95, expected at least 0.99" in lines[0]


def test_file_that_is_not_a_report_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    for content in ("{}", "no", "[" * 200_000, json.dumps({"networks": [{"network": "x"}]})):
        path.write_text(content)
        with pytest.raises(InvalidArgument, match=r"--baseline: .*old\.json has no blocks"):
            read_baseline(path)
