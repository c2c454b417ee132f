"""Executions that name no burst go from C over one of their thread's own: when, how many, and until when."""

from __future__ import annotations

import ctypes
import gc
import threading
from collections.abc import Callable

import numpy as np
import pytest

from capi.interface import ELEMENTS, Addition, CInterface, SharedTensors, argument
from capi.killed import kill_driver
from interrupting import interrupted_at
from nnburst.capi import cached_requests
from nnburst.capi.native_executions import NATIVE_EXECUTIONS
from nnburst.client.session import own_bursts
from nnburst.hal.enums import Priority, ResultCode
from nnburst.runtime import Manager
from nnburst.runtime.devices.driver_device import DriverPart
from nnburst.runtime.records import ExecutionMode, ExecutionRecord, Record
from waiting import wait_for

PATIENCE = 60.0


def compute_anew(addition: Addition, value: float) -> int:
    return addition.compute_once(value, "compute")


class Own:
    """Bursts of threads of the compilation that an addition has."""

    def __init__(self, addition: Addition) -> None:
        compute_anew(addition, 0)
        self.sizes = NATIVE_EXECUTIONS._sizes[addition.compilation]
        part = self.sizes.executable.parts[0]
        assert isinstance(part, DriverPart)
        self.session = part.session_bursts

    def has_burst(self) -> bool:
        """Whether this thread has one."""
        return self.sizes.own.of_thread().burst is not None

    def open(self) -> int:
        """Bursts that the driver has for threads."""
        gc.collect()
        return len(self.session._bursts)


def warm_up(addition: Addition, anew: Callable[[Addition, float], int] = compute_anew) -> Own:
    """Compute by `anew` until this thread's burst is there and C runs a request of it."""
    own = Own(addition)

    def computes() -> bool:
        assert anew(addition, 1) == 0
        return own.has_burst()

    wait_for(computes)
    for value in range(4):
        assert anew(addition, value) == 0
    return own


@pytest.fixture
def addition(c: CInterface) -> Addition:
    return Addition(c, explicit=True)


def test_the_first_computation_of_a_thread_opens_no_burst_and_the_second_does(
    addition: Addition,
) -> None:
    own = Own(addition)
    assert not own.sizes.own.of_thread().is_wanted
    assert own.open() == 0
    compute_anew(addition, 1)
    wait_for(own.has_burst)
    assert own.open() == 1
    addition.close()


@pytest.mark.parametrize("explicit", [True, False])
def test_executions_made_anew_need_no_python_once_their_thread_has_a_burst(
    c: CInterface, computations: list[str], explicit: bool
) -> None:
    addition = Addition(c, explicit=explicit)
    warm_up(addition)
    computations.clear()
    for value in range(50):
        assert compute_anew(addition, value) == 0
    assert computations == []
    addition.close()


def test_arguments_in_a_shared_memory_are_computed_where_they_are(
    c: CInterface, addition: Addition, computations: list[str]
) -> None:
    shared = SharedTensors(c, 3)
    warm_up(addition)

    def compute(value: float) -> None:
        execution = c.make("Execution_create", addition.compilation)
        for name, index, row in (("Input", 0, 0), ("Input", 1, 1), ("Output", 0, 2)):
            c.call(f"Execution_set{name}FromMemory", execution, *shared.argument(index, row))
        shared.rows[:] = [[value], [1], [-1]]
        c.call("Execution_compute", execution)
        assert shared.rows[2].tolist() == [value + 1] * ELEMENTS
        c.free("Execution", execution)

    for value in range(4):
        compute(value)
    computations.clear()
    for value in range(10):
        compute(value)
    assert computations == []
    shared.free()
    assert compute_anew(addition, 2) == 0
    addition.close()


@pytest.mark.parametrize(
    ("name", "value"),
    [("setTimeout", ctypes.c_uint64(10**10)), ("setMeasureTiming", ctypes.c_bool(True))],
)
def test_what_a_burst_of_c_cannot_carry_opens_none(
    c: CInterface, name: str, value: object, computations: list[str]
) -> None:
    addition = Addition(c, explicit=True, devices=1)
    own = Own(addition)
    computations.clear()
    for number in range(6):
        execution = c.make("Execution_create", addition.compilation)
        addition.set_arguments(execution)
        c.call(f"Execution_{name}", execution, value)
        assert addition._computed(execution, number, "compute") == 0
        c.free("Execution", execution)
    assert computations == ["compute"] * 6
    assert not own.sizes.own.of_thread().is_wanted
    assert own.open() == 0
    addition.close()


