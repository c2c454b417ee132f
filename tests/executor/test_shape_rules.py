"""Shape rules that validation could not check: operands of unknown rank."""

from __future__ import annotations

import numpy as np
import pytest

import nnburst.executor.reference.operations  # noqa: F401 - fills the registry
from nnburst.executor.graph.declarations import BOOL, F32, I32, INT32, Q8
from nnburst.executor.graph.operation import REGISTRY, Node, OperationFailed
from nnburst.executor.graph.tensor import Tensor, TensorType
from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.model import DTYPES, Operand

T = OperationType
FIVE = (1, 1, 1, 1, 2)


def node(kind: OperationType, inputs: list[tuple[OperandType, tuple[int, ...]]]) -> Node:
    """A node whose operands have these extents at execution and were of unknown rank before."""
    operands = [Operand(type=int(t)) for t, _ in inputs]
    wanted = Operand(type=int(F32))
    match = REGISTRY[kind].signature.match(operands, [wanted])
    tensors = [Tensor(TensorType(t, d), np.zeros(d, DTYPES[t])) for t, d in inputs]
    return Node(kind, match, tensors, (), [TensorType(F32, ())])


@pytest.mark.parametrize(
    ("kind", "inputs"),
    [
        (T.ADD, [(F32, FIVE), (F32, (2,)), (INT32, ())]),
        (T.SUB, [(F32, FIVE), (F32, (2,)), (INT32, ())]),
        (T.MUL, [(F32, (2,)), (F32, FIVE), (INT32, ())]),
        (T.DIV, [(F32, (2,)), (F32, FIVE), (INT32, ())]),
        (T.FLOOR, [(F32, FIVE)]),
        (T.RELU, [(F32, FIVE)]),
        (T.RELU1, [(F32, FIVE)]),
        (T.RELU6, [(F32, FIVE)]),
        (T.LOGISTIC, [(F32, FIVE)]),
        (T.TANH, [(F32, FIVE)]),
        (T.DEQUANTIZE, [(Q8, FIVE)]),
        (T.MEAN, [(F32, FIVE), (I32, (1,)), (INT32, ())]),
        (T.REDUCE_SUM, [(F32, FIVE), (I32, (1,)), (BOOL, ())]),
    ],
)
def test_rank_above_four_fails_at_execution(
    kind: OperationType, inputs: list[tuple[OperandType, tuple[int, ...]]]
) -> None:
    rule = REGISTRY[kind].shape
    assert rule is not None
    with pytest.raises(OperationFailed, match="has rank 5, expected 1 to 4"):
        rule(node(kind, inputs))


def test_extent_of_one_against_zero_gives_zero() -> None:
    rule = REGISTRY[T.ADD].shape
    assert rule is not None
    [meta] = rule(node(T.ADD, [(F32, (1, 2)), (F32, (0, 1)), (INT32, ())]))
    assert meta.dimensions == (0, 2)
