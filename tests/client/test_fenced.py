"""Fenced executions: when they begin, what they report, and what becomes of them."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import signal
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nnburst
from client.burst_helpers import copy_model, held_by, launched_in_time, standing_still
from client.conftest import add_model
from client.scripted_driver import ScriptedDriver
from descriptors import descriptors
from nnburst import (
    Closed,
    DeadObject,
    Device,
    ErrorStatus,
    GeneralFailure,
    InvalidArgument,
    MissedDeadline,
    PreparedModel,
)
from nnburst.client.device import allocate_buffer
from nnburst.client.execution.fenced_execution import FencedExecution
from nnburst.client.execution.sync_fence import SyncFence
from nnburst.client.hal import execute_fenced
from nnburst.control.channel import Fds
from nnburst.control.fences import FenceStatus
from nnburst.control.messages import ExecuteFenced, Fenced
from nnburst.control.service import Answer
from nnburst.driver.calls import HANDLERS
from nnburst.driver.calls.fenced_execution import execute_fenced as answer_fenced
from nnburst.driver.client_session import ClientSession
from nnburst.testing.faults.footprint import footprint, settle
from waiting import wait_for

HANG = 20.0
X = np.array([1, -2], np.float32)
Y = [1.0, 0.0]  # RELU of it


def output(fenced: FencedExecution) -> list[float]:
    return fenced.result(HANG).outputs[0].tolist()  # type: ignore[no-any-return]


def test_without_fences_it_begins_at_once(relu: PreparedModel) -> None:
    fenced = execute_fenced(relu, [X])
    assert fenced.fence.wait(HANG) == FenceStatus.SIGNALLED
    assert fenced.done()
    assert output(fenced) == Y
    assert fenced.result() is fenced.result()
    assert fenced.result().output_shapes[0].dimensions == (2,)


def test_a_driver_that_stops_behind_its_fence_keeps_no_result_waiting(
    still: Device, relu: PreparedModel
) -> None:
    fenced = execute_fenced(relu, [X])
    assert fenced.fence.wait(HANG) == FenceStatus.SIGNALLED
    with standing_still(still):
        began = time.monotonic()
        with pytest.raises(MissedDeadline):
            fenced.result(0.01)
        assert time.monotonic() - began < 0.9, "it had a second more, whatever its timeout"
    assert output(fenced) == Y


def test_it_begins_when_the_last_fence_signals_and_not_before(relu: PreparedModel) -> None:
    memory = relu._prepared.session.allocate(16)
    x, y = memory.array(np.float32, (2,)), memory.array(np.float32, (2,), 8)
    fences, signallers = zip(*(SyncFence.create() for _ in range(3)), strict=True)
    fenced = execute_fenced(relu, [x], [y], wait_for=fences)
    for one in signallers[:2]:
        one.signal()
    with pytest.raises(GeneralFailure, match="F8: the execution is not complete"):
        fenced.info()
    assert not fenced.done()
    x[...] = [7, 8]  # the last fence signals that this is written
    signallers[2].signal()
    assert output(fenced) == [7, 8]
    assert y.tolist() == [7, 8]


def test_fences_are_the_callers_to_close(relu: PreparedModel) -> None:
    fence, signaller = SyncFence.create()
    with fence:
        fenced = execute_fenced(relu, [X], wait_for=[fence, fence])
    signaller.signal()
    assert output(fenced) == Y


def test_executions_are_chained_by_their_fences(relu: PreparedModel) -> None:
    memory = relu._prepared.session.allocate(64)
    arrays = [memory.array(np.float32, (2,), 8 * n) for n in range(5)]
    first, signaller = SyncFence.create()
    fence, chain = first, []
    for source, target in itertools.pairwise(arrays):
        chain.append(execute_fenced(relu, [source], [target], wait_for=[fence]))
        fence = chain[-1].fence
    arrays[0][...] = X
    signaller.signal()
    assert fence.wait(HANG) == FenceStatus.SIGNALLED
    assert arrays[-1].tolist() == Y
    assert all(one.done() for one in chain)


def test_failure_travels_along_a_chain(relu: PreparedModel) -> None:
    first, signaller = SyncFence.create()
    one = execute_fenced(relu, [X], wait_for=[first])
    two = execute_fenced(relu, [X], wait_for=[one.fence])
    signaller.close()  # the signaller has died
    for fenced in (one, two):
        with pytest.raises(GeneralFailure, match="F4: a fence that was waited for"):
            fenced.result(HANG)
        assert fenced.fence.status == FenceStatus.ERROR
        assert fenced.info().status == ErrorStatus.GENERAL_FAILURE


def test_fence_in_the_error_state_is_refused(relu: PreparedModel) -> None:
    fence, signaller = SyncFence.create()
    signaller.fail()
    with pytest.raises(InvalidArgument, match=r"F4: waitFor\[0\]"):
        execute_fenced(relu, [X], wait_for=[fence])


@pytest.mark.parametrize("wait_for", [[None], [3], ["fence"]])
def test_what_is_not_a_fence_is_refused(relu: PreparedModel, wait_for: list[object]) -> None:
    with pytest.raises(InvalidArgument, match=r"wait_for\[0\] is of type"):
        execute_fenced(relu, [X], wait_for=wait_for)  # type: ignore[arg-type]


def test_output_of_unknown_shape_is_refused(still: Device) -> None:
    with (
        still.prepare(add_model((2,), output=(0,))) as prepared,
        pytest.raises(InvalidArgument, match="R10"),
    ):
        execute_fenced(prepared, [X, X])


@pytest.mark.parametrize("duration", [0, -1.0, float("nan")])
def test_duration_must_be_positive(relu: PreparedModel, duration: float) -> None:
    with pytest.raises(InvalidArgument, match="duration"):
        execute_fenced(relu, [X], duration=duration)


def test_deadline_ends_the_wait_for_fences(relu: PreparedModel) -> None:
    fence, signaller = SyncFence.create()
    fenced = launched_in_time(
        lambda timeout: execute_fenced(relu, [X], wait_for=[fence], timeout=timeout)
    )
    assert fenced.fence.wait(HANG) == FenceStatus.ERROR
    with pytest.raises(MissedDeadline, match="F5"):
        fenced.result(HANG)
    assert fenced.info().status == ErrorStatus.MISSED_DEADLINE_TRANSIENT
    signaller.signal()
    assert output(execute_fenced(relu, [X])) == Y


def test_duration_counts_from_the_fences_on(relu: PreparedModel) -> None:
    fence, signaller = SyncFence.create()
    enough = execute_fenced(relu, [X], wait_for=[fence], duration=HANG, timeout=2 * HANG)
    little = execute_fenced(relu, [X], wait_for=[fence], duration=1e-9)
    signaller.signal()
    assert output(enough) == Y
    with pytest.raises(MissedDeadline):
        little.result(HANG)
    assert little.fence.status == FenceStatus.ERROR


def test_measured_execution_is_timed_in_nanoseconds_from_both_moments(relu: PreparedModel) -> None:
    fence, signaller = SyncFence.create()
    fenced = execute_fenced(relu, [X], wait_for=[fence], measure=True)
    signaller.signal()
    result, info = fenced.result(HANG), fenced.info()
    for timing in (info.launched, info.fenced):
        assert timing.time_on_device_ns is not None
        assert timing.time_in_driver_ns is not None
        assert timing.time_on_device_ns <= timing.time_in_driver_ns
    assert info.fenced.time_in_driver_ns <= info.launched.time_in_driver_ns  # type: ignore[operator]
    assert result.timing_ns == info.launched
    assert result.timing.measured
    assert result.timing.time_in_driver == -(-info.launched.time_in_driver_ns // 1000)  # type: ignore[operator]


def test_execution_that_is_not_measured_has_no_timing(relu: PreparedModel) -> None:
    fenced = execute_fenced(relu, [X])
    assert not fenced.result(HANG).timing.measured
    info = fenced.info()
    assert info.launched == info.fenced
    assert info.launched.time_in_driver_ns is None


def test_result_that_is_waited_for_too_shortly_may_be_asked_for_again(
    still: Device, relu: PreparedModel
) -> None:
    fence, signaller = SyncFence.create()
    fenced = execute_fenced(relu, [X], wait_for=[fence])
    with pytest.raises(MissedDeadline, match="did not signal"):
        fenced.result(0.01)
    signaller.signal()
    assert output(fenced) == Y


def test_memory_is_not_touched_after_the_fence(relu: PreparedModel) -> None:
    memory = relu._prepared.session.allocate(16)
    x, y = memory.array(np.float32, (2,)), memory.array(np.float32, (2,), 8)
    x[...] = X
    for number in range(50):
        fenced = execute_fenced(relu, [x], [y])
        assert fenced.fence.wait(HANG) == FenceStatus.SIGNALLED
        y[...] = number
        assert fenced.result(HANG).outputs[0] is y
        assert y.tolist() == [number] * 2


def test_buffers_of_the_driver_are_filled_and_failures_empty_them(relu: PreparedModel) -> None:
    with allocate_buffer(relu._prepared.session, (), [(relu, 0)], (), 30.0) as buffer:
        execute_fenced(relu, [X], [buffer]).result(HANG)
        assert buffer.copy_to().tolist() == Y
        fence, signaller = SyncFence.create()
        fenced = execute_fenced(relu, [X], [buffer], wait_for=[fence])
        signaller.fail()
        with pytest.raises(GeneralFailure):
            fenced.result(HANG)
        with pytest.raises(GeneralFailure):
            buffer.copy_to()


def test_unreferenced_execution_runs_and_signals(relu: PreparedModel) -> None:
    memory = relu._prepared.session.allocate(16)
    x, y = memory.array(np.float32, (2,)), memory.array(np.float32, (2,), 8)
    x[...] = X
    fence, signaller = SyncFence.create()
    own = execute_fenced(relu, [x], [y], wait_for=[fence]).fence
    gc.collect()
    signaller.signal()
    assert own.wait(HANG) == FenceStatus.SIGNALLED
    assert y.tolist() == Y


def test_released_model_is_kept_until_the_execution_is_done(still: Device) -> None:
    fence, signaller = SyncFence.create()
    with still.prepare(copy_model()) as prepared:
        fenced = execute_fenced(prepared, [X], wait_for=[fence])
    signaller.signal()
    assert output(fenced) == Y


def test_closed_execution_refuses_calls_and_costs_nothing(relu_by_socket: PreparedModel) -> None:
    relu = relu_by_socket
    for _ in range(2):  # the second one binds the request, which stays
        relu.execute([X])
    with execute_fenced(relu, [X]) as first:  # and so does a pool that is kept for the next arrays
        first.result(HANG)
    del first
    own, driver = footprint(os.getpid()), held_by(relu._prepared.session)
    fenced = execute_fenced(relu, [X])
    fenced.fence.wait(HANG)
    with fenced:
        pass
    fenced.close()
    for use in (fenced.info, fenced.result):
        with pytest.raises(Closed):
            use()
    with execute_fenced(relu, [X]) as kept:
        kept.result(HANG)
    assert kept.result().outputs[0].tolist() == Y
    relu.execute([X])  # whatever was to be released has been
    gone = weakref.ref(fenced)
    assert "closed" in repr(fenced)
    del fenced, kept, use
    gc.collect()
    assert gone() is None
    relu.execute([X])
    settle(os.getpid(), own, HANG)
    settle(relu._prepared.session.pid, driver, HANG)


def test_too_many_waiting_executions_are_refused_and_the_others_run(still: Device) -> None:
    fence, signaller = SyncFence.create()
    with still.prepare(copy_model()) as prepared:
        waiting = []
        with pytest.raises(nnburst.ResourceExhausted, match="waiting for their fences"):
            for _ in range(2000):
                waiting.append(execute_fenced(prepared, [X], wait_for=[fence]))  # noqa: PERF401
        signaller.signal()
        assert len(waiting) > 100
        assert all(output(fenced) == Y for fenced in waiting)
        assert output(execute_fenced(prepared, [X])) == Y


def test_dead_driver_is_an_error_of_the_fence_and_a_dead_object(own_device: Device) -> None:
    with own_device.prepare(copy_model()) as prepared:
        fence, _signaller = SyncFence.create()
        fenced = execute_fenced(prepared, [X], wait_for=[fence])
        with standing_still(own_device):
            os.kill(own_device.pid, signal.SIGKILL)
            with pytest.raises(DeadObject):
                fenced.result(HANG)
        assert fenced.fence.status == FenceStatus.ERROR
        with pytest.raises(DeadObject):
            execute_fenced(prepared, [X])
        fenced.close()


@pytest.fixture
def lying(
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Callable[[Callable[[], Fds], bool], PreparedModel]]:
    """A model of a driver whose answers to executeFenced are made up."""
    started: list[ScriptedDriver] = []

    def start(fds: Callable[[], Fds], is_done: bool) -> PreparedModel:
        started.append(ScriptedDriver().__enter__())

        def answer(session: ClientSession, call: ExecuteFenced, its: Fds) -> Answer:
            (result, true_fds) = answer_fenced(session, call, its)
            true_fds.close()
            assert isinstance(result, Fenced)
            return Fenced(result.handle, is_done), fds()

        monkeypatch.setitem(HANDLERS, ExecuteFenced, answer)
        return started[-1].device.prepare(copy_model())

    yield start
    for driver in started:
        driver.__exit__(None, None, None)


def test_driver_that_answers_without_a_fence_is_a_general_failure(
    lying: Callable[[Callable[[], Fds], bool], PreparedModel],
) -> None:
    prepared = lying(lambda: Fds([os.open(os.devnull, os.O_RDWR)]), False)
    before = descriptors()
    for _ in range(5):
        with pytest.raises(GeneralFailure, match="a sync fence must be a socket"):
            execute_fenced(prepared, [X])
    gc.collect()  # private memory that must not be used again
    # The driver, which is in this process, has yet to learn of the last releases; its waiter keeps two.
    wait_for(lambda: len(descriptors() - before) <= 2)


def test_driver_that_is_done_already_sends_no_fence(
    lying: Callable[[Callable[[], Fds], bool], PreparedModel],
) -> None:
    fenced = execute_fenced(lying(Fds, True), [X])
    assert fenced.fence.status == FenceStatus.SIGNALLED
    assert fenced.done()
    wait_for(lambda: is_complete(fenced))
    assert len(fenced.result(HANG).outputs) == 1


def is_complete(fenced: FencedExecution) -> bool:
    try:
        return fenced.info().status == ErrorStatus.NONE
    except GeneralFailure:
        return False


@settings(max_examples=30)
@given(
    graph=st.lists(st.sets(st.integers(0, 5), max_size=3), max_size=8),
    order=st.permutations(range(6)),
    broken=st.sets(st.integers(0, 5), max_size=2),
)
def test_any_graph_of_fences_runs_what_can_run_and_fails_the_rest(
    relu: PreparedModel, graph: list[set[int]], order: list[int], broken: set[int]
) -> None:
    pairs = [SyncFence.create() for _ in range(6)]
    fences, fails = [fence for fence, _ in pairs], [n in broken for n in range(6)]
    executions = []
    for waits in graph:  # on sources, and on the executions before it
        mine = [fences[n] for n in waits]
        executions.append(execute_fenced(relu, [X], wait_for=mine))
        fences[len(executions) % 6] = executions[-1].fence
        failed = any(fails[n] for n in waits)
        fails[len(executions) % 6] = failed
        executions[-1].expected = failed  # type: ignore[attr-defined]
    for n in order:
        (pairs[n][1].close if n in broken else pairs[n][1].signal)()
    for fenced in executions:
        wanted = FenceStatus.ERROR if fenced.expected else FenceStatus.SIGNALLED  # type: ignore[attr-defined]
        assert fenced.fence.wait(HANG) == wanted
        if not fenced.expected:  # type: ignore[attr-defined]
            assert output(fenced) == Y


def test_result_is_waited_for_by_each_thread_as_long_as_it_likes(relu: PreparedModel) -> None:
    fence, signaller = SyncFence.create()
    with execute_fenced(relu, [X], wait_for=[fence]) as fenced, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(fenced.result, HANG)
        wait_for(waiting.running)
        with pytest.raises(MissedDeadline):
            fenced.result(0.05)
        assert not waiting.done()
        signaller.signal()
        assert waiting.result(HANG) is fenced.result(HANG)


def test_closing_an_execution_ends_the_waits_for_its_result(relu: PreparedModel) -> None:
    fence, signaller = SyncFence.create()
    fenced = execute_fenced(relu, [X], wait_for=[fence])
    with ThreadPoolExecutor(1) as pool, contextlib.closing(signaller):
        waiting = pool.submit(fenced.result, 10 * HANG)
        wait_for(waiting.running)
        fenced.close()
        with pytest.raises(Closed):
            waiting.result(HANG)
