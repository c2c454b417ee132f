"""Calls libneuralnetworks.so by ctypes, in the interpreter that runs the tests."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
from typing import Any

import numpy as np

from nnburst.capi import installed
from nnburst.fmq.shared_memory import SIZE_SEALS

FLOATS = 3
_ADD, _MUL = 0, 18
ELEMENTS = 16


class OperandType(ctypes.Structure):
    """As ANeuralNetworksOperandType."""

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
    """y = a + b, or (a + b) * b by two operations, compiled, with one reusable execution and a burst."""

    def __init__(
        self, c: CInterface, *, explicit: bool, operations: int = 1, devices: int | None = None
    ) -> None:
        self.c = c
        self.a, self.b, self.y = (np.zeros(ELEMENTS, np.float32) for _ in range(3))
        self.model = self._model(operations)
        if explicit:
            listed = self._drivers(devices)
            name = "Compilation_createForDevices"
            self.compilation = c.make(name, self.model, listed, ctypes.c_uint32(len(listed)))
        else:
            self.compilation = c.make("Compilation_create", self.model)
        c.call("Compilation_finish", self.compilation)
        self.burst = c.make("Burst_create", self.compilation)
        self.execution = c.make("Execution_create", self.compilation)
        c.call("Execution_setReusable", self.execution, ctypes.c_bool(True))
        self.set_arguments(self.execution)

    def _model(self, operations: int) -> int:
        c = self.c
        dimensions = (ctypes.c_uint32 * 1)(ELEMENTS)
        tensor = OperandType(FLOATS, 1, dimensions, 0, 0)
        scalar = OperandType(1, 0, None, 0, 0)
        model = c.make("Model_create")
        for kind in (tensor, tensor, scalar, *([tensor] * operations)):
            c.call("Model_addOperand", model, ctypes.byref(kind))
        none, size = ctypes.c_int32(0), ctypes.c_size_t(4)
        c.call("Model_setOperandValue", model, ctypes.c_int32(2), ctypes.byref(none), size)
        three, two, one = (ctypes.c_uint32(n) for n in (3, 2, 1))
        ins, out = (ctypes.c_uint32 * 3)(0, 1, 2), (ctypes.c_uint32 * 1)(3)
        c.call("Model_addOperation", model, ctypes.c_int32(_ADD), three, ins, one, out)
        if operations == 2:
            between, out = (ctypes.c_uint32 * 3)(3, 1, 2), (ctypes.c_uint32 * 1)(4)
            c.call("Model_addOperation", model, ctypes.c_int32(_MUL), three, between, one, out)
        c.call("Model_identifyInputsAndOutputs", model, two, ins, one, out)
        c.call("Model_finish", model)
        return model

    def _drivers(self, most: int | None) -> ctypes.Array[ctypes.c_void_p]:
        """All devices but the CPU, which is the last; the first `most` of them."""
        count = ctypes.c_uint32()
        self.c.call("_getDeviceCount", ctypes.byref(count))
        numbers = range(count.value - 1)[:most]
        handles = [self.c.make("_getDevice", ctypes.c_uint32(number)) for number in numbers]
        return (ctypes.c_void_p * len(handles))(*handles)

    def set_arguments(self, execution: int) -> None:
        """Set both inputs and the output of an execution."""
        for index, array in ((0, self.a), (1, self.b)):
            self.c.call("Execution_setInput", execution, *argument(index, array))
        self.c.call("Execution_setOutput", execution, *argument(0, self.y))

    def compute(self, value: float, way: str = "burstCompute") -> int:
        """Code of the reusable execution's y of `value` and 1, which is checked if the code is 0."""
        return self._computed(self.execution, value, way)

    def compute_once(self, value: float, way: str = "burstCompute") -> int:
        """The code of the same computation by an execution that is made and freed, as most programs do."""
        execution = self.c.make("Execution_create", self.compilation)
        self.set_arguments(execution)
        code = self._computed(execution, value, way)
        self.c.free("Execution", execution)
        return code

    def _computed(self, execution: int, value: float, way: str) -> int:
        self.a[:], self.b[:], self.y[:] = value, 1, -1
        args = [execution, self.burst] if way == "burstCompute" else [execution]
        code = self.c.code(f"Execution_{way}", *args)
        assert code or self.y.tolist() == [value + 1] * ELEMENTS
        return code

    def compute_shared(
        self, shared: SharedTensors, value: float, rows: tuple[int, int, int]
    ) -> int:
        """The code of the same computation with a, b and y in rows of a memory."""
        execution = self.c.make("Execution_create", self.compilation)
        for name, index, row in zip(("Input", "Input", "Output"), (0, 1, 0), rows, strict=True):
            self.c.call(f"Execution_set{name}FromMemory", execution, *shared.argument(index, row))
        a, b, y = (shared.rows[row] for row in rows)
        a[:], b[:], y[:] = value, 1, -1
        code = self.c.code("Execution_burstCompute", execution, self.burst)
        assert code or y.tolist() == [value + 1] * ELEMENTS
        self.c.free("Execution", execution)
        return code

    def close(self) -> None:
        for name in ("execution", "burst", "compilation", "model"):
            self.c.free(name.capitalize(), getattr(self, name))


class SharedTensors:
    """A memory of tensors, one to a row.

    Attributes:
        memory: its handle.
        rows: the tensors in it.
    """

    def __init__(self, c: CInterface, rows: int, *, sealed: bool = True) -> None:
        self._c = c
        size = rows * ELEMENTS * 4
        fd = os.memfd_create("tensors", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(fd, size)
            if sealed:
                fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SIZE_SEALS)
            both = ctypes.c_int(mmap.PROT_READ | mmap.PROT_WRITE)
            room, at = ctypes.c_size_t(size), ctypes.c_size_t(0)
            self.memory = c.make("Memory_createFromFd", room, both, ctypes.c_int(fd), at)
            self.rows = np.frombuffer(mmap.mmap(fd, size), np.float32).reshape(rows, ELEMENTS)
        finally:
            os.close(fd)

    def argument(self, index: int, row: int, elements: int = ELEMENTS) -> tuple[Any, ...]:
        """The arguments of setInputFromMemory and setOutputFromMemory behind the execution."""
        offset = ctypes.c_size_t(row * ELEMENTS * 4)
        length = ctypes.c_size_t(elements * 4)
        return ctypes.c_int32(index), None, self.memory, offset, length

    def free(self) -> None:
        self._c.free("Memory", self.memory)


def argument(
    index: int, array: np.ndarray[Any, Any], kind: OperandType | None = None
) -> tuple[Any, ...]:
    """The arguments of setInput and setOutput behind the execution; `kind` is its type, if given."""
    place = array.ctypes.data_as(ctypes.c_void_p)
    given = None if kind is None else ctypes.byref(kind)
    return ctypes.c_int32(index), given, place, ctypes.c_size_t(array.nbytes)


def tensor_type(*dimensions: int) -> OperandType:
    """The type of a tensor of floats."""
    return OperandType(
        FLOATS, len(dimensions), (ctypes.c_uint32 * len(dimensions))(*dimensions), 0, 0
    )
