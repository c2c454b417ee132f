"""Executes one model over several devices: the framework (NNAPI: libneuralnetworks).

    model = runtime.Model()                      # built call by call
    compilation = runtime.Compilation(model)     # placed on all devices, or on those listed
    execution = compilation.execution()          # arguments, and computations on them

Names are imported when first used. Most programs use `nnburst.compile` instead.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from nnburst.runtime.devices.manager import Manager
    from nnburst.runtime.measured_placement import Measuring
    from nnburst.runtime.objects.burst import Burst
    from nnburst.runtime.objects.compilation import Compilation
    from nnburst.runtime.objects.event import Event
    from nnburst.runtime.objects.execution import Execution
    from nnburst.runtime.objects.memory import Memory
    from nnburst.runtime.objects.memory_desc import MemoryDesc
    from nnburst.runtime.objects.model import Model
    from nnburst.runtime.objects.operands import OperandDescription
    from nnburst.runtime.records import CompilationRecord, ExecutionRecord

__all__ = [
    "Manager",
    "Model",
    "OperandDescription",
    "Measuring",
    "Compilation",
    "Execution",
    "Event",
    "Burst",
    "Memory",
    "MemoryDesc",
    "CompilationRecord",
    "ExecutionRecord",
]

_HOME: Final = {
    "Manager": "nnburst.runtime.devices.manager",
    "Model": "nnburst.runtime.objects.model",
    "OperandDescription": "nnburst.runtime.objects.operands",
    "Measuring": "nnburst.runtime.measured_placement",
    "Compilation": "nnburst.runtime.objects.compilation",
    "Execution": "nnburst.runtime.objects.execution",
    "Event": "nnburst.runtime.objects.event",
    "Burst": "nnburst.runtime.objects.burst",
    "Memory": "nnburst.runtime.objects.memory",
    "MemoryDesc": "nnburst.runtime.objects.memory_desc",
    "CompilationRecord": "nnburst.runtime.records",
    "ExecutionRecord": "nnburst.runtime.records",
}

if not TYPE_CHECKING:  # otherwise type checkers would accept any name

    def __getattr__(name: str) -> object:
        if name not in _HOME:
            raise AttributeError(f"module 'nnburst.runtime' has no attribute {name!r}")
        value = getattr(importlib.import_module(_HOME[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
