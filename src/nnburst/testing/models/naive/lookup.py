"""Looking things up, and the largest elements."""

from __future__ import annotations

import numpy as np

from nnburst.hal.enums import OperationType
from nnburst.testing.models.naive.registry import naive
from nnburst.testing.models.naive.values import Array, Index, build

_T = OperationType


@naive(_T.EMBEDDING_LOOKUP)
def embedding_lookup(lookups: Array, values: Array) -> Array:
    """The rows that are asked for."""
    return build((*lookups.shape, *values.shape[1:]), lambda at: values[(lookups[at[0]], *at[1:])])


@naive(_T.HASHTABLE_LOOKUP, of_elements=True)
def hashtable_lookup(lookups: Array, keys: Array, values: Array) -> list[Array]:
    """The rows under these keys, or elements 0; and whether the key was there."""
    rows = {key: number for number, key in enumerate(keys)}

    def element(at: Index) -> float:
        row = rows.get(lookups[at[0]])
        return 0 if row is None else values[(row, *at[1:])]

    found = build((*lookups.shape, *values.shape[1:]), element)
    return [found, build(lookups.shape, lambda at: int(lookups[at] in rows))]


@naive(_T.TOPK_V2)
def topk(x: Array, k: int) -> list[Array]:
    """The k largest of the last axis, descending, and where they are; of equals the later first."""
    places = np.empty((*x.shape[:-1], k), object)
    for at in np.ndindex(*x.shape[:-1]):
        line = list(x[at])
        order = [place for _, place in sorted(zip(line, range(len(line)), strict=True))]
        places[at] = order[::-1][:k]
    return [build(places.shape, lambda at: x[(*at[:-1], places[at])]), places]
