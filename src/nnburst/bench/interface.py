"""Measures calls of libneuralnetworks.so from C, over the null executor."""

from __future__ import annotations

import ctypes
import fcntl
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from nnburst._native import ffi, lib
from nnburst.bench.cases import WARM_UP, Samples
from nnburst.capi import installed
from nnburst.capi.constants import OPERAND_TYPE
from nnburst.client.device import Device
from nnburst.fmq.shared_memory import SIZE_SEALS
from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.errors import GeneralFailure
from nnburst.runtime import Manager
from nnburst.runtime.devices.driver_device import DriverDevice
from nnburst.runtime.devices.manager import process_manager

#: Number of float32 elements in 256 bytes.
ELEMENTS: Final = 64
_BYTES: Final = 4 * ELEMENTS
_PREFIX: Final = "ANeuralNetworks"
#: Greatest number of checks for the thread's own burst, and the seconds between two.
_TURNS: Final = 10
_TURN: Final = 0.01
_BOTH: Final = 3  # PROT_READ and PROT_WRITE


class Interface:
    """Calls functions of the library by name without the prefix."""

    def __init__(self) -> None:
        """Load the library, which uses this interpreter."""
        self._library = ctypes.CDLL(str(installed.LIBRARY))

    def address(self, name: str) -> int:
        """The address of a function."""
        function = getattr(self._library, f"{_PREFIX}{name}")
        return int(ctypes.cast(function, ctypes.c_void_p).value or 0)

    def call(self, name: str, *args: Any) -> None:  # noqa: ANN401 - of ctypes
        """Call a function.

        Raises:
            GeneralFailure: the function's code is not NO_ERROR.
        """
        code = getattr(self._library, f"{_PREFIX}{name}")(*args)
        if code:
            raise GeneralFailure(f"{_PREFIX}{name} returned {code}")

    def make(self, name: str, *args: Any) -> ctypes.c_void_p:  # noqa: ANN401
        """Call a function that makes an object."""
        room = ctypes.c_void_p()
        self.call(name, *args, ctypes.byref(room))
        return room


@contextmanager
def devices(driver: Device) -> Iterator[None]:
    """Make a connection the only device of this process, besides the CPU."""
    with Manager([DriverDevice(lambda: driver)]) as manager, process_manager(manager):
        yield


class Compiled:
    """The model y = 2 x on 256 bytes, compiled for the first device alone, with a burst."""

    def __init__(self, c: Interface) -> None:
        """Build and compile the model, and open the burst."""
        self.c = c
        dimensions = (ctypes.c_uint32 * 1)(ELEMENTS)
        place = ctypes.addressof(dimensions)
        tensor = OPERAND_TYPE.layout.pack(OperandType.TENSOR_FLOAT32, 1, place, 0.0, 0)
        scalar = OPERAND_TYPE.layout.pack(OperandType.INT32, 0, 0, 0.0, 0)
        model = c.make("Model_create")
        for kind in (tensor, scalar, tensor):
            c.call("Model_addOperand", model, kind)
        c.call("Model_setOperandValue", model, 1, bytes(4), ctypes.c_size_t(4))
        inputs, outputs = (ctypes.c_uint32 * 3)(0, 0, 1), (ctypes.c_uint32 * 1)(2)
        c.call("Model_addOperation", model, int(OperationType.ADD), 3, inputs, 1, outputs)
        c.call("Model_identifyInputsAndOutputs", model, 1, inputs, 1, outputs)
        c.call("Model_finish", model)
        device = c.make("_getDevice", 0)
        listed = (ctypes.c_void_p * 1)(device.value)
        self.compilation = c.make("Compilation_createForDevices", model, listed, 1)
        c.call("Compilation_finish", self.compilation)
        self.burst = c.make("Burst_create", self.compilation)


