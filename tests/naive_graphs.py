"""Evaluates the graphs of a vector naively, IF and WHILE included."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from nnburst.hal.enums import OperationType
from nnburst.hal.model import DTYPES
from nnburst.testing.conformance.vectors import (
    Vector,
    VectorGraph,
    VectorOperand,
    VectorOperation,
)
from nnburst.testing.models.naive.registry import NAIVE, Meta, Value, evaluate

_T = OperationType
#: Turns of a WHILE after which it counts as endless.
_TURNS: Final = 1000


def evaluate_vector(vector: Vector) -> list[Value]:
    """Values of the outputs of a vector's main graph.

    Raises:
        ArithmeticError, ValueError: an operation is not defined for these values, or a loop has no end.
    """
    given = [_value(vector, operand) for operand in vector.inputs]
    return _outputs(vector, vector.main, given)


def computes(vector: Vector) -> bool:
    """Whether every operation of its graphs has a naive version."""
    kinds = {OperationType[o.type] for graph in vector.graphs for o in graph.operations}
    return kinds <= {*NAIVE, _T.IF, _T.WHILE}


def _value(vector: Vector, operand: VectorOperand) -> Value:
    array = vector.array_of(operand)
    if array is None:
        return Value(_meta(operand), np.empty(0, DTYPES[operand.kind]), is_omitted=True)
    return Value(_meta(operand), array)


def _meta(operand: VectorOperand) -> Meta:
    channels = operand.channel_quant
    if channels is not None:
        return Meta(operand.kind, scales=channels.scales, channel=channels.channel_dim)
    return Meta(operand.kind, operand.scale, operand.zero_point)


def _outputs(vector: Vector, graph: VectorGraph, given: Sequence[Value]) -> list[Value]:
    values = dict(zip(graph.inputs, given, strict=True))
    for index, operand in enumerate(graph.operands):
        if operand.lifetime in ("CONSTANT_COPY", "CONSTANT_REFERENCE", "NO_VALUE"):
            values[index] = _value(vector, operand)
    for operation in graph.operations:
        values.update(
            zip(operation.outputs, _results(vector, graph, operation, values), strict=True)
        )
    return [values[index] for index in graph.outputs]


def _results(
    vector: Vector, graph: VectorGraph, operation: VectorOperation, values: Mapping[int, Value]
) -> list[Value]:
    kind = OperationType[operation.type]
    if kind not in (_T.IF, _T.WHILE):
        metas = [_meta(graph.operands[i]) for i in operation.outputs]
        return evaluate(kind, [values[i] for i in operation.inputs], metas)
    if kind is _T.WHILE:
        condition, body = (_referenced(vector, graph.operands[i]) for i in operation.inputs[:2])
        given = [values[i] for i in operation.inputs[2:]]
        return _repeated(vector, condition, body, given)[: len(operation.outputs)]
    condition_value = values[operation.inputs[0]]
    if condition_value.is_omitted:
        raise ValueError("IF without a condition")
    taken = operation.inputs[1 if condition_value.array.any() else 2]
    branch = _referenced(vector, graph.operands[taken])
    return _outputs(vector, branch, [values[i] for i in operation.inputs[3:]])


def _repeated(
    vector: Vector, condition: VectorGraph, body: VectorGraph, given: Sequence[Value]
) -> list[Value]:
    """The values after the last round."""
    values = list(given)
    for _ in range(_TURNS):
        if not _outputs(vector, condition, values)[0].array.any():
            return values
        found = _outputs(vector, body, values)
        values[: len(found)] = found
    raise ArithmeticError(f"a loop of more than {_TURNS} turns")


def _referenced(vector: Vector, operand: VectorOperand) -> VectorGraph:
    data = vector.bytes_of(operand)
    return vector.referenced[int.from_bytes(data or b"", "little")]
