"""Has templates of convolutions, pools, matrix products and resizing."""

from __future__ import annotations

import numpy as np

from nnburst.hal.enums import OperandType, OperationType
from nnburst.testing.models.naive import Meta
from nnburst.testing.models.random_graphs.builder import (
    F16,
    FLOATS,
    I32,
    Q8S,
    QUANTISED,
    REALS,
    GraphBuilder,
    Made,
    activation,
    free,
    template,
)

_O = OperationType
_Sizes = tuple[int, int]


def _image(g: GraphBuilder, kind: OperandType, channels: int | None = None) -> tuple[int, bool]:
    """An image of at least 2 x 2 pixels, and whether its layout is NCHW."""
    nchw = g.chance(0.4)
    n, h, w = g.extent(1, 2), g.extent(2, 6), g.extent(2, 6)
    c = g.extent(1, 4) if channels is None else channels
    return g.tensor(kind, -8, 8, dims=(n, c, h, w) if nchw else (n, h, w, c)), nchw


def _channels(g: GraphBuilder, x: int, nchw: bool) -> int:
    return g.shape(x)[1 if nchw else 3]


def _pixels(g: GraphBuilder, x: int, nchw: bool) -> _Sizes:
    shape = g.shape(x)
    return (shape[2], shape[3]) if nchw else (shape[1], shape[2])


def _geometry(g: GraphBuilder, size: _Sizes, *, explicit: bool) -> list[int]:
    """Padding and strides for a filter of (height, width): six scalars, or three."""
    height, width = size
    strides = [g.between(1, 2), g.between(1, 2)]
    padding = [g.between(0, width - 1) for _ in range(2)] + [
        g.between(0, height - 1) for _ in range(2)
    ]
    numbers = [*(padding if explicit else [g.between(1, 2)]), *strides]
    return [g.scalar(v) for v in numbers]


def _filter_size(g: GraphBuilder, x: int, nchw: bool) -> _Sizes:
    height, width = _pixels(g, x, nchw)
    return g.between(1, min(3, height)), g.between(1, min(3, width))


