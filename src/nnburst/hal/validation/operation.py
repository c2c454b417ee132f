"""Checks single operations and single operands (rules P1 to P4 and O1 to O22)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from nnburst.hal.enums import FeatureLevel, OperandLifeTime, OperandType, OperationType
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.extensions import prefix_of
from nnburst.hal.limits import INT32_MAX, MAX_RANK, UINT32_MAX
from nnburst.hal.model import (
    INTRODUCED,
    QUANTIZED_RANGES,
    SCALARS,
    ExtensionParams,
    Operand,
    Operation,
    Subgraph,
    SymmPerChannelQuantParams,
    is_extension,
    size_bytes,
)
from nnburst.hal.signature import Match, Signature
from nnburst.hal.types import FLT_MAX
from nnburst.hal.validation.values import Broken, check_range

_L = OperandLifeTime
_T = OperandType

_OEM: Final = frozenset({_T.OEM, _T.TENSOR_OEM_BYTE})
#: Types with a zero point, and the range of their stored values, in which it must lie.
_ASYMMETRIC: Final = {
    kind: QUANTIZED_RANGES[kind]
    for kind in (
        _T.TENSOR_QUANT8_ASYMM,
        _T.TENSOR_QUANT8_ASYMM_SIGNED,
        _T.TENSOR_QUANT16_ASYMM,
    )
}
_SCALED: Final = frozenset({*_ASYMMETRIC, _T.TENSOR_QUANT8_SYMM, _T.TENSOR_QUANT16_SYMM})
#: Scales are float32: outside this range a Python float would become 0 or infinite.
_SCALE_MIN: Final = 2.0**-149
_SCALE_MAX: Final = FLT_MAX


# -- Rules O1 to O22: one operand by itself --------------------------------------------------------
# NNAPI: Validation.cpp validateOperand (canonical), ValidateHal.cpp validateOperands.


class Surroundings(NamedTuple):
    """The parts of a model that an operand may refer to.

    Attributes:
        values_size: bytes of the model's operand_values.
        pool_sizes: bytes of each pool.
        referenced: number of referenced subgraphs.
        prefixes: extension prefixes that the model declares.
        feature_level: version for which the model is written.
    """

    values_size: int
    pool_sizes: tuple[int, ...]
    referenced: int
    prefixes: frozenset[int]
    feature_level: FeatureLevel


def validate_operand(operand: Operand, around: Surroundings) -> None:
    """Check one operand.

    Raises:
        Broken: O1 to O22, or M9.
    """
    kind = validate_operand_type(operand, around)
    if kind not in _OEM:
        _check_extra_params(operand, kind)
    _check_lifetime(operand, kind, around)
    if operand.is_constant and kind is not None:
        _check_constant(operand, kind)


def validate_operand_type(operand: Operand, around: Surroundings) -> OperandType | None:
    """Check type, dimensions, scale and zero point of an operand, without its lifetime and location.

    Returns:
        The type, or None for one of a declared extension.

    Raises:
        Broken: O1 to O3, O6 to O10, or M9.
    """
    kind = core_type(operand.type, around)
    _check_dimensions(operand, kind, around)
    if kind not in _OEM:
        _check_quantization(operand, kind)
    return kind


def validate_extra_params(operand: Operand) -> None:
    """Check the per-channel scales of an operand of a valid core type.

    Raises:
        Broken: O12 or O13.
    """
    _check_extra_params(operand, OperandType(operand.type))


def core_type(code: int, around: Surroundings) -> OperandType | None:
    """validation:O1: the type, or None for one of a declared extension (M9).

    OEM types are valid at every level: drivers here run them (`OEM_OPERATION`), and a model's canonical form
    has them. Types that AIDL lacks are refused when a model is converted to AIDL (`compat/enums.py`).
    """
    check_range("O1", "type", code, -INT32_MAX - 1, UINT32_MAX)
    if is_extension(code):
        check_extension(code, "type", around)
        return None
    try:
        kind = OperandType(code)
    except ValueError:
        raise Broken("O1", f"type {code} is unknown") from None
    if INTRODUCED[kind] > around.feature_level:
        raise Broken("O1", f"type {kind.name} is newer than {around.feature_level.name}")
    return kind


def check_extension(code: int, what: str, around: Surroundings) -> None:
    """validation:M9: the prefix of an extension's type or operation is declared; extensions came with 1.2."""
    prefix = prefix_of(code)
    if around.feature_level < FeatureLevel.V1_2:
        raise Broken("O1", f"extension {what} {code:#x} before 1.2")
    if prefix not in around.prefixes:
        raise Broken("M9", f"prefix {prefix} of {what} {code & UINT32_MAX:#x} is not declared")


