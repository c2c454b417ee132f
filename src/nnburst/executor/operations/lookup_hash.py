"""EMBEDDING_LOOKUP, HASHTABLE_LOOKUP, LSH_PROJECTION: signatures and shape rules.

NNAPI: EmbeddingLookup.cpp, HashtableLookup.cpp, LSHProjection.cpp.
"""

from __future__ import annotations

import math
from typing import Final

from nnburst.executor.graph.operation import Node, declare
from nnburst.executor.graph.signatures import (
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
from nnburst.executor.graph.tensor import TensorType
from nnburst.hal.enums import ErrorStatus, OperationType


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
