"""The figures in `bench/baseline/` and new runs of the commands that took them can be compared."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("scipy", reason="scipy is not installed (extra 'data')")
pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed (extra 'litert')")

from nnburst.bench.verdict import FEWEST, Verdict
from nnburst.cli import bench_prepare, main
from nnburst.cli.bench_compare import blocks_of
from nnburst.testing.models.tflite_networks import NETWORKS

BASELINE = Path(__file__).resolve().parents[2] / "bench" / "baseline"
NAMES = ("burst", "network", "prepare", "operations")
#: How some are taken, in short. Those of bursts and networks have tests in `tests/cli` that look for blocks.
COMMANDS = {
    "prepare": ["--rounds", "1"],
    "operations": ["--rounds", "2", "--repeats", "1"],
}
#: Names of their cases.
STEPS = {"prepare": set(bench_prepare._STEPS), "operations": {"numpy", "litert_ref"}}
#: The network of those words: one operation with one input.
NETWORK = "ABS-FLOAT32"
#: Environment in which `bench operations` does not start over.
ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def kept(name: str) -> dict[str, list[float]]:
    path = BASELINE / f"{name}.json"
    if not path.exists():
        pytest.skip(f"{path.name} is not taken yet: `make baseline` on a quiet machine")
    return dict(blocks_of(json.loads(path.read_text())))


def new_run(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for variable in ONE_THREAD:
        monkeypatch.setenv(variable, "1")
    network, report = folder / "abs.tflite", folder / "now.json"
    network.write_bytes(NETWORKS[NETWORK]())
    assert main(["bench", name, str(network), *COMMANDS[name], "--json", str(report)]) == 0
    return report


def compared(before: Path, now: Path, folder: Path) -> list[dict[str, Any]]:
    out = folder / "compared.json"
    main(["bench", "compare", str(before), str(now), "--json", str(out)])
    cases: list[dict[str, Any]] = json.loads(out.read_text())["cases"]
    return cases


def roads(cases: Mapping[str, list[float]]) -> set[str]:
    """Names of cases without those of networks."""
    return {case.rpartition(": ")[2] for case in cases}


@pytest.mark.parametrize("name", COMMANDS)
def test_new_runs_are_compared_case_by_case(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = new_run(name, tmp_path, monkeypatch)
    found = compared(now, now, tmp_path)
    assert {case["case"] for case in found} == set(blocks_of(json.loads(now.read_text())))
    assert {case["verdict"] for case in found} == {Verdict.NOISY}
    assert all(f"expected {FEWEST} or more" in case["why"] for case in found)
    assert roads(blocks_of(json.loads(now.read_text()))) == STEPS[name]


@pytest.mark.parametrize("name", COMMANDS)
def test_new_runs_have_the_cases_of_their_baseline(name: str) -> None:
    assert roads(kept(name)) == STEPS[name]


@pytest.mark.parametrize("name", NAMES)
def test_every_case_of_a_baseline_has_enough_blocks_for_a_verdict(
    name: str, tmp_path: Path
) -> None:
    before = kept(name)
    found = compared(BASELINE / f"{name}.json", BASELINE / f"{name}.json", tmp_path)
    assert {case["case"] for case in found} == set(before)
    assert all(len(blocks) >= FEWEST for blocks in before.values())
    # What spreads too much has no verdict; nothing differs from itself.
    assert {case["verdict"] for case in found} <= {Verdict.SAME, Verdict.NOISY}
    assert Verdict.SAME in {case["verdict"] for case in found}
