"""`nnburst fuzz queue` as it is typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nnburst.cli import main


def test_calls_are_counted_by_what_became_of_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "fuzz.json"
    assert main(["fuzz", "queue", "--queues", "12", "--seed", "5", "--json", str(target)]) == 0
    figures = json.loads(target.read_text())
    assert figures["passed"]
    assert figures["queues"] == 12
    assert figures["outcomes"]["QueueCorrupted"] > 0
    assert "QueueCorrupted" in capsys.readouterr().out
