"""State that goes from one execution to the next inside the pools."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

import nnburst
from client.burst_helpers import SUM, State, accumulating, standing_still
from nnburst.client.burst.interface import BoundRequest
from nnburst.hal.enums import OperandType, OperationType
from nnburst.runtime import Manager
from nnburst.runtime.devices.driver_device import DriverDevice
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


def test_a_state_may_be_a_truth_value() -> None:
    builder = nnburst.ModelBuilder()
    kind = OperandType.TENSOR_BOOL8
    x, before = builder.input(kind, (2,)), builder.input(kind, (2,))
    builder.operation(OperationType.NOT_EQUAL, [x, before], [builder.output(kind, (2,))])
    state = State("parity", 1, 0, np.zeros(2, np.uint8))  # as the importer makes it
    with (
        connect_to("reference") as device,
        device.prepare(builder.build()) as prepared,
        prepared.open_burst(states=[state]) as burst,
    ):
        stateful = burst.bind()
        stateful.inputs[0][...] = [True, False]
        found = [stateful.run().outputs or stateful.states["parity"].tolist() for _ in range(3)]
    assert found == [[True, False], [False, False], [True, False]]


def test_state_can_be_reset_and_set(burst: nnburst.Burst) -> None:
    stateful = burst.bind()
    stateful.inputs[0][...] = 1
    stateful.run()
    stateful.reset()
    assert stateful.run().outputs[0].tolist() == [22, 42]
    stateful.states["sum"][...] = 0
    assert stateful.run().outputs[0].tolist() == [2, 2]


def test_changing_the_array_of_an_initial_value_later_changes_no_state(
    prepared: nnburst.PreparedModel,
) -> None:
    initial = SUM.initial.copy()
    state = State(SUM.name, SUM.input_index, SUM.output_index, initial)
    with prepared.open_burst(states=[state]) as burst:
        before = burst.bind()
        initial[...] = 99
        for request in (before, burst.bind()):
            request.inputs[0][...] = 1
            assert request.run().outputs[0].tolist() == [22, 42]
            request.reset()
            assert request.states[SUM.name].tolist() == SUM.initial.tolist()
        assert burst.states[SUM.name].tolist() == SUM.initial.tolist()


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


@pytest.mark.parametrize("given", [iter, lambda states: (state for state in states), tuple])
def test_states_may_come_from_any_iterable(
    prepared: nnburst.PreparedModel, given: Callable[[list[State]], Any]
) -> None:
    with prepared.open_burst(states=given([SUM])) as burst:
        assert list(burst.states) == ["sum"]
        assert burst.execute([np.ones(2, np.float32)]).outputs[0].tolist() == [22, 42]
        assert burst.execute([np.ones(2, np.float32)]).outputs[0].tolist() == [24, 44]


def test_an_initial_value_that_is_masked_is_refused(prepared: nnburst.PreparedModel) -> None:
    begin = np.ma.array(SUM.initial, mask=[True, False])
    with pytest.raises(nnburst.InvalidArgument, match="initial value of 'sum' is a masked array"):
        prepared.open_burst(states=[State("sum", 1, 1, begin)])


@pytest.mark.parametrize("name", [None, 3, b"sum"])
def test_name_of_a_state_that_is_no_text_is_refused(
    prepared: nnburst.PreparedModel, name: Any
) -> None:
    with pytest.raises(nnburst.InvalidArgument, match=r"states: .* is a name, expected text"):
        prepared.open_burst(states=[State(name, 1, 1, SUM.initial)])


def test_two_states_of_one_name_are_refused(device: nnburst.Device) -> None:
    builder = nnburst.ModelBuilder()
    for _ in range(2):
        x = builder.input(OperandType.TENSOR_FLOAT32, (2,))
        y = builder.output(OperandType.TENSOR_FLOAT32, (2,))
        builder.operation(OperationType.ADD, [x, x, builder.scalar(0)], [y])
    states = [State("sum", index, index, SUM.initial) for index in range(2)]
    with (
        device.prepare(builder.build()) as prepared,
        pytest.raises(
            nnburst.InvalidArgument, match=r"states\[0\] and states\[1\] are both named 'sum'"
        ),
    ):
        prepared.open_burst(states=states)


# -- while a request is under way ------------------------------------------------------------------


async def started(stateful: BoundRequest) -> asyncio.Task[nnburst.ExecutionResult]:
    """A task in `run_async`, whose request was sent."""
    task = asyncio.ensure_future(stateful.run_async())
    for _ in range(3):
        await asyncio.sleep(0)
    assert stateful.in_flight
    return task


@pytest.mark.parametrize(
    "call",
    [
        lambda stateful: stateful.states,
        lambda stateful: stateful.reset(),
        lambda stateful: stateful.run(1.0),
        lambda stateful: stateful.submit(),
    ],
    ids=["states", "reset", "run", "submit"],
)
def test_states_are_in_use_while_a_task_runs(
    still: nnburst.Device, call: Callable[[BoundRequest], object]
) -> None:
    async def main(stateful: BoundRequest) -> None:
        await stateful.run_async()
        with standing_still(still):
            task = await started(stateful)
            with pytest.raises(nnburst.BurstBusy, match="this request is under way"):
                call(stateful)
        await task
        assert stateful.states["sum"].tolist() == [12, 22]

    with still.prepare(accumulating()) as prepared, prepared.open_burst(states=[SUM]) as burst:
        bound = burst.bind()
        bound.inputs[0][...] = 1
        asyncio.run(main(bound))


def test_states_can_be_reset_after_a_task_was_cancelled(still: nnburst.Device) -> None:
    async def main(stateful: BoundRequest) -> None:
        await stateful.run_async()
        with standing_still(still):
            task = await started(stateful)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            stateful.reset()
        assert (await stateful.run_async()).outputs[0].tolist() == [22, 42]

    with still.prepare(accumulating()) as prepared, prepared.open_burst(states=[SUM]) as burst:
        bound = burst.bind()
        bound.inputs[0][...] = 1
        asyncio.run(main(bound))


@pytest.mark.parametrize("way", ["prepared", "compiled"])
def test_run_after_an_abandoned_submission_waits_for_its_end(
    still: nnburst.Device, way: str
) -> None:
    with ExitStack() as stack:
        model: nnburst.PreparedModel | nnburst.CompiledModel
        if way == "prepared":
            model = stack.enter_context(still.prepare(accumulating()))
        else:
            device = DriverDevice(lambda: connect_to("reference"), name="own")
            manager = stack.enter_context(Manager([device]))
            model = stack.enter_context(nnburst.compile(accumulating(), ["own"], manager=manager))
        stateful = stack.enter_context(model.open_burst(states=[SUM])).bind()
        stateful.inputs[0][...] = 1
        stateful.run()
        with standing_still(still if way == "prepared" else device):  # type: ignore[arg-type]
            submitted = stateful.submit()
            submitted.abandon()
            submitted.abandon()
            assert submitted.settled
            with pytest.raises(nnburst.MissedDeadline):
                stateful.run(0.2)
            stateful.reset()
        assert stateful.run().outputs[0].tolist() == [22, 42]
        assert stateful.states["sum"].tolist() == [11, 21]


def test_result_of_a_submission_that_was_abandoned_changes_no_state() -> None:
    with (
        nnburst.compile(accumulating(), ["nnapi-reference"]) as compiled,
        compiled.open_burst(states=[SUM]) as burst,
    ):
        bound = burst.bind()
        bound.inputs[0][...] = 1
        submitted = bound.submit()  # the CPU executes it at once
        submitted.abandon()
        assert bound.states["sum"].tolist() == [10, 20]
        for _ in range(2):
            bound.run()
        with pytest.raises(nnburst.Closed, match="abandoned"):
            submitted.result()
        assert bound.states["sum"].tolist() == [12, 22]
