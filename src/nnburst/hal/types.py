"""Defines the HAL's structs except models: requests, timing, capabilities, configurations, buffer roles."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

import msgspec

from nnburst.hal.enums import (
    ExecutionPreference,
    FeatureLevel,
    MeasureTiming,
    OperandType,
    Priority,
)
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.limits import BYTE_SIZE_OF_CACHE_TOKEN, NO_TIMING
from nnburst.hal.model import (
    INTRODUCED,
    BufferToken,
    DataLocation,
    ExtensionNameAndPrefix,
    MemoryPool,
)


class RequestArgument(msgspec.Struct, frozen=True, omit_defaults=True):
    """One input or output of a request.

    Attributes:
        has_no_value: the argument is omitted; `location` is then all zero and `dimensions` empty.
        location: byte range in one of the request's pools.
        dimensions: extents, if the model leaves some open; empty to use the model's.
    """

    has_no_value: bool = False
    location: DataLocation = DataLocation()
    dimensions: tuple[int, ...] = ()


class Request(msgspec.Struct, frozen=True):
    """Inputs and outputs in the model's order, and the memory that they lie in.

    Attributes:
        inputs: one argument for each input of the model.
        outputs: one argument for each output of the model.
        pools: the pools that `pool_index` refers to; a `BufferToken` names a driver's buffer (1.3).
    """

    inputs: tuple[RequestArgument, ...]
    outputs: tuple[RequestArgument, ...]
    pools: tuple[MemoryPool | BufferToken, ...] = ()

    @property
    def memory_count(self) -> int:
        """The number of pools in shared memory, each with a descriptor of its own."""
        return sum(not isinstance(pool, BufferToken) for pool in self.pools)


class OutputShape(msgspec.Struct, frozen=True):
    """Shape of one output (1.2).

    Attributes:
        dimensions: extents as far as known; 0 is unknown.
        is_sufficient: whether the given array was large enough.
    """

    dimensions: tuple[int, ...]
    is_sufficient: bool


def changes_dimensions(known: tuple[int, ...], reported: tuple[int, ...]) -> bool:
    """Whether reported dimensions contradict the known ones, or leave out some of them."""
    if not known:
        return False
    if len(known) != len(reported):
        return True
    return any(a not in (0, b) for a, b in zip(known, reported, strict=True))


class Timing(msgspec.Struct, frozen=True):
    """Durations of an execution in microseconds; NO_TIMING (2**64 - 1) if not measured.

    Both include time spent waiting or preempted; `time_on_device` <= `time_in_driver`, unless a device
    reports no time of its own.
    """

    time_on_device: int = NO_TIMING
    time_in_driver: int = NO_TIMING

    @property
    def measured(self) -> bool:
        """Whether the driver reported its own duration."""
        return self.time_in_driver != NO_TIMING


class ExecutionTiming(msgspec.Struct, frozen=True):
    """The canonical durations of an execution in nanoseconds; None if not measured."""

    time_on_device_ns: int | None = None
    time_in_driver_ns: int | None = None


def has_passed(deadline_ns: int | None) -> bool:
    """Whether a time on CLOCK_BOOTTIME has passed; always False for None."""
    return deadline_ns is not None and time.clock_gettime_ns(time.CLOCK_BOOTTIME) >= deadline_ns


class PerformanceInfo(msgspec.Struct, frozen=True):
    """Ratios to the CPU reference; lower is better, 1.0 is equal."""

    exec_time: float
    power_usage: float


class OperandPerformance(msgspec.Struct, frozen=True):
    """Performance of operations whose first operand is of `type`."""

    type: int
    info: PerformanceInfo


class Capabilities(msgspec.Struct, frozen=True):
    """Performance of a device.

    Attributes:
        relaxed_float32_to_float16_performance_scalar: float32 computed as float16, scalars.
        relaxed_float32_to_float16_performance_tensor: the same for tensors.
        operand_performance: one entry per type, ascending by type; a type without one counts as
            infinitely slow. SUBGRAPH has none.
        if_performance: overhead of IF.
        while_performance: overhead of WHILE.
    """

    relaxed_float32_to_float16_performance_scalar: PerformanceInfo
    relaxed_float32_to_float16_performance_tensor: PerformanceInfo
    operand_performance: tuple[OperandPerformance, ...]
    if_performance: PerformanceInfo
    while_performance: PerformanceInfo


#: The empty token, which is sent without a cache.
NO_CACHE_TOKEN = bytes(BYTE_SIZE_OF_CACHE_TOKEN)


class NumberOfCacheFiles(NamedTuple):
    """The numbers of files in which a driver caches one model, 32 of a kind at most; 0 and 0 for no caching.

    Attributes:
        model_cache: files whose contents steer the driver, such as code.
        data_cache: files of constants.
    """

    model_cache: int
    data_cache: int


class TokenValuePair(msgspec.Struct, frozen=True):
    """A hint of a vendor: a token that begins with the prefix of an extension, and opaque bytes."""

    token: int
    value: bytes = b""


class ExecutionConfig(msgspec.Struct, frozen=True):
    """Settings of executions.

    Attributes:
        measure_timing: whether executions are timed.
        loop_timeout_ns: longest duration of a WHILE; None for the default.
        execution_hints: hints for executions, each token once.
        extension_name_to_prefix: one-to-one map of the extensions of the hints.
    """

    measure_timing: MeasureTiming = MeasureTiming.NO
    loop_timeout_ns: int | None = None
    execution_hints: tuple[TokenValuePair, ...] = ()
    extension_name_to_prefix: tuple[ExtensionNameAndPrefix, ...] = ()


class PrepareModelConfig(msgspec.Struct, frozen=True):
    """Settings with which a model is prepared.

    Attributes:
        preference: the goal to optimise for.
        priority: among the prepared models of one client.
        deadline_ns: time on CLOCK_BOOTTIME; None for no deadline.
        model_cache: indexes of the message's descriptors that are the model cache files, in order.
        data_cache: the same for the data cache.
        cache_token: 32 bytes that name the cache entry.
        compilation_hints: hints for the compilation, each token once.
        extension_name_to_prefix: one-to-one map of the extensions of the hints.
    """

    preference: ExecutionPreference = ExecutionPreference.FAST_SINGLE_ANSWER
    priority: Priority = Priority.MEDIUM
    deadline_ns: int | None = None
    model_cache: tuple[int, ...] = ()
    data_cache: tuple[int, ...] = ()
    cache_token: bytes = NO_CACHE_TOKEN
    compilation_hints: tuple[TokenValuePair, ...] = ()
    extension_name_to_prefix: tuple[ExtensionNameAndPrefix, ...] = ()


class BufferRole(msgspec.Struct, frozen=True):
    """One use of a buffer.

    Attributes:
        model_index: index of the prepared model.
        io_index: index of its input (or output).
        probability: probability that an execution uses it in this role, in (0, 1] (HIDL: frequency).
    """

    model_index: int
    io_index: int
    probability: float = 1.0


class BufferDesc(msgspec.Struct, frozen=True):
    """The contents of a buffer; the roles determine `dimensions` that are empty or 0."""

    dimensions: tuple[int, ...] = ()


Table = tuple[OperandPerformance, ...]

FLT_MAX: Final = (2 - 2.0**-23) * 2.0**127
#: Performance of types that a device does not list.
UNLISTED: Final = PerformanceInfo(FLT_MAX, FLT_MAX)

_by_type = attrgetter("type")


# -- Tables of performance per operand type --------------------------------------------------------
# NNAPI: LegacyUtils.h (R: Utils.h) nonExtensionOperandPerformance, update, lookup.


def non_extension_operand_performance(
    info: PerformanceInfo, level: FeatureLevel = FeatureLevel.V1_3
) -> Table:
    """The same performance for each core type of a version except SUBGRAPH, ascending by type."""
    return performance_of((t for t in OperandType if INTRODUCED[t] <= level), info)


def performance_of(types: Iterable[OperandType], info: PerformanceInfo) -> Table:
    """The same performance for each of `types` except SUBGRAPH, ascending by type."""
    listed = sorted(t for t in types if t != OperandType.SUBGRAPH)
    return tuple(OperandPerformance(kind, info) for kind in listed)


def update(table: Sequence[OperandPerformance], kind: OperandType, info: PerformanceInfo) -> Table:
    """Return the table with a new entry in place of that for `kind`.

    Raises:
        InvalidArgument: the table has no entry for `kind` (DEVIATES: the original aborts).
    """
    at = bisect_left(table, kind, key=_by_type)
    if at == len(table) or table[at].type != kind:
        raise InvalidArgument(f"kind: the table has no {kind.name}")
    return (*table[:at], OperandPerformance(kind, info), *table[at + 1 :])


def lookup(table: Sequence[OperandPerformance], kind: OperandType) -> PerformanceInfo:
    """The entry for `kind` of an ascending table, or UNLISTED.

    DEVIATES: R returns the next type's entry if `kind` has none.
    """
    at = bisect_left(table, kind, key=_by_type)
    return table[at].info if at < len(table) and table[at].type == kind else UNLISTED
