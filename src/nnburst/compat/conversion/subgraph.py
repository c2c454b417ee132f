"""Subgraph: operands, operations, interface, and how often each operand is read.

NNAPI: CommonUtils.h countNumberOfConsumers; Conversions.cpp convert(Subgraph).
"""

from __future__ import annotations

from msgspec.structs import asdict, replace

from nnburst.compat.conversion import operand
from nnburst.compat.conversion.enums import check_aidl_type
from nnburst.compat.layouts import aidl, v1_0
from nnburst.compat.layouts.levels import HalStruct, check_range, is_aidl, pick
from nnburst.hal.enums import FeatureLevel
from nnburst.hal.errors import GeneralFailure
from nnburst.hal.limits import INT32_MAX, UINT32_MAX
from nnburst.hal.model import Operand, Operation, Subgraph


def to_canonical(graph: Subgraph | aidl.Subgraph | v1_0.Model, level: FeatureLevel) -> Subgraph:
    """From a version's subgraph, or from the model that is one in 1.0 to 1.2.

    Raises:
        GeneralFailure: a HIDL operand's number of consumers is not how often it is read (O23).
        InvalidArgument: a part is not the version's.
    """
    _check(graph, level)
    operands = tuple(operand.to_canonical(o, level) for o in graph.operands)
    made = Subgraph(operands, graph.operations, graph.input_indexes, graph.output_indexes)
    counted = recounted(made)
    if not is_aidl(level):
        for index, (said, found) in enumerate(zip(operands, counted.operands, strict=True)):
            if said.number_of_consumers != found.number_of_consumers:
                raise GeneralFailure(
                    f"validation:O23: operand {index}: number_of_consumers is {said.number_of_consumers},"
                    f" {found.number_of_consumers} inputs read it"
                )
    return counted


def to_hal(graph: Subgraph, level: FeatureLevel) -> HalStruct:
    """Into a version's subgraph (before 1.3: with its operands, for the model to take apart).

    Raises:
        InvalidArgument: a part that the version cannot express.
    """
    _check(graph, level)
    operands = tuple(operand.to_hal(o, level) for o in graph.operands)
    return pick(
        aidl.Subgraph if is_aidl(level) else Subgraph, {**asdict(graph), "operands": operands}
    )


def recounted(graph: Subgraph) -> Subgraph:
    """The subgraph with its consumers counted; indexes without operand (P2) count nowhere."""
    uses = [0] * len(graph.operands)
    for operation in graph.operations:
        for index in operation.inputs:
            if 0 <= index < len(uses):
                uses[index] += 1
    operands = tuple(_with_consumers(*pair) for pair in zip(graph.operands, uses, strict=True))
    return replace(graph, operands=operands)


def _with_consumers(described: Operand, count: int) -> Operand:
    if described.number_of_consumers == count:
        return described
    return replace(described, number_of_consumers=count)


def _check(graph: Subgraph | aidl.Subgraph | v1_0.Model, level: FeatureLevel) -> None:
    largest = INT32_MAX if is_aidl(level) else UINT32_MAX
    for operation in graph.operations:
        check_operation(operation, level)
    check_range("indexes", (*graph.input_indexes, *graph.output_indexes), 0, largest)


def check_operation(operation: Operation, level: FeatureLevel) -> Operation:
    """The operation, which is the same struct in all versions.

    Raises:
        InvalidArgument: a number that the version's field cannot hold, or an OEM type in AIDL.
    """
    largest = INT32_MAX if is_aidl(level) else UINT32_MAX
    check_aidl_type("operation type", operation.type, level)
    check_range("operation", (*operation.inputs, *operation.outputs), 0, largest)
    return operation
