"""`nnburst bench prepare` times every step in processes of their own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed (extra 'litert')")

from nnburst.cli import main
from nnburst.testing.models.tflite_networks import NETWORKS


@pytest.mark.campaign
def test_every_step_is_timed_and_the_steps_make_up_the_whole(tmp_path: Path) -> None:
    network, report = tmp_path / "sum.tflite", tmp_path / "report.json"
    network.write_bytes(NETWORKS["ADD-FLOAT32"]())
    assert main(["bench", "prepare", str(network), "--rounds", "1", "--json", str(report)]) == 0
    [found] = json.loads(report.read_text())["networks"]
    steps = ["launch", "prepare", "open and bind", "first run"]
    others = ["prepare again", "prepare and save", "from cache", "open and try", "compile"]
    assert all(found[step] > 0 for step in [*steps, *others])
    assert found["from cache / prepare"] == pytest.approx(found["from cache"] / found["prepare"])
    assert found["start to first result"] == pytest.approx(sum(found[step] for step in steps))
    assert found["prepare - compile"] == pytest.approx(found["prepare"] - found["compile"])
