"""Reductions along axes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

from nnburst.hal.enums import OperationType
from nnburst.testing.models.naive.registry import NAIVE, naive
from nnburst.testing.models.naive.values import Array, Index, build

_T = OperationType


def _reduce(f: Callable[[list[Any]], Any]) -> Callable[[Array, Array, bool], Array]:
    def compute(x: Array, axes: Array, keep: bool) -> Array:
        gone = {int(a) % x.ndim for a in axes}
        kept = [1 if d in gone else n for d, n in enumerate(x.shape)]
        result = build(kept, lambda at: f([x[i] for i in _slice(x, at, gone)]))
        if keep:
            return result
        return result.reshape([n for d, n in enumerate(kept) if d not in gone] or [1])

    return compute


def _slice(x: Array, at: Index, gone: set[int]) -> list[Index]:
    ranges = [range(n) if d in gone else (at[d],) for d, n in enumerate(x.shape)]
    return list(itertools.product(*ranges))


NAIVE[_T.REDUCE_SUM] = _reduce(math.fsum)
NAIVE[_T.REDUCE_PROD] = _reduce(math.prod)
NAIVE[_T.REDUCE_MAX] = _reduce(max)
NAIVE[_T.REDUCE_MIN] = _reduce(min)
NAIVE[_T.REDUCE_ALL] = _reduce(all)
NAIVE[_T.REDUCE_ANY] = _reduce(any)
NAIVE[_T.MEAN] = _reduce(lambda values: math.fsum(values) / len(values))


@naive(_T.ARGMAX)
def argmax(x: Array, axis: int) -> Array:
    """Index of the largest element along an axis; the first of equals."""
    return _arg(x, axis, max)


@naive(_T.ARGMIN)
def argmin(x: Array, axis: int) -> Array:
    """Index of the smallest element along an axis; the first of equals."""
    return _arg(x, axis, min)


def _arg(x: Array, axis: int, best: Callable[[list[Any]], Any]) -> Array:
    axis %= x.ndim

    def element(at: Index) -> int:
        line = [x[(*at[:axis], k, *at[axis:])] for k in range(x.shape[axis])]
        return line.index(best(line))

    found = build(x.shape[:axis] + x.shape[axis + 1 :], element)
    return found.reshape(found.shape or (1,))