def _check_dimensions(operand: Operand, kind: OperandType | None, around: Surroundings) -> None:
    rank = len(operand.dimensions)
    for index, extent in enumerate(operand.dimensions):
        check_range("O1", f"dimension {index}", extent, 0, UINT32_MAX)
    if rank > MAX_RANK:
        # DEVIATES: no limit in the original; arrays of higher rank cannot be computed with.
        raise Broken("O3", f"rank is {rank}, expected at most {MAX_RANK}")
    if kind is None:
        return
    if kind in SCALARS:
        if rank:
            raise Broken("O2", f"a {kind.name} has {rank} dimensions, expected none")
    elif not rank and around.feature_level < FeatureLevel.V1_2:
        raise Broken("O3", "a tensor needs a rank before 1.2")


def _check_quantization(operand: Operand, kind: OperandType | None) -> None:
    scale, zero_point = operand.scale, operand.zero_point
    if kind in _SCALED:
        # DEVIATES: infinite scales are refused too, and what float32 rounds to 0 or to infinity.
        if not _SCALE_MIN <= scale <= _SCALE_MAX:
            raise Broken("O8", f"scale is {scale}, expected a positive float32")
    elif kind == _T.TENSOR_INT32:
        if not 0 <= scale <= _SCALE_MAX:
            raise Broken("O7", f"scale is {scale}, expected 0 or a positive float32")
    elif scale != 0:
        raise Broken("O6", f"scale is {scale}, expected 0")
    low, high = (0, 0) if kind is None else _ASYMMETRIC.get(kind, (0, 0))
    if not low <= zero_point <= high:
        rule = "O10" if kind in _ASYMMETRIC else "O9"
        wanted = f"{low} to {high}" if high else "0"
        raise Broken(rule, f"zero_point is {zero_point}, expected {wanted}")


def _check_extra_params(operand: Operand, kind: OperandType | None) -> None:
    params = operand.extra_params
    if kind == _T.TENSOR_QUANT8_SYMM_PER_CHANNEL:
        if not isinstance(params, SymmPerChannelQuantParams):
            raise Broken("O12", "per-channel quantisation needs channel_quant parameters")
        _check_channel_quant(operand.dimensions, params)
    elif kind is None:
        if params is not None and not isinstance(params, ExtensionParams):
            raise Broken("O12", "an extension operand takes no channel_quant parameters")
    elif params is not None:
        raise Broken("O12", f"a {kind.name} takes no extra parameters")


def _check_channel_quant(dimensions: tuple[int, ...], params: SymmPerChannelQuantParams) -> None:
    axis = params.channel_dim
    if not 0 <= axis < len(dimensions):
        raise Broken("O13", f"channel_dim is {axis}, the rank {len(dimensions)}")
    if not dimensions[axis]:
        raise Broken("O13", f"dimension {axis} (channel_dim) is unknown")
    if len(params.scales) != dimensions[axis]:
        raise Broken("O13", f"{len(params.scales)} scales for {dimensions[axis]} channels")
    for index, scale in enumerate(params.scales):
        if not _SCALE_MIN <= scale <= _SCALE_MAX:
            raise Broken("O13", f"scales[{index}] is {scale}, expected a positive float32")


def _check_lifetime(operand: Operand, kind: OperandType | None, around: Surroundings) -> None:
    lifetime, at = operand.lifetime, operand.location
    if lifetime not in _L.__members__.values():
        raise Broken("O14", f"lifetime {lifetime} is unknown")
    if lifetime == _L.POINTER:
        raise Broken("O21", "a POINTER cannot be sent; put the value into a pool")
    if (kind == _T.SUBGRAPH) != (lifetime == _L.SUBGRAPH):
        raise Broken("O15", "type SUBGRAPH goes with lifetime SUBGRAPH, and only with it")
    if lifetime == _L.CONSTANT_COPY:
        if at.pool_index:
            raise Broken("O16", f"pool_index is {at.pool_index}, expected 0")
        _check_within("O16", operand, around.values_size, "operand_values")
    elif lifetime == _L.CONSTANT_REFERENCE:
        if not 0 <= at.pool_index < len(around.pool_sizes):
            raise Broken("O17", f"pool_index is {at.pool_index} of {len(around.pool_sizes)} pools")
        _check_within("O17", operand, around.pool_sizes[at.pool_index], "the pool")
    elif lifetime == _L.SUBGRAPH:
        if at.pool_index or at.length:
            raise Broken("O19", "pool_index and length of a SUBGRAPH must be 0")
        if not 0 <= at.offset < around.referenced:
            raise Broken("O19", f"offset is {at.offset} of {around.referenced} subgraphs")
    elif at.pool_index or at.offset or at.length:
        raise Broken("O18", f"location of a {_L(lifetime).name} must be all zero")


