"""An execution for each inference stays in C, and is Python's as soon as something else is asked of it."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from capi.interface import ELEMENTS, Addition, CInterface, SharedTensors, argument, tensor_type
from capi.killed import kill_driver
from nnburst.capi import cached_requests
from nnburst.capi.cached_requests import MOST, Placing, placing_of
from nnburst.capi.native_executions import NATIVE_EXECUTIONS, NativeExecutions
from nnburst.client.session import own_bursts
from nnburst.hal.enums import ResultCode
from nnburst.runtime import Execution
from nnburst.runtime.objects.arguments import ArgumentInfo

#: Calls, each with what distinguishes it; the execution comes before.
CALLS = (
    ("setInput", 0, "a"),
    ("setInput", 1, "b"),
    ("setInput", 1, "short"),
    ("setInput", 2, "a"),
    ("setInput", -1, "a"),
    ("setInput", 0, "null"),
    ("setInput", 0, "omitted"),
    ("setInput", 0, "typed a"),
    ("setInput", 0, "longer type of a"),
    ("setInput", 1, "higher b"),
    ("setInput", 0, "open a"),
    ("setOutput", 0, "y"),
    ("setOutput", 0, "typed y"),
    ("setOutput", 0, "long"),
    ("setOutput", 1, "y"),
    ("setInputFromMemory", 0, "row 0"),
    ("setInputFromMemory", 1, "row 1"),
    ("setInputFromMemory", 1, "row 4"),
    ("setInputFromMemory", 1, "row 5"),
    ("setInputFromMemory", 0, "row -1"),
    ("setInputFromMemory", 0, "short row"),
    ("setInputFromMemory", 0, "long row"),
    ("setInputFromMemory", 0, "empty row"),
    ("setInputFromMemory", 0, "staged"),
    ("setInputFromMemory", 0, "no memory"),
    ("setOutputFromMemory", 0, "row 2"),
    ("setOutputFromMemory", 0, "row 3"),
    ("setOutputFromMemory", 0, "staged"),
    ("burstCompute", 0, "burst"),
    ("burstCompute", 0, "foreign"),
    ("burstCompute", 0, "nothing"),
    ("compute", 0, ""),
    ("startCompute", 0, "event"),
    ("getOutputOperandRank", 0, "number"),
    ("getOutputOperandRank", 1, "number"),
    ("getOutputOperandDimensions", 0, "number"),
    ("getDuration", 0, "duration"),
    ("setReusable", 0, ""),
    ("setReusable", 1, ""),
    ("setMeasureTiming", 1, ""),
    ("setTimeout", 10**10, ""),
    ("enableInputAndOutputPadding", 1, ""),
)


#: Arguments of a + b, with their rows of a memory.
ROWS = (("Input", 0, 0), ("Input", 1, 1), ("Output", 0, 2))

#: Bits of a handle that name its slot, which the latest handle to end leaves to the next.
SLOT = 0xFFFFF0


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Execution]:
    """Python's executions, as they are made."""
    found: list[Execution] = []
    init = Execution.__init__

    def note(self: Execution, *args: Any) -> None:
        found.append(self)
        init(self, *args)

    monkeypatch.setattr(Execution, "__init__", note)
    return found


def test_the_third_inference_needs_no_python(
    c: CInterface, made: list[Execution], computations: list[str]
) -> None:
    addition = Addition(c, explicit=False)
    for value in range(50):
        assert addition.compute_once(value) == 0
    # The reusable one, two that Python computed, and one whose first run by the cached request it finished.
    assert len(made) == 4
    assert computations == ["burst_compute", "burst_compute", "_compute_bound"]
    addition.close()


def test_the_third_inference_in_a_shared_memory_needs_no_python(
    c: CInterface, made: list[Execution], computations: list[str]
) -> None:
    addition = Addition(c, explicit=False)
    shared = SharedTensors(c, 6)
    for value in range(50):
        assert addition.compute_shared(shared, value, (0, 1, 2)) == 0
    assert len(made) == 4
    assert computations == ["burst_compute", "burst_compute", "_compute_bound"]
    for value in range(10):  # another part of the memory has a request of its own
        assert addition.compute_shared(shared, value, (5, 4, 3)) == 0
        assert addition.compute_once(value) == 0
    assert len(made) == 10
    shared.free()
    addition.close()


