"""`nnburst bench tracing`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from nnburst.bench.tracing import TraceCost
from nnburst.cli import main


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_recorded_round_trips_are_timed_beside_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NNBURST_TRACE", raising=False)
    path = tmp_path / "tracing.json"
    assert main(["bench", "tracing", "--rounds", "3", "--json", str(path)]) == 0
    found = json.loads(path.read_text())
    assert len(found["off_rounds_ns"]) == len(found["on_rounds_ns"]) == 3
    assert min(found["off_rounds_ns"] + found["on_rounds_ns"]) > 0
    assert found["difference_ns"] is None  # three rounds tell nothing
    assert "recorded on both sides" in capsys.readouterr().out
    assert "NNBURST_TRACE" not in os.environ


def test_rounds_in_which_a_side_slept_do_not_count() -> None:
    found = TraceCost(
        (500.0, 510.0, 35_000.0, 505.0, 500.0, 520.0), (650.0, 655.0, 700.0) + (660.0,) * 3
    )
    assert len(found.awake) == 5
    assert (found.off_ns, found.on_ns) == (505.0, 660.0)
    assert found.difference_ns == 150.0
    asleep = TraceCost((500.0,) * 4 + (35_000.0,) * 9, (650.0,) * 13)
    assert asleep.difference_ns is None
