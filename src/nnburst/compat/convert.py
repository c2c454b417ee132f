"""Converts any value to canonical form and back, and checks whether an older version can express it.

The conversion from a version's struct to the canonical one loses nothing. The conversion from a canonical
struct fails or silently loses the parts that the version cannot express: statuses that it lacks
(GENERAL_FAILURE), entries of capabilities, the relaxed flag before 1.1, fractions of microseconds (rounded
up), padding in HIDL.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from nnburst.compat import aidl, device, enums, layouts, model, requirement, timing, v1_3
from nnburst.compat.enums import is_known
from nnburst.compat.layouts import HARDWARE_BUFFERS, HIDL, OpaqueMemory, check_numbers
from nnburst.hal import types as canonical_configs
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
from nnburst.hal.errors import InvalidArgument, NnburstError
from nnburst.hal.extensions import Extension
from nnburst.hal.model import (
    BufferToken,
    DataLocation,
    MemoryPool,
    Model,
    Operand,
    Operation,
    Subgraph,
)
from nnburst.hal.types import (
    BufferDesc,
    BufferRole,
    Capabilities,
    ExecutionTiming,
    OutputShape,
    PerformanceInfo,
    Request,
    RequestArgument,
    Timing,
)
from nnburst.hal.validation.operation import Signatures
from nnburst.hal.validation.values import (
    validate_cache_token,
    validate_capabilities,
    validate_extensions,
    validate_probability,
)


@dataclass(frozen=True, slots=True)
class Context:
    """The context of a validation: the version, and the objects that the value refers to."""

    level: FeatureLevel
    signatures: Signatures | None = None
    model: Model | None = None


@dataclass(frozen=True, slots=True)
class Rules:
    """The functions for one canonical type.

    Attributes:
        to_canonical: converts from a version's struct.
        to_hal: converts to a version's struct.
        validate: checks a canonical value; None for types that are only parts of others.
        required: finds the lowest version that can express a valid value.
    """

    to_canonical: Callable[[Any, FeatureLevel], Any]
    to_hal: Callable[[Any, FeatureLevel], Any]
    validate: Callable[[Any, Context], None] | None = None
    required: Callable[[Any, Context], FeatureLevel] = lambda _value, _context: FeatureLevel.V1_0


def _same(value: Any, _level: FeatureLevel) -> Any:  # noqa: ANN401 - any type that all versions share
    return value


def _shape(shape: OutputShape, level: FeatureLevel) -> OutputShape:
    check_numbers("dimensions", shape.dimensions, level)
    return shape


def _extension(extension: Extension, level: FeatureLevel) -> Extension:
    sizes = tuple(info.byte_size for info in extension.operand_types)
    check_numbers("byte_size", sizes, level)
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
        model.model_to_canonical,
        model.model_to_hal,
        lambda v, c: enums.check_model(model.recounted_model(v), c.level, c.signatures),
        lambda v, c: requirement.model(v, c.signatures or {}),
    ),
    Request: Rules(
        model.request_to_canonical,
        model.request_to_hal,
        lambda v, c: enums.check_request(v, c.model),
        lambda v, c: requirement.request(v, c.model),
    ),
    Capabilities: Rules(
        device.capabilities_to_canonical,
        device.capabilities_to_hal,
        lambda v, _: validate_capabilities(v),
    ),
    ExecutionTiming: Rules(
        timing.to_canonical,
        timing.to_hal,
        lambda v, _: enums.check_timing(v),
        lambda v, _: requirement.timing(v),
    ),
    OutputShape: Rules(_shape, _shape, lambda _v, _c: None, _from(FeatureLevel.V1_2)),
    Extension: Rules(
        _extension, _extension, lambda v, _: validate_extensions([v]), _from(FeatureLevel.V1_2)
    ),
    BufferRole: Rules(
        device.role_to_canonical,
        device.role_to_hal,
        lambda v, _: validate_probability(v.probability),
        _from(FeatureLevel.V1_3),
    ),
    BufferDesc: Rules(
        device.check_desc, device.check_desc, lambda _v, _c: None, _from(FeatureLevel.V1_3)
    ),
    bytes: Rules(  # a cache token
        _same,
        _same,
        lambda v, _: validate_cache_token(v),
        lambda v, _: requirement.cache_token(v),
    ),
    canonical_configs.ExecutionConfig: Rules(
        device.execution_to_canonical,
        device.execution_to_hal,
        lambda v, _: enums.check_execution_config(v),
        _from(FeatureLevel.AIDL_V4),
    ),
    canonical_configs.PrepareModelConfig: Rules(
        device.preparation_to_canonical,
        device.preparation_to_hal,
        lambda v, _: enums.check_prepare_model_config(v),
        _from(FeatureLevel.AIDL_V4),
    ),
    ErrorStatus: _enum(ErrorStatus),
    DeviceStatus: _enum(DeviceStatus),
    DeviceType: _enum(DeviceType),
    ExecutionPreference: _enum(ExecutionPreference, requirement.preference),
    Priority: _enum(Priority, requirement.priority),
    MeasureTiming: _enum(MeasureTiming, requirement.measure),
    # Parts of other types: converted only without validation.
    Subgraph: Rules(model.subgraph_to_canonical, model.subgraph_to_hal),
    Operand: Rules(model.operand_to_canonical, model.operand_to_hal),
    OperandLifeTime: Rules(partial(enums.to_canonical, OperandLifeTime), enums.to_hal),
    Operation: Rules(model.check_operation, model.check_operation),
    RequestArgument: Rules(model.argument_to_canonical, model.argument_to_hal),
    DataLocation: Rules(layouts.location_to_canonical, layouts.location_to_hal),
    MemoryPool: Rules(layouts.memory_to_canonical, layouts.memory_to_hal),
    PerformanceInfo: Rules(_same, _same),
}

#: The canonical type of each version's struct, and of each kind of canonical memory.
_CANONICAL: Final[dict[type[Any], type[Any]]] = {
    **dict.fromkeys(model.MODELS.values(), Model),
    **dict.fromkeys(model.STRUCTS.values(), Request),
    **dict.fromkeys(device.STRUCTS.values(), Capabilities),
    **dict.fromkeys(model.OPERANDS.values(), Operand),
    **dict.fromkeys((Timing, aidl.Timing), ExecutionTiming),
    **dict.fromkeys((layouts.HidlMemory, layouts.Ashmem, layouts.MappableFile), MemoryPool),
    **dict.fromkeys((BufferToken, layouts.MappedFile, layouts.OpaqueMemory), MemoryPool),
    aidl.Subgraph: Subgraph,
    aidl.RequestArgument: RequestArgument,
    layouts.PaddedLocation: DataLocation,
    v1_3.BufferRole: BufferRole,
    aidl.ExecutionConfig: canonical_configs.ExecutionConfig,
    aidl.PrepareModelConfig: canonical_configs.PrepareModelConfig,
}


def rules_for(value: object) -> Rules:
    """The rules for a canonical value, or for a value of a version.

    Raises:
        InvalidArgument: the value's type is neither.
    """
    kind = type(value)
    rules = RULES.get(_CANONICAL.get(kind, kind))
    if rules is None:
        raise InvalidArgument(f"value: a {kind.__name__} has no versions")
    return rules


def check(value: object, rules: Rules, context: Context) -> None:
    """Check that a canonical value is valid and that the context's version can express it.

    Raises:
        InvalidArgument: it is not valid, the version cannot express it, or its type is only a part of others.
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


