"""The simulation of a Ray head: what is certain about it, and the limits that it finds."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tools.host_simulation.model import LIMITS, Costs, bottlenecks, first_number, simulate

COSTS = Costs(create=0.1, node=0.01, list_one=0.0, ask_one=0.01, start=1.0, patience=2.0, late=15.0)


def test_idle_head_starts_hosts_one_after_the_other() -> None:
    found = simulate(100, replace(COSTS, node=0.0))
    assert found.started == pytest.approx(100 * 0.1 + 1.0)
    assert found.recovered == pytest.approx(10 * 0.1 + 1.0)
    assert found.load == 0


def test_reports_wait_behind_a_start_of_all_at_once() -> None:
    few, many = simulate(10, COSTS), simulate(90, COSTS)
    assert few.longest_wait < many.longest_wait
    assert many.longest_wait >= 90 * 0.1 - COSTS.period


def test_same_seed_gives_the_same_run() -> None:
    assert simulate(50, COSTS, seed=3) == simulate(50, COSTS, seed=3)


def test_first_number_is_the_least_that_breaks() -> None:
    assert first_number(lambda hosts: hosts >= 4321, 10_000) == 4321
    assert first_number(lambda hosts: hosts >= 4321, 4320) is None
    assert first_number(lambda _: True, 10) == 1


def test_limits_are_found_where_arithmetic_has_them() -> None:
    found = dict(zip(LIMITS, bottlenecks(COSTS, 250, minutes=0.6).values(), strict=True))
    look_up, reports, start = found.values()
    assert look_up == 201
    assert reports == 100
    assert start is not None
    assert start <= 150  # 150 creations of 0.1 s are 15 s, and reports come on top
