"""Several requests of a plan run at once: in order, with right results and a time for each."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

import numpy as np
import pytest

import nnburst
from client.burst_helpers import standing_still
from descriptors import descriptors
from interrupting import interrupted_at, threads_that_start
from nnburst import BoundRequest, BurstBusy, ExecutionResult, MissedDeadline
from nnburst.client.session.gate import leave
from nnburst.hal.errors import Closed, DeadObject, InvalidArgument, ResourceExhausted
from nnburst.runtime import Manager
from nnburst.runtime.execution import pipeline
from runtime.computing_device import ComputingDevice
from runtime.half_drivers import two_halves
from runtime.test_bound_plans import BOTH, X, chain
from waiting import wait_for


@pytest.fixture(scope="module")
def drivers() -> Iterator[Manager]:
    with two_halves() as manager:
        yield manager


@pytest.mark.parametrize("most", [1, 2, 3])
@pytest.mark.parametrize("steps", [1, 2, 5])
def test_results_come_in_order_and_are_each_its_own(
    drivers: Manager, most: int, steps: int
) -> None:
    with (
        nnburst.compile(chain(steps=steps), BOTH, manager=drivers) as compiled,
        compiled.open_burst(max_in_flight=most) as burst,
    ):
        requests = [burst.bind() for _ in range(most)]
        out = []
        for round_ in range(30):
            request = requests[round_ % most]
            if len(out) == most:
                value, pending, taken = out.pop(0)
                expected = np.full_like(X, value)
                for step in range(steps):
                    expected = expected * value if step % 2 else expected + value
                assert pending.result().outputs[0] is taken
                assert taken.tolist() == expected.tolist()
            request.inputs[0].fill(round_ % 7)
            out.append((round_ % 7, request.submit(), request.outputs[0]))
        for _, pending, _ in out:
            pending.result()
        assert requests[0].run().outputs[0].shape == X.shape, "the burst is free again"


def test_while_one_is_on_its_second_step_the_next_is_on_its_first(drivers: Manager) -> None:
    with (
        nnburst.compile(chain(), BOTH, manager=drivers) as compiled,
        compiled.open_burst(max_in_flight=2) as burst,
    ):
        requests = [burst.bind(), burst.bind()]
        for request in requests:
            request.inputs[0][...] = X
            request.run()
        first_part = burst._bursts.of_parts[0]._burst.ring  # type: ignore[union-attr]
        before = first_part.statistics()["executions"]
        with standing_still(drivers.device("second")):  # type: ignore[arg-type]
            pending = [request.submit() for request in requests]
            while first_part.statistics()["executions"] < before + 2:
                assert requests[1].in_flight
            with pytest.raises(BurstBusy, match="under way"):
                requests[0].submit()
            with pytest.raises(BurstBusy, match="as many as agreed"):
                burst.bind().submit()
            with pytest.raises(BurstBusy):
                requests[0].run()
            with pytest.raises(BurstBusy, match="a request that was submitted is under way"):
                burst.bind().run()
            with pytest.raises(BurstBusy, match="a request that was submitted is under way"):
                burst.execute([X])
            with pytest.raises(MissedDeadline):
                pending[0].result(0.01)
        assert [p.result(60).outputs[0].tolist() for p in pending] == [(2 * X * X).tolist()] * 2


NEXT: Final[dict[str, Callable[[nnburst.Burst, BoundRequest], Awaitable[ExecutionResult]]]] = {
    "run": lambda _, request: asyncio.to_thread(request.run, 60),
    "run again": lambda _, request: asyncio.to_thread(request.run),
    "run of another": lambda burst, _: asyncio.to_thread(bound_like(burst).run),
    "run_async": lambda _, request: request.run_async(60),
    "execute": lambda burst, _: asyncio.to_thread(burst.execute, [X]),
}


def bound_like(burst: nnburst.Burst) -> BoundRequest:
    request = burst.bind()
    request.inputs[0][...] = X
    return request


@pytest.mark.parametrize("how", NEXT)
def test_a_cancelled_run_is_waited_for_and_dropped_by_the_next(drivers: Manager, how: str) -> None:
    async def main(burst: nnburst.Burst) -> None:
        request = bound_like(burst)
        request.run()
        with standing_still(drivers.device("second")):  # type: ignore[arg-type]
            task = asyncio.create_task(request.run_async())
            await asyncio.sleep(0)
            assert request.in_flight
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            following = asyncio.ensure_future(NEXT[how](burst, request))
            done, _ = await asyncio.wait([following], timeout=0.05)
            assert not done
        assert (await following).outputs[0].tolist() == (2 * X * X).tolist()
        with standing_still(drivers.device("second")):  # type: ignore[arg-type]
            request.submit().abandon()
            with pytest.raises(MissedDeadline):
                request.run(0.01)

    with (
        nnburst.compile(chain(), BOTH, manager=drivers) as compiled,
        compiled.open_burst() as burst,
    ):
        asyncio.run(main(burst))


def test_a_run_goes_on_if_an_abandoned_one_ends_between_its_refusal_and_the_look_for_it(
    drivers: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        nnburst.compile(chain(), BOTH, manager=drivers) as compiled,
        compiled.open_burst() as burst,
    ):
        request = bound_like(burst)
        request.run()
        look = burst._wait_for_abandoned  # type: ignore[attr-defined]

        def late_look(call: object) -> bool:
            os.kill(pid, signal.SIGCONT)
            wait_for(lambda: not burst._pipeline.under_way)  # type: ignore[attr-defined]
            return bool(look(call))

        pid = drivers.device("second").pid  # type: ignore[attr-defined]
        with standing_still(drivers.device("second")):  # type: ignore[arg-type]
            request.submit().abandon()
            monkeypatch.setattr(burst, "_wait_for_abandoned", late_look)
            assert request.run().outputs[0].tolist() == (2 * X * X).tolist()


@pytest.mark.parametrize("how", [*NEXT, "submit"])
@pytest.mark.parametrize("is_late", [False, True])
def test_a_run_on_a_thread_that_no_task_awaits_any_more_is_waited_for_and_dropped_by_the_next(
    how: str, is_late: bool
) -> None:
    device = ComputingDevice("adder", lambda _operation, _model: True)
    began, may_end = threading.Event(), threading.Event()

    def slowly(_model: nnburst.Model) -> None:
        began.set()
        assert may_end.wait(60)

    async def main(burst: nnburst.Burst) -> None:
        request = bound_like(burst)
        request.run()
        assert not request.is_bound  # type: ignore[attr-defined]
        device.on_execute = slowly
        if is_late:
            with pytest.raises(MissedDeadline):
                await request.run_async(0.2)
        else:
            task = asyncio.create_task(request.run_async())
            await asyncio.to_thread(began.wait, 60)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        next_ways = {**NEXT, "submit": submitted}
        following = asyncio.ensure_future(next_ways[how](burst, request))
        done, _ = await asyncio.wait([following], timeout=0.05)
        may_end.set()
        assert not done
        assert (await following).outputs[0].tolist() == (2 * X * X).tolist()

    with (
        Manager([device]) as manager,
        nnburst.compile(chain(), manager=manager) as compiled,
        compiled.open_burst() as burst,
    ):
        asyncio.run(main(burst))


def submitted(_burst: nnburst.Burst, request: BoundRequest) -> Awaitable[ExecutionResult]:
    return asyncio.to_thread(lambda: request.submit(60).result(60))


def test_tasks_that_run_bound_and_other_requests_of_a_burst_wait_for_their_turns(
    drivers: Manager,
) -> None:
    async def main(requests: list[BoundRequest]) -> None:
        for round_ in range(20):
            turned = requests[round_ % 3 :] + requests[: round_ % 3]
            for result in await asyncio.gather(*[request.run_async(60) for request in turned]):
                assert result.outputs[0].tolist() == (2 * X * X).tolist()

    with (
        nnburst.compile(chain(), BOTH, manager=drivers) as compiled,
        compiled.open_burst() as burst,
    ):
        measured = burst.bind(measure=True)  # which is executed step by step
        measured.inputs[0][...] = X
        asyncio.run(main([bound_like(burst), measured, bound_like(burst)]))


def test_the_burst_is_free_before_anyone_learns_of_the_result(drivers: Manager) -> None:
    with (
        nnburst.compile(chain(), BOTH, manager=drivers) as compiled,
        compiled.open_burst() as burst,
    ):
        request = bound_like(burst)
        was_free: list[bool] = []
        with standing_still(drivers.device("second")):  # type: ignore[arg-type]
            pending = request.submit(60)
            waiting = pending._request.settled_callbacks  # type: ignore[attr-defined]
            waiting.append(lambda: was_free.append(burst._pipeline.has_room))  # type: ignore[attr-defined]
        assert pending.result(60).outputs[0].tolist() == (2 * X * X).tolist()
        wait_for(lambda: was_free)
        assert was_free == [True]


def test_the_gate_is_open_before_no_request_is_under_way(
    drivers: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[int] = []

    def look(struct: Any, me: int) -> None:
        left.append(len(burst._pipeline.under_way))  # type: ignore[attr-defined]
        leave(struct, me)

    with (
        nnburst.compile(chain(), BOTH, manager=drivers) as compiled,
        compiled.open_burst() as burst,
    ):
        request = bound_like(burst)
        monkeypatch.setattr(pipeline, "leave", look)
        for _ in range(2):
            request.submit(60).result(60)
        assert left == [1, 1]
        assert burst.execute([X]).outputs[0].tolist() == (2 * X * X).tolist()


@pytest.mark.parametrize("explicit", [False, True])
def test_a_request_that_fails_is_the_only_one(drivers: Manager, explicit: bool) -> None:
    with (
        nnburst.compile(chain(), BOTH if explicit else None, manager=drivers) as compiled,
        compiled.open_burst(max_in_flight=2) as burst,
    ):
        slow, quick = burst.bind(), burst.bind()
        for request in (slow, quick):
            request.inputs[0][...] = X
            request.run()
        with standing_still(drivers.device("first")):  # type: ignore[arg-type]
            pending = slow.submit(0.3)
            with pytest.raises(MissedDeadline):
                pending.result(60)
        for request in (quick, slow, quick):
            assert request.submit(60).result(60).outputs[0].tolist() == (2 * X * X).tolist()


@pytest.mark.parametrize("explicit", [False, True])
def test_a_driver_that_dies_costs_only_what_was_under_way(drivers: Manager, explicit: bool) -> None:
    with (
        nnburst.compile(chain(), BOTH if explicit else None, manager=drivers) as compiled,
        compiled.open_burst(max_in_flight=2) as burst,
    ):
        requests = [burst.bind(), burst.bind()]
        os.kill(drivers.device("second").pid, signal.SIGKILL)  # type: ignore[attr-defined]
        for round_ in range(40):
            request = requests[round_ % 2]
            request.inputs[0][...] = X
            try:
                assert request.submit(60).result(60).outputs[0].tolist() == (2 * X * X).tolist()
            except DeadObject:
                assert explicit
        assert request.submit(60).result(60).outputs[0].tolist() == (2 * X * X).tolist()


def threads_of_steps() -> list[str]:
    """Those that run: `enumerate` also lists one whose start was interrupted before it began."""
    threads = [thread for thread in threading.enumerate() if thread.is_alive()]
    return [thread.name for thread in threads if thread.name.startswith("nnburst step")]


@pytest.mark.parametrize("number", [0, 1])
def test_a_submission_without_threads_leaves_all_as_it_was(drivers: Manager, number: int) -> None:
    with nnburst.compile(chain(), BOTH, manager=drivers) as compiled:
        with compiled.open_burst(max_in_flight=2) as burst:
            request = burst.bind()
            request.inputs[0][...] = X
            for _ in range(2):
                with threads_that_start(number), pytest.raises(ResourceExhausted, match="thread"):
                    request.submit()
                number = 0
                assert not request.in_flight
            assert burst.execute([X]).outputs[0].tolist() == (2 * X * X).tolist()
            for _ in range(3):
                assert request.submit().result().outputs[0].tolist() == (2 * X * X).tolist()
        assert not threads_of_steps()


# A finalizer that a handler interrupts cannot pass the exception on: Python reports it and goes on.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_submission_that_is_interrupted_anywhere_leaves_the_burst_usable(
    drivers: Manager,
) -> None:
    number, interrupted = 0, True
    with nnburst.compile(chain(), BOTH, manager=drivers) as compiled:
        while interrupted:
            number += 1
            with compiled.open_burst(max_in_flight=2) as burst:
                requests = [burst.bind(), burst.bind()]
                for request in requests:
                    request.inputs[0][...] = X
                interrupted = interrupted_at(number, requests[0].submit)
                if interrupted:  # no caller has what may be under way, so the next run waits for it
                    assert requests[0].run(60).outputs[0].tolist() == (2 * X * X).tolist()
                wait_for(lambda: not requests[0].in_flight)  # noqa: B023 - called here
                wait_for(lambda: not burst._pipeline._under_way)
                pending = [request.submit() for request in requests]
                for one in pending:
                    assert one.result().outputs[0].tolist() == (2 * X * X).tolist()
            assert not threads_of_steps()
    assert number > 30


def test_a_burst_that_is_closed_ends_what_is_under_way(drivers: Manager) -> None:
    with nnburst.compile(chain(), BOTH, manager=drivers) as compiled:
        burst = compiled.open_burst(max_in_flight=2)
        request = burst.bind()
        request.run()
        with standing_still(drivers.device("second")):  # type: ignore[arg-type]
            pending = request.submit(60)
            began = time.monotonic()
            burst.close()
            assert time.monotonic() - began < 25  # a driver that stands still is not waited for
            with pytest.raises(Closed):
                pending.result(60)
        with pytest.raises(Closed):
            request.submit()
        with pytest.raises(InvalidArgument, match="max_in_flight"):
            compiled.open_burst(max_in_flight=0)


@pytest.mark.parametrize("collects", [True, False])
def test_a_burst_that_is_collected_after_a_submission_gives_everything_back(
    drivers: Manager, collects: bool
) -> None:
    gc.collect()
    before, threads = descriptors(), set(threading.enumerate())
    with nnburst.compile(chain(), BOTH, manager=drivers) as compiled:
        burst = compiled.open_burst(max_in_flight=2)
        for request in (burst.bind(), burst.bind()):
            pending = request.submit()
            if collects:
                pending.result()
        reference = weakref.ref(burst)
        del burst, request, pending
        wait_for(lambda: gc.collect() is not None and reference() is None)
        wait_for(lambda: threads.issuperset(threading.enumerate()))
    wait_for(lambda: gc.collect() is not None and descriptors() <= before)


def test_a_task_that_waits_for_its_turn_ends_when_the_burst_is_closed(
    drivers: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main(burst: nnburst.Burst) -> None:
        task = asyncio.create_task(bound_like(burst).run_async(10))
        await asyncio.sleep(0.05)
        burst.close()
        with pytest.raises(Closed):
            await task

    monkeypatch.setattr(pipeline.Pipeline, "has_room", property(lambda _: False))
    with (
        nnburst.compile(chain(), BOTH, manager=drivers) as compiled,
        compiled.open_burst() as burst,
    ):
        asyncio.run(main(burst))
