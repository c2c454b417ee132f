"""nnburst: execute a prepared neural network again and again in another process.

    import nnburst

    with nnburst.launch("reference") as device:
        prepared = device.prepare(model)
        with prepared.open_burst() as burst:
            ...

Names are imported when first used, so that `import nnburst` itself costs nothing.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Final

if sys.platform != "linux":
    raise ImportError("nnburst needs Linux: memfd, futex and AF_UNIX SEQPACKET")
if sys.byteorder != "little":
    raise ImportError(
        "nnburst needs a little-endian machine: packets and tensors are little-endian"
    )

if TYPE_CHECKING:
    from nnburst.client.burst.burst import Burst
    from nnburst.client.burst.stateful_burst import StatefulBurst
    from nnburst.client.compilation_cache import CacheFiles
    from nnburst.client.connect import DeviceInfo, connect, devices
    from nnburst.client.device import Device
    from nnburst.client.execution.aidl_burst import AidlBurst
    from nnburst.client.execution.buffer import Buffer
    from nnburst.client.execution.fenced_execution import FencedExecution
    from nnburst.client.execution.reusable_execution import ReusableExecution
    from nnburst.client.execution.sync_fence import SyncFence
    from nnburst.client.launch import launch
    from nnburst.client.memory.arguments import ExecutionResult
    from nnburst.client.memory.memory import Memory
    from nnburst.client.prepared_model import PreparedModel
    from nnburst.client.resilient.resilient_device import ResilientDevice
    from nnburst.hal.enums import (
        DeviceType,
        ErrorStatus,
        ExecutionPreference,
        FeatureLevel,
        FusedActivationFunc,
        OperandType,
        OperationType,
        PaddingScheme,
        Priority,
    )
    from nnburst.hal.errors import (
        BurstBusy,
        Closed,
        DeadObject,
        DeviceUnavailable,
        GeneralFailure,
        InvalidArgument,
        MalformedPacket,
        MissedDeadline,
        NnburstError,
        OutputInsufficientSize,
        QueueCorrupted,
        ResourceExhausted,
    )
    from nnburst.hal.model import Model
    from nnburst.hal.model_builder import ModelBuilder
    from nnburst.hal.timing import OutputShape, Timing
    from nnburst.importer.imported_model import ImportedModel
    from nnburst.importer.load import load
    from nnburst.runtime.compile import compile  # noqa: A004 - NNAPI's word
    from nnburst.runtime.compiled_burst import CompiledBurst, CompiledRequest
    from nnburst.runtime.compiled_model import CompiledModel
    from nnburst.runtime.submitted_plan import SubmittedPlan

__version__: Final = "0.1.0"

__all__ = [
    "load",
    "compile",
    "launch",
    "connect",
    "devices",
    "Device",
    "ResilientDevice",
    "DeviceInfo",
    "CompiledModel",
    "CompiledBurst",
    "CompiledRequest",
    "PreparedModel",
    "Burst",
    "StatefulBurst",
    "AidlBurst",
    "ReusableExecution",
    "FencedExecution",
    "SubmittedPlan",
    "SyncFence",
    "Memory",
    "Buffer",
    "CacheFiles",
    "ExecutionResult",
    "OutputShape",
    "Timing",
    "Model",
    "ModelBuilder",
    "ImportedModel",
    "OperandType",
    "OperationType",
    "FusedActivationFunc",
    "PaddingScheme",
    "ExecutionPreference",
    "Priority",
    "DeviceType",
    "FeatureLevel",
    "ErrorStatus",
    "NnburstError",
    "InvalidArgument",
    "OutputInsufficientSize",
    "MissedDeadline",
    "ResourceExhausted",
    "DeviceUnavailable",
    "GeneralFailure",
    "DeadObject",
    "BurstBusy",
    "Closed",
    "MalformedPacket",
    "QueueCorrupted",
]

_HOMES: Final = {
    "nnburst.importer.load": ("load",),
    "nnburst.importer.imported_model": ("ImportedModel",),
    "nnburst.runtime.compile": ("compile",),
    "nnburst.runtime.compiled_model": ("CompiledModel",),
    "nnburst.runtime.compiled_burst": ("CompiledBurst", "CompiledRequest"),
    "nnburst.runtime.submitted_plan": ("SubmittedPlan",),
    "nnburst.client.launch": ("launch",),
    "nnburst.client.connect": ("connect", "devices", "DeviceInfo"),
    "nnburst.client.device": ("Device",),
    "nnburst.client.prepared_model": ("PreparedModel",),
    "nnburst.client.resilient.resilient_device": ("ResilientDevice",),
    "nnburst.client.burst.burst": ("Burst",),
    "nnburst.client.burst.stateful_burst": ("StatefulBurst",),
    "nnburst.client.execution.aidl_burst": ("AidlBurst",),
    "nnburst.client.execution.reusable_execution": ("ReusableExecution",),
    "nnburst.client.execution.fenced_execution": ("FencedExecution",),
    "nnburst.client.execution.sync_fence": ("SyncFence",),
    "nnburst.client.memory.memory": ("Memory",),
    "nnburst.client.execution.buffer": ("Buffer",),
    "nnburst.client.compilation_cache": ("CacheFiles",),
    "nnburst.client.memory.arguments": ("ExecutionResult",),
    "nnburst.hal.timing": ("OutputShape", "Timing"),
    "nnburst.hal.model": ("Model",),
    "nnburst.hal.model_builder": ("ModelBuilder",),
    "nnburst.hal.enums": (
        "OperandType",
        "OperationType",
        "FusedActivationFunc",
        "PaddingScheme",
        "ExecutionPreference",
        "Priority",
        "DeviceType",
        "FeatureLevel",
        "ErrorStatus",
    ),
    "nnburst.hal.errors": (
        "NnburstError",
        "InvalidArgument",
        "OutputInsufficientSize",
        "MissedDeadline",
        "ResourceExhausted",
        "DeviceUnavailable",
        "GeneralFailure",
        "DeadObject",
        "BurstBusy",
        "Closed",
        "MalformedPacket",
        "QueueCorrupted",
    ),
}
_HOME: Final = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'nnburst' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
