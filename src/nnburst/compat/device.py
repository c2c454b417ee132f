"""Converts capabilities, configurations and buffer roles between HAL versions."""

from __future__ import annotations

from typing import Final

from nnburst.compat import aidl, enums, v1_0, v1_1, v1_2, v1_3
from nnburst.compat.enums import check_aidl_type, is_known
from nnburst.compat.layouts import check_numbers, check_range, check_type, is_aidl, latest
from nnburst.compat.model import check_prefixes
from nnburst.compat.timing import (
    deadline_from_aidl,
    deadline_to_aidl,
    duration_from_aidl,
    duration_to_aidl,
)
from nnburst.hal import types
from nnburst.hal.enums import (
    ExecutionPreference,
    FeatureLevel,
    MeasureTiming,
    OperandType,
    Priority,
)
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.limits import INT32_MAX
from nnburst.hal.types import (
    UNLISTED,
    BufferDesc,
    BufferRole,
    Capabilities,
    PerformanceInfo,
    Table,
    lookup,
    performance_of,
)

# -- Capabilities: two or three numbers in 1.0 and 1.1, a table from 1.2 on, control flow from 1.3 on --
# NNAPI: 1.0 to 1.3 Conversions.cpp convert(Capabilities).

_T = OperandType

HalCapabilities = v1_0.Capabilities | v1_1.Capabilities | v1_2.Capabilities | Capabilities

STRUCTS: Final[dict[FeatureLevel, type[HalCapabilities]]] = {
    FeatureLevel.V1_0: v1_0.Capabilities,
    FeatureLevel.V1_1: v1_1.Capabilities,
    FeatureLevel.V1_2: v1_2.Capabilities,
    FeatureLevel.V1_3: Capabilities,
}

_FLOATS: Final = (_T.FLOAT32, _T.TENSOR_FLOAT32)
#: Types whose performance 1.0 gives as one number for quantised operations.
QUANTIZED: Final = (
    _T.INT32,
    _T.UINT32,
    _T.TENSOR_INT32,
    _T.TENSOR_QUANT8_ASYMM,
    _T.OEM,
    _T.TENSOR_OEM_BYTE,
)


def capabilities_to_canonical(capabilities: HalCapabilities, level: FeatureLevel) -> Capabilities:
    """Convert from a version's capabilities; types that it leaves out are UNLISTED.

    Raises:
        InvalidArgument: the struct is of another version, or lists a type that the version lacks.
    """
    check_type(capabilities, latest(STRUCTS, level), level)
    if isinstance(capabilities, v1_0.Capabilities):
        return _expanded(capabilities)
    for entry in capabilities.operand_performance:
        check_aidl_type("operand_performance", entry.type, level)
        if entry.type not in tuple(_T) or not is_known(_T(entry.type), level):
            raise InvalidArgument(
                f"validation:S3: operand_performance: type {entry.type} in {level.name}"
            )
    if isinstance(capabilities, Capabilities):
        return capabilities
    return Capabilities(
        capabilities.relaxed_float32_to_float16_performance_scalar,
        capabilities.relaxed_float32_to_float16_performance_tensor,
        capabilities.operand_performance,
        UNLISTED,
        UNLISTED,
    )


def capabilities_to_hal(capabilities: Capabilities, level: FeatureLevel) -> HalCapabilities:
    """Convert to a version's capabilities, as far as the version can express them."""
    table = capabilities.operand_performance
    relaxed = capabilities.relaxed_float32_to_float16_performance_tensor
    if level < FeatureLevel.V1_2:
        both = lookup(table, _T.TENSOR_FLOAT32), lookup(table, _T.TENSOR_QUANT8_ASYMM)
        is_1_0 = level == FeatureLevel.V1_0
        return v1_0.Capabilities(*both) if is_1_0 else v1_1.Capabilities(*both, relaxed)
    common = (
        capabilities.relaxed_float32_to_float16_performance_scalar,
        relaxed,
        _known_entries(table, level),
    )
    if level == FeatureLevel.V1_2:
        return v1_2.Capabilities(*common)
    return Capabilities(*common, capabilities.if_performance, capabilities.while_performance)


def are_capabilities_compliant(capabilities: Capabilities, level: FeatureLevel) -> bool:
    """Whether the few numbers of 1.0 or 1.1 express all capabilities; later versions' tables always do."""
    if level >= FeatureLevel.V1_2:
        return True
    table = capabilities.operand_performance
    floats = {lookup(table, kind) for kind in _FLOATS}
    relaxed = {
        capabilities.relaxed_float32_to_float16_performance_scalar,
        capabilities.relaxed_float32_to_float16_performance_tensor,
    }
    if level == FeatureLevel.V1_0:
        floats |= relaxed
    return len(floats) == len(relaxed) == len({lookup(table, kind) for kind in QUANTIZED}) == 1


