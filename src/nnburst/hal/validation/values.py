"""Checks small values such as tokens and priorities, and names the place of a broken rule.

NNAPI: Validation.cpp validate(ExecutionPreference), validate(Priority), validate(Capabilities),
validate(Extension), validate(Timing), validate(SyncFence) and similar functions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise

from nnburst.hal.enums import DeviceType, ExecutionPreference, FeatureLevel, OperandType, Priority
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.extensions import Extension, is_extension_name
from nnburst.hal.limits import BYTE_SIZE_OF_CACHE_TOKEN, NO_TIMING, UINT16_MAX
from nnburst.hal.model import ExtensionNameAndPrefix
from nnburst.hal.types import Capabilities, PerformanceInfo, Timing

_RULE = re.compile(r"validation:([A-Z]\d+): (.*)", re.DOTALL)


class Broken(Exception):
    """A rule is broken; the caller adds the place and raises InvalidArgument."""

    def __init__(self, rule: str, message: str) -> None:
        """Create the error with the rule's id and the reason."""
        super().__init__(rule, message)
        self.rule = rule
        self.message = message

    @classmethod
    def by(cls, error: InvalidArgument, rule: str) -> Broken:
        """Convert `error`, with the rule that its message names, or else with `rule`."""
        named = _RULE.fullmatch(str(error))
        return cls(*named.groups()) if named else cls(rule, str(error))

    def at(self, where: str) -> InvalidArgument:
        """Make the InvalidArgument with the place `where`."""
        return InvalidArgument(f"validation:{self.rule}: {where}: {self.message}")


def check_range(rule: str, name: str, value: int, low: int, high: int) -> None:
    """Refuse an integer outside [low, high] (the original's structs cannot even hold one)."""
    if not low <= value <= high:
        raise Broken(rule, f"{name} is {value}, expected {low} to {high}")


def validate_extension_prefixes(entries: Iterable[ExtensionNameAndPrefix]) -> None:
    """validation:M6: names are legal and unique, and so are prefixes (16 bits)."""
    names: set[str] = set()
    prefixes: set[int] = set()
    for index, entry in enumerate(entries):
        where = f"extension_name_to_prefix[{index}]"
        if not is_extension_name(entry.name):
            raise Broken("M6", f"{entry.name[:80]!r} is not of the form vendor.extension").at(where)
        if not 0 <= entry.prefix <= UINT16_MAX:
            raise Broken("M6", f"prefix is {entry.prefix}, expected 0 to 2**16 - 1").at(where)
        if entry.name in names or entry.prefix in prefixes:
            raise Broken("M6", "repeats a name or a prefix").at(where)
        names.add(entry.name)
        prefixes.add(entry.prefix)


def validate_execution_preference(preference: int) -> ExecutionPreference:
    """validation:S1: 0, 1 or 2."""
    try:
        return ExecutionPreference(preference)
    except ValueError:
        raise Broken("S1", f"{preference}, expected 0, 1 or 2").at("preference") from None


def validate_priority(priority: int) -> Priority:
    """validation:S2: 0, 1 or 2."""
    try:
        return Priority(priority)
    except ValueError:
        raise Broken("S2", f"{priority}, expected 0, 1 or 2").at("priority") from None


def validate_capabilities(capabilities: Capabilities) -> None:
    """validation:S3: all numbers positive; the table ascending, without repetition, of core types."""
    table = capabilities.operand_performance
    named = {
        "relaxed scalar": capabilities.relaxed_float32_to_float16_performance_scalar,
        "relaxed tensor": capabilities.relaxed_float32_to_float16_performance_tensor,
        "if": capabilities.if_performance,
        "while": capabilities.while_performance,
        **{f"type {entry.type}": entry.info for entry in table},
    }
    for name, info in named.items():
        _check_performance(name, info)
    types = [entry.type for entry in table]
    if any(a >= b for a, b in pairwise(types)):
        raise Broken("S3", "types do not ascend").at("operand_performance")
    for code in types:
        if code not in OperandType.__members__.values() or code == OperandType.SUBGRAPH:
            raise Broken("S3", f"type {code} has no performance").at("operand_performance")


def _check_performance(name: str, info: PerformanceInfo) -> None:
    if not (info.exec_time > 0 and info.power_usage > 0):
        raise Broken("S3", f"{info.exec_time} and {info.power_usage} must be positive").at(name)


def validate_extensions(extensions: Iterable[Extension]) -> None:
    """validation:S4: names legal and unique; per extension, types unique (16 bits) with a positive size."""
    names: set[str] = set()
    for extension in extensions:
        if not is_extension_name(extension.name) or extension.name in names:
            message = f"{extension.name!r:.80} repeats, or is not of the form vendor.extension"
            raise Broken("S4", message).at("extensions")
        names.add(extension.name)
        codes = [info.type for info in extension.operand_types]
        if len(set(codes)) != len(codes):
            raise Broken("S4", "a type repeats").at(extension.name)
        for info in extension.operand_types:
            if info.byte_size <= 0 or not 0 <= info.type <= UINT16_MAX:
                message = f"type {info.type} of {info.byte_size} bytes"
                raise Broken("S4", message).at(extension.name)


def validate_timing(timing: Timing) -> None:
    """validation:S5: the device takes no longer than the driver, if both are known."""
    device, driver = timing.time_on_device, timing.time_in_driver
    if NO_TIMING not in (device, driver) and device > driver:
        raise Broken("S5", f"{device} us on the device, {driver} in the driver").at("timing")


def validate_duration(name: str, nanoseconds: int | None) -> None:
    """validation:S6: a deadline or duration is not negative; None if unknown."""
    if nanoseconds is not None and nanoseconds < 0:
        raise Broken("S6", f"{nanoseconds} ns is negative").at(name)


def validate_unique_tokens(name: str, tokens: Iterable[int]) -> None:
    """validation:S7: a list of hints (TokenValuePair) names each token once."""
    listed = list(tokens)
    if len(set(listed)) != len(listed):
        raise Broken("S7", "a token repeats").at(name)


def validate_probability(probability: float) -> None:
    """validation:S8: a buffer role's probability lies in (0, 1]."""
    if not 0 < probability <= 1:
        raise Broken("S8", f"{probability} is not in (0, 1]").at("probability")


def validate_device_type(code: int, feature_level: FeatureLevel) -> DeviceType:
    """validation:S9: 1 to 4; 0 only from a driver of 1.0 or 1.1."""
    try:
        kind = DeviceType(code)
    except ValueError:
        raise Broken("S9", f"{code}, expected 1 to 4").at("device type") from None
    if kind == DeviceType.UNKNOWN and feature_level > FeatureLevel.V1_1:
        raise Broken("S9", f"UNKNOWN from a driver of {feature_level.name}").at("device type")
    return kind


def validate_sync_fence(fd: int) -> None:
    """validation:S10: a fence's descriptor is not negative."""
    if fd < 0:
        raise Broken("S10", f"fd is {fd}").at("sync fence")


def validate_cache_token(token: object) -> None:
    """validation:S11: a cache token has 32 bytes."""
    if not isinstance(token, bytes | bytearray | memoryview):
        message = f"it is of type {type(token).__name__}, expected {BYTE_SIZE_OF_CACHE_TOKEN} bytes"
        raise Broken("S11", message).at("cache token")
    if len(token) != BYTE_SIZE_OF_CACHE_TOKEN:
        message = f"{len(token)} bytes, expected {BYTE_SIZE_OF_CACHE_TOKEN}"
        raise Broken("S11", message).at("cache token")
