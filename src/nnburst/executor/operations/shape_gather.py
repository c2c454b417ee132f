"""GATHER, TILE, FILL, RANK: signatures and shape rules.

NNAPI: Gather.cpp, Tile.cpp, Fill.cpp, Rank.cpp.
"""

from __future__ import annotations

from typing import Final

from nnburst.executor.graph.operation import Node, declare
from nnburst.executor.graph.signatures import (
    B8,
    F16,
    F32,
    FLOAT16,
    FLOAT32,
    I32,
    INT32,
    Q8,
    Q8S,
    Q16A,
    Q16S,
    QPC,
    QSYM8,
    V1_2,
    V1_3,
    control,
    data,
    index,
    row,
    rows,
    signature,
)
from nnburst.executor.graph.tensor import TensorType
from nnburst.executor.operations.families.data_movement import control_values, moved, resolve_axis
from nnburst.hal.enums import ErrorStatus, OperationType
from nnburst.hal.limits import MAX_RANK

_ANY_TENSOR: Final = [F32, F16, I32, B8, Q8, Q8S, QSYM8, QPC, Q16A, Q16S]


def _gather_shape(node: Node) -> list[TensorType]:
    dimensions = node.tensor("input").shape
    axis = resolve_axis(node, "axis", len(dimensions))
    picked = node.tensor("indices").shape
    return [node.like_declared((*dimensions[:axis], *picked, *dimensions[axis + 1 :]))]


declare(
    signature(
        OperationType.GATHER,
        V1_2,
        "Picks slices along one dimension by index; the shape of the indices takes its place.",
        inputs=[data("input"), control("axis"), index("indices")],
        outputs=[data("output")],
        rows=rows(V1_2=[F16, F32, I32, Q8], V1_3=[Q8S]),
    ),
    shape=_gather_shape,
)


def _tile_shape(node: Node) -> list[TensorType]:
    """DEVIATES: TILE checks length and sign of 'multiples'; the original reads past their end."""
    dimensions = node.tensor("input").shape
    multiples = control_values(node, "multiples", len(dimensions))
    node.require(
        all(m > 0 for m in multiples), f"operand 'multiples' is {multiples}, expected more than 0"
    )
    return [moved(node, [d * m for d, m in zip(dimensions, multiples, strict=True)])]


declare(
    signature(
        OperationType.TILE,
        V1_2,
        "Repeats a tensor a number of times in each dimension.",
        inputs=[data("input"), control("multiples", I32)],
        outputs=[data("output")],
        rows=rows(V1_2=[F16, F32, I32, Q8], V1_3=[Q8S]),
    ),
    shape=_tile_shape,
    omitted_status=ErrorStatus.INVALID_ARGUMENT,
)


def _fill_shape(node: Node) -> list[TensorType]:
    dimensions = control_values(node, "dims", most=MAX_RANK)
    node.require(
        all(d > 0 for d in dimensions), f"operand 'dims' is {dimensions}, expected more than 0"
    )
    return [node.like_declared(dimensions)]


declare(
    signature(
        OperationType.FILL,
        V1_3,
        "Makes a tensor of the given extents with one value everywhere.",
        inputs=[control("dims", I32), control("value", "V")],
        outputs=[data("output")],
        rows=[row(V1_3, T=F16, V=FLOAT16), row(V1_3, T=F32, V=FLOAT32), row(V1_3, T=I32, V=INT32)],
    ),
    shape=_fill_shape,
)


declare(
    signature(
        OperationType.RANK,
        V1_3,
        "Number of dimensions of a tensor.",
        inputs=[data("input")],
        outputs=[data("output", INT32)],
        rows=[row(V1_3, T=_ANY_TENSOR)],
    ),
    shape=lambda node: [node.like_declared(())],
)
