"""Has templates of arithmetic, logic, casts, reductions and normalisations."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.model import QUANTIZED_RANGES
from nnburst.testing.models.naive import Meta
from nnburst.testing.models.random_graphs.builder import (
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
    GraphBuilder,
    Made,
    Make,
    Unsuitable,
    activation,
    free,
    number,
    random_axis,
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


#: From this scale on, NNAPI's integer LOGISTIC and TANH give a limit for every element, even 0.
_COARSE: Final = 8.0


def _forced(scale: float, zero_points: tuple[int, int]) -> Make:
    def make(g: GraphBuilder, kind: OperandType) -> Made:
        x = g.tensor(kind, -20, 20)
        quantised = kind in QUANTISED
        if g.meta(x).scale >= _COARSE:
            raise Unsuitable
        zero_point = zero_points[kind is Q8S] if quantised else 0
        return [x], [Meta(kind, scale if quantised else 0.0, zero_point)]

    return make


template(_O.LOGISTIC, kinds=REALS, criteria="relaxed", exact=False)(_forced(1 / 256, (0, -128)))
template(_O.TANH, kinds=REALS, criteria="relaxed", exact=False)(_forced(1 / 128, (128, 0)))


@template(_O.RSQRT, kinds=REALS, criteria="medium", exact=False)
def _rsqrt(g: GraphBuilder, kind: OperandType) -> Made:
    if kind not in QUANTISED:
        return _unary(0.1, 1e3)(g, kind)
    # No element stands for a negative number, which has no root.
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


#: Types that are cast to each other; other types are only cast to themselves.
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


def _reduction(g: GraphBuilder, kind: OperandType, low: float, high: float) -> Made:
    x = g.tensor(kind, low, high)
    rank = len(g.shape(x))
    axes = [random_axis(g, rank) for _ in range(g.between(1, rank))]
    return [x, g.ints(axes), g.scalar(g.chance(0.5))], [g.meta(x)]


@template(_O.REDUCE_SUM, kinds=FLOATS, criteria="relaxed", exact=False)
def _reduce_sum(g: GraphBuilder, kind: OperandType) -> Made:
    return _reduction(g, kind, -4, 4)


@template(_O.REDUCE_PROD, kinds=FLOATS, criteria="relaxed", exact=False)
def _reduce_prod(g: GraphBuilder, kind: OperandType) -> Made:
    return _reduction(g, kind, 0.5, 1.5)


@template(_O.REDUCE_MAX, _O.REDUCE_MIN, kinds=REALS)
def _reduce_extreme(g: GraphBuilder, kind: OperandType) -> Made:
    return _reduction(g, kind, -1e6, 1e6)


@template(_O.REDUCE_ALL, _O.REDUCE_ANY, kinds=(B8,))
def _reduce_logic(g: GraphBuilder, kind: OperandType) -> Made:
    return _reduction(g, kind, 0, 1)


@template(_O.MEAN, kinds=REALS, criteria="relaxed", exact=False)
def _mean(g: GraphBuilder, kind: OperandType) -> Made:
    (x, axes, _), outputs = _reduction(g, kind, -30, 30)
    return [x, axes, g.scalar(g.between(0, 1))], outputs


@template(_O.ARGMAX, _O.ARGMIN, kinds=NUMBERS)
def _argument(g: GraphBuilder, kind: OperandType) -> Made:
    x = g.tensor(kind, -1e6, 1e6, exact=True)
    return [x, g.scalar(random_axis(g, len(g.shape(x))))], [Meta(I32)]


@template(_O.SOFTMAX, kinds=REALS, criteria="relaxed", exact=False)
def _softmax(g: GraphBuilder, kind: OperandType) -> Made:
    x = g.tensor(kind, -20, 20)
    inputs = [x, number(g, kind, 0.2, 1)]
    if g.chance(0.5):
        inputs.append(g.scalar(random_axis(g, len(g.shape(x)))))
    quantised = kind in QUANTISED
    meta = Meta(kind, 1 / 256, -128 if kind is Q8S else 0) if quantised else Meta(kind)
    return inputs, [meta]


@template(_O.LOG_SOFTMAX, kinds=FLOATS, criteria="relaxed", exact=False)
def _log_softmax(g: GraphBuilder, kind: OperandType) -> Made:
    x = g.tensor(kind, -20, 20)
    axis = g.scalar(random_axis(g, len(g.shape(x))))
    return [x, number(g, kind, 0.2, 1), axis], [Meta(kind)]


@template(_O.L2_NORMALIZATION, kinds=REALS, criteria="relaxed", exact=False)
def _l2_normalization(g: GraphBuilder, kind: OperandType) -> Made:
    # Positive values keep the length away from 0, near which rounding would decide.
    x = g.tensor(kind, 0.5, 20)
    inputs = [x, g.scalar(random_axis(g, len(g.shape(x))))] if g.chance(0.5) else [x]
    zero_point = 128 if kind is Q8 else 0
    return inputs, [Meta(kind, 1 / 128, zero_point) if kind in QUANTISED else Meta(kind)]


@template(_O.LOCAL_RESPONSE_NORMALIZATION, kinds=FLOATS, criteria="relaxed", exact=False)
def _local_response(g: GraphBuilder, kind: OperandType) -> Made:
    x = g.tensor(kind, -20, 20)
    numbers = [number(g, kind, low, high) for low, high in ((1, 3), (0.1, 1), (0.2, 1))]
    axis = [g.scalar(random_axis(g, len(g.shape(x))))] if g.chance(0.5) else []
    return [x, g.scalar(g.between(0, 4)), *numbers, *axis], [Meta(kind)]


@template(_O.INSTANCE_NORMALIZATION, kinds=FLOATS, criteria="relaxed", exact=False)
def _instance_normalization(g: GraphBuilder, kind: OperandType) -> Made:
    x = g.tensor(kind, -20, 20, ranks=(4,))
    # A large epsilon keeps planes of equal pixels from amplifying their rounding.
    numbers = [number(g, kind, low, high) for low, high in ((0.5, 2), (-1, 1), (0.5, 1))]
    return [x, *numbers, g.scalar(g.chance(0.5))], [Meta(kind)]
