"""Computes arithmetic, activations, normalisations, reductions and look-ups naively."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from nnburst.hal.enums import OperationType
from nnburst.testing.models.naive.registry import NAIVE, Array, Index, activated, build, each, naive

_T = OperationType


def _divide(x: float, y: float) -> float:
    if isinstance(x, int):
        return x // y if y else 0
    return x / y


def _with_activation(f: Callable[[Any, Any], Any]) -> Callable[[Array, Array, int], Array]:
    def compute(x: Array, y: Array, activation: int) -> Array:
        limit = activated(activation)
        return each(lambda a, b: limit(f(a, b)) if activation else f(a, b), x, y)

    return compute


_ARITHMETIC = {_T.ADD: operator.add, _T.SUB: operator.sub, _T.MUL: operator.mul, _T.DIV: _divide}
_BINARY: dict[OperationType, Callable[[Any, Any], Any]] = {
    _T.MAXIMUM: max,
    _T.MINIMUM: min,
    _T.POW: math.pow,
    _T.EQUAL: operator.eq,
    _T.NOT_EQUAL: operator.ne,
    _T.LESS: operator.lt,
    _T.LESS_EQUAL: operator.le,
    _T.GREATER: operator.gt,
    _T.GREATER_EQUAL: operator.ge,
    _T.LOGICAL_AND: lambda x, y: x and y,
    _T.LOGICAL_OR: lambda x, y: x or y,
    _T.PRELU: lambda x, alpha: x if x >= 0 else x * alpha,
}
_UNARY: dict[OperationType, Callable[[Any], Any]] = {
    _T.ABS: abs,
    _T.NEG: operator.neg,
    _T.EXP: math.exp,
    _T.LOG: math.log,
    _T.SIN: math.sin,
    _T.SQRT: math.sqrt,
    _T.RSQRT: lambda x: 1 / math.sqrt(x) if x else math.inf,
    _T.FLOOR: math.floor,
    _T.RELU: lambda x: max(x, 0.0),
    _T.RELU1: lambda x: min(max(x, -1.0), 1.0),
    _T.RELU6: lambda x: min(max(x, 0.0), 6.0),
    _T.LOGISTIC: lambda x: 1 / (1 + math.exp(-x)),
    _T.TANH: math.tanh,
    _T.HARD_SWISH: lambda x: x * min(max(x + 3, 0.0), 6.0) / 6,
    _T.LOGICAL_NOT: operator.not_,
}


def _apply(f: Callable[..., Any]) -> Callable[..., Array]:
    return lambda *arrays: each(f, *arrays)


NAIVE.update({kind: _with_activation(f) for kind, f in _ARITHMETIC.items()})
NAIVE.update({kind: _apply(f) for table in (_BINARY, _UNARY) for kind, f in table.items()})


@naive(_T.ELU)
def elu(x: Array, alpha: float) -> Array:
    """Exponential below zero."""
    return each(lambda v: max(0.0, v) + min(0.0, alpha * (math.exp(v) - 1)), x)


@naive(_T.SELECT)
def select(condition: Array, x: Array, y: Array) -> Array:
    """Elements of x where the condition holds, of y elsewhere."""
    return each(lambda c, a, b: a if c else b, condition, x, y)


@naive(_T.CAST, of_elements=True)
def cast(x: Array) -> Array:
    """Return the elements unchanged; storing them rounds or truncates."""
    return x


@naive(_T.QUANTIZE, _T.DEQUANTIZE)
def requantised(x: Array) -> Array:
    """Return the numbers unchanged; storing them quantises."""
    return x


def _along(x: Array, axis: int, line: Callable[[list[float]], list[float]]) -> Array:
    """Apply `line` to the elements of every line along an axis."""
    axis %= x.ndim
    result = np.empty(x.shape, object)
    for at in np.ndindex(*x.shape[:axis], *x.shape[axis + 1 :]):
        place = (*at[:axis], slice(None), *at[axis:])
        result[place] = line(list(x[place]))
    return result


def _weights(line: list[float], beta: float) -> list[float]:
    top = max(line)
    return [math.exp((v - top) * beta) for v in line]


@naive(_T.SOFTMAX)
def softmax(x: Array, beta: float, axis: int = -1) -> Array:
    """Scale exponentials so that they add up to 1."""

    def shares(line: list[float]) -> list[float]:
        weights = _weights(line, beta)
        total = math.fsum(weights)
        return [w / total for w in weights]

    return _along(x, axis, shares)


@naive(_T.LOG_SOFTMAX)
def log_softmax(x: Array, beta: float, axis: int) -> Array:
    """Logarithms of the shares."""

    def log_shares(line: list[float]) -> list[float]:
        top, total = max(line), math.log(math.fsum(_weights(line, beta)))
        return [(v - top) * beta - total for v in line]

    return _along(x, axis, log_shares)


@naive(_T.L2_NORMALIZATION)
def l2_normalization(x: Array, axis: int = -1) -> Array:
    """Scale vectors to length 1."""

    def unit(line: list[float]) -> list[float]:
        length = max(math.sqrt(math.fsum(v * v for v in line)), 1e-6)
        return [v / length for v in line]

    return _along(x, axis, unit)


@naive(_T.LOCAL_RESPONSE_NORMALIZATION)
def local_response_normalization(
    x: Array, radius: int, bias: float, alpha: float, beta: float, axis: int = -1
) -> Array:
    """Divide each element by a power of the sum of squares around it."""

    def response(line: list[float], k: int) -> float:
        near = line[max(0, k - radius) : k + radius + 1]
        return line[k] * math.pow(bias + alpha * math.fsum(v * v for v in near), -beta)

    return _along(x, axis, lambda line: [response(line, k) for k in range(len(line))])


@naive(_T.INSTANCE_NORMALIZATION)
def instance_normalization(
    x: Array, gamma: float, beta: float, epsilon: float, nchw: bool
) -> Array:
    """Bring each channel of each batch to mean beta and deviation gamma."""
    result = np.empty(x.shape, object)
    for n, c in np.ndindex(x.shape[0], x.shape[1 if nchw else 3]):
        place = (n, c) if nchw else (n, slice(None), slice(None), c)
        pixels = [float(v) for v in x[place].flat]
        mean = math.fsum(pixels) / len(pixels)
        variance = math.fsum((v - mean) ** 2 for v in pixels) / len(pixels)
        result[place] = (x[place] - mean) * (gamma / math.sqrt(variance + epsilon)) + beta
    return result


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


@naive(_T.EMBEDDING_LOOKUP)
def embedding_lookup(lookups: Array, values: Array) -> Array:
    """The rows with the given indices."""
    return build((*lookups.shape, *values.shape[1:]), lambda at: values[(lookups[at[0]], *at[1:])])


@naive(_T.HASHTABLE_LOOKUP, of_elements=True)
def hashtable_lookup(lookups: Array, keys: Array, values: Array) -> list[Array]:
    """The rows of these keys, or zeros for unknown keys; and whether each key was found."""
    rows = {key: number for number, key in enumerate(keys)}

    def element(at: Index) -> float:
        row = rows.get(lookups[at[0]])
        return 0 if row is None else values[(row, *at[1:])]

    found = build((*lookups.shape, *values.shape[1:]), element)
    return [found, build(lookups.shape, lambda at: int(lookups[at] in rows))]


@naive(_T.TOPK_V2)
def topk(x: Array, k: int) -> list[Array]:
    """The k largest elements of the last axis, descending, with indices; of equal ones the later first."""
    places = np.empty((*x.shape[:-1], k), object)
    for at in np.ndindex(*x.shape[:-1]):
        line = list(x[at])
        order = [place for _, place in sorted(zip(line, range(len(line)), strict=True))]
        places[at] = order[::-1][:k]
    return [build(places.shape, lambda at: x[(*at[:-1], places[at])]), places]
