"""Capabilities: two or three numbers in 1.0 and 1.1, a table since 1.2, control flow since 1.3.

NNAPI: 1.0 to 1.3 Conversions.cpp convert(Capabilities).
"""

from __future__ import annotations

from typing import Final

from nnburst.compat.conversion.enums import check_aidl_type, is_known
from nnburst.compat.layouts import v1_0, v1_1, v1_2
from nnburst.compat.layouts.levels import check_type, latest
from nnburst.compat.layouts.performance import UNLISTED, Table, lookup, performance_of
from nnburst.hal.capabilities import Capabilities, PerformanceInfo
from nnburst.hal.enums import FeatureLevel, OperandType
from nnburst.hal.errors import InvalidArgument

_T = OperandType

HalCapabilities = v1_0.Capabilities | v1_1.Capabilities | v1_2.Capabilities | Capabilities

STRUCTS: Final[dict[FeatureLevel, type[HalCapabilities]]] = {
    FeatureLevel.V1_0: v1_0.Capabilities,
    FeatureLevel.V1_1: v1_1.Capabilities,
    FeatureLevel.V1_2: v1_2.Capabilities,
    FeatureLevel.V1_3: Capabilities,
}

_FLOATS: Final = (_T.FLOAT32, _T.TENSOR_FLOAT32)
#: Types whose performance 1.0's quantised number stands for.
QUANTIZED: Final = (
    _T.INT32,
    _T.UINT32,
    _T.TENSOR_INT32,
    _T.TENSOR_QUANT8_ASYMM,
    _T.OEM,
    _T.TENSOR_OEM_BYTE,
)


def to_canonical(capabilities: HalCapabilities, level: FeatureLevel) -> Capabilities:
    """From a version's capabilities; what it leaves out is UNLISTED.

    Raises:
        InvalidArgument: of another version, or the table lists a type that the version has not.
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


def to_hal(capabilities: Capabilities, level: FeatureLevel) -> HalCapabilities:
    """Into a version's capabilities, as far as it can express them."""
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


def is_compliant(capabilities: Capabilities, level: FeatureLevel) -> bool:
    """Whether 1.0's or 1.1's few numbers express all of it; later versions' tables always do."""
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
