"""Request: pools are memory, and since 1.3 buffers of the driver, too.

NNAPI: Conversions.cpp convert(Request), convert(RequestArgument) of every version.
"""

from __future__ import annotations

from typing import Final

from nnburst.compat.layouts import aidl, location, memory, v1_0, v1_3
from nnburst.compat.layouts.levels import HalStruct, check_range, check_type, is_aidl, latest
from nnburst.hal.enums import FeatureLevel
from nnburst.hal.limits import INT32_MAX, UINT32_MAX
from nnburst.hal.request import Request, RequestArgument

HalRequest = v1_0.Request | v1_3.Request | aidl.Request
HalArgument = RequestArgument | aidl.RequestArgument

STRUCTS: Final[dict[FeatureLevel, type[HalRequest]]] = {
    FeatureLevel.V1_0: v1_0.Request,
    FeatureLevel.V1_3: v1_3.Request,
    FeatureLevel.AIDL_V1: aidl.Request,
}


def to_canonical(request: HalRequest, level: FeatureLevel) -> Request:
    """From a version's request.

    Raises:
        InvalidArgument: of another version, or a part is not the version's.
    """
    check_type(request, latest(STRUCTS, level), level)
    return Request(
        tuple(argument_to_canonical(argument, level) for argument in request.inputs),
        tuple(argument_to_canonical(argument, level) for argument in request.outputs),
        tuple(memory.to_canonical(pool, level) for pool in request.pools),
    )


def to_hal(request: Request, level: FeatureLevel) -> HalStruct:
    """Into a version's request.

    Raises:
        InvalidArgument: memory or a number that the version has not.
    """
    return latest(STRUCTS, level)(
        tuple(argument_to_hal(argument, level) for argument in request.inputs),
        tuple(argument_to_hal(argument, level) for argument in request.outputs),
        tuple(memory.to_hal(pool, level) for pool in request.pools),
    )


def argument_to_canonical(argument: HalArgument, level: FeatureLevel) -> RequestArgument:
    """From a version's argument.

    Raises:
        InvalidArgument: of another version, or a number does not fit the version's field.
    """
    check_type(argument, aidl.RequestArgument if is_aidl(level) else RequestArgument, level)
    _check(argument, level)
    at = location.to_canonical(argument.location, level)
    return RequestArgument(argument.has_no_value, at, argument.dimensions)


def argument_to_hal(argument: RequestArgument, level: FeatureLevel) -> HalStruct:
    """Into a version's argument.

    Raises:
        InvalidArgument: a number does not fit the version's field.
    """
    _check(argument, level)
    struct = aidl.RequestArgument if is_aidl(level) else RequestArgument
    at = location.to_hal(argument.location, level)
    return struct(argument.has_no_value, at, argument.dimensions)


def _check(argument: HalArgument, level: FeatureLevel) -> None:
    largest = INT32_MAX if is_aidl(level) else UINT32_MAX
    check_range("argument dimensions", argument.dimensions, 0, largest)
