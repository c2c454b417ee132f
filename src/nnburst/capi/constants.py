"""Defines the constants of the C interface, and the two structs that programs fill in.

A constant that the HAL defines with the same value is taken from there.

NNAPI: NeuralNetworksTypes.h and NeuralNetworksOEM.h.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from nnburst.hal.enums import (
    NDK_PRIORITIES,
    DeviceType,
    ExecutionPreference,
    FeatureLevel,
    FusedActivationFunc,
    OperandType,
    OperationType,
    PaddingScheme,
    Priority,
    ResultCode,
)
from nnburst.hal.limits import BYTE_SIZE_OF_CACHE_TOKEN

PREFIX: Final = "ANEURALNETWORKS_"


_DURATIONS: Final = {
    "DURATION_ON_HARDWARE": 0,
    "DURATION_IN_DRIVER": 1,
    "FENCED_DURATION_ON_HARDWARE": 2,
    "FENCED_DURATION_IN_DRIVER": 3,
}
_PRIORITIES: Final = {
    **{f"PRIORITY_{priority.name}": code for priority, code in NDK_PRIORITIES.items()},
    "PRIORITY_DEFAULT": NDK_PRIORITIES[Priority.MEDIUM],
}
#: Names that differ between the HAL and the C interface: the HAL's type to the name in C.
_OPERAND_NAMES: Final = {OperandType.SUBGRAPH: "MODEL"}
_FIRST_OEM: Final = 10000

#: Seconds; programs give nanoseconds.
NANOSECOND: Final = 1e-9


def feature_level(level: int) -> int:
    """The number of a feature level in the C interface: 27 to 31, then 1000006 and so on."""
    return 26 + level if level <= 5 else 1_000_000 + level


RUNTIME_FEATURE_LEVEL: Final = feature_level(max(FeatureLevel))


def _prefixed(prefix: str, members: type[IntEnum]) -> dict[str, int]:
    return {f"{prefix}{member.name}": int(member) for member in members}


#: Enumerations of NeuralNetworksTypes.h in order: name (none: constants alone) to constants without prefix.
ENUMS: Final[tuple[tuple[str | None, dict[str, int]], ...]] = (
    (
        "OperandCode",
        {
            _OPERAND_NAMES.get(member, member.name): int(member)
            for member in OperandType
            if member < _FIRST_OEM
        },
    ),
    (
        "OperationCode",
        {member.name: int(member) for member in OperationType if member < _FIRST_OEM},
    ),
    ("FuseCode", _prefixed("FUSED_", FusedActivationFunc)),
    ("PaddingCode", _prefixed("PADDING_", PaddingScheme)),
    ("PreferenceCode", _prefixed("PREFER_", ExecutionPreference)),
    ("DeviceTypeCode", _prefixed("DEVICE_", DeviceType)),
    (
        "FeatureLevelCode",
        {f"FEATURE_LEVEL_{level}": feature_level(level) for level in FeatureLevel},
    ),
    ("ResultCode", {code.name: int(code) for code in ResultCode}),
    ("DurationCode", _DURATIONS),
    ("PriorityCode", _PRIORITIES),
    (
        None,
        {
            "MAX_SIZE_OF_IMMEDIATELY_COPIED_VALUES": 128,
            "BYTE_SIZE_OF_CACHE_TOKEN": BYTE_SIZE_OF_CACHE_TOKEN,
        },
    ),
)

#: Those of NeuralNetworksOEM.h, which go on from OperandCode and OperationCode.
OEM_ENUMS: Final[tuple[tuple[str | None, dict[str, int]], ...]] = (
    (None, {"OEM_SCALAR": _FIRST_OEM, "TENSOR_OEM_BYTE": _FIRST_OEM + 1}),
    (None, {"OEM_OPERATION": _FIRST_OEM}),
)


#: Letters of `struct` for the C types of fields.
_LETTERS: Final = {"int32_t": "i", "uint32_t": "I", "float": "f"}


@dataclass(frozen=True)
class Struct:
    """A struct of the C interface: its name and fields, each as (C type, name, description)."""

    name: str
    fields: tuple[tuple[str, str, str], ...]

    @property
    def layout(self) -> struct.Struct:
        """The struct's layout in memory; a pointer is read as a number."""
        letters = (_LETTERS.get(ctype, "P") for ctype, _, _ in self.fields)
        return struct.Struct("".join([*letters, "0P"]))


OPERAND_TYPE: Final = Struct(
    "ANeuralNetworksOperandType",
    (
        ("int32_t", "type", "an OperandCode, or the code of an extension's type"),
        ("uint32_t", "dimensionCount", "rank; 0 for a scalar or an unknown rank"),
        ("const uint32_t*", "dimensions", "0 for one that is unknown"),
        ("float", "scale", "of a quantised tensor"),
        ("int32_t", "zeroPoint", "of a quantised tensor"),
    ),
)
PER_CHANNEL: Final = Struct(
    "ANeuralNetworksSymmPerChannelQuantParams",
    (
        ("uint32_t", "channelDim", "the dimension that has a scale for each index"),
        ("uint32_t", "scaleCount", "as many as that dimension has indices"),
        ("const float*", "scales", "each above 0"),
    ),
)
STRUCTS: Final = (PER_CHANNEL, OPERAND_TYPE)
