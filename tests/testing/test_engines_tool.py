"""The table of `make engines`: what was not tried is said, and is no failure; what failed is one."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools import engines
from tools.engines import NO_WHEEL, NOT_HERE, Row


@pytest.mark.parametrize("outcome", [NO_WHEEL, NOT_HERE])
def test_a_version_that_cannot_be_had_is_no_failure(outcome: str) -> None:
    assert not Row("numpy", "3.14", outcome=outcome).failed


@pytest.mark.parametrize(
    ("route", "outcome", "failed"),
    [
        ("native", "65 passed", False),
        ("imported", "292 passed, 1 skipped", False),
        ("native", "1 failed, 64 passed", True),
        ("native", "64 passed, 1 error", True),
        ("native", "1 skipped", True),
        ("interpreter", "65 passed", True),
        ("", "cannot be installed", True),
    ],
)
def test_a_version_passes_if_it_is_taken_whole_and_every_test_passes(
    route: str, outcome: str, failed: bool
) -> None:
    assert Row("ai-edge-litert==2.1.*", "3.11.7", "2.1.6", route, outcome).failed is failed


def test_a_python_that_is_not_here_has_a_row_for_each_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(engines, "pythons", list)
    assert engines.main([str(tmp_path), "--only", "python==3.14"]) == 0
    rows = capsys.readouterr().out.splitlines()[2:]
    assert rows == [f"| {each.name} | 3.14 |  |  | {NOT_HERE} |" for each in engines.ENGINES]
