"""A reusable execution goes from C to the burst after its first computations, and comes back when it must."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pytest

import nnburst
from nnburst.capi import installed
from nnburst.hal.capabilities import OperandPerformance, PerformanceInfo
from nnburst.hal.enums import ResultCode
from nnburst.runtime import Execution, Manager
from nnburst.runtime.devices.driver_device import DriverDevice

FLOATS = 3
ELEMENTS = 16


class _OperandType(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int32),
        ("dimensionCount", ctypes.c_uint32),
        ("dimensions", ctypes.POINTER(ctypes.c_uint32)),
        ("scale", ctypes.c_float),
        ("zeroPoint", ctypes.c_int32),
    )


class CInterface:
    """The library by ctypes: `call("Model_finish", model)` checks the code, `code(...)` returns it."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(str(installed.LIBRARY))

    def code(self, name: str, *args: Any) -> int:
        function = getattr(self._library, f"ANeuralNetworks{name}")
        return int(function(*(ctypes.c_void_p(a) if isinstance(a, int) else a for a in args)))

    def call(self, name: str, *args: Any) -> None:
        assert self.code(name, *args) == 0, name

    def make(self, name: str, *args: Any) -> int:
        room = ctypes.c_void_p()
        self.call(name, *args, ctypes.byref(room))
        assert room.value is not None
        return room.value

    def free(self, name: str, handle: int) -> None:
        getattr(self._library, f"ANeuralNetworks{name}_free")(ctypes.c_void_p(handle))


class Addition:
    """sum = a + b, compiled, with one reusable execution and a burst."""

    def __init__(self, c: CInterface, *, explicit: bool) -> None:
        self.c = c
        self.a, self.b, self.sum = (np.zeros(ELEMENTS, np.float32) for _ in range(3))
        dimensions = (ctypes.c_uint32 * 1)(ELEMENTS)
        tensor = _OperandType(FLOATS, 1, dimensions, 0, 0)
        scalar = _OperandType(1, 0, None, 0, 0)
        self.model = c.make("Model_create")
        for kind in (tensor, tensor, scalar, tensor):
            c.call("Model_addOperand", self.model, ctypes.byref(kind))
        none = ctypes.c_int32(0)
        c.call(
            "Model_setOperandValue",
            self.model,
            ctypes.c_int32(2),
            ctypes.byref(none),
            ctypes.c_size_t(4),
        )
        ins, out = (ctypes.c_uint32 * 3)(0, 1, 2), (ctypes.c_uint32 * 1)(3)
        three, two, one = (ctypes.c_uint32(n) for n in (3, 2, 1))
        c.call("Model_addOperation", self.model, ctypes.c_int32(0), three, ins, one, out)
        c.call("Model_identifyInputsAndOutputs", self.model, two, ins, one, out)
        c.call("Model_finish", self.model)
        if explicit:
            device = c.make("_getDevice", ctypes.c_uint32(0))
            devices = (ctypes.c_void_p * 1)(device)
            name = "Compilation_createForDevices"
            self.compilation = c.make(name, self.model, devices, ctypes.c_uint32(1))
        else:
            self.compilation = c.make("Compilation_create", self.model)
        c.call("Compilation_finish", self.compilation)
        self.burst = c.make("Burst_create", self.compilation)
        self.execution = c.make("Execution_create", self.compilation)
        c.call("Execution_setReusable", self.execution, ctypes.c_bool(True))
        for index, array in ((0, self.a), (1, self.b)):
            c.call("Execution_setInput", self.execution, *self._argument(index, array))
        c.call("Execution_setOutput", self.execution, *self._argument(0, self.sum))

    @staticmethod
    def _argument(index: int, array: np.ndarray[Any, Any]) -> tuple[Any, ...]:
        place = array.ctypes.data_as(ctypes.c_void_p)
        return ctypes.c_int32(index), None, place, ctypes.c_size_t(array.nbytes)

    def compute(self, value: float, way: str = "burstCompute") -> int:
        """Code of sum = value + 1; the sum is checked if it is 0."""
        self.a[:], self.b[:], self.sum[:] = value, 1, -1
        args = [self.execution, self.burst] if way == "burstCompute" else [self.execution]
        code = self.c.code(f"Execution_{way}", *args)
        assert code or self.sum.tolist() == [value + 1] * ELEMENTS
        return code

    def close(self) -> None:
        for name in ("execution", "burst", "compilation", "model"):
            self.c.free(name.capitalize(), getattr(self, name))


@pytest.fixture
def c(monkeypatch: pytest.MonkeyPatch) -> Iterator[CInterface]:
    """The library over one reference driver that costs less than the CPU."""
    if not installed.LIBRARY.is_file():
        pytest.skip(f"no {installed.LIBRARY}: this nnburst was built without")
    driver = DriverDevice(lambda: nnburst.launch("reference"))
    half = PerformanceInfo(0.5, 0.5)
    cheap = msgspec.structs.replace(
        driver.capabilities,
        operand_performance=tuple(
            OperandPerformance(known.type, half)
            for known in driver.capabilities.operand_performance
        ),
    )
    monkeypatch.setattr(driver, "capabilities", cheap)
    with Manager([driver]) as manager:
        monkeypatch.setattr(Manager, "_one", manager)
        yield CInterface()


@pytest.fixture
def computations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the framework's computations as they are called."""
    called: list[str] = []
    for name in ("compute", "burst_compute", "_compute_bound"):
        way = getattr(Execution, name)

        def count(self: Execution, *args: Any, name: str = name, way: Any = way) -> None:
            called.append(name)
            way(self, *args)

        monkeypatch.setattr(Execution, name, count)
    return called


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


def kill_driver() -> None:
    device = Manager.of_process().devices[0]
    assert isinstance(device, DriverDevice)
    os.kill(device.pid, signal.SIGKILL)


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
