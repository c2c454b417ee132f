"""EMBEDDING_LOOKUP, HASHTABLE_LOOKUP, LSH_PROJECTION: rows picked by index, by key, and hashed.

NNAPI: EmbeddingLookup.cpp, HashtableLookup.cpp, LSHProjection.cpp.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from nnburst.executor.graph.operation import Node, Run, kernel
from nnburst.executor.graph.tensor import Array
from nnburst.executor.operations.lookup_hash import DENSE
from nnburst.executor.reference.arithmetic.farmhash import fingerprint64
from nnburst.executor.reference.families.data_movement import require_in_range
from nnburst.hal.enums import OperationType


@kernel(OperationType.EMBEDDING_LOOKUP, half=True)
def embedding_lookup(node: Node) -> Run:
    """Take after checking the indices."""
    lookups, values = node.tensor("lookups").array, node.tensor("values").array
    y = node.output().array

    def run() -> None:
        require_in_range(node, "lookups", lookups, values.shape[0])
        np.take(values, lookups, axis=0, out=y, mode="clip")

    return run


@kernel(OperationType.HASHTABLE_LOOKUP)
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


_SPARSE: Final = 3

#: Bytes of keys that are hashed at once: enough to keep numpy busy, little enough to stay in cache.
_KEY_BYTES: Final = 1 << 20


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


@kernel(OperationType.LSH_PROJECTION, half=True)
def lsh_projection(node: Node) -> Run:
    """Hash, sum and pack. The input's raw bytes are hashed, whatever they stand for."""
    y, kind = node.output().array, int(node.value("type"))
    functions, bits = node.tensor("hash").shape
    powers = np.int64(1) << np.arange(bits - 1, -1, -1, dtype=np.int64)
    offset = np.arange(functions, dtype=np.int64) << bits if kind == _SPARSE else np.int64(0)

    def run() -> None:
        found = _bits(node)
        if kind == DENSE:
            np.copyto(y, found.reshape(-1))
        else:
            np.copyto(y, found @ powers + offset, casting="unsafe")

    return run
