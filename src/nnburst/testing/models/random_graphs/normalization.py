"""Reductions and normalisations."""

from __future__ import annotations

from nnburst.hal.enums import OperandType, OperationType
from nnburst.testing.models.naive import Meta
from nnburst.testing.models.random_graphs.builder import GraphBuilder
from nnburst.testing.models.random_graphs.templates import (
    B8,
    FLOATS,
    I32,
    NUMBERS,
    Q8,
    Q8S,
    QUANTISED,
    REALS,
    Made,
    number,
    random_axis,
    template,
)

_O = OperationType


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
    # Positive values keep the length away from 0, where rounding decides.
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
