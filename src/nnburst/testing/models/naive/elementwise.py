"""Elementwise arithmetic, activations, comparisons, logic."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from nnburst.hal.enums import OperationType
from nnburst.testing.models.naive.registry import NAIVE, naive
from nnburst.testing.models.naive.values import Array, activated, each

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
    """Elements stay; what keeps them rounds or truncates."""
    return x


@naive(_T.QUANTIZE, _T.DEQUANTIZE)
def requantised(x: Array) -> Array:
    """Numbers stay; what stores them quantises."""
    return x
