"""An execution for each inference stays in C, and is Python's as soon as something else is asked of it."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from capi.interface import ELEMENTS, Addition, CInterface, argument
from capi.killed import kill_driver
from nnburst.capi.drafts import Drafts
from nnburst.hal.enums import ResultCode
from nnburst.runtime import Execution

#: Calls, each with what distinguishes it; the execution comes before.
CALLS = (
    ("setInput", 0, "a"),
    ("setInput", 1, "b"),
    ("setInput", 1, "short"),
    ("setInput", 2, "a"),
    ("setInput", -1, "a"),
    ("setInput", 0, "null"),
    ("setInput", 0, "omitted"),
    ("setOutput", 0, "y"),
    ("setOutput", 0, "long"),
    ("setOutput", 1, "y"),
    ("burstCompute", 0, "burst"),
    ("burstCompute", 0, "foreign"),
    ("burstCompute", 0, "nothing"),
    ("compute", 0, ""),
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
    # The reusable one, two that Python computed, and one whose first run by the loan it finished.
    assert len(made) == 4
    assert computations == ["burst_compute", "burst_compute", "_compute_bound"]
    addition.close()


def test_a_draft_that_has_computed_answers_as_any_execution(c: CInterface) -> None:
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

    def play(self, calls: list[tuple[str, int, str]]) -> list[object]:
        """The code of each call, with what it wrote."""
        c, addition = self.addition.c, self.addition
        addition.a[:], addition.b[:] = 3, 4
        execution = c.make("Execution_create", addition.compilation)
        found: list[object] = []
        for name, number, what in calls:
            addition.y[:] = -1
            room = ctypes.c_uint64(77)
            args = self._arguments(number, what, room)
            found.append((name, c.code(f"Execution_{name}", execution, *args)))
            found.append(None if name == "getDuration" else (room.value, addition.y.tolist()))
        c.free("Execution", execution)
        return found

    def _arguments(self, number: int, what: str, room: ctypes.c_uint64) -> tuple[Any, ...]:
        addition = self.addition
        arrays = {
            "a": addition.a,
            "b": addition.b,
            "y": addition.y,
            "short": addition.a[:3],
            "long": np.zeros(ELEMENTS + 1, np.float32),
        }
        index = ctypes.c_int32(number)
        bursts = {"burst": addition.burst, "foreign": self._foreign, "nothing": None}
        if what in arrays:
            return argument(number, arrays[what])
        if what in bursts:
            return (bursts[what],)
        if what in ("null", "omitted"):
            return index, None, None, ctypes.c_size_t(4 if what == "null" else 0)
        return (index, ctypes.byref(room)) if what else (ctypes.c_uint64(number),)


def test_a_draft_answers_every_call_as_pythons_executions_do(
    c: CInterface, monkeypatch: pytest.MonkeyPatch, computations: list[str]
) -> None:
    drafted, other = Addition(c, explicit=True), Addition(c, explicit=True)
    for value in range(4):
        assert drafted.compute_once(value) == 0
    with monkeypatch.context() as without_drafts:
        without_drafts.setattr(Drafts, "offer", lambda *_: None)
        without_drafts.setattr(Drafts, "lend", lambda *_: None)
        plain = Addition(c, explicit=True)
        scripts = _Script(drafted, other.burst), _Script(plain, other.burst)

        complete = [("setInput", 0, "a"), ("setInput", 1, "b"), ("setOutput", 0, "y")]

        @settings(
            max_examples=60,
            deadline=None,
            suppress_health_check=[HealthCheck.function_scoped_fixture],
        )
        @given(st.booleans(), st.lists(st.sampled_from(CALLS), max_size=8))
        def compare(is_complete: bool, calls: list[tuple[str, int, str]]) -> None:
            script = [*(complete if is_complete else []), *calls]
            assert scripts[0].play(script) == scripts[1].play(script)

        compare()
        assert scripts[0].play([*complete, ("burstCompute", 0, "burst")])[-2:] == [
            ("burstCompute", 0),
            (77, [7.0] * ELEMENTS),
        ]
    for addition in (drafted, other, plain):
        addition.close()


def test_a_killed_driver_is_a_dead_object_if_it_was_asked_for(c: CInterface) -> None:
    addition = Addition(c, explicit=True)
    for value in range(5):
        assert addition.compute_once(value) == 0
    kill_driver()
    assert addition.compute_once(7) == ResultCode.DEAD_OBJECT
    for value in range(5):
        assert addition.compute_once(value) == 0
    addition.close()


def test_a_killed_driver_is_not_noticed_if_devices_were_not_asked_for(c: CInterface) -> None:
    addition = Addition(c, explicit=False)
    for value in range(5):
        assert addition.compute_once(value) == 0
    kill_driver()
    for value in range(8):
        assert addition.compute_once(value) == 0
    addition.close()


def test_a_draft_outlives_its_compilation_and_its_burst(c: CInterface) -> None:
    addition = Addition(c, explicit=True)
    for value in range(4):
        assert addition.compute_once(value) == 0
    drafts = [c.make("Execution_create", addition.compilation) for _ in range(2)]
    addition.set_arguments(drafts[0])
    addition.close()
    assert c.code("Execution_burstCompute", drafts[0], addition.burst) == ResultCode.BAD_DATA
    addition.set_arguments(drafts[1])
    assert c.code("Execution_compute", drafts[1]) != 0
    for draft in drafts:
        c.free("Execution", draft)
    assert c.code("Execution_compute", drafts[1]) == ResultCode.BAD_DATA


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
