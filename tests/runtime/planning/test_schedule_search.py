"""The search for the schedule of least latency."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnburst.runtime.planning import steps
from nnburst.runtime.planning.steps import (
    Schedule,
    ScheduledStep,
    StepCosts,
    best_schedule,
)

INF = math.inf


def total(schedule: Schedule, costs: StepCosts) -> float:
    return sum(costs.of(step) for step in schedule)


def is_runnable(schedule: Schedule, waits: Sequence[int]) -> bool:
    done = 0
    for step in schedule:
        for number in step.operations:
            if waits[number] & ~done or done >> number & 1:
                return False
            done |= 1 << number
    return done == (1 << len(waits)) - 1


def drawn(seed: int, count: int, devices: int) -> tuple[list[int], StepCosts]:
    rng = np.random.default_rng(seed)
    waits = [
        sum(1 << earlier for earlier in range(number) if rng.random() < 0.4)
        for number in range(count)
    ]
    costs = StepCosts(
        [float(rng.uniform(0, 3)) for _ in range(devices)],
        [
            [INF if rng.random() < 0.2 else float(rng.uniform(0.1, 2)) for _ in range(count)]
            for _ in range(devices)
        ],
    )
    return waits, costs


def cheapest_of_all(waits: Sequence[int], costs: StepCosts) -> float:
    """Every order of the operations, every device for each, every cut into steps."""
    best = INF
    for order in itertools.permutations(range(len(waits))):
        done = 0
        for number in order:
            if waits[number] & ~done:
                break
            done |= 1 << number
        else:
            for devices in itertools.product(range(len(costs.fixed)), repeat=len(order)):
                runs = itertools.groupby(zip(order, devices, strict=True), key=lambda pair: pair[1])
                steps = [
                    ScheduledStep(device, tuple(sorted(n for n, _ in pairs)))
                    for device, pairs in runs
                ]
                best = min(best, total(tuple(steps), costs))
    return best


@settings(max_examples=30)
@given(seed=st.integers(0, 10**6), count=st.integers(1, 4), devices=st.integers(1, 2))
def test_schedule_is_the_cheapest_of_all(seed: int, count: int, devices: int) -> None:
    waits, costs = drawn(seed, count, devices)
    schedule, best = best_schedule(waits, costs), cheapest_of_all(waits, costs)
    if best == INF:
        assert schedule == ()
    else:
        assert is_runnable(schedule, waits)
        assert total(schedule, costs) == pytest.approx(best)


@given(seed=st.integers(0, 10**6))
def test_schedule_of_a_wide_model_can_run_and_is_no_worse_than_any_one_device(seed: int) -> None:
    waits, costs = drawn(seed, 40, 3)
    costs.single[0] = [1.0] * 40
    schedule = best_schedule(waits, costs)
    assert is_runnable(schedule, waits)
    assert total(schedule, costs) <= costs.fixed[0] + 40 + 1e-9


def test_what_a_step_really_costs_counts_before_the_estimate() -> None:
    chain = [0, 1, 2]
    costs = StepCosts([0.0, 0.0], [[1.0] * 3, [2.0] * 3])
    assert best_schedule(chain, costs) == ((0, (0, 1, 2)),)
    costs.known[0, 0b111] = 9.0
    costs.known[1, 0b111] = 0.5
    assert best_schedule(chain, costs) == ((1, (0, 1, 2)),)


def test_crossing_is_only_paid_if_the_other_device_saves_more() -> None:
    chain = [0, 1, 2]
    single = [[1.0, 9.0, 1.0], [9.0, 1.0, 9.0]]
    assert [s.device for s in best_schedule(chain, StepCosts([0.5, 0.5], single))] == [0, 1, 0]
    assert [s.device for s in best_schedule(chain, StepCosts([5.0, 5.0], single))] == [0]


def test_model_with_too_many_states_is_cut_in_run_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "MAX_STATES", 3)
    apart = [0, 0, 0]
    costs = StepCosts([0.1, 0.1], [[1.0, 9.0, 1.0], [9.0, 1.0, 9.0]])
    assert best_schedule(apart, costs) == ((0, (0,)), (1, (1,)), (0, (2,)))
    monkeypatch.undo()
    assert len(best_schedule(apart, costs)) == 2
