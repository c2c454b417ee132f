"""`nnburst demo` as a newcomer runs it, with one round only."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nnburst.cli import main


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a run wrote for machines."""
    target = tmp_path_factory.mktemp("demo") / "demo.json"
    assert main(["demo", "--rounds", "1", "--json", str(target)]) == 0
    return dict(json.loads(target.read_text()))


def test_both_precisions_recognise_most_digits_by_every_route(figures: dict[str, Any]) -> None:
    assert [network["precision"] for network in figures["networks"]] == ["float32", "quant8"]
    for network in figures["networks"]:
        assert network["accuracy"] >= 0.96
        assert network["routes_agree"]


def test_every_route_is_timed_for_every_image(figures: dict[str, Any]) -> None:
    for network in figures["networks"]:
        assert network["executions_per_route"] == figures["images"]
        assert [route["name"].split()[0] for route in network["routes"]] == [
            "in",
            "execute",
            "burst",
        ]
        assert all(0 < route["median_ns"] <= route["p99_ns"] for route in network["routes"])
        assert "driver_median_us" in network["routes"][-1]


def test_killed_driver_is_noticed_and_replaced(figures: dict[str, Any]) -> None:
    assert "SIGKILL" in figures["death"]["message"]
    assert figures["death"]["recovered"]


def test_rounds_below_one_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--rounds", "0"]) == 1
    assert "--rounds is 0" in capsys.readouterr().err