def test_more_parts_of_memories_than_a_burst_has_requests_for_are_computed_right(
    c: CInterface,
) -> None:
    addition = Addition(c, explicit=False)
    shared = SharedTensors(c, 3 * (MOST + 4))
    for turn in range(4):
        for row in range(0, len(shared.rows), 3):
            assert addition.compute_shared(shared, turn + row, (row, row + 1, row + 2)) == 0
    shared.free()
    addition.close()


def test_memories_come_and_go_over_one_burst(
    c: CInterface, computations: list[str], made: list[Execution]
) -> None:
    addition = Addition(c, explicit=True)
    for turn in range(2 * MOST):
        shared = SharedTensors(c, 3)
        for value in range(6):
            assert addition.compute_shared(shared, turn + value, (0, 1, 2)) == 0
        shared.free()
    # Each memory is bound anew at its second inference: nothing of those that were freed is left in its way.
    # Its first two inferences are Python's, and what its third finds new.
    assert len(made) <= 1 + 3 * 2 * MOST
    assert set(computations) == {"burst_compute", "_compute_bound"}
    addition.close()


def test_a_native_execution_whose_memory_was_freed_is_refused_unless_it_has_computed(
    c: CInterface,
) -> None:
    addition = Addition(c, explicit=True)
    shared = SharedTensors(c, 3)
    for value in range(4):
        assert addition.compute_shared(shared, value, (0, 1, 2)) == 0
    done, waiting, idle = (c.make("Execution_create", addition.compilation) for _ in range(3))
    for execution in (done, waiting):
        for name, index, row in ROWS:
            c.call(f"Execution_set{name}FromMemory", execution, *shared.argument(index, row))
    c.call("Execution_burstCompute", done, addition.burst)
    shared.free()
    zero, number = ctypes.c_int32(0), ctypes.c_uint32()
    c.call("Execution_getOutputOperandDimensions", done, zero, ctypes.byref(number))
    assert number.value == ELEMENTS
    assert c.code("Execution_burstCompute", done, addition.burst) == ResultCode.BAD_STATE
    assert c.code("Execution_burstCompute", waiting, addition.burst) == ResultCode.BAD_DATA
    late = c.code("Execution_setInputFromMemory", idle, *shared.argument(0, 0))
    assert late == ResultCode.BAD_DATA
    for execution in (done, waiting, idle):
        c.free("Execution", execution)
    assert addition.compute_once(5) == 0
    addition.close()


def test_an_execution_whose_memory_is_freed_while_it_computes_stays_one_to_be_freed(
    c: CInterface, monkeypatch: pytest.MonkeyPatch
) -> None:
    addition = Addition(c, explicit=True)
    shared = SharedTensors(c, 3)
    for value in range(2):
        assert addition.compute_shared(shared, value, (0, 1, 2)) == 0
    execution = c.make("Execution_create", addition.compilation)
    for name, index, row in ROWS:
        c.call(f"Execution_set{name}FromMemory", execution, *shared.argument(index, row))
    adopt = NativeExecutions.adopt

    def too_late(self: NativeExecutions, handle: int, native: Any) -> Execution:
        shared.free()  # as another thread may, between the run and what the framework makes of it
        return adopt(self, handle, native)

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(NativeExecutions, "adopt", too_late)
        code = c.code("Execution_burstCompute", execution, addition.burst)
    assert code == ResultCode.BAD_DATA
    assert c.code("Execution_burstCompute", execution, addition.burst) == ResultCode.BAD_DATA
    c.call("Execution_setReusable", execution, ctypes.c_bool(False))  # it lives
    c.free("Execution", execution)
    again = c.make("Execution_create", addition.compilation)
    assert again & SLOT == execution & SLOT  # which was given back
    c.free("Execution", again)
    assert addition.compute_once(5) == 0
    addition.close()


