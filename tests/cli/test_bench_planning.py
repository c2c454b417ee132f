"""`nnburst bench planning`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nnburst.cli import main


def test_plans_of_few_and_of_many_steps_are_timed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "planning.json"
    assert (
        main(["bench", "planning", "--operations", "40", "--rounds", "1", "--json", str(path)]) == 0
    )
    plans = json.loads(path.read_text())["plans"]
    assert [(plan["steps"], plan["level"]) for plan in plans] == [(10, 8), (10, 4), (40, 8)]
    assert all(plan[part] > 0 for plan in plans for part in ("validate", "finish", "plan"))
    assert "one validation" in capsys.readouterr().out
