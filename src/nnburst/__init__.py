"""Executes a prepared neural network again and again in another process.

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

from nnburst._version import __version__ as __version__

if sys.platform != "linux":
    raise ImportError("nnburst needs Linux: memfd, futex and AF_UNIX SEQPACKET")
if sys.byteorder != "little":
    raise ImportError(
        "nnburst needs a little-endian machine: packets and tensors are little-endian"
    )

if TYPE_CHECKING:
    from nnburst.client.arguments import ExecutionResult
    from nnburst.client.burst.interface import BoundRequest, Burst, BurstFunction, SubmittedRequest
    from nnburst.client.connect import DeviceInfo, connect, devices
    from nnburst.client.device import Device
    from nnburst.client.execution.buffer import Buffer
    from nnburst.client.launch import launch
    from nnburst.client.memory import Memory
    from nnburst.client.prepared_model import PreparedModel
    from nnburst.client.served_model import ServedModel
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
        BadState,
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
        StateLost,
    )
    from nnburst.hal.model import Model
    from nnburst.hal.model_builder import ModelBuilder
    from nnburst.hal.types import OutputShape, Timing
    from nnburst.importer.imported_model import ImportedModel
    from nnburst.importer.load import load
    from nnburst.runtime.compile import (
        CompiledModel,
        compile,  # noqa: A004 - NNAPI's word
    )

__all__ = [
    "load",
    "compile",
    "launch",
    "connect",
    "devices",
    "Device",
    "DeviceInfo",
    "CompiledModel",
    "PreparedModel",
    "ServedModel",
    "Burst",
    "BoundRequest",
    "SubmittedRequest",
    "BurstFunction",
    "Memory",
    "Buffer",
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
    "StateLost",
    "BurstBusy",
    "BadState",
    "Closed",
    "MalformedPacket",
    "QueueCorrupted",
]

_HOMES: Final = {
    "nnburst.importer.load": ("load",),
    "nnburst.importer.imported_model": ("ImportedModel",),
    "nnburst.runtime.compile": ("compile", "CompiledModel"),
    "nnburst.client.launch": ("launch",),
    "nnburst.client.connect": ("connect", "devices", "DeviceInfo"),
    "nnburst.client.device": ("Device",),
    "nnburst.client.prepared_model": ("PreparedModel",),
    "nnburst.client.served_model": ("ServedModel",),
    "nnburst.client.burst.interface": (
        "Burst",
        "BoundRequest",
        "SubmittedRequest",
        "BurstFunction",
    ),
    "nnburst.client.memory": ("Memory",),
    "nnburst.client.execution.buffer": ("Buffer",),
    "nnburst.client.arguments": ("ExecutionResult",),
    "nnburst.hal.types": ("OutputShape", "Timing"),
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
        "StateLost",
        "BurstBusy",
        "BadState",
        "Closed",
        "MalformedPacket",
        "QueueCorrupted",
    ),
}
_HOME: Final = {name: module for module, names in _HOMES.items() for name in names}

if not TYPE_CHECKING:  # type checkers would take any name for one that this has

    def __getattr__(name: str) -> object:
        if name not in _HOME:
            raise AttributeError(f"module 'nnburst' has no attribute {name!r}")
        value = getattr(importlib.import_module(_HOME[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
