"""`nnburst bench prepare` times every step in processes of their own."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed (extra 'litert')")

from nnburst.cli import main
from nnburst.testing.models.tflite_networks import NETWORKS


@pytest.mark.parametrize(
    ("ending", "reason"),
    [
        ("raise SystemExit('no engine here')", "driver: no engine here"),
        ("import os; os._exit(3)", "driver: exit status 3"),
        ("raise RuntimeError('odd')", "driver: RuntimeError: odd"),
    ],
)
def test_process_that_fails_is_one_line_and_no_traceback(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    ending: str,
    reason: str,
) -> None:
    network = tmp_path / "sum.tflite"
    network.write_bytes(NETWORKS["ADD-FLOAT32"]())
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{ending}"\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    assert main(["bench", "prepare", str(network), "--rounds", "1"]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == f"nnburst: {network}: {reason}"


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
