"""Finds the lowest HAL version that can express a value.

NNAPI: Validation.cpp, whose validate functions return it; hal::utils::compliantVersion. Statuses, performance
and the relaxed flag of a model need only 1.0.
"""

from __future__ import annotations

from typing import Final

from nnburst.compat.layouts import OpaqueMemory
from nnburst.hal.enums import (
    ExecutionPreference,
    FeatureLevel,
    MeasureTiming,
    OperandLifeTime,
    OperandType,
    Priority,
)
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.model import (
    INTRODUCED,
    SCALARS,
    BufferToken,
    MemoryPool,
    Model,
    Operand,
    Operation,
    Subgraph,
    is_extension,
)
from nnburst.hal.types import (
    ExecutionConfig,
    ExecutionTiming,
    PrepareModelConfig,
    Request,
    TokenValuePair,
)
from nnburst.hal.validation.operation import Signatures, Surroundings, required_level
from nnburst.hal.validation.request import RequestValidator
from nnburst.hal.validation.values import Broken

V1_0: Final = FeatureLevel.V1_0
V1_2: Final = FeatureLevel.V1_2
V1_3: Final = FeatureLevel.V1_3


def operand_type(code: int) -> FeatureLevel:
    """The version for an operand type.

    Raises:
        InvalidArgument: validation:O1, no version has the type.
    """
    if is_extension(code):
        return V1_2
    try:
        return INTRODUCED[OperandType(code)]
    except ValueError:
        raise InvalidArgument(f"validation:O1: type {code} is unknown") from None


def operand(described: Operand) -> FeatureLevel:
    """The version for an operand: for type, lifetime, rank and extra parameters."""
    kind = described.type
    since = operand_type(kind)
    is_tensor = not is_extension(kind) and kind not in SCALARS
    if (is_tensor and not described.dimensions) or described.extra_params is not None:
        since = max(since, V1_2)
    return max(since, V1_3 if described.lifetime == OperandLifeTime.SUBGRAPH else V1_0)


def operation(
    used: Operation, graph: Subgraph, signatures: Signatures, prefixes: frozenset[int]
) -> FeatureLevel:
    """The first version in which an operation with its operands is valid.

    Raises:
        InvalidArgument: the operation is valid in no version (P1 to P4, M9).
    """
    around = Surroundings(0, (), 0, prefixes, max(FeatureLevel))
    try:
        return required_level(used, graph, signatures, around)
    except Broken as broken:
        raise broken.at("operation") from None


def model(described: Model, signatures: Signatures) -> FeatureLevel:
    """The version for a model: for subgraphs, operands, operations, memory and extensions.

    Raises:
        InvalidArgument: an operand type or operation is valid in no version.
    """
    prefixes = frozenset(entry.prefix for entry in described.extension_name_to_prefix)
    since = V1_3 if described.referenced else V1_2 if prefixes else V1_0
    for graph in (described.main, *described.referenced):
        levels = [operand(o) for o in graph.operands]
        levels += [operation(o, graph, signatures, prefixes) for o in graph.operations]
        since = max(since, *levels)
    return max(since, *(memory(pool) for pool in described.pools), V1_0)


def memory(pool: MemoryPool) -> FeatureLevel:
    """The version for memory: 1.0 if it can be mapped, 1.2 for hardware buffers, 1.3 for driver buffers."""
    if isinstance(pool, BufferToken):
        return V1_3
    return V1_2 if isinstance(pool, OpaqueMemory) else V1_0


def request(asked: Request, described: Model | None = None) -> FeatureLevel:
    """The version for a request: for its memory and for outputs of unknown dimensions.

    Args:
        asked: the request.
        described: the model, which defines the meaning of empty dimensions; without it they are ignored.
    """
    shapes = [argument.dimensions for argument in asked.outputs]
    unknown = any(0 in shape for shape in shapes)
    if described is not None:
        merged = RequestValidator(described).merged_dimensions(asked).outputs
        operands = [described.main.operands[i] for i in described.main.output_indexes]
        unknown = any(
            not argument.has_no_value and o.type not in SCALARS and (not shape or 0 in shape)
            for argument, shape, o in zip(asked.outputs, merged, operands, strict=True)
        )
    return max(V1_2 if unknown else V1_0, V1_0, *(memory(pool) for pool in asked.pools))


def preference(wanted: ExecutionPreference) -> FeatureLevel:
    """The version for a preference: before 1.1 there is only FAST_SINGLE_ANSWER."""
    is_default = wanted == ExecutionPreference.FAST_SINGLE_ANSWER
    return V1_0 if is_default else FeatureLevel.V1_1


def priority(wanted: Priority) -> FeatureLevel:
    """The version for a priority: before 1.3 there is only MEDIUM."""
    return V1_0 if wanted == Priority.MEDIUM else V1_3


def measure(wanted: MeasureTiming) -> FeatureLevel:
    """The version for measuring an execution."""
    return V1_2 if wanted == MeasureTiming.YES else V1_0


def timing(reported: ExecutionTiming) -> FeatureLevel:
    """The version for measured durations."""
    return V1_0 if reported == ExecutionTiming() else V1_2


def cache_token(token: bytes) -> FeatureLevel:
    """The version for a cache token; zeros stand for no token."""
    return V1_2 if any(token) else V1_0


def time_limit(nanoseconds: int | None) -> FeatureLevel:
    """The version for a deadline, or for a timeout of loops."""
    return V1_0 if nanoseconds is None else V1_3


def sync_fence(fd: int | None) -> FeatureLevel:
    """The version for a fence; a fence without a descriptor has signalled already."""
    return V1_0 if fd is None else V1_3


def hints(given: tuple[TokenValuePair, ...]) -> FeatureLevel:
    """The version for hints."""
    return FeatureLevel.AIDL_V4 if given else V1_0


def execution_config(config: ExecutionConfig) -> FeatureLevel:
    """The version for all parts of an execution's configuration."""
    return max(
        measure(config.measure_timing),
        time_limit(config.loop_timeout_ns),
        hints(config.execution_hints),
        V1_2 if config.extension_name_to_prefix else V1_0,
    )


def prepare_model_config(config: PrepareModelConfig) -> FeatureLevel:
    """The version for all parts of a preparation's configuration."""
    return max(
        preference(config.preference),
        priority(config.priority),
        time_limit(config.deadline_ns),
        cache_token(config.cache_token),
        hints(config.compilation_hints),
        V1_2 if config.extension_name_to_prefix else V1_0,
    )