def _weights(
    g: GraphBuilder,
    kind: OperandType,
    x: int,
    dims: tuple[int, ...],
    units: int,
    channel: int | None = 0,
) -> tuple[list[int], Meta]:
    """Weights and bias, and an output type whose range suits the sums.

    Args:
        g: the graph that they are added to.
        kind: type of the input.
        x: the input.
        dims: dimensions of the weights.
        units: number of sums.
        channel: the weights' axis along which they may have per-channel scales; None if they may not.
    """
    terms = max(1, int(np.prod(dims)) // units)
    if kind not in QUANTISED:
        return [g.fresh(kind, dims, -1, 1), g.fresh(kind, (units,), -1, 1)], Meta(kind)
    if channel is not None and g.chance(0.3):
        by = g.by_channel(dims, channel)
        weights = g.fresh(by.kind, dims, meta=by)
    else:
        weights = g.fresh(kind, dims)
        by = g.meta(weights)
    steps = [float(np.float32(g.meta(x).scale) * np.float32(s)) for s in by.scales or (by.scale,)]
    # The model declares no scale for a bias of per-channel weights.
    meta = Meta(I32, scales=tuple(steps)) if by.scales else Meta(I32, steps[0])
    bias = g.fresh(I32, (units,), -300, 300, meta)
    coarse = max(steps) * 30 * float(np.sqrt(terms))
    return [weights, bias], Meta(kind, float(np.float32(coarse)), g.quantised(kind).zero_point)


def _tail(g: GraphBuilder, nchw: bool, *, dilations: bool) -> list[int]:
    """Layout flag and dilation, omitted if they are the defaults."""
    if dilations:
        return [g.scalar(nchw), g.scalar(1), g.scalar(1)]
    return [g.scalar(nchw)] if nchw or g.chance(0.3) else []


@template(_O.CONV_2D, kinds=REALS, criteria="conv", exact=False)
def _conv_2d(g: GraphBuilder, kind: OperandType) -> Made:
    x, nchw = _image(g, kind)
    size, units, depth = _filter_size(g, x, nchw), g.extent(1, 4), _channels(g, x, nchw)
    weights, meta = _weights(g, kind, x, (units, *size, depth), units)
    geometry = _geometry(g, size, explicit=g.chance(0.5))
    tail = _tail(g, nchw, dilations=g.chance(0.2))
    return [x, *weights, *geometry, activation(g, kind), *tail], [meta]


@template(_O.DEPTHWISE_CONV_2D, kinds=REALS, criteria="conv", exact=False)
def _depthwise(g: GraphBuilder, kind: OperandType) -> Made:
    x, nchw = _image(g, kind)
    multiplier = g.between(1, 2)
    size, units = _filter_size(g, x, nchw), _channels(g, x, nchw) * multiplier
    weights, meta = _weights(g, kind, x, (1, *size, units), units, channel=3)
    geometry = _geometry(g, size, explicit=g.chance(0.5))
    tail = _tail(g, nchw, dilations=g.chance(0.2))
    scalars = [g.scalar(multiplier), activation(g, kind)]
    return [x, *weights, *geometry, *scalars, *tail], [meta]


@template(_O.GROUPED_CONV_2D, kinds=REALS, criteria="conv", exact=False)
def _grouped(g: GraphBuilder, kind: OperandType) -> Made:
    groups, depth = g.between(1, 3), g.between(1, 2)
    x, nchw = _image(g, kind, groups * depth)
    size, units = _filter_size(g, x, nchw), groups * g.between(1, 2)
    weights, meta = _weights(g, kind, x, (units, *size, depth), units)
    geometry = _geometry(g, size, explicit=g.chance(0.5))
    scalars = [g.scalar(groups), activation(g, kind), g.scalar(nchw)]
    return [x, *weights, *geometry, *scalars], [meta]


@template(_O.TRANSPOSE_CONV_2D, kinds=REALS, criteria="conv", exact=False)
def _transposed(g: GraphBuilder, kind: OperandType) -> Made:
    x, nchw = _image(g, kind)
    size, units, depth = (
        (g.between(2, 3), g.between(2, 3)),
        g.between(1, 3),
        _channels(g, x, nchw),
    )
    weights, meta = _weights(g, kind, x, (units, *size, depth), units)
    geometry = [g.scalar(g.between(0, 1)) for _ in range(4)]
    strides = [g.scalar(g.between(1, 2)) for _ in range(2)]
    return [x, *weights, *geometry, *strides, activation(g, kind), g.scalar(nchw)], [meta]


def _pool(g: GraphBuilder, kind: OperandType) -> Made:
    x, nchw = _image(g, kind)
    height, width = _filter_size(g, x, nchw)
    geometry = _geometry(g, (height, width), explicit=g.chance(0.5))
    scalars = [g.scalar(width), g.scalar(height), activation(g, kind)]
    tail = _tail(g, nchw, dilations=False)
    return [x, *geometry, *scalars, *tail], [g.meta(x)]


template(_O.MAX_POOL_2D, kinds=REALS)(_pool)
template(_O.AVERAGE_POOL_2D, kinds=REALS, criteria="relaxed", exact=False)(_pool)
template(_O.L2_POOL_2D, kinds=FLOATS, criteria="relaxed", exact=False)(_pool)


@template(_O.FULLY_CONNECTED, kinds=REALS, criteria="conv", exact=False)
def _fully_connected(g: GraphBuilder, kind: OperandType) -> Made:
    x = g.tensor(kind, -8, 8, ranks=(2, 3, 4))
    depth, units = g.shape(x)[-1], g.extent(1, 4)
    weights, meta = _weights(g, kind, x, (units, depth), units, channel=None)
    return [x, *weights, activation(g, kind)], [meta]


@template(_O.BATCH_MATMUL, kinds=(*FLOATS, I32, Q8S), criteria="conv", exact=False)
def _batch_matmul(g: GraphBuilder, kind: OperandType) -> Made:
    x = g.tensor(kind, -8, 8, ranks=(2, 3, 4))
    *batch, rows, columns = g.shape(x)
    transposed_x, transposed_y = g.chance(0.4), g.chance(0.4)
    inner = rows if transposed_x else columns
    other = (g.between(1, 4), inner) if transposed_y else (inner, g.between(1, 4))
    y = g.tensor(kind, -8, 8, dims=(*batch, *other))
    meta = free(g, x, y, factor=g.rng.uniform(2, 30)) if kind is Q8S else Meta(kind)
    return [x, y, g.scalar(transposed_x), g.scalar(transposed_y)], [meta]


def _sizes(g: GraphBuilder, kind: OperandType) -> list[int]:
    """The output's width and height, or the scales."""
    if g.chance(0.3):
        scalar = OperandType.FLOAT16 if kind is F16 else OperandType.FLOAT32
        return [g.scalar(g.choice([0.5, 1.0, 1.5, 2.0]), scalar) for _ in range(2)]
    return [g.scalar(g.between(1, 7)), g.scalar(g.between(1, 7))]


@template(_O.RESIZE_NEAREST_NEIGHBOR, kinds=REALS)
def _resize_nearest(g: GraphBuilder, kind: OperandType) -> Made:
    x, nchw = _image(g, kind)
    return [x, *_sizes(g, kind), g.scalar(nchw)], [g.meta(x)]


@template(_O.RESIZE_BILINEAR, kinds=REALS, criteria="relaxed", exact=False)
def _resize_bilinear(g: GraphBuilder, kind: OperandType) -> Made:
    x, nchw = _image(g, kind)
    return [x, *_sizes(g, kind), *_tail(g, nchw, dilations=False)], [g.meta(x)]
