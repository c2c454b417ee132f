"""One interface of bursts: each way to open one has each ability, or refuses it by the argument's name."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import nnburst
from client.burst_helpers import SUM, State, accumulating
from nnburst.runtime import Manager
from nnburst.runtime.devices.driver_device import DriverDevice
from shared_drivers import connect_to

PATIENCE = 60.0
ONES = np.ones(2, np.float32)

Open = Callable[..., nnburst.Burst]


@dataclass
class Roads:
    """For each way to open a burst, a function that opens one, and one that kills the driver behind it."""

    of: dict[str, Open]
    devices: dict[str, nnburst.Device]

    def kill(self, road: str) -> None:
        """Kill the driver and wait until the client has noticed."""
        device, noticed = self.devices[road], threading.Event()
        device.on_death(noticed.set)
        os.kill(device.pid, signal.SIGKILL)
        assert noticed.wait(PATIENCE)


@pytest.fixture(scope="module")
def roads() -> Iterator[Roads]:
    with ExitStack() as stack:
        plain = stack.enter_context(connect_to("reference"))
        recovering = stack.enter_context(connect_to("reference", recover=True))
        on_cpu = stack.enter_context(nnburst.compile(accumulating(), ["nnapi-reference"]))
        driver = DriverDevice(lambda: connect_to("reference"), name="reference")
        manager = stack.enter_context(Manager([driver]))
        on_driver = nnburst.compile(accumulating(), ["reference"], manager=manager)
        stack.enter_context(on_driver)
        prepared = stack.enter_context(plain.prepare(accumulating()))
        again = stack.enter_context(recovering.prepare(accumulating()))
        yield Roads(
            {
                "driver": prepared.open_burst,
                "recovering driver": again.open_burst,
                "plan": on_driver.open_burst,
                "plan on the CPU": on_cpu.open_burst,
            },
            {"driver": plain, "recovering driver": recovering, "plan": driver._driver},
        )


ROADS = ("driver", "recovering driver", "plan", "plan on the CPU")


def run_once(burst: nnburst.Burst, **options: Any) -> Any:
    bound = burst.bind(**options)
    bound.inputs[0][...] = 1
    return bound.run(PATIENCE)


def check_sums(outputs: Any, runs: int = 1) -> None:
    """The outputs after so many runs on ones, from the initial state."""
    assert outputs[0].tolist() == [2 * (10 + runs), 2 * (20 + runs)]


def bind(burst: nnburst.Burst) -> None:
    check_sums(run_once(burst).outputs)


def execute(burst: nnburst.Burst) -> None:
    check_sums(burst.execute([ONES], timeout=PATIENCE).outputs)
    check_sums(burst.execute([ONES], [np.empty(2, np.float32)]).outputs, 2)
    check_sums(burst.execute([ONES], copy=False).outputs, 3)


def function(burst: nnburst.Burst) -> None:
    work = burst.function(timeout=PATIENCE)
    for runs in range(1, 4):
        check_sums(work(ONES), runs)
    work.reset()
    check_sums(burst.function([ONES], copy=True)(ONES))


def measure(burst: nnburst.Burst, *, is_timed: bool) -> None:
    times = run_once(burst, measure=True).timing, burst.execute([ONES], measure=True).timing
    assert all(timing.measured == is_timed for timing in times)


def run_async(burst: nnburst.Burst) -> None:
    async def main() -> None:
        bound = burst.bind()
        bound.inputs[0][...] = 1
        for runs in range(1, 4):
            check_sums((await bound.run_async(PATIENCE)).outputs, runs)

    asyncio.run(main())


def submit(burst: nnburst.Burst) -> None:
    bound = burst.bind()
    bound.inputs[0][...] = 1
    for runs in range(1, 4):
        submitted = bound.submit(PATIENCE)
        check_sums(submitted.result(PATIENCE).outputs, runs)
        assert submitted.settled
        submitted.abandon()
        check_sums(submitted.result().outputs, runs)


def submit_and_await(burst: nnburst.Burst) -> None:
    async def main() -> None:
        bound = burst.bind()
        bound.inputs[0][...] = 1
        check_sums((await bound.submit().result_async(PATIENCE)).outputs)

    asyncio.run(main())


def max_in_flight(burst: nnburst.Burst) -> None:
    assert burst.max_in_flight == 3
    streams = [burst.bind() for _ in range(3)]
    for runs in range(1, 4):
        for stream in streams:
            stream.inputs[0][...] = 1
        for submitted in [stream.submit() for stream in streams]:
            check_sums(submitted.result(PATIENCE).outputs, runs)


def states(burst: nnburst.Burst) -> None:
    bound = burst.bind()
    bound.inputs[0][...] = 1
    for runs in range(1, 4):
        check_sums(bound.run(PATIENCE).outputs, runs)
        assert bound.states["sum"].tolist() == [10 + runs, 20 + runs]
    bound.reset()
    check_sums(bound.run(PATIENCE).outputs)
    bound.states["sum"][...] = 0
    assert bound.run(PATIENCE).outputs[0].tolist() == [2, 2]
    burst.execute([ONES])
    assert burst.states["sum"].tolist() == [11, 21]
    burst.reset()
    assert burst.states["sum"].tolist() == [10, 20]


def parameters(burst: nnburst.Burst) -> None:
    assert [p.dimensions for p in burst.inputs] == [(2,)]
    assert [p.dimensions for p in burst.outputs] == [(2,)]
    assert burst.is_alive
    assert isinstance(burst.statistics(), dict)


def closing(burst: nnburst.Burst) -> None:
    bound, work = burst.bind(), burst.function()
    burst.close()
    burst.close()
    assert not burst.is_alive
    for use in (bound.run, bound.submit, lambda: burst.execute([ONES]), lambda: work(ONES)):
        with pytest.raises(nnburst.Closed):
            use()


ABILITIES = (
    bind,
    execute,
    function,
    run_async,
    submit,
    submit_and_await,
    max_in_flight,
    states,
    parameters,
    closing,
)


@pytest.mark.parametrize("ability", ABILITIES, ids=lambda ability: ability.__name__)
@pytest.mark.parametrize("road", ROADS)
def test_each_road_has_each_ability(
    roads: Roads, road: str, ability: Callable[[nnburst.Burst], None]
) -> None:
    with roads.of[road](states=[SUM], max_in_flight=3) as burst:
        assert isinstance(burst, nnburst.Burst)
        ability(burst)


@pytest.mark.parametrize("road", ROADS)
def test_each_road_times_executions_but_that_of_the_cpu(roads: Roads, road: str) -> None:
    with roads.of[road](states=[SUM]) as burst:
        measure(burst, is_timed=road != "plan on the CPU")


@pytest.mark.parametrize("recover", [True, "wait", "raise", False])
@pytest.mark.parametrize("road", ROADS)
def test_recovery_that_a_road_has_not_is_refused_by_name(
    roads: Roads, road: str, recover: Any
) -> None:
    refused = {("plan", False), ("plan on the CPU", False)}
    refused |= {("driver", word) for word in (True, "wait", "raise")}
    if (road, recover) in refused:
        with pytest.raises(nnburst.InvalidArgument, match="recover: "):
            roads.of[road](recover=recover)
        return
    with roads.of[road](recover=recover, states=[SUM]) as burst:
        check_sums(run_once(burst).outputs)


@pytest.mark.parametrize("road", ROADS)
def test_word_for_recovery_that_does_not_exist_is_refused(roads: Roads, road: str) -> None:
    with pytest.raises(nnburst.InvalidArgument, match="recover: 'soon', expected True"):
        roads.of[road](recover="soon")


@pytest.mark.parametrize("road", ROADS)
def test_impossible_states_are_refused_when_a_burst_is_opened(roads: Roads, road: str) -> None:
    doubles = State("sum", 1, 1, np.float64([10, 20]))
    with pytest.raises(nnburst.InvalidArgument, match="states: 'sum' begins with an array of"):
        roads.of[road](states=[doubles])
    with pytest.raises(nnburst.InvalidArgument, match="states: input indexes are"):
        roads.of[road](states=[SUM, SUM])


def test_roads_have_the_same_signatures() -> None:
    from nnburst.client.burst.burst import RingBurst
    from nnburst.client.burst.recovering import RecoveringBurst
    from nnburst.client.burst.states import StatefulBurst
    from nnburst.runtime.compiled_burst import CompiledBurst

    for kind in (RingBurst, RecoveringBurst, StatefulBurst, CompiledBurst):
        for name in ("bind", "execute", "function"):
            wanted = getattr(nnburst.Burst, name).__annotations__.keys()
            assert list(getattr(kind, name).__annotations__) == list(wanted), (kind, name)
        assert not kind.__abstractmethods__


# -- a death in the middle -------------------------------------------------------------------------


def until_result(run: Callable[[], Any]) -> tuple[Any, int]:
    """A result, and how many errors came before it."""
    deadline, errors = time.monotonic() + PATIENCE, 0
    while True:
        try:
            return run(), errors
        except nnburst.DeadObject:
            errors += 1
            assert time.monotonic() < deadline
            time.sleep(0.005)


@pytest.mark.every_day("plan-await", "recovering driver-bound")
@pytest.mark.parametrize("way", ["bound", "execute", "function", "await", "submit"])
@pytest.mark.parametrize("road", ["recovering driver", "plan"])
def test_state_goes_on_after_a_death(roads: Roads, road: str, way: str) -> None:
    device = roads.devices[road]
    with roads.of[road](states=[SUM]) as burst:
        bound, work = burst.bind(), burst.function()
        bound.inputs[0][...] = 1
        run: Callable[[], Any] = {
            "bound": lambda: bound.run(PATIENCE).outputs,
            "execute": lambda: burst.execute([ONES]).outputs,
            "function": lambda: work(ONES),
            "await": lambda: asyncio.run(bound.run_async(PATIENCE)).outputs,
            "submit": lambda: bound.submit(PATIENCE).result(PATIENCE).outputs,
        }[way]
        runs = 0
        for deaths in range(2):
            before = device.recoveries
            for _ in range(3):
                runs += 1
                check_sums(run(), runs)
            roads.kill(road)
            runs += 1
            check_sums(until_result(run)[0], runs)
            assert device.recoveries == before + 1, deaths


def test_submission_whose_result_was_not_taken_counts_for_the_state(roads: Roads) -> None:
    with roads.of["driver"](states=[SUM], max_in_flight=2) as burst:
        first, second = burst.bind(), burst.bind()
        first.inputs[0][...] = second.inputs[0][...] = 1
        forgotten = first.submit()
        second.submit().result(PATIENCE)  # collects the one before it
        check_sums(first.run(PATIENCE).outputs, 2)
        check_sums(forgotten.result().outputs, 2)  # the same arrays, as every result's are
        with pytest.raises(nnburst.BurstBusy):
            first.submit()
            _ = first.states


def test_abandoned_submission_leaves_the_state(roads: Roads) -> None:
    with roads.of["driver"](states=[SUM]) as burst:
        bound = burst.bind()
        bound.inputs[0][...] = 1
        submitted = bound.submit()
        submitted.abandon()
        deadline = time.monotonic() + PATIENCE
        while bound.in_flight:
            assert time.monotonic() < deadline
            submitted.abandon()
        check_sums(bound.run(PATIENCE).outputs)


def test_call_that_does_not_wait_raises_at_once(roads: Roads) -> None:
    device = roads.devices["recovering driver"]
    with roads.of["recovering driver"](recover="raise") as burst:
        bound = burst.bind()
        bound.run(PATIENCE)
        roads.kill("recovering driver")
        with pytest.raises(nnburst.DeadObject, match="is being made again"):
            bound.run(PATIENCE)
        with pytest.raises(nnburst.DeadObject, match="is being made again"):
            asyncio.run(bound.run_async(PATIENCE))
        _, errors = until_result(lambda: bound.run(PATIENCE))
        assert errors
        assert device.is_alive


def test_burst_without_recovery_ends_with_its_driver(roads: Roads) -> None:
    with roads.of["recovering driver"](recover=False) as burst:
        bound = burst.bind()
        bound.run(PATIENCE)
        roads.kill("recovering driver")
        roads.of["recovering driver"]().close()  # waits for the next driver
        with pytest.raises(nnburst.DeadObject):
            bound.run(PATIENCE)
