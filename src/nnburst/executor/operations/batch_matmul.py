"""BATCH_MATMUL: signatures and shape rules.

NNAPI: BatchMatmul.cpp.
"""

from __future__ import annotations

from nnburst.executor.graph.operation import Node, declare
from nnburst.executor.graph.signatures import (
    BOOL,
    F16,
    F32,
    FL6,
    I32,
    Q8S,
    control,
    data,
    rows,
    signature,
)
from nnburst.executor.graph.tensor import TensorType
from nnburst.hal.enums import OperationType


def _shape(node: Node) -> list[TensorType]:
    left, right = node.tensor("input0").shape, node.tensor("input1").shape
    node.require(
        2 <= len(left) <= 4 and len(left) == len(right),
        f"operands 'input0' and 'input1' have ranks {len(left)} and {len(right)},"
        " expected the same, 2 to 4",
    )
    # DEVIATES: the original does not look and reads or writes beyond the smaller operand.
    node.require(
        left[:-2] == right[:-2],
        f"operands have batches {list(left[:-2])} and {list(right[:-2])}, expected the same",
    )
    height, inner = _adjoint(left[-2:], node.value("adj_x"))
    other, width = _adjoint(right[-2:], node.value("adj_y"))
    node.require(
        inner == other, f"columns of 'input0' ({inner}) and rows of 'input1' ({other}) differ"
    )
    return [node.like_declared((*left[:-2], height, width))]


def _adjoint(extents: tuple[int, ...], swapped: bool) -> tuple[int, int]:
    rows_, columns = extents
    return (columns, rows_) if swapped else (rows_, columns)


declare(
    signature(
        OperationType.BATCH_MATMUL,
        FL6,
        "Multiplies matrices, each transposed first if its flag is set.",
        inputs=[data("input0"), data("input1"), control("adj_x", BOOL), control("adj_y", BOOL)],
        outputs=[data("output")],
        rows=rows(FL6=[F16, F32, I32, Q8S]),
    ),
    shape=_shape,
)
