"""State that goes from one execution to the next inside the pools."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import nnburst
from client.burst_helpers import SUM, State, accumulating
from shared_drivers import connect_to


@pytest.fixture(scope="module")
def prepared() -> Iterator[nnburst.PreparedModel]:
    with connect_to("reference") as device, device.prepare(accumulating()) as prepared:
        yield prepared


@pytest.fixture
def burst(prepared: nnburst.PreparedModel) -> Iterator[nnburst.Burst]:
    with prepared.open_burst(states=[SUM]) as burst:
        yield burst


def test_execution_finds_what_the_last_one_left(burst: nnburst.Burst) -> None:
    stateful = burst.bind()
    found = []
    for number in range(1, 5):
        stateful.inputs[0][...] = number
        stateful.run()
        found.append(stateful.outputs[0].tolist())
    assert found == [[22, 42], [26, 46], [32, 52], [40, 60]]
    assert stateful.states["sum"].tolist() == [20, 30]


def test_state_can_be_reset_and_set(burst: nnburst.Burst) -> None:
    stateful = burst.bind()
    stateful.inputs[0][...] = 1
    stateful.run()
    stateful.reset()
    assert stateful.run().outputs[0].tolist() == [22, 42]
    stateful.states["sum"][...] = 0
    assert stateful.run().outputs[0].tolist() == [2, 2]


def test_execution_that_fails_leaves_the_state(burst: nnburst.Burst) -> None:
    stateful = burst.bind()
    stateful.inputs[0][...] = 1
    stateful.run()
    with pytest.raises(nnburst.InvalidArgument, match="timeout"):
        stateful.run(timeout=-1)
    assert stateful.states["sum"].tolist() == [11, 21]
    assert stateful.run().outputs[0].tolist() == [24, 44]


def test_measured_executions_say_how_long_they_took(burst: nnburst.Burst) -> None:
    stateful = burst.bind(measure=True)
    assert all(stateful.run().timing.measured for _ in range(2))


@pytest.mark.parametrize(
    "states", [[State("x", 2, 1, SUM.initial)], [State("x", 1, -1, SUM.initial)], [SUM, SUM]]
)
def test_impossible_indexes_are_refused(
    prepared: nnburst.PreparedModel, states: list[State]
) -> None:
    with pytest.raises(nnburst.InvalidArgument, match=r"states: (in|out)put indexes are"):
        prepared.open_burst(states=states)


@pytest.mark.parametrize("states", [[1], [(0, 0)], 3, [State("x", 1.5, 1, SUM.initial)]])
def test_other_things_than_states_are_refused(prepared: nnburst.PreparedModel, states: Any) -> None:
    with pytest.raises(nnburst.InvalidArgument, match="expected a sequence of States"):
        prepared.open_burst(states=states)
