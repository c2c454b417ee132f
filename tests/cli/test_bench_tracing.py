"""`nnburst bench tracing`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from nnburst.cli import main


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_recorded_round_trips_are_timed_beside_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NNBURST_TRACE", raising=False)
    path = tmp_path / "tracing.json"
    assert main(["bench", "tracing", "--rounds", "3", "--json", str(path)]) == 0
    found = json.loads(path.read_text())
    assert found["off_ns"] > 0
    assert found["on_ns"] > 0
    assert len(found["differences_ns"]) == 3
    assert "recorded on both sides" in capsys.readouterr().out
    assert "NNBURST_TRACE" not in os.environ
