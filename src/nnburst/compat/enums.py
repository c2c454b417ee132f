"""Converts enumerations between HAL versions, and checks whether canonical values are valid.

Numbers are the same in all versions; later versions have more members.

NNAPI: Conversions.cpp convert(ErrorStatus) and kin, types.hal, */utils compliantVersion.
"""

from __future__ import annotations

import mmap
from enum import IntEnum
from typing import Final, TypeVar

from nnburst.compat.layouts import MappedFile, OpaqueMemory, is_aidl, padding
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
from nnburst.hal.model import INTRODUCED, BufferToken, DataLocation, MemoryPool, Model, is_extension
from nnburst.hal.types import (
    ExecutionConfig,
    ExecutionTiming,
    PrepareModelConfig,
    Request,
    RequestArgument,
)
from nnburst.hal.validation import validate_model, validate_request
from nnburst.hal.validation.operation import Signatures
from nnburst.hal.validation.values import (
    validate_cache_token,
    validate_duration,
    validate_extension_prefixes,
    validate_unique_tokens,
)

E = TypeVar("E", bound=IntEnum)

_OEM_MIN: Final = 10000

#: The version that introduced each enumeration.
_SINCE: Final[dict[type[IntEnum], FeatureLevel]] = {
    ErrorStatus: FeatureLevel.V1_0,
    DeviceStatus: FeatureLevel.V1_0,
    OperandLifeTime: FeatureLevel.V1_0,
    ExecutionPreference: FeatureLevel.V1_1,
    DeviceType: FeatureLevel.V1_2,
    MeasureTiming: FeatureLevel.V1_2,
    Priority: FeatureLevel.V1_3,
}
#: Members that are newer than their enumeration, or are never transmitted (None). Grouped by enumeration,
#: because members of two enumerations with equal numbers are equal keys.
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
    """Whether messages of version `level` can have this member."""
    if isinstance(member, OperandType):
        return INTRODUCED[member] <= level and not (is_aidl(level) and member >= _OEM_MIN)
    if isinstance(member, DeviceStatus) and is_aidl(level):
        return False  # AIDL has no getStatus
    kind = type(member)
    since = _LATER.get(kind, {}).get(member, _SINCE[kind])
    return since is not None and since <= level


