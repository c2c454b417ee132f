"""Comparisons, LOGICAL_AND/OR/NOT and SELECT: signatures and shape rules.

NNAPI: Comparisons.cpp, LogicalAndOr.cpp, LogicalNot.cpp, Select.cpp.
"""

from __future__ import annotations

from nnburst.executor.graph.operation import Node, declare
from nnburst.executor.graph.shape_rules import broadcast_shape, same_shape
from nnburst.executor.graph.signatures import (
    B8,
    F16,
    F32,
    I32,
    Q8,
    Q8S,
    V1_2,
    data,
    row,
    rows,
    signature,
)
from nnburst.executor.graph.tensor import TensorType
from nnburst.hal.enums import OperationType


def _declare_comparison(type: OperationType, summary: str) -> None:  # noqa: A002 - NNAPI's word
    declare(
        signature(
            type,
            V1_2,
            summary,
            inputs=[data("input0"), data("input1")],
            outputs=[data("output", B8)],
            rows=rows(V1_2=[B8, F16, F32, I32, Q8], V1_3=[Q8S]),
        ),
        shape=broadcast_shape,
    )


_declare_comparison(OperationType.EQUAL, "Whether x = y, broadcasting.")
_declare_comparison(OperationType.NOT_EQUAL, "Whether x ≠ y, broadcasting.")
_declare_comparison(OperationType.LESS, "Whether x < y, broadcasting.")
_declare_comparison(OperationType.LESS_EQUAL, "Whether x ≤ y, broadcasting.")
_declare_comparison(OperationType.GREATER, "Whether x > y, broadcasting.")
_declare_comparison(OperationType.GREATER_EQUAL, "Whether x ≥ y, broadcasting.")


def _declare_logical(type: OperationType, summary: str) -> None:  # noqa: A002 - NNAPI's word
    declare(
        signature(
            type,
            V1_2,
            summary,
            inputs=[data("input0", B8), data("input1", B8)],
            outputs=[data("output", B8)],
            rows=[row(V1_2)],
        ),
        shape=broadcast_shape,
    )


_declare_logical(OperationType.LOGICAL_AND, "Whether both are true, broadcasting.")
_declare_logical(OperationType.LOGICAL_OR, "Whether either is true, broadcasting.")


declare(
    signature(
        OperationType.LOGICAL_NOT,
        V1_2,
        "Whether it is false.",
        inputs=[data("input", B8)],
        outputs=[data("output", B8)],
        rows=[row(V1_2)],
    ),
    shape=same_shape,
)


# SELECT


def _select_shape(node: Node) -> list[TensorType]:
    condition = node.tensor("condition").shape
    for name in ("input0", "input1"):
        shape = node.tensor(name).shape
        node.require(
            shape == condition,
            f"operand '{name}' is {list(shape)}, but 'condition' is {list(condition)}"
            " (nothing is broadcast)",
        )
    return [node.like_declared(condition)]


declare(
    signature(
        OperationType.SELECT,
        V1_2,
        "Takes each element from the first tensor where the condition is true, else from the second.",
        inputs=[data("condition", B8), data("input0"), data("input1")],
        outputs=[data("output")],
        rows=rows(V1_2=[F16, F32, I32, Q8], V1_3=[Q8S]),
    ),
    shape=_select_shape,
)