class InterfaceCase:
    """A case of computations over a burst, in a loop in C."""

    def __init__(
        self, name: str, compiled: Compiled, *, reusable: bool, memory: bool, burst: bool = True
    ) -> None:
        """Make the computation of a case.

        Args:
            name: name of the case.
            compiled: the compiled model with its burst.
            reusable: True uses one execution for all; False makes, sets, computes and frees one each time.
            memory: True has arguments in a sealed memfd, False at addresses.
            burst: True calls burstCompute; False calls compute, on executions that are made each time.
        """
        self.name = name
        self._room = np.zeros((2, ELEMENTS), np.float32)
        c = compiled.c
        places = [int(row.ctypes.data) for row in self._room]
        execution = c.make("Execution_create", compiled.compilation) if reusable else None
        shared = _sealed(c) if memory else None
        if execution is not None:
            c.call("Execution_setReusable", execution, ctypes.c_bool(True))
            set_arguments(c, execution, shared, places)
        names = {
            "create": "Execution_create",
            "set_input": "Execution_setInput",
            "set_output": "Execution_setOutput",
            "set_input_from_memory": "Execution_setInputFromMemory",
            "set_output_from_memory": "Execution_setOutputFromMemory",
            "compute": "Execution_compute",
            "burst_compute": "Execution_burstCompute",
            "free": "Execution_free",
        }
        self._calls = ffi.new("struct nnb_bench_interface *")
        for field, function in names.items():
            setattr(self._calls, field, ffi.cast("void *", c.address(function)))
        for field, handle in (
            ("compilation", compiled.compilation),
            ("burst", compiled.burst if burst else None),
            ("execution", execution),
            ("memory", shared),
        ):
            setattr(self._calls, field, ffi.cast("void *", handle.value if handle else 0))
        self._calls.input, self._calls.output = (ffi.cast("void *", place) for place in places)
        self._calls.bytes = _BYTES
        self._warm_up = WARM_UP if reusable else 3
        if not burst:
            for _ in range(_TURNS):
                self._run(self._warm_up, ffi.NULL)
                time.sleep(_TURN)

    def block(self, count: int) -> float:
        """See `Contestant`."""
        self._run(self._warm_up, ffi.NULL)
        return self._run(count, ffi.NULL) / count

    def samples(self, count: int) -> Samples:
        """See `Contestant`."""
        found = np.zeros(count, np.uint64)
        self._run(self._warm_up, ffi.NULL)
        self._run(count, ffi.from_buffer("uint64_t[]", found))
        return found

    def _run(self, count: int, samples: object) -> int:
        total = int(lib.nnb_bench_interface_unlocked(self._calls, count, samples))
        if not total:
            raise GeneralFailure(f"{self.name}: a call failed")
        return total


def _sealed(c: Interface) -> ctypes.c_void_p:
    """A sealed memory of two tensors, which a driver can map."""
    fd = os.memfd_create("bench", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, 2 * _BYTES)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SIZE_SEALS)
        size, zero = ctypes.c_size_t(2 * _BYTES), ctypes.c_size_t(0)
        return c.make("Memory_createFromFd", size, _BOTH, fd, zero)
    finally:
        os.close(fd)


def set_arguments(
    c: Interface, execution: ctypes.c_void_p, memory: ctypes.c_void_p | None, places: Sequence[int]
) -> None:
    """Set an execution's input and output: one after the other in a memory, or at two addresses."""
    size = ctypes.c_size_t(_BYTES)
    for index, name in enumerate(("Execution_setInput", "Execution_setOutput")):
        if memory is None:
            c.call(name, execution, 0, None, ctypes.c_void_p(places[index]), size)
        else:
            offset = ctypes.c_size_t(index * _BYTES)
            c.call(f"{name}FromMemory", execution, 0, None, memory, offset, size)


def interface_cases() -> list[InterfaceCase]:
    """All cases of the interface, on the first device of this process."""
    c = Interface()
    return [
        InterfaceCase("capi_memory", Compiled(c), reusable=True, memory=True),
        InterfaceCase("capi_pointers", Compiled(c), reusable=True, memory=False),
        InterfaceCase("capi_make_and_free", Compiled(c), reusable=False, memory=False),
        InterfaceCase("capi_make_and_free_memory", Compiled(c), reusable=False, memory=True),
        InterfaceCase("capi_compute", Compiled(c), reusable=False, memory=False, burst=False),
    ]