def test_compilations_of_several_priorities_compute_over_the_socket(
    c: CInterface, addition: Addition, computations: list[str]
) -> None:
    own = warm_up(addition)
    high = c.make("Compilation_createForDevices", addition.model, *addition_devices(c))
    c.call("Compilation_setPriority", high, ctypes.c_int(110))  # ANEURALNETWORKS_PRIORITY_HIGH
    c.call("Compilation_finish", high)
    assert own.session._are_mixed()
    assert not own.has_burst()
    computations.clear()
    for value in range(6):
        assert compute_anew(addition, value) == 0
    assert computations == ["compute"] * 6
    wait_for(lambda: not own.sizes.own.of_thread().is_wanted)
    assert own.open() == 0
    c.free("Compilation", high)
    addition.close()


def addition_devices(c: CInterface) -> tuple[object, ctypes.c_uint32]:
    """The driver alone, as an array, and their count."""
    device = c.make("_getDevice", ctypes.c_uint32(0))
    return (ctypes.c_void_p * 1)(device), ctypes.c_uint32(1)


def test_a_burst_that_is_used_stays_and_one_that_is_not_is_given_up(
    c: CInterface, monkeypatch: pytest.MonkeyPatch, computations: list[str]
) -> None:
    looks: list[None] = []
    release = own_bursts._Registry._release_unused

    def look(self: own_bursts._Registry[object]) -> None:
        looks.append(None)
        release(self)

    monkeypatch.setattr(own_bursts, "_LOOK", 0.02)
    monkeypatch.setattr(own_bursts._Registry, "_release_unused", look)
    addition = Addition(c, explicit=True)
    own = warm_up(addition)
    wait_for(lambda: own.open() == 0)
    assert not own.has_burst()
    warm_up(addition)
    computations.clear()
    looks.clear()

    def go_on() -> bool:
        assert compute_anew(addition, 3) == 0
        return len(looks) >= 3

    monkeypatch.setattr(own_bursts, "_LOOK", 0.5)
    wait_for(go_on)
    assert own.has_burst()
    addition.close()


