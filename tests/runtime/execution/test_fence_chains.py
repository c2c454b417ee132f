"""Computations behind fences, over plans of several steps and several compilations."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator

import numpy as np
import pytest

from client.burst_helpers import standing_still
from descriptors import descriptors
from interrupting import Interruption, interrupted_at
from nnburst import DeadObject, GeneralFailure
from nnburst.control.fences import FenceStatus
from nnburst.hal import SyncFence
from nnburst.hal.enums import DurationCode, OperationType
from nnburst.runtime import Compilation, Event, Execution, Manager, Memory
from nnburst.runtime.argument import Outcome
from nnburst.runtime.execution.fences import FenceChain
from nnburst.runtime.objects.execution_settings import State
from nnburst.runtime.objects.fenced import FencedComputation
from runtime.building import Built, bad_state, finished, op_failed
from runtime.half_drivers import two_halves
from waiting import wait_for

X = np.array([1.0, 2.0], np.float32)
BYTES = X.nbytes


@pytest.fixture
def drivers() -> Iterator[Manager]:
    with two_halves() as manager:
        yield manager


def chain(manager: Manager, *, explicit: bool = True) -> Compilation:
    """(x + x) * x: "first" adds, "second" multiplies."""
    built = Built()
    x, s, y = (built.tensor(2) for _ in range(3))
    built.add(x, x, s)
    built.add(s, x, y, OperationType.MUL)
    devices = [manager.device("first"), manager.device("second")] if explicit else None
    return finished(built.finish([x], [y]), devices, manager)


def one_step(manager: Manager, kind: OperationType, *, explicit: bool = True) -> Compilation:
    """x + x, or x * x."""
    built = Built()
    x, y = built.tensor(2), built.tensor(2)
    built.add(x, x, y, kind)
    name = "first" if kind == OperationType.ADD else "second"
    return finished(built.finish([x], [y]), [manager.device(name)] if explicit else None, manager)


def memory(content: np.ndarray | None = None) -> Memory:
    found = Memory.allocate(BYTES)
    found.bytes[...] = 0 if content is None else content.view(np.uint8)
    return found


def floats_of(memory: Memory) -> list[float]:
    return [float(value) for value in memory.bytes.view(np.float32)]


def ready(compilation: Compilation, source: Memory, target: Memory) -> Execution:
    execution = compilation.execution()
    execution.set_input_from_memory(0, source, 0, BYTES)
    execution.set_output_from_memory(0, target, 0, BYTES)
    return execution


def status(event: Event) -> FenceStatus:
    assert event.fence is not None
    return event.fence.status


@pytest.mark.parametrize("explicit", [False, True])
def test_steps_of_a_plan_wait_for_each_other_by_fences(drivers: Manager, explicit: bool) -> None:
    x, y = memory(X), memory()
    execution = ready(chain(drivers, explicit=explicit), x, y)
    gate, signaller = SyncFence.create()
    event = execution.start_after([Event.from_sync_fence(gate.fileno())])
    assert status(event) == FenceStatus.ACTIVE
    with bad_state():
        execution.output_dimensions(0)
    with standing_still(drivers.device("second")):  # type: ignore[arg-type]
        signaller.signal()
        assert status(event) == FenceStatus.ACTIVE  # the second step cannot end
    event.wait()
    event.wait()
    assert status(event) == FenceStatus.SIGNALLED
    assert floats_of(y) == [2.0, 8.0]
    assert execution.output_dimensions(0) == (2,)
    descriptor = event.sync_fence()
    os.close(descriptor)


def test_an_event_is_a_dependency_of_another_compilations_execution(drivers: Manager) -> None:
    x, s, y, z = memory(X), memory(), memory(), memory()
    gate, signaller = SyncFence.create()
    events = [Event.from_sync_fence(gate.fileno())]
    plans = [
        one_step(drivers, OperationType.ADD),
        chain(drivers),
        one_step(drivers, OperationType.MUL),
    ]
    for plan, source, target in zip(plans, (x, s, y), (s, y, z), strict=True):
        events.append(ready(plan, source, target).start_after([events[-1]]))
    assert [status(event) for event in events] == [FenceStatus.ACTIVE] * 4
    assert floats_of(z) == [0.0, 0.0]
    signaller.signal()
    events[-1].wait()  # the others have ended before, without that anything waited for them
    assert floats_of(z) == [float((2 * (2 * v) * (2 * v)) ** 2) for v in X]
    for event in events:
        event.wait()


def test_a_reusable_execution_computes_again_behind_fences(drivers: Manager) -> None:
    x, y = memory(X), memory()
    execution = ready(chain(drivers), x, y)
    execution.reusable = True
    for factor in (1.0, 2.0, 3.0):
        x.bytes.view(np.float32)[...] = X * factor
        event = execution.start_after([])
        with bad_state():
            execution.start_after([])
        event.wait()
        assert floats_of(y) == [float(v) for v in 2 * (X * factor) ** 2]


@pytest.mark.parametrize("explicit", [False, True])
def test_a_dependency_that_fails_makes_the_chain_behind_it_fail(
    drivers: Manager, explicit: bool
) -> None:
    gate, signaller = SyncFence.create()
    x, s, y = memory(X), memory(), memory()
    adding = one_step(drivers, OperationType.ADD, explicit=explicit)
    first = ready(adding, x, s).start_after([Event.from_sync_fence(gate.fileno())])
    second = ready(chain(drivers, explicit=explicit), s, y).start_after([first])
    signaller.fail()
    for event in (second, first, second):
        with op_failed():
            event.wait()
        assert status(event) == FenceStatus.ERROR
    with op_failed():  # one that is in the error state already
        ready(adding, x, s).start_after([first])


@pytest.mark.parametrize("explicit", [False, True])
def test_a_dependency_may_be_closed_before_what_depends_on_it_is_waited_for(
    drivers: Manager, explicit: bool
) -> None:
    gate, signaller = SyncFence.create()
    outside = Event.from_sync_fence(gate.fileno())
    x, s, y = memory(X), memory(), memory()
    adding = ready(one_step(drivers, OperationType.ADD, explicit=explicit), x, s)
    multiplying = ready(chain(drivers, explicit=explicit), s, y)
    first = adding.start_after([outside])
    second = multiplying.start_after([first])
    signaller.signal()
    gate.close()
    for done in (outside, first):
        done.wait()
        done.close()
    for _ in range(2):
        second.wait()
    assert floats_of(y) == [float(2 * (2 * v) * (2 * v)) for v in X]
    assert multiplying.output_dimensions(0) == (2,)
    second.close()
    for execution in (adding, multiplying):
        execution.close()
        assert execution.closed


def test_a_computation_behind_fences_leaves_no_descriptor(drivers: Manager) -> None:
    x, y = memory(X), memory()
    execution = ready(chain(drivers), x, y)
    execution.reusable = True
    for round_ in range(4):
        gate, signaller = SyncFence.create()
        outside = Event.from_sync_fence(gate.fileno())
        event = execution.start_after([outside] * 3)
        signaller.signal()
        for each in (gate, outside, event):
            each.close()
        gc.collect()
        if round_ == 0:
            before = descriptors()
    assert descriptors() <= before
    assert floats_of(y) == [2.0, 8.0]


def test_the_cpu_stands_in_behind_a_dependency_that_was_closed(drivers: Manager) -> None:
    gate, signaller = SyncFence.create()
    outside = Event.from_sync_fence(gate.fileno())
    x, y = memory(X), memory()
    event = ready(chain(drivers, explicit=False), x, y).start_after([outside])
    os.kill(drivers.device("second").pid, signal.SIGKILL)  # type: ignore[attr-defined]
    signaller.signal()
    outside.wait()
    outside.close()
    event.wait()
    assert floats_of(y) == [2.0, 8.0]


@pytest.mark.parametrize("error", [GeneralFailure("on purpose"), ValueError("on purpose")])
def test_a_computation_is_completed_even_if_its_end_raises(
    drivers: Manager, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(self: FenceChain, deadline_ns: int | None) -> Outcome:
        raise error

    x, y = memory(X), memory()
    execution = ready(chain(drivers), x, y)
    event = execution.start_after([])
    monkeypatch.setattr(FenceChain, "settle", fail)
    with pytest.raises(type(error), match="on purpose"):
        event.wait()
    with pytest.raises(GeneralFailure):
        event.wait()
    event.close()
    execution.close()
    assert execution.closed


def test_a_computation_whose_wait_is_interrupted_anywhere_ends(drivers: Manager) -> None:
    number, interrupted = 0, True
    x, y = memory(X), memory()
    execution = ready(chain(drivers, explicit=False), x, y)
    execution.reusable = True
    while interrupted:
        number += 1
        event = execution.start_after([])
        wait_for(lambda: status(event) == FenceStatus.SIGNALLED)  # noqa: B023 - called here
        interrupted = interrupted_at(number, event.wait)
        event.close()
        assert execution._state == State.COMPLETED
    assert number > 20
    assert floats_of(y) == [2.0, 8.0]


def test_a_computation_that_is_interrupted_before_its_end_keeps_no_descriptor(
    drivers: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_computation: FencedComputation) -> Outcome:
        raise Interruption

    x, y = memory(X), memory()
    execution = ready(chain(drivers), x, y)
    execution.reusable = True
    execution.start_after([]).close()
    gc.collect()
    before = descriptors()
    event = execution.start_after([])
    wait_for(lambda: status(event) == FenceStatus.SIGNALLED)
    monkeypatch.setattr(FencedComputation, "conclude", interrupt)
    with pytest.raises(Interruption):
        event.wait()
    assert event.fence is not None
    event.fence.close()
    assert descriptors() <= before, "the event still exists"


@pytest.mark.every_day("False-first", "True-second")
@pytest.mark.parametrize("victim", ["first", "second"])
@pytest.mark.parametrize("explicit", [False, True])
def test_a_driver_that_dies_behind_a_fence_fails_in_wait(
    drivers: Manager, victim: str, explicit: bool
) -> None:
    gate, signaller = SyncFence.create()
    x, y = memory(X), memory()
    execution = ready(chain(drivers, explicit=explicit), x, y)
    execution.reusable = True
    event = execution.start_after([Event.from_sync_fence(gate.fileno())])
    os.kill(drivers.device(victim).pid, signal.SIGKILL)  # type: ignore[attr-defined]
    signaller.signal()
    if explicit:
        with pytest.raises(DeadObject):
            event.wait()
    else:
        event.wait()  # the CPU stands in
        assert floats_of(y) == [2.0, 8.0]
    y.bytes[...] = 0
    execution.start_after([]).wait()  # by the driver that comes after it
    assert floats_of(y) == [2.0, 8.0]


def test_a_deadline_ends_the_wait_for_a_chain(drivers: Manager) -> None:
    x, y = memory(X), memory()
    for explicit in (True, False):
        gate, _signaller = SyncFence.create()
        execution = ready(chain(drivers, explicit=explicit), x, y)
        execution.limit(1.0)  # enough to start on a busy machine
        event = execution.start_after([Event.from_sync_fence(gate.fileno())])
        with pytest.raises(
            TimeoutError
        ):  # the inputs may never be there: the CPU does not stand in
            event.wait()


def test_arguments_elsewhere_are_computed_within_the_call(drivers: Manager) -> None:
    x, s, out = memory(X), memory(), np.zeros(2, np.float32)
    first = ready(one_step(drivers, OperationType.ADD), x, s).start_after([])
    execution = chain(drivers).execution()
    execution.set_input_from_memory(0, s, 0, BYTES)
    execution.set_output(0, out)
    event = execution.start_after([first])
    assert event.fence is None
    assert out.tolist() == [8.0, 32.0]
    event.wait()
    first.wait()


def test_a_duration_ends_a_computation_whose_device_waits_for_no_fence(drivers: Manager) -> None:
    built = Built()
    x, y = built.tensor(2), built.tensor(2)
    built.add(x, x, y)
    model, source, out = built.finish([x], [y]), memory(X), np.zeros(2, np.float32)
    for device in (drivers.device("first"), drivers.cpu):
        compilation = finished(model, [device], drivers)
        for duration, limit in ((1e-9, None), (1e-9, 60.0), (60.0, 1e-9)):
            execution = compilation.execution()
            execution.set_input_from_memory(0, source, 0, BYTES)
            execution.set_output(0, out)
            execution.timeout = limit
            with pytest.raises(TimeoutError):
                execution.start_after([], duration=duration)
        execution = compilation.execution()
        execution.set_input_from_memory(0, source, 0, BYTES)
        execution.set_output(0, out)
        execution.start_after([], duration=60.0).wait()
        assert out.tolist() == [2.0, 4.0]
    with pytest.raises(TimeoutError):  # the CPU as a step of a chain
        ready(compilation, source, memory()).start_after([], duration=1e-9)


def test_a_step_on_the_cpu_waits_within_the_call(drivers: Manager) -> None:
    built = Built()
    x, s, y = (built.tensor(2) for _ in range(3))
    built.add(x, x, s)
    built.add(s, x, y, OperationType.SUB)
    source, target = memory(X), memory()
    compilation = finished(built.finish([x], [y]), None, drivers)
    event = ready(compilation, source, target).start_after([])
    assert event.fence is None
    assert floats_of(target) == [1.0, 2.0]
    event.wait()


def test_a_fenced_computation_is_timed_from_its_fences_on(drivers: Manager) -> None:
    gate, signaller = SyncFence.create()
    x, y = memory(X), memory()
    execution = ready(one_step(drivers, OperationType.ADD), x, y)
    execution.measure_timing = True
    event = execution.start_after([Event.from_sync_fence(gate.fileno())], duration=60.0)
    with bad_state():
        execution.duration(DurationCode.IN_DRIVER)
    signaller.signal()
    event.wait()
    launched = execution.duration(DurationCode.IN_DRIVER)
    fenced = execution.duration(DurationCode.FENCED_IN_DRIVER)
    assert launched is not None
    assert fenced is not None
    assert 0 <= fenced <= launched
