"""Arithmetic, activations, comparisons, logic, casts."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.operand_types import QUANTIZED_RANGES
from nnburst.testing.models.naive import Meta
from nnburst.testing.models.random_graphs.builder import GraphBuilder
from nnburst.testing.models.random_graphs.templates import (
    B8,
    F16,
    F32,
    FLOATS,
    I32,
    NUMBERS,
    Q8,
    Q8S,
    Q16A,
    Q16S,
    QPC,
    QSYM8,
    QUANTISED,
    REALS,
    Made,
    Make,
    activation,
    free,
    number,
    template,
)

_O = OperationType


def _unary(low: float, high: float, *, exact: bool = False) -> Make:
    def make(g: GraphBuilder, kind: OperandType) -> Made:
        x = g.tensor(kind, low, high, exact=exact)
        return [x], [g.meta(x)]

    return make


template(_O.ABS, _O.NEG, kinds=(*FLOATS, I32))(_unary(-1e6, 1e6))
template(_O.RELU, _O.RELU1, _O.RELU6, kinds=REALS)(_unary(-1e6, 1e6))
template(_O.FLOOR, kinds=FLOATS)(_unary(-1e6, 1e6, exact=True))
template(_O.EXP, kinds=FLOATS, criteria="medium", exact=False)(_unary(-6, 3))
template(_O.SIN, kinds=FLOATS, criteria="medium", exact=False)(_unary(-6, 6))
template(_O.SQRT, kinds=FLOATS, criteria="medium")(_unary(0.1, 1e3))
template(_O.LOG, kinds=FLOATS, criteria="medium", exact=False)(_unary(0.1, 1e3))
template(_O.LOGICAL_NOT, kinds=(B8,))(_unary(0, 1))


def _forced(scale: float, zero_points: tuple[int, int]) -> Make:
    def make(g: GraphBuilder, kind: OperandType) -> Made:
        x = g.tensor(kind, -20, 20)
        quantised = kind in QUANTISED
        zero_point = zero_points[kind is Q8S] if quantised else 0
        return [x], [Meta(kind, scale if quantised else 0.0, zero_point)]

    return make


template(_O.LOGISTIC, kinds=REALS, criteria="relaxed", exact=False)(_forced(1 / 256, (0, -128)))
template(_O.TANH, kinds=REALS, criteria="relaxed", exact=False)(_forced(1 / 128, (128, 0)))


@template(_O.RSQRT, kinds=REALS, criteria="medium", exact=False)
def _rsqrt(g: GraphBuilder, kind: OperandType) -> Made:
    if kind not in QUANTISED:
        return _unary(0.1, 1e3)(g, kind)
    # No element stands for less than 0, which has no root.
    meta = replace(g.quantised(kind), zero_point=QUANTIZED_RANGES[kind][0])
    x = g.tensor(kind, meta=meta)
    scale = float(np.float32(g.rng.uniform(1, 4) / 255 / np.sqrt(meta.scale)))
    return [x], [Meta(kind, scale, g.quantised(kind).zero_point)]


@template(_O.HARD_SWISH, kinds=REALS, criteria="medium", exact=False)
def _hard_swish(g: GraphBuilder, kind: OperandType) -> Made:
    x = g.tensor(kind, -20, 20)
    return [x], [free(g, x)]


@template(_O.ELU, kinds=FLOATS, criteria="medium", exact=False)
def _elu(g: GraphBuilder, kind: OperandType) -> Made:
    x = g.tensor(kind, -20, 20)
    return [x, number(g, kind, 0.2, 2)], [free(g, x)]


def _partner(g: GraphBuilder, x: int, low: float, high: float, *, exact: bool = False) -> int:
    """A tensor that broadcasts against x."""
    shape = g.shape(x)
    dims = tuple(1 if g.chance(0.2) else d for d in shape)
    if g.chance(0.2):
        dims = dims[g.between(0, len(dims) - 1) :]
    return g.tensor(g.meta(x).kind, low, high, dims=dims, exact=exact)


def _either_way(g: GraphBuilder, x: int, y: int) -> list[int]:
    return [x, y] if g.chance(0.5) else [y, x]


@template(_O.ADD, _O.SUB, kinds=NUMBERS, criteria="medium")
def _sum(g: GraphBuilder, kind: OperandType) -> Made:
    x = g.tensor(kind, -1e6, 1e6)
    y = _partner(g, x, -1e6, 1e6)
    return [*_either_way(g, x, y), activation(g, kind)], [free(g, x, y)]


@template(_O.MUL, kinds=NUMBERS, criteria="medium")
def _product(g: GraphBuilder, kind: OperandType) -> Made:
    x = g.tensor(kind, -30, 30)
    y = _partner(g, x, -30, 30)
    factor = min(g.meta(x).scale, g.meta(y).scale) if kind in QUANTISED else 1.0
    factor = factor * g.rng.uniform(1, 60) if kind in QUANTISED else 1.0
    return [*_either_way(g, x, y), activation(g, kind)], [free(g, x, y, factor=factor)]


@template(_O.DIV, kinds=(*FLOATS, I32), criteria="medium")
def _quotient(g: GraphBuilder, kind: OperandType) -> Made:
    x = g.tensor(kind, -1e6, 1e6)
    y = _partner(g, x, 1, 30)
    return [x, y, activation(g, kind)], [Meta(kind)]


@template(_O.POW, kinds=FLOATS, criteria="medium", exact=False)
def _power(g: GraphBuilder, kind: OperandType) -> Made:
    x = g.tensor(kind, 0.2, 5)
    return [x, _partner(g, x, -2, 2)], [Meta(kind)]


@template(_O.MAXIMUM, _O.MINIMUM, kinds=NUMBERS, criteria="medium")
def _extreme(g: GraphBuilder, kind: OperandType) -> Made:
    x = g.tensor(kind, -1e6, 1e6)
    y = _partner(g, x, -1e6, 1e6)
    return [*_either_way(g, x, y)], [free(g, x, y)]


@template(_O.PRELU, kinds=REALS, criteria="medium")
def _prelu(g: GraphBuilder, kind: OperandType) -> Made:
    x = g.tensor(kind, -30, 30)
    alpha = _partner(g, x, -2, 2)
    factor = max(1.0, 40 * g.meta(alpha).scale)
    return [x, alpha], [free(g, x, factor=factor)]


_COMPARISONS: Final = (
    _O.EQUAL,
    _O.NOT_EQUAL,
    _O.LESS,
    _O.LESS_EQUAL,
    _O.GREATER,
    _O.GREATER_EQUAL,
)


@template(*_COMPARISONS, kinds=(*NUMBERS, B8))
def _comparison(g: GraphBuilder, kind: OperandType) -> Made:
    x = g.tensor(kind, -1e6, 1e6, exact=True)
    y = _partner(g, x, -1e6, 1e6, exact=True)
    return [*_either_way(g, x, y)], [Meta(B8)]


@template(_O.LOGICAL_AND, _O.LOGICAL_OR, kinds=(B8,))
def _logic(g: GraphBuilder, kind: OperandType) -> Made:
    x = g.tensor(kind)
    return [x, _partner(g, x, 0, 1)], [Meta(B8)]


@template(_O.SELECT, kinds=NUMBERS, criteria="medium")
def _select(g: GraphBuilder, kind: OperandType) -> Made:
    x = g.tensor(kind, -1e6, 1e6)
    y = g.tensor(kind, -1e6, 1e6, dims=g.shape(x))
    return [g.tensor(B8, dims=g.shape(x)), x, y], [free(g, x, y)]


#: From each of these to each; other types only to themselves.
_CASTABLE: Final = (F32, F16, I32, Q8)


@template(_O.CAST, kinds=(*_CASTABLE, B8, Q8S, QSYM8, Q16A, Q16S), criteria="medium")
def _cast(g: GraphBuilder, kind: OperandType) -> Made:
    to = g.choice(_CASTABLE) if kind in _CASTABLE else kind
    return [g.tensor(kind, -200, 200, exact=to in (I32, Q8))], [g.quantised(to)]


@template(_O.QUANTIZE, kinds=FLOATS, criteria="medium", exact=False)
def _quantize(g: GraphBuilder, kind: OperandType) -> Made:
    return [g.tensor(kind, -200, 200, exact=True)], [g.quantised(g.choice(QUANTISED))]


@template(_O.DEQUANTIZE, kinds=(*QUANTISED, QSYM8, QPC), criteria="medium", exact=False)
def _dequantize(g: GraphBuilder, kind: OperandType) -> Made:
    return [g.tensor(kind)], [Meta(g.choice(FLOATS))]