@pytest.mark.campaign
def test_a_thousand_short_threads_leave_no_burst(
    c: CInterface, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_bursts, "_LOOK", 0.05)
    addition = Addition(c, explicit=True)
    own = Own(addition)
    wrong: list[object] = []

    def run(number: int) -> None:
        x, y = np.full(ELEMENTS, number, np.float32), np.zeros(ELEMENTS, np.float32)
        for _ in range(3):
            code = compute_arrays(c, addition, x, y)
            if code or y.tolist() != (2 * x).tolist():
                wrong.append((code, y.tolist()))

    for turn in range(100):
        threads = [threading.Thread(target=run, args=(turn + n,)) for n in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
    assert wrong == []
    wait_for(lambda: own.open() == 0)
    addition.close()


def compute_arrays(
    c: CInterface, addition: Addition, x: np.ndarray[int, np.dtype[np.float32]], y: object
) -> int:
    """The code of y = x + x by an execution of its own."""
    execution = c.make("Execution_create", addition.compilation)
    for index in range(2):
        c.call("Execution_setInput", execution, *argument(index, x))
    c.call("Execution_setOutput", execution, *argument(0, y))  # type: ignore[arg-type]
    code = c.code("Execution_compute", execution)
    c.free("Execution", execution)
    return code


def test_threads_have_bursts_up_to_a_number_and_all_compute_right(
    c: CInterface, addition: Addition
) -> None:
    own = Own(addition)
    barrier = threading.Barrier(own_bursts.MOST_THREADS + 4)
    wrong: list[object] = []

    def run(number: int) -> None:
        y = np.zeros(ELEMENTS, np.float32)
        barrier.wait(PATIENCE)
        for turn in range(60):
            x = np.full(ELEMENTS, 100 * number + turn, np.float32)
            if compute_arrays(c, addition, x, y) or y.tolist() != (2 * x).tolist():
                wrong.append(y.tolist())
        barrier.wait(PATIENCE)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(barrier.parties)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert wrong == []
    assert own.open() <= own_bursts.MOST_THREADS
    addition.close()


def test_a_killed_driver_is_a_dead_object_once_and_then_computes_by_the_socket_and_a_new_burst(
    addition: Addition, computations: list[str]
) -> None:
    own = warm_up(addition)
    kill_driver()
    assert compute_anew(addition, 7) == ResultCode.DEAD_OBJECT
    assert not own.has_burst()
    computations.clear()
    assert compute_anew(addition, 8) == 0
    assert computations == ["compute"]
    warm_up(addition)
    addition.close()


def test_a_killed_driver_is_not_noticed_if_devices_were_not_asked_for(c: CInterface) -> None:
    addition = Addition(c, explicit=False)
    warm_up(addition)
    kill_driver()
    for value in range(8):
        assert compute_anew(addition, value) == 0
    addition.close()


def test_records_name_the_call_that_computed(addition: Addition) -> None:
    records: list[Record] = []
    manager = Manager.of_process()
    manager.records.callback = records.append
    for value in range(4):  # nothing goes from C while there are records
        assert compute_anew(addition, value) == 0
    manager.records.callback = None
    warm_up(addition)
    manager.records.callback = records.append
    kill_driver()
    assert compute_anew(addition, 5) == ResultCode.DEAD_OBJECT  # what C began, Python finishes
    modes = [record.mode for record in records if isinstance(record, ExecutionRecord)]
    assert modes == [ExecutionMode.SYNC] * 5
    addition.close()


def test_an_execution_outlives_its_compilation_and_is_refused_as_before(
    c: CInterface, addition: Addition
) -> None:
    own = warm_up(addition)
    execution = c.make("Execution_create", addition.compilation)
    addition.set_arguments(execution)
    addition.close()
    assert c.code("Execution_compute", execution) != 0
    c.free("Execution", execution)
    assert own.open() == 0
    assert not own.has_burst()


def test_a_computation_that_a_freed_compilation_ends_answers_while_other_threads_compute(
    c: CInterface,
) -> None:
    wrong: list[object] = []
    for _ in range(5):
        addition = Addition(c, explicit=True)
        warm_up(addition)
        started = threading.Event()

        def run(addition: Addition = addition, started: threading.Event = started) -> None:
            x, y = np.ones(ELEMENTS, np.float32), np.zeros(ELEMENTS, np.float32)
            for turn in range(200):
                if turn == 20:
                    started.set()
                room = ctypes.c_void_p()
                if c.code("Execution_create", addition.compilation, ctypes.byref(room)):
                    return  # it was freed
                assert room.value is not None
                for index in range(2):
                    c.call("Execution_setInput", room.value, *argument(index, x))
                c.call("Execution_setOutput", room.value, *argument(0, y))
                y[:] = -1
                code = c.code("Execution_compute", room.value)
                if code == 0 and y.tolist() != [2] * ELEMENTS:
                    wrong.append(y.tolist())
                c.free("Execution", room.value)

        thread = threading.Thread(target=run)
        thread.start()
        assert started.wait(PATIENCE)
        addition.close()
        thread.join(PATIENCE)
        assert not thread.is_alive()
        assert wrong == []


def test_a_priority_that_comes_while_threads_compute_spoils_no_result(c: CInterface) -> None:
    addition = Addition(c, explicit=True)
    own = warm_up(addition)
    is_over = threading.Event()
    wrong: list[object] = []

    def run(number: int) -> None:
        x, y = np.full(ELEMENTS, number, np.float32), np.zeros(ELEMENTS, np.float32)
        while not is_over.is_set():
            y[:] = -1
            code = compute_arrays(c, addition, x, y)
            if code or y.tolist() != (2 * x).tolist():
                wrong.append((code, y.tolist()))

    threads = [threading.Thread(target=run, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        note = own.session.note_priority(Priority.HIGH)
        own.sizes.own.users.release()
        del note
        threading.Event().wait(0.01)
    is_over.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert wrong == []
    addition.close()


def test_an_execution_computed_by_c_answers_as_any(c: CInterface, addition: Addition) -> None:
    warm_up(addition)
    execution = c.make("Execution_create", addition.compilation)
    addition.set_arguments(execution)
    addition.a[:] = 41
    c.call("Execution_compute", execution)
    assert addition.y.tolist() == [42] * ELEMENTS
    number, zero = ctypes.c_uint32(), ctypes.c_int32(0)
    c.call("Execution_getOutputOperandDimensions", execution, zero, ctypes.byref(number))
    assert number.value == ELEMENTS
    assert c.code("Execution_compute", execution) == ResultCode.BAD_STATE
    c.free("Execution", execution)
    addition.close()


# An exception that a handler raises within a callback of C's is lost: cffi reports it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_burst_whose_end_was_interrupted_anywhere_is_ended_by_the_next_call(
    addition: Addition,
) -> None:
    own = warm_up(addition)
    mine, known = own.sizes.own.of_thread(), len(NATIVE_EXECUTIONS._by_address)

    def end() -> None:
        mine.burst = None

    places = 0
    while interrupted_at(places + 1, end):
        places += 1
        end()
        assert not own.has_burst()
        warm_up(addition)
        assert len(NATIVE_EXECUTIONS._by_address) == known, places
    assert places > own_bursts.MOST_THREADS
    addition.close()


# -- started computations ----------------------------------------------------------------------------


@pytest.fixture
def always_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make all executions count as quick on any machine, and keep bursts over any pause."""
    monkeypatch.setattr(cached_requests, "QUICK_NS", 10**18)
    monkeypatch.setattr(cached_requests, "PROMISING_NS", 2**64 - 1)
    monkeypatch.setattr(own_bursts, "_LOOK", 3600.0)


def started(addition: Addition, value: float, *behind: int) -> tuple[int, int]:
    """The execution and the event of y = `value` + 1, started; behind events by their dependencies."""
    c = addition.c
    addition.a[:], addition.b[:], addition.y[:] = value, 1, -1
    execution = c.make("Execution_create", addition.compilation)
    addition.set_arguments(execution)
    if not behind:
        return execution, c.make("Execution_startCompute", execution)
    events = [event for event in behind if event]
    words = (ctypes.c_void_p * len(events))(*events), ctypes.c_uint32(len(events)), NO_LIMIT
    return execution, c.make("Execution_startComputeWithDependencies", execution, *words)


NO_LIMIT = ctypes.c_uint64(0)
BEHIND_NOTHING = 0


def start_anew(addition: Addition, value: float, *behind: int) -> int:
    """The code of y = `value` + 1 by an execution made, started, waited for and freed."""
    execution, event = started(addition, value, *behind)
    code = addition.c.code("Event_wait", event)
    assert code or addition.y.tolist() == [value + 1] * ELEMENTS
    addition.c.free("Event", event)
    addition.c.free("Execution", execution)
    return code


@pytest.mark.usefixtures("always_quick")
@pytest.mark.parametrize("explicit", [True, False])
def test_executions_started_anew_need_no_python_once_their_thread_has_a_burst(
    c: CInterface, python_calls: list[str], explicit: bool
) -> None:
    addition = Addition(c, explicit=explicit)
    warm_up(addition, start_anew)
    python_calls.clear()
    for value in range(20):
        assert start_anew(addition, value) == 0
        assert start_anew(addition, value, BEHIND_NOTHING) == 0
    first, event = started(addition, 1)
    assert start_anew(addition, 2, event, event) == 0
    c.free("Event", event)
    c.free("Execution", first)
    assert python_calls == []
    addition.close()


@pytest.mark.usefixtures("always_quick")
def test_an_event_of_c_answers_as_any(addition: Addition, c: CInterface) -> None:
    warm_up(addition, start_anew)
    execution, event = started(addition, 3)
    for _ in range(2):
        c.call("Event_wait", event)
    fd = ctypes.c_int(7)
    assert c.code("Event_getSyncFenceFd", event, ctypes.byref(fd)) == ResultCode.BAD_DATA
    assert fd.value == -1
    c.call("Event_wait", event)  # which Python has now
    assert start_anew(addition, 4, event) == 0
    assert c.code("Execution_compute", execution) == ResultCode.BAD_STATE
    c.free("Event", event)
    c.free("Execution", execution)
    assert c.code("Event_wait", event) == ResultCode.BAD_DATA
    c.free("Event", event)  # nothing
    room = ctypes.c_void_p(5)
    unset = c.make("Execution_create", addition.compilation)
    assert c.code("Execution_startCompute", unset, ctypes.byref(room)) == ResultCode.BAD_DATA
    assert room.value is None
    c.free("Execution", unset)
    addition.close()


@pytest.mark.usefixtures("always_quick")
def test_a_started_computation_that_lies_in_memories_has_a_fence_of_python(
    c: CInterface, addition: Addition, python_calls: list[str]
) -> None:
    warm_up(addition, start_anew)
    shared = SharedTensors(c, 3)
    for value in range(5):
        python_calls.clear()
        shared.rows[:] = [[value], [1], [-1]]
        execution = c.make("Execution_create", addition.compilation)
        for name, index, row in (("Input", 0, 0), ("Input", 1, 1), ("Output", 0, 2)):
            c.call(f"Execution_set{name}FromMemory", execution, *shared.argument(index, row))
        none = None, ctypes.c_uint32(0), NO_LIMIT
        event = c.make("Execution_startComputeWithDependencies", execution, *none)
        assert "Execution_startComputeWithDependencies" in python_calls
        c.call("Event_wait", event)
        assert shared.rows[2].tolist() == [value + 1] * ELEMENTS
        c.free("Event", event)
        c.free("Execution", execution)
    shared.free()
    addition.close()


@pytest.mark.parametrize("explicit", [False, True])
def test_an_event_may_be_freed_before_what_depends_on_it_is_waited_for(
    c: CInterface, explicit: bool
) -> None:
    addition = Addition(c, explicit=explicit)
    shared = SharedTensors(c, 4)
    shared.rows[:] = [[1], [2], [-1], [-1]]
    executions: list[int] = []
    events: list[int] = []
    for rows in ((0, 1, 2), (2, 1, 3)):
        execution = c.make("Execution_create", addition.compilation)
        for name, index, row in zip(("Input", "Input", "Output"), (0, 1, 0), rows, strict=True):
            c.call(f"Execution_set{name}FromMemory", execution, *shared.argument(index, row))
        words = (ctypes.c_void_p * len(events))(*events), ctypes.c_uint32(len(events)), NO_LIMIT
        events.append(c.make("Execution_startComputeWithDependencies", execution, *words))
        executions.append(execution)
    for event in events:
        for _ in range(2):
            c.call("Event_wait", event)
        c.free("Event", event)
    assert shared.rows[3].tolist() == [5] * ELEMENTS
    for execution in executions:
        rank = ctypes.c_uint32(7)
        c.call("Execution_getOutputOperandRank", execution, ctypes.c_int32(0), ctypes.byref(rank))
        assert rank.value == 1
        c.free("Execution", execution)
        assert c.code("Execution_compute", execution) == ResultCode.BAD_DATA, "it is not freed"
    shared.free()
    addition.close()


@pytest.mark.parametrize("what", ["QUICK_NS", "PROMISING_NS"])
@pytest.mark.usefixtures("always_quick")
def test_a_computation_that_is_not_quick_is_started_on_a_thread_of_its_own(
    c: CInterface, monkeypatch: pytest.MonkeyPatch, python_calls: list[str], what: str
) -> None:
    monkeypatch.setattr(cached_requests, what, 1)  # nanosecond
    addition = Addition(c, explicit=True)
    warm_up(addition, start_anew)
    for value in range(10):
        assert start_anew(addition, value) == 0
    python_calls.clear()
    assert start_anew(addition, 5) == 0
    assert "Execution_startCompute" in python_calls
    addition.close()


@pytest.mark.usefixtures("always_quick")
def test_a_started_computation_reports_a_killed_driver_by_its_event(
    addition: Addition, c: CInterface
) -> None:
    records: list[Record] = []
    own = warm_up(addition, start_anew)
    Manager.of_process().records.callback = records.append
    kill_driver()
    assert start_anew(addition, 7) == ResultCode.DEAD_OBJECT
    assert [r.mode for r in records if isinstance(r, ExecutionRecord)] == [ExecutionMode.ASYNC]
    Manager.of_process().records.callback = None
    assert not own.has_burst()
    assert start_anew(addition, 8) == 0
    warm_up(addition, start_anew)
    kill_driver()
    assert start_anew(addition, 9, BEHIND_NOTHING) == ResultCode.DEAD_OBJECT
    addition.close()
