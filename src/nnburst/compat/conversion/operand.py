"""Operand: without extra parameters before 1.2, without the number of consumers in AIDL.

NNAPI: Conversions.cpp convert(Operand) of every version.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import asdict

from nnburst.compat.conversion import enums
from nnburst.compat.layouts import aidl, location, v1_0
from nnburst.compat.layouts.levels import (
    HalStruct,
    check_range,
    check_type,
    is_aidl,
    latest,
    pick,
)
from nnburst.hal.enums import FeatureLevel, OperandLifeTime
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.limits import INT32_MAX, UINT32_MAX
from nnburst.hal.model import Operand, SymmPerChannelQuantParams

HalOperand = v1_0.Operand | Operand | aidl.Operand

STRUCTS: Final[dict[FeatureLevel, type[HalOperand]]] = {
    FeatureLevel.V1_0: v1_0.Operand,
    FeatureLevel.V1_2: Operand,
    FeatureLevel.AIDL_V1: aidl.Operand,
}


def to_canonical(operand: HalOperand, level: FeatureLevel) -> Operand:
    """From a version's operand; AIDL's has nothing about consumers, so there are 0.

    Raises:
        InvalidArgument: of another version, or a number or lifetime that the version has not.
    """
    check_type(operand, latest(STRUCTS, level), level)
    _check(operand, level)
    own = {
        "lifetime": enums.to_canonical(OperandLifeTime, operand.lifetime, level),
        "location": location.to_canonical(operand.location, level),
    }
    return Operand(**{**asdict(operand), **own})


def to_hal(operand: Operand, level: FeatureLevel) -> HalStruct:
    """Into a version's operand; extra parameters are left out before 1.2.

    Raises:
        InvalidArgument: a POINTER, or a number that the version's field cannot hold.
    """
    _check(operand, level)
    lifetime = OperandLifeTime(operand.lifetime)
    if lifetime == OperandLifeTime.POINTER:
        raise InvalidArgument("validation:O21: a POINTER cannot be sent; put the value into a pool")
    own = {"lifetime": lifetime, "location": location.to_hal(operand.location, level)}
    return pick(latest(STRUCTS, level), {**asdict(operand), **own})


def _check(operand: HalOperand, level: FeatureLevel) -> None:
    """Numbers fit the version's fields: AIDL's are signed."""
    largest = INT32_MAX if is_aidl(level) else UINT32_MAX
    enums.check_aidl_type("operand type", operand.type, level)
    check_range("operand dimensions", operand.dimensions, 0, largest)
    params = None if isinstance(operand, v1_0.Operand) else operand.extra_params
    if isinstance(params, SymmPerChannelQuantParams):
        check_range("channel_dim", (params.channel_dim,), 0, largest)
