"""Execution objects: validated once, run again and again, one run at a time."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import threading
import weakref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client.burst_helpers import copy_model, held_by, launched_in_time, standing_still
from client.conftest import add_model
from nnburst import (
    BurstBusy,
    Closed,
    DeadObject,
    Device,
    GeneralFailure,
    InvalidArgument,
    MissedDeadline,
    OutputInsufficientSize,
    PreparedModel,
)
from nnburst.client.device import allocate_buffer
from nnburst.client.hal import create_reusable_execution
from nnburst.control.fences import FenceStatus
from nnburst.hal import FencedExecution, ReusableExecution, SyncFence
from nnburst.testing.faults.footprint import footprint, settle
from waiting import wait_for

HANG = 20.0


def test_each_run_takes_what_its_arrays_hold_then(relu: PreparedModel) -> None:
    memory = relu._prepared.session.allocate(16)
    pooled, output = memory.array(np.float32, (2,)), memory.array(np.float32, (2,), 8)
    private = np.zeros(2, np.float32)
    with (
        create_reusable_execution(relu, [pooled], [output]) as one,
        create_reusable_execution(relu, [private]) as other,
    ):
        results = []
        for number in range(20):
            pooled[:], private[:] = number, -number
            assert one.run().outputs[0] is output
            assert output.tolist() == [number] * 2
            results.append(other.run().outputs[0])
            private[:] = number
            assert other.run().outputs[0].tolist() == [number] * 2
        assert all(result.tolist() == [0, 0] for result in results)  # copies of their own


def test_memory_is_mapped_once(relu: PreparedModel) -> None:
    memory = relu._prepared.session.allocate(16)
    pooled = memory.array(np.float32, (2,))
    with create_reusable_execution(relu, [pooled]) as execution:
        execution.run()
        before = held_by(relu._prepared.session)
        for _ in range(50):
            execution.run()
        settle(relu._prepared.session.pid, before, HANG)
        memory.close()  # the driver has its own mapping
        pooled[:] = 3
        assert execution.run().outputs[0].tolist() == [3, 3]


def test_request_is_validated_when_it_is_created(relu: PreparedModel) -> None:
    with pytest.raises(InvalidArgument, match="inputs"):
        create_reusable_execution(relu, [])
    with pytest.raises(InvalidArgument, match="dtype"):
        create_reusable_execution(relu, [np.zeros(2, np.int32)])
    with pytest.raises(InvalidArgument, match="timeout"):
        create_reusable_execution(relu, [np.zeros(2, np.float32)], timeout=0)


def test_measured_runs_are_timed_in_nanoseconds(relu: PreparedModel) -> None:
    x = np.zeros(2, np.float32)
    with create_reusable_execution(relu, [x], measure=True) as execution:
        result = execution.run()
        assert result.timing_ns is not None
        device, driver = result.timing_ns.time_on_device_ns, result.timing_ns.time_in_driver_ns
        assert device is not None
        assert driver is not None
        assert device <= driver
        assert result.timing.time_in_driver == -(-driver // 1000)
    with create_reusable_execution(relu, [x]) as execution:
        result = execution.run()
        assert not result.timing.measured
        assert result.timing_ns is not None
        assert result.timing_ns.time_in_driver_ns is None


def test_output_of_open_shape_has_the_room_that_it_was_given(still: Device) -> None:
    x = np.ones((3,), np.float32)
    with still.prepare(add_model((0,), output=(0,))) as prepared:
        small, large = np.zeros(2, np.float32), np.zeros(8, np.float32)
        with create_reusable_execution(prepared, [x, x], [large]) as execution:
            assert execution.run().outputs[0].tolist() == [2, 2, 2]
            with pytest.raises(InvalidArgument, match="R10"):
                execution.run_fenced()
        with create_reusable_execution(prepared, [x, x], [small]) as execution:
            for _ in range(2):
                with pytest.raises(OutputInsufficientSize) as raised:
                    execution.run()
                assert raised.value.output_shapes[0].dimensions == (3,)


def test_second_run_at_the_same_time_is_refused(still: Device, relu: PreparedModel) -> None:
    x = np.ones(2, np.float32)
    with create_reusable_execution(relu, [x]) as execution:
        results = []
        with standing_still(still):
            thread = threading.Thread(target=lambda: results.append(execution.run()))
            thread.start()
            wait_for(lambda: bool(execution._under_way))
            for call in (execution.run, execution.run_fenced):
                with pytest.raises(BurstBusy, match="one run at a time"):
                    call()
        thread.join(HANG)
        assert results[0].outputs[0].tolist() == [1, 1]
        assert execution.run().outputs[0].tolist() == [1, 1]


def test_fenced_run_keeps_others_out_until_its_fence_signals(relu: PreparedModel) -> None:
    x = np.ones(2, np.float32)
    fence, signaller = SyncFence.create()
    with create_reusable_execution(relu, [x], measure=True) as execution:
        fenced = execution.run_fenced(wait_for=[fence])
        x[:] = 5
        for call in (execution.run, execution.run_fenced):
            with pytest.raises(BurstBusy):
                call()
        signaller.signal()
        assert fenced.fence.wait(HANG) == FenceStatus.SIGNALLED
        assert execution.run().outputs[0].tolist() == [5, 5]
        assert fenced.result().outputs[0].tolist() == [1, 1]
        assert fenced.info().launched.time_in_driver_ns is not None


def test_fenced_run_that_failed_lets_the_next_one_run(relu: PreparedModel) -> None:
    x = np.ones(2, np.float32)
    fence, signaller = SyncFence.create()
    with create_reusable_execution(relu, [x]) as execution:
        fenced = execution.run_fenced(wait_for=[fence])
        signaller.fail()
        assert fenced.fence.wait(HANG) == FenceStatus.ERROR
        assert execution.run().outputs[0].tolist() == [1, 1]
        with pytest.raises(GeneralFailure, match="F4"):
            fenced.result(HANG)
        assert execution.run_fenced(duration=HANG).result(HANG).outputs[0].tolist() == [1, 1]


def test_fenced_run_that_misses_its_deadline_lets_the_next_one_run(relu: PreparedModel) -> None:
    never, _signaller = SyncFence.create()
    with contextlib.ExitStack() as stack:

        def launch(timeout: float) -> tuple[ReusableExecution, FencedExecution]:
            execution = stack.enter_context(
                create_reusable_execution(relu, [np.ones(2, np.float32)])
            )
            return execution, execution.run_fenced(wait_for=[never], timeout=timeout)

        execution, late = launched_in_time(launch)
        with pytest.raises(MissedDeadline):
            late.result(HANG)
        assert execution.run_fenced(duration=HANG).result(HANG).outputs[0].tolist() == [1, 1]


def test_refused_fenced_run_lets_the_next_one_run(relu: PreparedModel) -> None:
    fence, signaller = SyncFence.create()
    signaller.fail()
    with create_reusable_execution(relu, [np.ones(2, np.float32)]) as execution:
        for _ in range(3):
            with pytest.raises(InvalidArgument, match="F4"):
                execution.run_fenced(wait_for=[fence])
        assert execution.run().outputs[0].tolist() == [1, 1]


def test_run_that_misses_its_deadline_leaves_the_object_usable(
    still: Device, relu: PreparedModel
) -> None:
    with create_reusable_execution(relu, [np.ones(2, np.float32)]) as execution:
        with standing_still(still), pytest.raises(MissedDeadline):
            execution.run(0.01)

        def runs() -> bool:
            try:
                return bool(execution.run().outputs[0].tolist() == [1, 1])
            except GeneralFailure:  # the late one is still under way
                return False

        wait_for(runs)


def test_buffers_are_looked_at_with_each_run(relu: PreparedModel) -> None:
    with (
        allocate_buffer(relu._prepared.session, [(relu, 0)], (), (), 30.0) as source,
        allocate_buffer(relu._prepared.session, (), [(relu, 0)], (), 30.0) as target,
        create_reusable_execution(relu, [source], [target]) as execution,
    ):
        with pytest.raises(GeneralFailure):
            execution.run()
        for number in range(3):
            source.copy_from(np.full(2, number, np.float32))
            execution.run()
            assert target.copy_to().tolist() == [number] * 2


def test_released_model_and_closed_pool_are_kept(still: Device) -> None:
    prepared = still.prepare(copy_model())
    execution = create_reusable_execution(prepared, [np.ones(2, np.float32)])
    prepared.close()
    assert execution.run().outputs[0].tolist() == [1, 1]
    execution.close()


def test_closed_object_refuses_calls_and_costs_nothing(relu_by_socket: PreparedModel) -> None:
    relu = relu_by_socket
    x = np.ones(2, np.float32)
    for _ in range(2):  # the second one binds the request, which stays
        relu.execute([x])
    own, driver = footprint(os.getpid()), held_by(relu._prepared.session)
    execution = create_reusable_execution(relu, [x])
    execution.run()
    execution.close()
    execution.close()
    assert "closed" in repr(execution)
    with pytest.raises(Closed):
        execution.run()
    with pytest.raises(Closed):
        execution.run_fenced()
    forgotten = create_reusable_execution(relu, [x])
    gone = weakref.ref(forgotten)
    del forgotten, execution
    gc.collect()
    assert gone() is None
    relu.execute([x])
    settle(os.getpid(), own, HANG)
    settle(relu._prepared.session.pid, driver, HANG)


def test_dead_driver_is_a_dead_object(own_device: Device) -> None:
    with own_device.prepare(copy_model()) as prepared:
        execution = create_reusable_execution(prepared, [np.ones(2, np.float32)])
        fence, _signaller = SyncFence.create()
        fenced = execution.run_fenced(wait_for=[fence])
        os.kill(own_device.pid, signal.SIGKILL)
        with pytest.raises(DeadObject):
            fenced.result(HANG)
        for call in (execution.run, execution.run_fenced):
            with pytest.raises(DeadObject):
                call()
        execution.close()


@settings(max_examples=30)
@given(st.lists(st.sampled_from(["run", "fenced", "signal", "fail", "result"]), max_size=20))
def test_any_order_of_runs_gives_each_its_own_result(relu: PreparedModel, steps: list[str]) -> None:
    x = np.zeros(2, np.float32)
    with create_reusable_execution(relu, [x]) as execution:
        waiting = []
        for number, step in enumerate(steps):
            x[:] = number
            busy = any(not fenced.done() for fenced, _, _ in waiting)
            if step == "run":
                _expect(execution, number, busy)
            elif step == "fenced" and not busy:
                fence, signaller = SyncFence.create()
                waiting.append((execution.run_fenced(wait_for=[fence]), signaller, number))
            elif step in ("signal", "fail") and busy:
                getattr(waiting[-1][1], step)()
                wanted = FenceStatus.SIGNALLED if step == "signal" else FenceStatus.ERROR
                assert waiting[-1][0].fence.wait(HANG) == wanted
            elif step == "result":
                for fenced, _, given_then in waiting:
                    if fenced.done() and fenced.info().status == 0:
                        assert fenced.result(HANG).outputs[0].tolist() == [given_then] * 2
        for _, signaller, _ in waiting:
            signaller.signal()


def _expect(execution: ReusableExecution, number: int, busy: bool) -> None:
    try:
        assert execution.run().outputs[0].tolist() == [number] * 2
        assert not busy
    except BurstBusy:
        assert busy
