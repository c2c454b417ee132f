"""tools/metrics_cost.py: drivers that count beside drivers that do not."""

from __future__ import annotations

import pytest

import metrics_cost


@pytest.mark.parametrize(
    ("without", "counting", "again", "status"),
    [
        (500.0, 503.0, 500.0, 0),
        (500.0, 520.0, 500.0, 1),
        (500.0, 520.0, 530.0, 0),  # two drivers alike differ by more
    ],
)
def test_cost_that_is_larger_than_the_spread_fails(
    without: float,
    counting: float,
    again: float,
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(
        metrics_cost,
        "live",
        lambda rounds: [[each] * rounds for each in (without, counting, again)],
    )
    monkeypatch.setattr("sys.argv", ["metrics_cost.py", "--lives", "6", "--rounds", "10"])
    assert metrics_cost.main() == status
    assert f"counting: {counting / ((without + again) / 2) - 1:+.2%}" in capsys.readouterr().out


def test_lives_asleep_are_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = [[500.0] * 5 + [9_000.0] * 5] * 3
    monkeypatch.setattr(metrics_cost, "live", lambda _rounds: blocks)
    monkeypatch.setattr("sys.argv", ["metrics_cost.py", "--lives", "6", "--rounds", "10"])
    assert metrics_cost.main() == 2
