"""EMBEDDING_LOOKUP, HASHTABLE_LOOKUP, LSH_PROJECTION: rows picked by index, by key, and hashed.

NNAPI: EmbeddingLookup.cpp, HashtableLookup.cpp, LSHProjection.cpp.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from nnburst.executor.graph.operation import Node, Run, operation
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
from nnburst.executor.graph.tensor import Array, TensorType
from nnburst.executor.reference.arithmetic.farmhash import fingerprint64
from nnburst.executor.reference.families.data_movement import require_in_range
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


@operation(
    signature(
        OperationType.EMBEDDING_LOOKUP,
        V1_0,
        "Picks rows of a tensor by index.",
        inputs=[index("lookups"), data("values")],
        outputs=[data("output")],
        rows=rows(V1_0=[F32], V1_2=[I32, Q8], V1_3=[F16, Q8S]),
    ),
    shape=lambda node: [_rows_type(node, 2)],
    half=True,
    omitted_status=ErrorStatus.INVALID_ARGUMENT,
)
def embedding_lookup(node: Node) -> Run:
    """Take after checking the indices."""
    lookups, values = node.tensor("lookups").array, node.tensor("values").array
    y = node.output().array

    def run() -> None:
        require_in_range(node, "lookups", lookups, values.shape[0])
        np.take(values, lookups, axis=0, out=y, mode="clip")

    return run


def _hashtable_shape(node: Node) -> list[TensorType]:
    """DEVIATES: the table must have as many keys as rows; the original reads past missing keys."""
    found, keys = _rows_type(node, 1), node.tensor("keys").shape
    entries = node.tensor("values").shape[:1]
    node.require(keys == entries, f"operand 'keys' has shape {keys}, expected {entries}")
    return [found, TensorType(Q8, found.dimensions[:1], 1.0, 0)]


@operation(
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
def hashtable_lookup(node: Node) -> Run:
    """Search, take and blank what was missed. Keys out of order are missed, nothing worse."""
    lookups, keys = node.tensor("lookups").array, node.tensor("keys").array
    values, y, hits = node.tensor("values").array, node.output().array, node.output(1).array

    def run() -> None:
        at = np.minimum(np.searchsorted(keys, lookups), len(keys) - 1)
        found = keys[at] == lookups
        np.take(values, at, axis=0, out=y, mode="clip")
        y[~found] = 0
        np.copyto(hits, found)

    return run


_DENSE: Final = 2
_SPARSE: Final = 3
_MAX_BITS: Final = 32
#: Bytes of keys that are hashed at once: enough to keep numpy busy, little enough to stay in cache.
_KEY_BYTES: Final = 1 << 20


def _projection_shape(node: Node) -> list[TensorType]:
    kind, shape = int(node.value("type")), node.tensor("hash").shape
    node.require(kind in (1, 2, 3), f"operand 'type' is {kind}, expected 1, 2 or 3")
    node.require(
        len(shape) == 2 and shape[1] <= _MAX_BITS,
        f"operand 'hash' has shape {shape}, expected 2 dimensions, the second up to {_MAX_BITS}",
    )
    entries, weight = node.tensor("input").shape[:1], node.find("weight")
    node.require(len(entries) == 1, "operand 'input' has rank 0")
    if kind == _DENSE:
        node.require(
            weight is not None and weight.shape == entries,
            f"operand 'weight' must have shape {entries} for type 2",
        )
        return [node.like_declared((math.prod(shape),))]
    node.require(weight is None, f"operand 'weight' must be omitted for type {kind}")
    return [node.like_declared(shape[:1])]


def _hash_keys(seeds: Array, rows: Array) -> npt.NDArray[np.float64]:
    """Hashes of every seed's bytes before every row's, as signed numbers: [rows, seeds]."""
    keys = np.empty((len(rows), len(seeds), 4 + rows.shape[1]), np.uint8)
    keys[:, :, :4] = seeds
    keys[:, :, 4:] = rows[:, None]
    hashes = fingerprint64(keys.reshape(-1, keys.shape[2]))
    return hashes.view(np.int64).astype(np.float64).reshape(len(rows), len(seeds))


def _bits(node: Node) -> Array:
    """The sign of each hash function's weighted sum over the rows: [number of hashes, bits]."""
    table, x, weight = node.tensor("hash"), node.tensor("input").array, node.find("weight")
    seeds = table.array.astype("<f4").reshape(-1, 1).view(np.uint8)
    rows = x.reshape(x.shape[0], -1).view(np.uint8)
    weights = np.ones(len(rows)) if weight is None else weight.array.astype(np.float64)
    found = np.empty(len(seeds), np.bool_)
    at_once = min(len(seeds), max(1, _KEY_BYTES // (4 + rows.shape[1])))
    step = max(1, _KEY_BYTES // (at_once * (4 + rows.shape[1])))
    for first in range(0, len(seeds), at_once):
        some = seeds[first : first + at_once]
        score = np.zeros(len(some))
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            keys = weights[part, None] * _hash_keys(some, rows[part])
            # Summing over the first axis adds row after row, in the original's order.
            score = np.vstack([score, keys]).sum(axis=0)
        np.greater(score, 0, out=found[first : first + at_once])
    return found.reshape(table.shape)


@operation(
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
    half=True,
)
def lsh_projection(node: Node) -> Run:
    """Hash, sum and pack. The input's raw bytes are hashed, whatever they stand for."""
    y, kind = node.output().array, int(node.value("type"))
    functions, bits = node.tensor("hash").shape
    powers = np.int64(1) << np.arange(bits - 1, -1, -1, dtype=np.int64)
    offset = np.arange(functions, dtype=np.int64) << bits if kind == _SPARSE else np.int64(0)

    def run() -> None:
        found = _bits(node)
        if kind == _DENSE:
            np.copyto(y, found.reshape(-1))
        else:
            np.copyto(y, found @ powers + offset, casting="unsafe")

    return run
