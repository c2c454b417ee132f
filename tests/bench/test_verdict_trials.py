"""tools/verdict_trials.py: how often the verdict of `bench model --baseline` is right."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("scipy", reason="scipy is not installed (extra 'data')")
pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed (extra 'litert')")

import verdict_trials
from nnburst.executor.base import Execution, Outcome


class Busy(Execution):
    """Computes for 5 ms."""

    def run(self, deadline_ns: int | None = None, loop_timeout_ns: int = 0) -> Outcome:  # noqa: ARG002
        until = time.perf_counter_ns() + 5_000_000
        while time.perf_counter_ns() < until:
            pass
        return Outcome(message="computed")


def test_slowed_executions_take_a_tenth_longer_and_give_the_same() -> None:
    slowed = verdict_trials._SlowedExecution(Busy())
    began = time.perf_counter_ns()
    assert slowed.run().message == "computed"
    assert time.perf_counter_ns() - began >= 5_500_000


@pytest.mark.parametrize(
    ("verdicts", "status"),
    [
        ({"same": "same", "slower": "worse"}, 0),
        ({"same": "noisy", "slower": "noisy"}, 0),
        ({"same": "worse", "slower": "worse"}, 1),
        ({"same": "same", "slower": "same"}, 1),
    ],
)
def test_tries_go_on_where_they_ended_and_wrong_ones_decide_the_status(
    verdicts: dict[str, str], status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(_network: Path, target: Path, kind: str, words: list[str]) -> None:
        report: dict[str, Any] = {
            "networks": [{"beside_baseline": {"verdict": verdicts[kind], "effect": 0, "why": ""}}],
            "conditions": {"others_share": 0, "stolen_share": 0},
        }
        target.write_text(json.dumps(report))
        measured.append(words)

    measured: list[list[str]] = []
    monkeypatch.setattr(verdict_trials, "measure", measure)
    results = tmp_path / "results.jsonl"
    words = ["trials", "network.tflite", str(results), "--slower", "2", "--same"]
    for same, runs in (
        ("1", 4),
        ("3", 2),
        ("3", 0),
    ):  # a baseline and three tries, two, and no more
        measured.clear()
        monkeypatch.setattr("sys.argv", [*words, same])
        assert verdict_trials.main() == status
        assert len(measured) == runs
    assert len(results.read_text().splitlines()) == 5


@pytest.mark.campaign
@pytest.mark.shared
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_verdicts_beside_a_baseline_are_never_wrong(
    shared_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = shared_dir / "models" / "mobilenet_v1_0.25_128_uint8.tflite"
    words = ["trials", str(network), str(tmp_path / "results.jsonl"), "--same", "2"]
    monkeypatch.setattr("sys.argv", [*words, "--slower", "2"])
    assert verdict_trials.main() == 0