def test_a_memory_that_is_freed_while_a_burst_would_cache_a_request_for_it_does_not_end_its_caching(
    c: CInterface, monkeypatch: pytest.MonkeyPatch, made: list[Execution]
) -> None:
    addition = Addition(c, explicit=True)
    shared = SharedTensors(c, 3)
    assert addition.compute_shared(shared, 1, (0, 1, 2)) == 0

    def and_free(infos: Sequence[ArgumentInfo]) -> Placing | None:
        placing = placing_of(infos)
        shared.free()  # as another thread may
        return placing

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr("nnburst.capi.native_executions.placing_of", and_free)
        assert addition.compute_shared(shared, 2, (0, 1, 2)) == 0
    made.clear()
    for value in range(10):
        assert addition.compute_once(value) == 0
    assert len(made) == 3
    addition.close()


def test_a_native_execution_that_has_computed_answers_as_any_execution(c: CInterface) -> None:
    addition = Addition(c, explicit=True)
    for value in range(4):
        assert addition.compute_once(value) == 0
    execution = c.make("Execution_create", addition.compilation)
    addition.set_arguments(execution)
    addition.a[:] = 41
    c.call("Execution_burstCompute", execution, addition.burst)
    assert addition.y.tolist() == [42] * ELEMENTS
    number = ctypes.c_uint32()
    zero = ctypes.c_int32(0)
    c.call("Execution_getOutputOperandRank", execution, zero, ctypes.byref(number))
    assert number.value == 1
    c.call("Execution_getOutputOperandDimensions", execution, zero, ctypes.byref(number))
    assert number.value == ELEMENTS
    again = c.code("Execution_burstCompute", execution, addition.burst)
    late = c.code("Execution_setInput", execution, *argument(0, addition.a))
    assert (again, late) == (ResultCode.BAD_STATE, ResultCode.BAD_STATE)
    c.free("Execution", execution)
    addition.close()


class _Script:
    """Calls of one execution, over an addition of its own."""

    def __init__(self, addition: Addition, foreign: int) -> None:
        self.addition = addition
        self._foreign = foreign
        self.shared = SharedTensors(addition.c, 5)
        self._staged = SharedTensors(addition.c, 5, sealed=False)

    def close(self) -> None:
        self.shared.free()
        self._staged.free()

    def play(self, calls: list[tuple[str, int, str]]) -> list[object]:
        """The code of each call, with what it wrote."""
        c, addition = self.addition.c, self.addition
        addition.a[:], addition.b[:] = 3, 4
        execution = c.make("Execution_create", addition.compilation)
        found: list[object] = []
        for name, number, what in calls:
            addition.y[:] = -1
            for tensors in (self.shared, self._staged):
                tensors.rows[:] = np.arange(5)[:, np.newaxis]
            room = ctypes.c_uint64(77)
            args = self._arguments(number, what, room)
            code = c.code(f"Execution_{name}", execution, *args)
            if what == "event":
                event = args[0]._obj.value or 0
                code = 1000 * c.code("Event_wait", event) + code
                c.free("Event", event)
                assert bool(code) == (event == 0)
            found.append((name, code))
            rows = [tensors.rows.tolist() for tensors in (self.shared, self._staged)]
            found.append(None if name == "getDuration" else (room.value, addition.y.tolist(), rows))
        c.free("Execution", execution)
        return found

    def _arguments(self, number: int, what: str, room: ctypes.c_uint64) -> tuple[Any, ...]:
        addition = self.addition
        types = {
            "typed": tensor_type(ELEMENTS),
            "longer type of": tensor_type(ELEMENTS + 1),
            "higher": tensor_type(1, ELEMENTS),
            "open": tensor_type(0),
        }
        kind, _, name = what.rpartition(" ")
        if kind in types:
            return argument(number, getattr(addition, name), types[kind])
        arrays = {
            "a": addition.a,
            "b": addition.b,
            "y": addition.y,
            "short": addition.a[:3],
            "long": np.zeros(ELEMENTS + 1, np.float32),
        }
        if what.startswith("row"):
            return self.shared.argument(number, int(what.removeprefix("row")))
        if what.endswith("row"):
            elements = {"short": 3, "long": ELEMENTS + 1, "empty": 0}[what.removesuffix(" row")]
            return self.shared.argument(number, 0, elements)
        if what == "staged":
            return self._staged.argument(number, 2)
        if what == "no memory":
            index, kind, _, *rest = self.shared.argument(number, 0)
            return index, kind, self.addition.burst, *rest
        if what == "event":
            return (ctypes.byref(ctypes.c_void_p()),)
        index = ctypes.c_int32(number)
        bursts = {"burst": addition.burst, "foreign": self._foreign, "nothing": None}
        if what in arrays:
            return argument(number, arrays[what])
        if what in bursts:
            return (bursts[what],)
        if what in ("null", "omitted"):
            return index, None, None, ctypes.c_size_t(4 if what == "null" else 0)
        return (index, ctypes.byref(room)) if what else (ctypes.c_uint64(number),)


