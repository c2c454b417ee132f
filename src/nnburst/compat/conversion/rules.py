"""What conversion does for each canonical type: one table, which both directions read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import Any, Final

from nnburst.compat.conversion import (
    buffers,
    capabilities,
    configs,
    enums,
    model,
    operand,
    request,
    requirement,
    subgraph,
    timing,
    validity,
)
from nnburst.compat.layouts import aidl, location, memory, v1_3
from nnburst.compat.layouts.levels import check_range, is_aidl
from nnburst.hal import configs as canonical_configs
from nnburst.hal.buffers import BufferDesc, BufferRole
from nnburst.hal.capabilities import Capabilities, PerformanceInfo
from nnburst.hal.enums import (
    DeviceStatus,
    DeviceType,
    ErrorStatus,
    ExecutionPreference,
    FeatureLevel,
    MeasureTiming,
    OperandLifeTime,
    Priority,
)
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.extensions import Extension
from nnburst.hal.limits import INT32_MAX, UINT32_MAX
from nnburst.hal.model import (
    BufferToken,
    DataLocation,
    MemoryPool,
    Model,
    Operand,
    Operation,
    Subgraph,
)
from nnburst.hal.request import Request, RequestArgument
from nnburst.hal.timing import OutputShape, Timing
from nnburst.hal.validation.operation import Signatures
from nnburst.hal.validation.values import (
    validate_cache_token,
    validate_capabilities,
    validate_extensions,
    validate_probability,
)


@dataclass(frozen=True, slots=True)
class Context:
    """What a value is validated against: the version, and what the value refers to."""

    level: FeatureLevel
    signatures: Signatures | None = None
    model: Model | None = None


@dataclass(frozen=True, slots=True)
class Rules:
    """Conversion of one canonical type.

    Attributes:
        to_canonical: from a version's struct.
        to_hal: into a version's struct.
        validate: whether a canonical value is valid; None for types that are only parts of others.
        required: lowest version that can express a (valid) value.
    """

    to_canonical: Callable[[Any, FeatureLevel], Any]
    to_hal: Callable[[Any, FeatureLevel], Any]
    validate: Callable[[Any, Context], None] | None = None
    required: Callable[[Any, Context], FeatureLevel] = lambda _value, _context: FeatureLevel.V1_0


def _same(value: Any, _level: FeatureLevel) -> Any:  # noqa: ANN401 - any type that all versions share
    return value


def _shape(shape: OutputShape, level: FeatureLevel) -> OutputShape:
    check_range("dimensions", shape.dimensions, 0, INT32_MAX if is_aidl(level) else UINT32_MAX)
    return shape


def _extension(extension: Extension, level: FeatureLevel) -> Extension:
    sizes = tuple(info.byte_size for info in extension.operand_types)
    check_range("byte_size", sizes, 0, INT32_MAX if is_aidl(level) else UINT32_MAX)
    return extension


def _from(level: FeatureLevel) -> Callable[[Any, Context], FeatureLevel]:
    return lambda _value, _context: level


def _enum(
    kind: type[IntEnum], required: Callable[[Any], FeatureLevel] = lambda _member: FeatureLevel.V1_0
) -> Rules:
    return Rules(
        partial(enums.to_canonical, kind),
        enums.to_hal,
        lambda _member, _context: None,
        lambda member, _context: required(member),
    )


RULES: Final[dict[type[Any], Rules]] = {
    Model: Rules(
        model.to_canonical,
        model.to_hal,
        lambda v, c: validity.check_model(model.recounted(v), c.level, c.signatures),
        lambda v, c: requirement.model(v, c.signatures or {}),
    ),
    Request: Rules(
        request.to_canonical,
        request.to_hal,
        lambda v, c: validity.check_request(v, c.model),
        lambda v, c: requirement.request(v, c.model),
    ),
    Capabilities: Rules(
        capabilities.to_canonical,
        capabilities.to_hal,
        lambda v, _: validate_capabilities(v),
    ),
    timing.ExecutionTiming: Rules(
        timing.to_canonical,
        timing.to_hal,
        lambda v, _: validity.check_timing(v),
        lambda v, _: requirement.timing(v),
    ),
    OutputShape: Rules(_shape, _shape, lambda _v, _c: None, _from(FeatureLevel.V1_2)),
    Extension: Rules(
        _extension, _extension, lambda v, _: validate_extensions([v]), _from(FeatureLevel.V1_2)
    ),
    BufferRole: Rules(
        buffers.role_to_canonical,
        buffers.role_to_hal,
        lambda v, _: validate_probability(v.probability),
        _from(FeatureLevel.V1_3),
    ),
    BufferDesc: Rules(
        buffers.check_desc, buffers.check_desc, lambda _v, _c: None, _from(FeatureLevel.V1_3)
    ),
    bytes: Rules(  # a cache token
        _same,
        _same,
        lambda v, _: validate_cache_token(v),
        lambda v, _: requirement.cache_token(v),
    ),
    canonical_configs.ExecutionConfig: Rules(
        configs.execution_to_canonical,
        configs.execution_to_hal,
        lambda v, _: validity.check_execution_config(v),
        _from(FeatureLevel.AIDL_V4),
    ),
    canonical_configs.PrepareModelConfig: Rules(
        configs.preparation_to_canonical,
        configs.preparation_to_hal,
        lambda v, _: validity.check_prepare_model_config(v),
        _from(FeatureLevel.AIDL_V4),
    ),
    ErrorStatus: _enum(ErrorStatus),
    DeviceStatus: _enum(DeviceStatus),
    DeviceType: _enum(DeviceType),
    ExecutionPreference: _enum(ExecutionPreference, requirement.preference),
    Priority: _enum(Priority, requirement.priority),
    MeasureTiming: _enum(MeasureTiming, requirement.measure),
    # Parts of others: unvalidated only.
    Subgraph: Rules(subgraph.to_canonical, subgraph.to_hal),
    Operand: Rules(operand.to_canonical, operand.to_hal),
    OperandLifeTime: Rules(partial(enums.to_canonical, OperandLifeTime), enums.to_hal),
    Operation: Rules(subgraph.check_operation, subgraph.check_operation),
    RequestArgument: Rules(request.argument_to_canonical, request.argument_to_hal),
    DataLocation: Rules(location.to_canonical, location.to_hal),
    MemoryPool: Rules(memory.to_canonical, memory.to_hal),
    PerformanceInfo: Rules(_same, _same),
}

#: Canonical type behind each struct of a version, and behind each kind of canonical memory.
_CANONICAL: Final[dict[type[Any], type[Any]]] = {
    **dict.fromkeys(model.STRUCTS.values(), Model),
    **dict.fromkeys(request.STRUCTS.values(), Request),
    **dict.fromkeys(capabilities.STRUCTS.values(), Capabilities),
    **dict.fromkeys(operand.STRUCTS.values(), Operand),
    **dict.fromkeys((Timing, aidl.Timing), timing.ExecutionTiming),
    **dict.fromkeys((memory.HidlMemory, memory.Ashmem, memory.MappableFile), MemoryPool),
    **dict.fromkeys((BufferToken, memory.MappedFile, memory.OpaqueMemory), MemoryPool),
    aidl.Subgraph: Subgraph,
    aidl.RequestArgument: RequestArgument,
    location.PaddedLocation: DataLocation,
    v1_3.BufferRole: BufferRole,
    aidl.ExecutionConfig: canonical_configs.ExecutionConfig,
    aidl.PrepareModelConfig: canonical_configs.PrepareModelConfig,
}


def rules_for(value: object) -> Rules:
    """Rules for a canonical value, or for a version's.

    Raises:
        InvalidArgument: its type is neither.
    """
    kind = type(value)
    rules = RULES.get(_CANONICAL.get(kind, kind))
    if rules is None:
        raise InvalidArgument(f"value: a {kind.__name__} has no versions")
    return rules


def check(value: object, rules: Rules, context: Context) -> None:
    """Validate a canonical value as one of that version.

    Raises:
        InvalidArgument: it is invalid, the version cannot express it, or it is only a part of others.
    """
    name = type(value).__name__
    if rules.validate is None:
        raise InvalidArgument(
            f"value: a {name} is valid only within others; convert it unvalidated"
        )
    rules.validate(value, context)
    since = rules.required(value, context)
    if since > context.level:
        raise InvalidArgument(f"value: this {name} needs {since.name}, got {context.level.name}")
