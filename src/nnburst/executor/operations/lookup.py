"""Declares the operations that look rows up, hash them, draw samples and pick the largest elements."""

from __future__ import annotations

import math
from typing import Final

from nnburst.executor.graph.declarations import (
    F16,
    F32,
    I32,
    INT32,
    Q8,
    Q8S,
    V1_0,
    V1_2,
    control,
    data,
    index,
    row,
    rows,
    signature,
)
from nnburst.executor.graph.operation import Node, declare
from nnburst.executor.graph.tensor import TensorType
from nnburst.hal.enums import ErrorStatus, OperationType

# -- EMBEDDING_LOOKUP, HASHTABLE_LOOKUP, LSH_PROJECTION --------------------------------------------
# NNAPI: EmbeddingLookup.cpp, HashtableLookup.cpp, LSHProjection.cpp.


def _rows_type(node: Node, least_rank: int) -> TensorType:
    """Type of the picked rows: one of 'values' per lookup, with the quantisation of 'values'."""
    lookups, values = node.tensor("lookups").shape, node.tensor("values").meta
    node.require(len(lookups) == 1, f"operand 'lookups' has rank {len(lookups)}, expected 1")
    node.require(
        len(values.dimensions) >= least_rank,
        f"operand 'values' has rank {len(values.dimensions)}, expected at least {least_rank}",
    )
    kind, dimensions = node.declared().type, (*lookups, *values.dimensions[1:])
    return TensorType(kind, dimensions, values.scale, values.zero_point, values.extra_params)


declare(
    signature(
        OperationType.EMBEDDING_LOOKUP,
        V1_0,
        "Picks rows of a tensor by index.",
        inputs=[index("lookups"), data("values")],
        outputs=[data("output")],
        rows=rows(V1_0=[F32], V1_2=[I32, Q8], V1_3=[F16, Q8S]),
    ),
    shape=lambda node: [_rows_type(node, 2)],
    omitted_status=ErrorStatus.INVALID_ARGUMENT,
)


def _hashtable_shape(node: Node) -> list[TensorType]:
    """DEVIATES: the table must have as many keys as rows; the original reads past missing keys."""
    found, keys = _rows_type(node, 1), node.tensor("keys").shape
    entries = node.tensor("values").shape[:1]
    node.require(keys == entries, f"operand 'keys' has shape {keys}, expected {entries}")
    return [found, TensorType(Q8, found.dimensions[:1], 1.0, 0)]


declare(
    signature(
        OperationType.HASHTABLE_LOOKUP,
        V1_0,
        "Picks rows by key from a table sorted by keys; a miss gives zero bytes and a hit of 0.",
        inputs=[index("lookups"), index("keys"), data("values")],
        outputs=[data("output"), data("hits", Q8)],
        rows=rows(V1_0=[F32, I32, Q8]),
    ),
    shape=_hashtable_shape,
    omitted_status=ErrorStatus.INVALID_ARGUMENT,
)


DENSE: Final = 2
_MAX_BITS: Final = 32


def _projection_shape(node: Node) -> list[TensorType]:
    kind, shape = int(node.value("type")), node.tensor("hash").shape
    node.require(kind in (1, 2, 3), f"operand 'type' is {kind}, expected 1, 2 or 3")
    node.require(
        len(shape) == 2 and shape[1] <= _MAX_BITS,
        f"operand 'hash' has shape {shape}, expected 2 dimensions, the second up to {_MAX_BITS}",
    )
    entries, weight = node.tensor("input").shape[:1], node.find("weight")
    node.require(len(entries) == 1, "operand 'input' has rank 0")
    if kind == DENSE:
        node.require(
            weight is not None and weight.shape == entries,
            f"operand 'weight' must have shape {entries} for type 2",
        )
        return [node.like_declared((math.prod(shape),))]
    node.require(weight is None, f"operand 'weight' must be omitted for type {kind}")
    return [node.like_declared(shape[:1])]


declare(
    signature(
        OperationType.LSH_PROJECTION,
        V1_0,
        "Projects a tensor to bits by locality-sensitive hashing: type 2 gives the bits, types 1"
        " and 3 one number per hash function, 3 with an offset for each.",
        inputs=[
            data("hash", "H"),
            data("input"),
            data("weight", "H", nullable=True),
            control("type", INT32),
        ],
        outputs=[data("output", I32)],
        rows=[row(V1_0, H=F32, T=[F16, F32, I32, Q8]), row(V1_2, H=F16, T=[F16, F32, I32, Q8])],
    ),
    shape=_projection_shape,
)


# -- RANDOM_MULTINOMIAL and TOPK_V2 ----------------------------------------------------------------
# NNAPI: Multinomial.cpp, TopK_V2.cpp.


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
