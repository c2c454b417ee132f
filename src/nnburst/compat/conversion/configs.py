"""Configurations of preparation and execution: AIDL version 4 only.

NNAPI: aidl Conversions.cpp convert(ExecutionConfig), convert(PrepareModelConfig), convert(TokenValuePair).
"""

from __future__ import annotations

from nnburst.compat.conversion import enums
from nnburst.compat.conversion.deadlines import deadline_from_aidl, deadline_to_aidl
from nnburst.compat.conversion.model import check_prefixes
from nnburst.compat.conversion.timing import duration_from_aidl, duration_to_aidl
from nnburst.compat.layouts import aidl
from nnburst.compat.layouts.levels import check_range, check_type
from nnburst.hal import configs
from nnburst.hal.enums import ExecutionPreference, FeatureLevel, MeasureTiming, Priority
from nnburst.hal.limits import INT32_MAX


def execution_to_canonical(
    config: aidl.ExecutionConfig, level: FeatureLevel
) -> configs.ExecutionConfig:
    """From AIDL's configuration.

    Raises:
        InvalidArgument: of another version, or a number that AIDL refuses.
    """
    check_type(config, aidl.ExecutionConfig, level)
    _check(config.execution_hints)
    check_prefixes(config.extension_name_to_prefix, level)
    return configs.ExecutionConfig(
        MeasureTiming(config.measure_timing),
        duration_from_aidl(config.loop_timeout_duration_ns),
        config.execution_hints,
        config.extension_name_to_prefix,
    )


def execution_to_hal(config: configs.ExecutionConfig, level: FeatureLevel) -> aidl.ExecutionConfig:
    """Into AIDL's configuration.

    Raises:
        InvalidArgument: a number that AIDL cannot express.
    """
    _check(config.execution_hints)
    check_prefixes(config.extension_name_to_prefix, level)
    return aidl.ExecutionConfig(
        config.measure_timing == MeasureTiming.YES,
        duration_to_aidl(config.loop_timeout_ns),
        config.execution_hints,
        config.extension_name_to_prefix,
    )


def preparation_to_canonical(
    config: aidl.PrepareModelConfig, level: FeatureLevel
) -> configs.PrepareModelConfig:
    """From AIDL's configuration.

    Raises:
        InvalidArgument: of another version, or a number that AIDL refuses.
    """
    check_type(config, aidl.PrepareModelConfig, level)
    _check(config.compilation_hints)
    check_prefixes(config.extension_name_to_prefix, level)
    return configs.PrepareModelConfig(
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
    config: configs.PrepareModelConfig, level: FeatureLevel
) -> aidl.PrepareModelConfig:
    """Into AIDL's configuration.

    Raises:
        InvalidArgument: a number that AIDL cannot express.
    """
    _check(config.compilation_hints)
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


def _check(hints: tuple[configs.TokenValuePair, ...]) -> None:
    check_range("hint token", tuple(hint.token for hint in hints), 0, INT32_MAX)
