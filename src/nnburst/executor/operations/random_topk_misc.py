"""RANDOM_MULTINOMIAL and TOPK_V2: signatures and shape rules.

NNAPI: Multinomial.cpp, TopK_V2.cpp.
"""

from __future__ import annotations

from nnburst.executor.graph.operation import Node, declare
from nnburst.executor.graph.signatures import (
    F16,
    F32,
    I32,
    INT32,
    Q8,
    Q8S,
    V1_2,
    control,
    data,
    index,
    rows,
    signature,
)
from nnburst.executor.graph.tensor import TensorType
from nnburst.hal.enums import ErrorStatus, OperationType


def _multinomial_shape(node: Node) -> list[TensorType]:
    logits, seeds = node.tensor("logits").shape, node.tensor("seeds").shape
    count = int(node.value("sample_count"))
    node.require(len(logits) == 2, f"operand 'logits' has rank {len(logits)}, expected 2")
    node.require(seeds == (2,), f"operand 'seeds' has shape {seeds}, expected (2,)")
    node.require(count > 0, f"operand 'sample_count' is {count}, expected more than 0")
    return [node.like_declared((logits[0], count))]


declare(
    signature(
        OperationType.RANDOM_MULTINOMIAL,
        V1_2,
        "Draws classes at random by their unnormalised log probabilities; seeds other than (0, 0)"
        " make the draw repeatable.",
        inputs=[data("logits"), control("sample_count", INT32), index("seeds")],
        outputs=[data("output", I32)],
        rows=rows(V1_2=[F16, F32]),
    ),
    shape=_multinomial_shape,
    omitted_status=ErrorStatus.INVALID_ARGUMENT,
)


def _topk_shape(node: Node) -> list[TensorType]:
    meta, k = node.tensor("input").meta, int(node.value("k"))
    node.require(len(meta.dimensions) > 0, "operand 'input' has rank 0")
    extent = meta.dimensions[-1]
    node.require(0 < k <= extent, f"operand 'k' is {k}, expected [1, {extent}]")
    dimensions = (*meta.dimensions[:-1], k)
    kind = node.declared(0).type
    values = TensorType(kind, dimensions, meta.scale, meta.zero_point, meta.extra_params)
    return [values, node.like_declared(dimensions, 1)]


declare(
    signature(
        OperationType.TOPK_V2,
        V1_2,
        "Finds the k largest elements along the last dimension and where they are; of equal ones"
        " the larger index comes first.",
        inputs=[data("input"), control("k", INT32)],
        outputs=[data("values"), data("indices", I32)],
        rows=rows(V1_2=[F16, F32, I32, Q8], V1_3=[Q8S]),
    ),
    shape=_topk_shape,
)