def test_a_native_execution_answers_every_call_as_pythons_executions_do(
    c: CInterface,
    monkeypatch: pytest.MonkeyPatch,
    computations: list[str],
    python_calls: list[str],
) -> None:
    monkeypatch.setattr(own_bursts, "_LOOK", 3600.0)  # a busy machine makes long pauses
    monkeypatch.setattr(cached_requests, "QUICK_NS", 10**18)
    monkeypatch.setattr(cached_requests, "PROMISING_NS", 2**64 - 1)
    native, other = Addition(c, explicit=True), Addition(c, explicit=True)
    in_c = [[("setInput", 0, "a"), ("setInput", 1, "b"), ("setOutput", 0, "y")]]
    in_c.append([(f"set{name}FromMemory", index, f"row {row}") for name, index, row in ROWS])
    in_c.append([in_c[0][0], *in_c[1][1:]])
    script = _Script(native, other.burst)
    for complete in 4 * in_c:
        assert script.play([*complete, ("burstCompute", 0, "burst")])[-2] == ("burstCompute", 0)
    own = NATIVE_EXECUTIONS._sizes[native.compilation].own.of_thread()
    until = time.monotonic() + 60
    while own.burst is None and time.monotonic() < until:
        assert script.play([*in_c[0], ("compute", 0, "")])[-2] == ("compute", 0)
    for complete in 4 * in_c:
        assert script.play([*complete, ("compute", 0, "")])[-2] == ("compute", 0)
    with monkeypatch.context() as without_native:
        without_native.setattr(NativeExecutions, "offer", lambda *_: None)
        without_native.setattr(NativeExecutions, "cache", lambda *_: None)
        plain = Addition(c, explicit=True)
        scripts = script, _Script(plain, other.burst)

        @settings(
            max_examples=60,
            deadline=None,
            suppress_health_check=[HealthCheck.function_scoped_fixture],
        )
        @given(st.sampled_from([[], *in_c]), st.lists(st.sampled_from(CALLS), max_size=8))
        def compare(begin: list[tuple[str, int, str]], calls: list[tuple[str, int, str]]) -> None:
            played = [*begin, *calls]
            assert scripts[0].play(played) == scripts[1].play(played)

        compare()
        computations.clear()
        python_calls.clear()
        for begin in in_c:
            for call in (
                ("burstCompute", 0, "burst"),
                ("compute", 0, ""),
                ("startCompute", 0, "event"),
            ):
                done = scripts[0].play([*begin, call])
                assert computations == []  # all of them in C
                assert "Execution_startCompute" not in python_calls
                assert done[-2] == call[:2]
                assert done == scripts[1].play([*begin, call])
                computations.clear()
                python_calls.clear()
    for script in scripts:
        script.close()
    for addition in (native, other, plain):
        addition.close()


