"""A reusable execution goes from C to the burst after its first computations, and comes back when it must."""

from __future__ import annotations

import ctypes
import gc
import threading
import time
import weakref

import pytest

from capi.interface import Addition, CInterface
from capi.killed import kill_driver
from nnburst.capi.native_executions import FAST_PATH
from nnburst.hal.enums import ResultCode
from nnburst.runtime.execution.bound_plan import BoundPlan


@pytest.mark.parametrize("way", ["burstCompute", "compute"])
def test_after_two_computations_no_python_is_called(
    c: CInterface, computations: list[str], way: str
) -> None:
    addition = Addition(c, explicit=False)
    for value in range(50):
        assert addition.compute(value, way) == 0
    first = "burst_compute" if way == "burstCompute" else "compute"
    assert computations == [first, "_compute_bound"]
    addition.close()


def test_both_ways_take_turns(c: CInterface) -> None:
    addition = Addition(c, explicit=True)
    for value in range(20):
        assert addition.compute(value, ("burstCompute", "compute")[value % 2]) == 0
    addition.close()


def test_a_killed_driver_is_a_dead_object_if_it_was_asked_for(c: CInterface) -> None:
    addition = Addition(c, explicit=True)
    for value in range(5):
        assert addition.compute(value) == 0
    kill_driver()
    assert addition.compute(7) == ResultCode.DEAD_OBJECT
    for value in range(5):
        assert addition.compute(value) == 0
    addition.close()


def test_a_killed_driver_is_not_noticed_if_devices_were_not_asked_for(c: CInterface) -> None:
    addition = Addition(c, explicit=False)
    for value in range(5):
        assert addition.compute(value) == 0
    kill_driver()
    for value in range(5):
        assert addition.compute(value) == 0
    addition.close()


@pytest.mark.parametrize("way", ["burstCompute", "compute"])
def test_an_execution_keeps_nothing_of_the_drivers_that_died(c: CInterface, way: str) -> None:
    addition = Addition(c, explicit=True)
    bound: list[weakref.ref[BoundPlan]] = []
    for _ in range(3):
        for value in range(4):
            assert addition.compute(value, way) == 0
        bound.append(weakref.ref(FAST_PATH._latest[addition.execution].bound))
        kill_driver()
        assert addition.compute(7, way) == ResultCode.DEAD_OBJECT
    assert addition.compute(8, way) == 0
    gc.collect()
    assert [reference() for reference in bound] == [None] * 3
    addition.close()


def test_of_two_threads_each_computes_or_is_refused(c: CInterface) -> None:
    addition = Addition(c, explicit=True)
    for value in range(3):
        assert addition.compute(value) == 0
    codes: list[int] = []

    def compute() -> None:
        for _ in range(200):
            args = (addition.execution, addition.burst)
            codes.append(c.code("Execution_burstCompute", *args))

    threads = [threading.Thread(target=compute) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(codes) <= {ResultCode.NO_ERROR, ResultCode.BAD_STATE}
    assert ResultCode.NO_ERROR in codes
    addition.close()


def test_a_freed_burst_is_refused(c: CInterface) -> None:
    addition = Addition(c, explicit=True)
    for value in range(3):
        assert addition.compute(value) == 0
    c.free("Burst", addition.burst)
    assert addition.compute(1) == ResultCode.BAD_DATA
    assert addition.compute(1, "compute") == 0
    addition.close()


def test_executions_of_a_burst_share_its_new_driver(c: CInterface) -> None:
    addition = Addition(c, explicit=True)
    other = c.make("Execution_create", addition.compilation)
    c.call("Execution_setReusable", other, ctypes.c_bool(True))
    addition.set_arguments(other)
    first = addition.execution
    for value in range(4):
        for addition.execution in (first, other):
            assert addition.compute(value) == 0
    kill_driver()
    addition.execution = first
    assert addition.compute(7) == ResultCode.DEAD_OBJECT
    assert addition.compute(8) == 0
    addition.execution = other
    for value in range(4):  # the driver that it computed on last was replaced before it computes
        assert addition.compute(value) == 0
    c.free("Execution", first)
    addition.close()


def test_an_execution_that_c_computes_answers_no_other_call(c: CInterface) -> None:
    addition = Addition(c, explicit=True)
    for value in range(3):
        assert addition.compute(value) == 0
    is_over = threading.Event()

    def compute() -> None:
        while not is_over.is_set():
            c.code("Execution_burstCompute", addition.execution, addition.burst)

    thread = threading.Thread(target=compute)
    thread.start()
    zero, rank = ctypes.c_int32(0), ctypes.byref(ctypes.c_uint32())
    codes: set[int] = set()
    until = time.monotonic() + 60
    while ResultCode.BAD_STATE not in codes and time.monotonic() < until:
        codes.add(c.code("Execution_getOutputOperandRank", addition.execution, zero, rank))
    is_over.set()
    thread.join()
    assert codes - {ResultCode.NO_ERROR} == {ResultCode.BAD_STATE}
    assert addition.compute(5) == 0
    addition.close()