def to_canonical(kind: type[E], code: int, level: FeatureLevel) -> E:
    """The enumeration's member with number `code` in a version.

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
    """The number of `member` in a version; an ErrorStatus that it lacks becomes GENERAL_FAILURE.

    Raises:
        InvalidArgument: that version has no such member and no substitute for it.
    """
    if isinstance(member, ErrorStatus) and not is_known(member, level):
        return type(member)(ErrorStatus.GENERAL_FAILURE)
    return to_canonical(type(member), member, level)


def check_aidl_type(name: str, code: int, level: FeatureLevel) -> None:
    """Refuse operand and operation types that AIDL cannot express: negative ones and OEM types.

    Raises:
        InvalidArgument: `code` is such a type, and `level` is an AIDL one.
    """
    if is_aidl(level) and not 0 <= code < 2**31:
        raise InvalidArgument(f"{name}: {code} is not an AIDL type (15 bits of prefix, 16 of type)")
    oem = (OperandType.OEM, OperandType.TENSOR_OEM_BYTE, OperationType.OEM_OPERATION)
    if is_aidl(level) and not is_extension(code) and code in oem:
        raise InvalidArgument(f"{name}: {code} is an OEM type, which AIDL does not have")


# -- Whether canonical values are valid ------------------------------------------------------------
# `nnburst.hal.validation` checks only plain pools.
#
# NNAPI: Validation.cpp validate(SharedMemory), validate(Request), validate(ExecutionConfig).


_PROTECTIONS: Final = mmap.PROT_READ | mmap.PROT_WRITE
#: Only a runtime executes a WHILE over operands of unknown size; drivers do not.
_KNOWN_SIZES: Final = frozenset({OperationType.WHILE})


def check_model(model: Model, level: FeatureLevel, signatures: Signatures | None) -> None:
    """Check a model that is sent to a driver of version `level`.

    Raises:
        InvalidArgument: a rule is broken, or there are no signatures to check P4 with.
    """
    if signatures is None:
        raise InvalidArgument("signatures: a model cannot be validated without them")
    for index, pool in enumerate(model.pools):
        if isinstance(pool, BufferToken):
            raise InvalidArgument(
                f"validation:M3: pools[{index}]: a model's constants lie in no driver buffer"
            )
        check_memory(f"pools[{index}]", "M3", pool)
    for graph in (model.main, *model.referenced):
        if any(padding(operand.location) for operand in graph.operands):
            raise InvalidArgument("validation:O20: operands: the padding of a location must be 0")
    validate_model(model, signatures, feature_level=level, known_sizes=_KNOWN_SIZES)


def check_memory(where: str, rule: str, pool: MemoryPool) -> None:
    """Check memory that must be mappable, or a token that must be possible.

    Raises:
        InvalidArgument: `rule`, or M4.
    """
    if isinstance(pool, BufferToken):
        if pool.token <= 0:
            raise InvalidArgument(
                f"validation:R2: {where}: token is {pool.token}, expected a positive one"
            )
        return
    if isinstance(pool, OpaqueMemory):
        raise InvalidArgument(
            f"validation:{rule}: {where}: memory {pool.name[:80]!r} cannot be mapped here"
        )
    if pool.size <= 0 or pool.fd_index < 0:
        message = f"size is {pool.size}, fd_index {pool.fd_index}"
        raise InvalidArgument(
            f"validation:M4: {where}: {message}, expected a positive size and a descriptor"
        )
    if isinstance(pool, MappedFile) and (pool.protection & ~_PROTECTIONS or pool.offset < 0):
        message = f"protection is {pool.protection:#x}, offset {pool.offset}"
        raise InvalidArgument(
            f"validation:M4: {where}: {message}, expected only READ and WRITE, from 0 on"
        )


def check_request(request: Request, model: Model | None) -> None:
    """Check a request, and also against its model if given.

    Raises:
        InvalidArgument: validation:R2 to R6; with a model any rule of requests.
    """
    for index, pool in enumerate(request.pools):
        check_memory(f"pools[{index}]", "R2", pool)
    for name, arguments in (("input", request.inputs), ("output", request.outputs)):
        for index, argument in enumerate(arguments):
            _check_argument(f"{name} {index}", argument, request.pools)
    if model is not None:
        sizes = [None if isinstance(p, BufferToken) else p.size for p in request.pools]
        validate_request(request, model, sizes)


def _check_argument(where: str, argument: RequestArgument, pools: tuple[MemoryPool, ...]) -> None:
    at = argument.location
    if argument.has_no_value:
        if at != DataLocation() or argument.dimensions:
            raise InvalidArgument(
                f"validation:R3: {where}: an omitted argument has a location or dimensions"
            )
        return
    if not 0 <= at.pool_index < len(pools):
        raise InvalidArgument(
            f"validation:R4: {where}: pool_index is {at.pool_index} of {len(pools)} pools"
        )
    pool = pools[at.pool_index]
    end = at.offset + at.length + padding(at)
    if end > pool.size:
        message = f"offset, length and padding add up to {end}"
        raise InvalidArgument(f"validation:R5: {where}: {message}, the pool has {pool.size} bytes")
    if not at.length and not isinstance(pool, BufferToken):
        raise InvalidArgument(f"validation:R6: {where}: length is 0")


def check_timing(timing: ExecutionTiming) -> None:
    """Check that durations are not negative, and the device's not longer than the driver's.

    Raises:
        InvalidArgument: validation:S5, S6.
    """
    device, driver = timing.time_on_device_ns, timing.time_in_driver_ns
    validate_duration("time_on_device_ns", device)
    validate_duration("time_in_driver_ns", driver)
    if device is not None and driver is not None and device > driver:
        raise InvalidArgument(
            f"validation:S5: timing: {device} ns on the device, {driver} in the driver"
        )


def check_execution_config(config: ExecutionConfig) -> None:
    """Check a configuration: each hint once, valid extension names, no negative timeout.

    Raises:
        InvalidArgument: validation:M6, S6, S7.
    """
    validate_duration("loop_timeout_ns", config.loop_timeout_ns)
    validate_unique_tokens("execution_hints", (hint.token for hint in config.execution_hints))
    validate_extension_prefixes(config.extension_name_to_prefix)


def check_prepare_model_config(config: PrepareModelConfig) -> None:
    """Check a configuration: each hint once, valid extension names, deadline not negative, token of 32 bytes.

    Raises:
        InvalidArgument: validation:M6, S6, S7, S11.
    """
    validate_duration("deadline_ns", config.deadline_ns)
    validate_cache_token(config.cache_token)
    validate_unique_tokens("compilation_hints", (hint.token for hint in config.compilation_hints))
    validate_extension_prefixes(config.extension_name_to_prefix)
