"""Between HIDL versions without validation: whether a value fits an older one, and forcing it to.

NNAPI: LegacyHalUtils.cpp (R: Utils.cpp) compliantWithV1_X, convertToV1_X.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from msgspec.structs import replace

from nnburst.compat import to_canonical, to_hal
from nnburst.compat.conversion import capabilities, requirement
from nnburst.compat.conversion.enums import is_known
from nnburst.compat.layouts.levels import HIDL
from nnburst.compat.layouts.memory import HARDWARE_BUFFERS, OpaqueMemory
from nnburst.hal.capabilities import Capabilities
from nnburst.hal.enums import ErrorStatus, FeatureLevel, OperandLifeTime
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.model import BufferToken, MemoryPool, Model, Operand, Operation
from nnburst.hal.request import Request
from nnburst.hal.validation.operation import Signatures

_log: Final = logging.getLogger(__name__)
#: What stands for a driver's buffer in versions without buffers: memory of no kind.
_NO_MEMORY: Final = OpaqueMemory(0, name="")


def compliant_with(
    value: Any,  # noqa: ANN401
    source: FeatureLevel,
    target: FeatureLevel,
    *,
    signatures: Signatures | None = None,
) -> bool:
    """Whether a value converts from one version into another without loss.

    The relaxed flag of a model counts nowhere.

    Args:
        value: Capabilities, ErrorStatus, Model or Request of version `source`.
        source: a HIDL version.
        target: a HIDL version.
        signatures: of the core operations; needed if `value` is a model.

    Raises:
        InvalidArgument: another type, or not of `source`.
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
    """The value in another version, whatever is lost; a loss is logged as an error.

    Lost are what `nnburst.compat.to_hal` names, referenced subgraphs, extra parameters and
    extensions; a driver's buffer becomes memory without name or size.

    Args and errors: as `compliant_with`.
    """
    canonical = _canonical(value, source, target)
    if not _is_compliant(canonical, target, signatures):
        name = type(canonical).__name__
        _log.error("%s of %s does not fit %s: converting with loss", name, source.name, target.name)
    if isinstance(canonical, Request) and target < FeatureLevel.V1_3:
        pools = tuple(_NO_MEMORY if isinstance(p, BufferToken) else p for p in canonical.pools)
        canonical = replace(canonical, pools=pools)
    return to_hal.unvalidated_convert(canonical, target)


def noncompliant_operations(
    model: Model, target: FeatureLevel, signatures: Signatures
) -> frozenset[int]:
    """Which operations of a canonical model's main subgraph the target version cannot express.

    An operation complies if it is valid in that version (P1 to P4) and so are its operands: known
    type, a rank before 1.2, no SUBGRAPH before 1.3, constants in memory that the version has.
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
    canonical = to_canonical.unvalidated_convert(value, source)
    if not isinstance(canonical, Capabilities | ErrorStatus | Model | Request):
        raise InvalidArgument(f"value: {type(value).__name__} has no rule of compliance")
    return canonical


def _is_compliant(
    value: Capabilities | ErrorStatus | Model | Request,
    target: FeatureLevel,
    signatures: Signatures | None,
) -> bool:
    if isinstance(value, Capabilities):
        return capabilities.is_compliant(value, target)
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