def test_executions_whose_arguments_come_with_their_types_and_whose_outputs_are_asked_for_need_no_python(
    c: CInterface, python_calls: list[str]
) -> None:
    addition = Addition(c, explicit=True)
    declared = tensor_type(ELEMENTS)
    number, zero = ctypes.c_uint32(), ctypes.c_int32(0)

    def compute(value: float) -> None:  # as PyTorch's backend does, but over a burst
        addition.a[:], addition.b[:] = value, 1
        execution = c.make("Execution_create", addition.compilation)
        for index, array in ((0, addition.a), (1, addition.b)):
            c.call("Execution_setInput", execution, *argument(index, array, declared))
        c.call("Execution_setOutput", execution, *argument(0, addition.y))
        c.call("Execution_burstCompute", execution, addition.burst)
        assert addition.y.tolist() == [value + 1] * ELEMENTS
        c.call("Execution_getOutputOperandRank", execution, zero, ctypes.byref(number))
        assert number.value == 1
        c.call("Execution_getOutputOperandDimensions", execution, zero, ctypes.byref(number))
        assert number.value == ELEMENTS
        c.free("Execution", execution)

    for value in range(4):
        compute(value)
    python_calls.clear()
    for value in range(10):
        compute(value)
    assert python_calls == []
    addition.close()


def test_a_killed_driver_is_a_dead_object_if_it_was_asked_for(c: CInterface) -> None:
    addition = Addition(c, explicit=True)
    for value in range(5):
        assert addition.compute_once(value) == 0
    kill_driver()
    assert addition.compute_once(7) == ResultCode.DEAD_OBJECT
    for value in range(5):
        assert addition.compute_once(value) == 0
    shared = SharedTensors(c, 3)
    for value in range(5):
        assert addition.compute_shared(shared, value, (0, 1, 2)) == 0
    kill_driver()
    assert addition.compute_shared(shared, 7, (0, 1, 2)) == ResultCode.DEAD_OBJECT
    for value in range(5):
        assert addition.compute_shared(shared, value, (0, 1, 2)) == 0
        assert addition.compute_once(value) == 0
    shared.free()
    addition.close()


def test_a_killed_driver_is_not_noticed_if_devices_were_not_asked_for(c: CInterface) -> None:
    addition = Addition(c, explicit=False)
    for value in range(5):
        assert addition.compute_once(value) == 0
    kill_driver()
    for value in range(8):
        assert addition.compute_once(value) == 0
    addition.close()


def test_a_native_execution_outlives_its_compilation_and_its_burst(c: CInterface) -> None:
    addition = Addition(c, explicit=True)
    for value in range(4):
        assert addition.compute_once(value) == 0
    natives = [c.make("Execution_create", addition.compilation) for _ in range(2)]
    addition.set_arguments(natives[0])
    addition.close()
    assert c.code("Execution_burstCompute", natives[0], addition.burst) == ResultCode.BAD_DATA
    addition.set_arguments(natives[1])
    assert c.code("Execution_compute", natives[1]) != 0
    for native in natives:
        c.free("Execution", native)
    assert c.code("Execution_compute", natives[1]) == ResultCode.BAD_DATA


def test_threads_on_one_burst_compute_right_or_are_refused(c: CInterface) -> None:
    addition = Addition(c, explicit=True)
    for value in range(4):
        assert addition.compute_once(value) == 0
    addition.b[:] = 1
    codes: list[int] = []
    wrong: list[list[float]] = []

    def compute(number: int) -> None:
        x, y = np.zeros(ELEMENTS, np.float32), np.zeros(ELEMENTS, np.float32)
        for turn in range(200):
            x[:], y[:] = number * 1000 + turn, -1
            execution = c.make("Execution_create", addition.compilation)
            c.call("Execution_setInput", execution, *argument(0, x))
            c.call("Execution_setInput", execution, *argument(1, addition.b))
            c.call("Execution_setOutput", execution, *argument(0, y))
            code = c.code("Execution_burstCompute", execution, addition.burst)
            codes.append(code)
            if code == 0 and y.tolist() != (x + 1).tolist():
                wrong.append(y.tolist())
            c.free("Execution", execution)

    threads = [threading.Thread(target=compute, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert set(codes) <= {ResultCode.NO_ERROR, ResultCode.BAD_STATE}
    assert ResultCode.NO_ERROR in codes
    assert addition.compute_once(5) == 0
    addition.close()