def _expanded(capabilities: v1_0.Capabilities) -> Capabilities:
    floats = capabilities.float32_performance
    relaxed: PerformanceInfo = floats
    if isinstance(capabilities, v1_1.Capabilities):
        relaxed = capabilities.relaxed_float32_to_float16_performance
    entries = (
        *performance_of(_FLOATS, floats),
        *performance_of(QUANTIZED, capabilities.quantized8_performance),
    )
    table = tuple(sorted(entries, key=lambda entry: entry.type))
    return Capabilities(relaxed, relaxed, table, UNLISTED, UNLISTED)


def _known_entries(table: Table, level: FeatureLevel) -> Table:
    return tuple(entry for entry in table if is_known(_T(entry.type), level))


# -- Configurations of preparation and execution: AIDL version 4 only ------------------------------
# NNAPI: aidl Conversions.cpp convert(ExecutionConfig), convert(PrepareModelConfig), convert(TokenValuePair).


def execution_to_canonical(
    config: aidl.ExecutionConfig, level: FeatureLevel
) -> types.ExecutionConfig:
    """Convert from AIDL's configuration of an execution.

    Raises:
        InvalidArgument: the struct is of another version, or AIDL refuses a number.
    """
    check_type(config, aidl.ExecutionConfig, level)
    _check_hints(config.execution_hints)
    check_prefixes(config.extension_name_to_prefix, level)
    return types.ExecutionConfig(
        MeasureTiming(config.measure_timing),
        duration_from_aidl(config.loop_timeout_duration_ns),
        config.execution_hints,
        config.extension_name_to_prefix,
    )


def execution_to_hal(config: types.ExecutionConfig, level: FeatureLevel) -> aidl.ExecutionConfig:
    """Convert to AIDL's configuration of an execution.

    Raises:
        InvalidArgument: AIDL cannot express a number.
    """
    _check_hints(config.execution_hints)
    check_prefixes(config.extension_name_to_prefix, level)
    return aidl.ExecutionConfig(
        config.measure_timing == MeasureTiming.YES,
        duration_to_aidl(config.loop_timeout_ns),
        config.execution_hints,
        config.extension_name_to_prefix,
    )


def preparation_to_canonical(
    config: aidl.PrepareModelConfig, level: FeatureLevel
) -> types.PrepareModelConfig:
    """Convert from AIDL's configuration of a preparation.

    Raises:
        InvalidArgument: the struct is of another version, or AIDL refuses a number.
    """
    check_type(config, aidl.PrepareModelConfig, level)
    _check_hints(config.compilation_hints)
    check_prefixes(config.extension_name_to_prefix, level)
    return types.PrepareModelConfig(
        enums.to_canonical(ExecutionPreference, config.preference, level),
        enums.to_canonical(Priority, config.priority, level),
        deadline_from_aidl(config.deadline_ns),
        config.model_cache,
        config.data_cache,
        config.cache_token,
        config.compilation_hints,
        config.extension_name_to_prefix,
    )


def preparation_to_hal(
    config: types.PrepareModelConfig, level: FeatureLevel
) -> aidl.PrepareModelConfig:
    """Convert to AIDL's configuration of a preparation.

    Raises:
        InvalidArgument: AIDL cannot express a number.
    """
    _check_hints(config.compilation_hints)
    check_prefixes(config.extension_name_to_prefix, level)
    return aidl.PrepareModelConfig(
        config.preference,
        config.priority,
        deadline_to_aidl(config.deadline_ns),
        config.model_cache,
        config.data_cache,
        config.cache_token,
        config.compilation_hints,
        config.extension_name_to_prefix,
    )


def _check_hints(hints: tuple[types.TokenValuePair, ...]) -> None:
    check_range("hint token", tuple(hint.token for hint in hints), 0, INT32_MAX)


# -- BufferRole: frequency in HIDL, probability in AIDL, with the same meaning ----------------------
# NNAPI: 1.3 and aidl Conversions.cpp convert(BufferRole), convert(BufferDesc).


def role_to_canonical(role: v1_3.BufferRole | BufferRole, level: FeatureLevel) -> BufferRole:
    """Convert from a version's role.

    Raises:
        InvalidArgument: the struct is of another version, or a number does not fit a field.
    """
    check_type(role, BufferRole if is_aidl(level) else v1_3.BufferRole, level)
    check_numbers("role", (role.model_index, role.io_index), level)
    if isinstance(role, BufferRole):
        return role
    return BufferRole(role.model_index, role.io_index, role.frequency)


def role_to_hal(role: BufferRole, level: FeatureLevel) -> v1_3.BufferRole | BufferRole:
    """Convert to a version's role.

    Raises:
        InvalidArgument: a number does not fit the version's field.
    """
    check_numbers("role", (role.model_index, role.io_index), level)
    if is_aidl(level):
        return role
    return v1_3.BufferRole(role.model_index, role.io_index, role.probability)


def check_desc(desc: BufferDesc, level: FeatureLevel) -> BufferDesc:
    """Check a buffer's description, which is the same struct in all versions, and return it.

    Raises:
        InvalidArgument: a number does not fit the version's field.
    """
    check_numbers("dimensions", desc.dimensions, level)
    return desc