# -- From a version's struct to the canonical one --------------------------------------------------
# NNAPI: nn::convert, nn::unvalidatedConvert.


def unvalidated_to_canonical(value: Any, level: FeatureLevel) -> Any:  # noqa: ANN401
    """Convert a struct or enumeration member of version `level` to canonical form, without validation.

    Raises:
        InvalidArgument: the value is not of that version, or a field is outside its range.
        GeneralFailure: validation:O23, an operand's number of consumers is wrong.
    """
    return rules_for(value).to_canonical(value, level)


def to_canonical(
    value: Any,  # noqa: ANN401
    level: FeatureLevel,
    *,
    signatures: Signatures | None = None,
    model: Model | None = None,
) -> Any:  # noqa: ANN401
    """Convert a version's method argument or result to canonical form, and validate it.

    Args:
        value: a value of version `level`.
        level: the version.
        signatures: signatures of the core operations; needed if `value` is a model.
        model: a canonical model; a request is also checked against it.

    Raises:
        InvalidArgument: as `unvalidated_to_canonical`; or a rule is broken, or the type is only a part.
        GeneralFailure: validation:O23.
    """
    rules = rules_for(value)
    canonical = rules.to_canonical(value, level)
    check(canonical, rules, Context(level, signatures, model))
    return canonical


def valid(
    value: Any,  # noqa: ANN401
    level: FeatureLevel,
    *,
    signatures: Signatures | None = None,
    model: Model | None = None,
) -> bool:
    """Whether `to_canonical` succeeds with the same arguments."""
    try:
        to_canonical(value, level, signatures=signatures, model=model)
    except NnburstError:
        return False
    return True


# -- From a canonical struct to a version's --------------------------------------------------------
# NNAPI: V1_0::utils::convert to V1_3::utils::convert, aidl::utils::convert, and their
# unvalidatedConvert.


def unvalidated_to_hal(value: Any, level: FeatureLevel) -> Any:  # noqa: ANN401
    """Convert a canonical struct or enumeration member to version `level`, without validation.

    Raises:
        InvalidArgument: the version cannot express a part (POINTER, tokens before 1.3, numbers of too many
            bits).
    """
    return rules_for(value).to_hal(value, level)


def to_hal(
    value: Any,  # noqa: ANN401
    level: FeatureLevel,
    *,
    signatures: Signatures | None = None,
    model: Model | None = None,
) -> Any:  # noqa: ANN401
    """Validate a canonical method argument or result, and convert it to version `level`.

    Args:
        value: a canonical value.
        level: the version.
        signatures: signatures of the core operations; needed if `value` is a model.
        model: a canonical model; a request is also checked against it.

    Raises:
        InvalidArgument: the value is invalid, `level` cannot express it, or the type is only a part.
    """
    rules = rules_for(value)
    check(value, rules, Context(level, signatures, model))
    return rules.to_hal(value, level)