def _check_within(rule: str, operand: Operand, size: int, what: str) -> None:
    at = operand.location
    if at.offset < 0 or at.length < 0 or at.offset + at.length > size:
        raise Broken(
            rule,
            f"offset {at.offset} and length {at.length} lie outside the {size} bytes of {what}",
        )


def _check_constant(operand: Operand, kind: OperandType) -> None:
    if kind in _OEM:
        return
    if kind not in SCALARS:
        if not operand.dimensions:
            raise Broken("O4", "a constant tensor needs a rank")
        if 0 in operand.dimensions:
            raise Broken("O5", "a constant tensor has an unknown dimension")
    size = size_bytes(kind, operand.dimensions)
    if size > UINT32_MAX:
        raise Broken("O5", f"a constant of {size} bytes, expected at most {UINT32_MAX}")
    if operand.location.length != size:
        raise Broken(
            "O22", f"length is {operand.location.length}, expected {size} from type and dimensions"
        )


# -- Rules P1 to P4: one operation by itself -------------------------------------------------------
# NNAPI: Validation.cpp validateOperation; the operations' own rules are their signatures.


Signatures = Mapping[OperationType, Signature]

#: Last code of each version; OEM_OPERATION is as old as 1.0.
_LAST: Final = (
    (OperationType.TANH, FeatureLevel.V1_0),
    (OperationType.TRANSPOSE, FeatureLevel.V1_1),
    (OperationType.RESIZE_NEAREST_NEIGHBOR, FeatureLevel.V1_2),
    (OperationType.RANK, FeatureLevel.V1_3),
    (OperationType.PACK, FeatureLevel.AIDL_V2),
    (OperationType.REVERSE, FeatureLevel.AIDL_V3),
    (OperationType.OEM_OPERATION, FeatureLevel.V1_0),
)
#: Checked as wholes (P10, P11), with the subgraphs that they run.
CONTROL_FLOW: Final = frozenset({OperationType.IF, OperationType.WHILE})


def validate_operation(
    operation: Operation, subgraph: Subgraph, signatures: Signatures, around: Surroundings
) -> None:
    """Check one operation, whose operands were checked before.

    Args:
        operation: the operation.
        subgraph: the subgraph of its operand indexes.
        signatures: signatures of the core operations; an operation without one is not checked further.
        around: prefixes and feature level of the model.

    Raises:
        Broken: P1, P2, P4, or M9.
    """
    match = _understood(operation, subgraph, signatures, around)[1]
    level = around.feature_level
    if match is not None and match.since > level:
        name = OperationType(operation.type).name
        message = f"{name}: these operands came with {match.since.name}, after {level.name}"
        raise Broken("P4", message)


def required_level(
    operation: Operation, subgraph: Subgraph, signatures: Signatures, around: Surroundings
) -> FeatureLevel:
    """The lowest feature level at which `validate_operation` accepts an operation.

    Args:
        operation: the operation.
        subgraph: the subgraph of its operand indexes.
        signatures: signatures of the core operations.
        around: prefixes of the model, and the highest level to try.

    Raises:
        Broken: it is invalid at all levels up to `around.feature_level`.
    """
    since, match = _understood(operation, subgraph, signatures, around)
    return since if match is None else max(since, match.since)


def _understood(
    operation: Operation, subgraph: Subgraph, signatures: Signatures, around: Surroundings
) -> tuple[FeatureLevel, Match | None]:
    """The level of the type, and the match of the operands with its signature, if it has one."""
    kind, since = _core_type(operation.type, around)
    count = len(subgraph.operands)
    for name, indexes in (("input", operation.inputs), ("output", operation.outputs)):
        for position, index in enumerate(indexes):
            if not 0 <= index < count:
                raise Broken("P2", f"{name} {position} is operand {index} of {count}")
    signature = None if kind in CONTROL_FLOW or kind is None else signatures.get(kind)
    if signature is None:
        return since, None
    operands = subgraph.operands
    try:
        inputs = [operands[i] for i in operation.inputs]
        return since, signature.match(inputs, [operands[i] for i in operation.outputs])
    except InvalidArgument as error:
        raise Broken.by(error, "P4") from error


def _core_type(code: int, around: Surroundings) -> tuple[OperationType | None, FeatureLevel]:
    """validation:P1: the type, or None for an operation of a declared extension (P3), and its level."""
    check_range("P1", "type", code, -INT32_MAX - 1, UINT32_MAX)
    if is_extension(code):
        check_extension(code, "operation", around)
        return None, FeatureLevel.V1_2
    try:
        kind = OperationType(code)
    except ValueError:
        raise Broken("P1", f"operation type {code} is unknown") from None
    since = next(level for last, level in _LAST if kind <= last)
    if since > around.feature_level:
        raise Broken(
            "P1", f"{kind.name} needs {since.name}, the model is of {around.feature_level.name}"
        )
    return kind, since
