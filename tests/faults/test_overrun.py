"""Calls of the framework end in time while drivers are killed, stopped and slow, on every road."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from faults.overrun import FAULTS, Late, campaign, roads, table, two_drivers
from faults.processes import KILLS, STRICT

#: Milliseconds beyond the timeout, less what a bare wait takes: 99 of 100, and the most.
P99, MOST = 1.0, 5.0


def inject(count: int, chance: random.Random, record: Callable[[str, object], None]) -> None:
    with two_drivers() as manager:
        rows = campaign(manager, count, chance)
    for line in table(rows):
        record("faults", line)
        print(line)
    assert {fault for fault, _ in rows} == set(FAULTS)
    assert not any(row.hung for row in rows.values())
    if STRICT:
        calls, bare = Late(), Late()
        for row in rows.values():
            calls += row.calls
            bare += row.bare_quiet
        own = calls.own
        own.sort()
        base = sorted(bare.own)
        assert own[int(0.99 * len(own))] - base[len(base) // 2] <= P99
        assert own[-1] - base[len(base) // 2] <= MOST


@pytest.mark.campaign
def test_no_call_hangs_or_is_wrong_while_drivers_die_stop_and_dawdle(
    chance: random.Random, record_property: Callable[[str, object], None]
) -> None:
    inject(KILLS, chance, record_property)


@pytest.mark.campaign
def test_no_road_outlives_its_timeout(
    chance: random.Random, record_property: Callable[[str, object], None]
) -> None:
    with two_drivers() as manager:
        ways = len(roads(manager))
    inject(max(2 * KILLS, ways * 4), chance, record_property)