# -- Between HIDL versions, without validation -----------------------------------------------------
# Checks whether a value fits an older version, and forces it into one.
#
# NNAPI: LegacyHalUtils.cpp (R: Utils.cpp) compliantWithV1_X, convertToV1_X.


_log: Final = logging.getLogger(__name__)
#: Memory of no kind, which represents a driver's buffer in versions without buffers.
_NO_MEMORY: Final = OpaqueMemory(0, name="")


def compliant_with(
    value: Any,  # noqa: ANN401
    source: FeatureLevel,
    target: FeatureLevel,
    *,
    signatures: Signatures | None = None,
) -> bool:
    """Whether a value can be converted from one version to another without loss.

    The relaxed flag of a model is ignored.

    Args:
        value: Capabilities, ErrorStatus, Model or Request of version `source`.
        source: a HIDL version.
        target: a HIDL version.
        signatures: signatures of the core operations; needed if `value` is a model.

    Raises:
        InvalidArgument: the value has another type, or is not of version `source`.
        GeneralFailure: validation:O23.
    """
    return _is_compliant(_canonical(value, source, target), target, signatures)


def convert_to(
    value: Any,  # noqa: ANN401
    source: FeatureLevel,
    target: FeatureLevel,
    *,
    signatures: Signatures | None = None,
) -> Any:  # noqa: ANN401
    """Convert a value to another version, even if parts are lost; a loss is logged as an error.

    The conversion can lose the parts that this module's docstring lists, referenced subgraphs, extra
    parameters and extensions; a driver's buffer becomes memory without name or size.

    Arguments and errors are those of `compliant_with`.
    """
    canonical = _canonical(value, source, target)
    if not _is_compliant(canonical, target, signatures):
        name = type(canonical).__name__
        _log.error("%s of %s does not fit %s: converting with loss", name, source.name, target.name)
    if isinstance(canonical, Request) and target < FeatureLevel.V1_3:
        pools = tuple(_NO_MEMORY if isinstance(p, BufferToken) else p for p in canonical.pools)
        canonical = replace(canonical, pools=pools)
    return unvalidated_to_hal(canonical, target)


def noncompliant_operations(
    model: Model, target: FeatureLevel, signatures: Signatures
) -> frozenset[int]:
    """The operations of a canonical model's main subgraph that the target version cannot express.

    An operation complies if it is valid in that version (P1 to P4) and its operands are, too: they have a
    known type, a rank before 1.2, no SUBGRAPH before 1.3, and constants in memory that the version has.
    """
    prefixes = frozenset(entry.prefix for entry in model.extension_name_to_prefix)
    fitting = [_fits(operand, model.pools, target) for operand in model.main.operands]

    def complies(operation: Operation) -> bool:
        used = (*operation.inputs, *operation.outputs)
        if not all(0 <= index < len(fitting) and fitting[index] for index in used):
            return False
        try:
            since = requirement.operation(operation, model.main, signatures, prefixes)
        except InvalidArgument:
            return False
        return since <= target

    operations = enumerate(model.main.operations)
    return frozenset(number for number, operation in operations if not complies(operation))


def _canonical(value: Any, source: FeatureLevel, target: FeatureLevel) -> Any:  # noqa: ANN401
    for name, level in (("source", source), ("target", target)):
        if level not in HIDL:
            raise InvalidArgument(f"{name}: {level.name} is not a HIDL version")
    canonical = unvalidated_to_canonical(value, source)
    if not isinstance(canonical, Capabilities | ErrorStatus | Model | Request):
        raise InvalidArgument(f"value: {type(value).__name__} has no rule of compliance")
    return canonical


def _is_compliant(
    value: Capabilities | ErrorStatus | Model | Request,
    target: FeatureLevel,
    signatures: Signatures | None,
) -> bool:
    if isinstance(value, Capabilities):
        return device.are_capabilities_compliant(value, target)
    if isinstance(value, ErrorStatus):
        return is_known(value, target)
    if isinstance(value, Request):
        return all(_knows(target, pool) for pool in value.pools)
    if signatures is None:
        raise InvalidArgument("signatures: operations cannot be checked without them")
    return not noncompliant_operations(value, target, signatures)


def _fits(operand: Operand, pools: tuple[MemoryPool, ...], target: FeatureLevel) -> bool:
    try:
        since = requirement.operand(operand)
    except InvalidArgument:
        return False
    pool = operand.location.pool_index
    if operand.lifetime == OperandLifeTime.CONSTANT_REFERENCE:
        return since <= target and pool < len(pools) and _knows(target, pools[pool])
    return since <= target


def _knows(target: FeatureLevel, pool: MemoryPool) -> bool:
    if isinstance(pool, OpaqueMemory) and pool.name not in HARDWARE_BUFFERS:
        return False
    return requirement.memory(pool) <= target
