"""Enumerations: numbers are the same in all versions, later versions have more of them.

NNAPI: Conversions.cpp convert(ErrorStatus) and kin, types.hal, */utils compliantVersion.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, TypeVar

from nnburst.compat.layouts.levels import is_aidl
from nnburst.hal.enums import (
    DeviceStatus,
    DeviceType,
    ErrorStatus,
    ExecutionPreference,
    FeatureLevel,
    MeasureTiming,
    OperandLifeTime,
    OperandType,
    OperationType,
    Priority,
)
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.operand_types import INTRODUCED, is_extension

E = TypeVar("E", bound=IntEnum)

_OEM_MIN: Final = 10000

#: Version that introduced each enumeration.
_SINCE: Final[dict[type[IntEnum], FeatureLevel]] = {
    ErrorStatus: FeatureLevel.V1_0,
    DeviceStatus: FeatureLevel.V1_0,
    OperandLifeTime: FeatureLevel.V1_0,
    ExecutionPreference: FeatureLevel.V1_1,
    DeviceType: FeatureLevel.V1_2,
    MeasureTiming: FeatureLevel.V1_2,
    Priority: FeatureLevel.V1_3,
}
#: Members that came later than their enumeration, or are never transmitted (None). By enumeration,
#: as equal numbers of two of them are equal keys.
_LATER: Final[dict[type[IntEnum], dict[IntEnum, FeatureLevel | None]]] = {
    ErrorStatus: {
        ErrorStatus.MISSED_DEADLINE_TRANSIENT: FeatureLevel.V1_3,
        ErrorStatus.MISSED_DEADLINE_PERSISTENT: FeatureLevel.V1_3,
        ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT: FeatureLevel.V1_3,
        ErrorStatus.RESOURCE_EXHAUSTED_PERSISTENT: FeatureLevel.V1_3,
        ErrorStatus.DEAD_OBJECT: None,
    },
    OperandLifeTime: {
        OperandLifeTime.SUBGRAPH: FeatureLevel.V1_3,
        OperandLifeTime.POINTER: None,
    },
    DeviceType: {DeviceType.UNKNOWN: None},
}


def is_known(member: IntEnum, level: FeatureLevel) -> bool:
    """Whether messages of that version have this member."""
    if isinstance(member, OperandType):
        return INTRODUCED[member] <= level and not (is_aidl(level) and member >= _OEM_MIN)
    if isinstance(member, DeviceStatus) and is_aidl(level):
        return False  # AIDL has no getStatus
    kind = type(member)
    since = _LATER.get(kind, {}).get(member, _SINCE[kind])
    return since is not None and since <= level


def to_canonical(kind: type[E], code: int, level: FeatureLevel) -> E:
    """The member that a version means by `code`.

    Raises:
        InvalidArgument: that version has no such member.
    """
    try:
        member = kind(code)
    except ValueError:
        raise InvalidArgument(f"{kind.__name__}: {code} is unknown") from None
    if not is_known(member, level):
        raise InvalidArgument(f"{kind.__name__}: {member.name} is unknown to {level.name}")
    return member


def to_hal(member: E, level: FeatureLevel) -> E:
    """What a version has for `member`; an ErrorStatus that it lacks becomes GENERAL_FAILURE.

    Raises:
        InvalidArgument: that version has no such member, and none that stands for it.
    """
    if isinstance(member, ErrorStatus) and not is_known(member, level):
        return type(member)(ErrorStatus.GENERAL_FAILURE)
    return to_canonical(type(member), member, level)


def check_aidl_type(name: str, code: int, level: FeatureLevel) -> None:
    """Refuse what AIDL's operand and operation types cannot be: negative, or OEM.

    Raises:
        InvalidArgument: so it is, and `level` is an AIDL one.
    """
    if is_aidl(level) and not 0 <= code < 2**31:
        raise InvalidArgument(f"{name}: {code} is not an AIDL type (15 bits of prefix, 16 of type)")
    oem = (OperandType.OEM, OperandType.TENSOR_OEM_BYTE, OperationType.OEM_OPERATION)
    if is_aidl(level) and not is_extension(code) and code in oem:
        raise InvalidArgument(f"{name}: {code} is an OEM type, which AIDL does not have")
