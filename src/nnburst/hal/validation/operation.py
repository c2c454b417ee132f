"""Rules P1 to P4: one operation and the types of its operands.

NNAPI: Validation.cpp validateOperation; the operations' own rules are their signatures.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from nnburst.hal.enums import FeatureLevel, OperationType
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.limits import INT32_MAX, UINT32_MAX
from nnburst.hal.model import Operation, Subgraph
from nnburst.hal.operand_types import is_extension
from nnburst.hal.signature import Match, Signature
from nnburst.hal.validation.broken import Broken, check_range
from nnburst.hal.validation.operand import Surroundings, check_extension

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
    """Check one operation; the operands themselves are valid.

    Args:
        operation: the operation.
        subgraph: where its indexes count.
        signatures: of the core operations; one without a signature here is not checked further.
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
    """The lowest level in which `validate_operation` accepts an operation.

    Args:
        operation: the operation.
        subgraph: where its indexes count.
        signatures: of the core operations.
        around: prefixes of the model, and the highest level that counts.

    Raises:
        Broken: it is valid in none up to `around.feature_level`.
    """
    since, match = _understood(operation, subgraph, signatures, around)
    return since if match is None else max(since, match.since)


def _understood(
    operation: Operation, subgraph: Subgraph, signatures: Signatures, around: Surroundings
) -> tuple[FeatureLevel, Match | None]:
    """Level of the type, and how the operands fit its signature if there is one."""
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
