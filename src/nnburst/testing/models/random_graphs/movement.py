"""Operations that move elements."""

from __future__ import annotations

import numpy as np

from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.operand_types import QUANTIZED_RANGES
from nnburst.testing.models.naive import Meta
from nnburst.testing.models.random_graphs.builder import GraphBuilder, Unsuitable
from nnburst.testing.models.random_graphs.templates import (
    F16,
    FLOATS,
    I32,
    NUMBERS,
    QUANTISED,
    REALS,
    Made,
    free,
    random_axis,
    template,
)

_O = OperationType
_ANY = 1e6


def _source(g: GraphBuilder, kind: OperandType, *ranks: int) -> int:
    return g.tensor(kind, -_ANY, _ANY, ranks=ranks or (1, 2, 3, 4))


@template(_O.RESHAPE, kinds=NUMBERS)
def _reshape(g: GraphBuilder, kind: OperandType) -> Made:
    x = _source(g, kind)
    shape = list(g.rng.permutation(g.shape(x)))
    if len(shape) > 1 and g.chance(0.5):
        shape[:2] = [shape[0] * shape[1]]
    if g.chance(0.3):
        shape[g.between(0, len(shape) - 1)] = -1
    return [x, g.ints(shape)], [g.meta(x)]


@template(_O.EXPAND_DIMS, kinds=NUMBERS)
def _expand_dims(g: GraphBuilder, kind: OperandType) -> Made:
    x = _source(g, kind, 1, 2, 3)
    return [x, g.scalar(random_axis(g, len(g.shape(x)) + 1))], [g.meta(x)]


@template(_O.SQUEEZE, kinds=REALS)
def _squeeze(g: GraphBuilder, kind: OperandType) -> Made:
    x = _source(g, kind)
    ones = [d for d, n in enumerate(g.shape(x)) if n == 1]
    if not ones:
        raise Unsuitable
    return [x, g.ints(ones[: g.between(1, len(ones))])], [g.meta(x)]


@template(_O.TRANSPOSE, kinds=REALS)
def _transpose(g: GraphBuilder, kind: OperandType) -> Made:
    x = _source(g, kind)
    return [x, g.ints(g.rng.permutation(len(g.shape(x))))], [g.meta(x)]


def _paddings(g: GraphBuilder, limits: list[int]) -> int:
    return g.ints([[g.between(0, limit), g.between(0, limit)] for limit in limits])


@template(_O.PAD, kinds=REALS)
def _pad(g: GraphBuilder, kind: OperandType) -> Made:
    x = _source(g, kind)
    return [x, _paddings(g, [2] * len(g.shape(x)))], [g.meta(x)]


@template(_O.PAD_V2, kinds=REALS)
def _pad_v2(g: GraphBuilder, kind: OperandType) -> Made:
    inputs, outputs = _pad(g, kind)
    if kind in QUANTISED:
        return [*inputs, g.scalar(g.between(*QUANTIZED_RANGES[kind]))], outputs
    scalar = OperandType.FLOAT16 if kind is F16 else OperandType.FLOAT32
    return [*inputs, g.scalar(float(g.between(-3, 3)), scalar)], outputs


@template(_O.MIRROR_PAD, kinds=NUMBERS)
def _mirror_pad(g: GraphBuilder, kind: OperandType) -> Made:
    x, mode = _source(g, kind), g.between(0, 1)
    limits = [min(3, n - 1 + mode) for n in g.shape(x)]
    return [x, _paddings(g, limits), g.scalar(mode)], [g.meta(x)]


@template(_O.REVERSE, kinds=NUMBERS)
def _reverse(g: GraphBuilder, kind: OperandType) -> Made:
    x = _source(g, kind)
    return [x, g.ints([g.between(0, len(g.shape(x)) - 1)])], [g.meta(x)]


@template(_O.SLICE, kinds=NUMBERS)
def _slice(g: GraphBuilder, kind: OperandType) -> Made:
    x = _source(g, kind)
    begin = [g.between(0, n - 1) for n in g.shape(x)]
    size = [
        -1 if g.chance(0.2) else g.between(1, n - b) for n, b in zip(g.shape(x), begin, strict=True)
    ]
    return [x, g.ints(begin), g.ints(size)], [g.meta(x)]


@template(_O.STRIDED_SLICE, kinds=REALS)
def _strided_slice(g: GraphBuilder, kind: OperandType) -> Made:
    x = _source(g, kind)
    shape = g.shape(x)
    begin, end, strides = [], [], []
    for n in shape:
        first = g.between(0, n - 1)
        stride = g.choice([1, 1, 2, -1, -2])
        # Going down, an end below -n means "past index 0".
        last = g.between(first + 1, n) if stride > 0 else g.choice([-n - 1, *range(first)])
        begin.append(first)
        end.append(last)
        strides.append(stride)
    masks = [g.between(0, 2 ** len(shape) - 1) if g.chance(0.3) else 0 for _ in range(2)]
    steps = [g.ints(v) for v in (begin, end, strides)]
    return [x, *steps, *(g.scalar(m) for m in (*masks, 0))], [g.meta(x)]


@template(_O.CONCATENATION, kinds=REALS, criteria="medium")
def _concatenation(g: GraphBuilder, kind: OperandType) -> Made:
    x = _source(g, kind)
    shape = list(g.shape(x))
    axis = g.between(0, len(shape) - 1)
    tensors = [x]
    for _ in range(g.between(0, 2)):
        shape[axis] = g.extent(1, 3)
        tensors.append(g.tensor(kind, -_ANY, _ANY, dims=tuple(shape)))
    return [*tensors, g.scalar(axis)], [free(g, *tensors)]


@template(_O.PACK, kinds=NUMBERS)
def _pack(g: GraphBuilder, kind: OperandType) -> Made:
    x = _source(g, kind, 1, 2, 3)
    more = [
        g.tensor(kind, -_ANY, _ANY, dims=g.shape(x), meta=g.meta(x)) for _ in range(g.between(0, 2))
    ]
    return [g.scalar(g.between(0, len(g.shape(x)))), x, *more], [g.meta(x)]


@template(_O.SPLIT, kinds=NUMBERS)
def _split(g: GraphBuilder, kind: OperandType) -> Made:
    x = _source(g, kind)
    axis = random_axis(g, len(g.shape(x)))
    n = g.shape(x)[axis]
    count = g.choice([c for c in range(1, min(n, 4) + 1) if n % c == 0])
    return [x, g.scalar(axis), g.scalar(count)], [g.meta(x)] * count


@template(_O.GATHER, kinds=NUMBERS)
def _gather(g: GraphBuilder, kind: OperandType) -> Made:
    x = _source(g, kind, 1, 2, 3)
    axis = random_axis(g, len(g.shape(x)))
    shape = g.choice([(3,), (1,), (2, 2)])
    return [x, g.scalar(axis), g.ints(g.rng.integers(0, g.shape(x)[axis], shape))], [g.meta(x)]


@template(_O.TILE, kinds=NUMBERS)
def _tile(g: GraphBuilder, kind: OperandType) -> Made:
    x = _source(g, kind)
    return [x, g.ints([g.choice([1, 1, 2, 3]) for _ in g.shape(x)])], [g.meta(x)]


@template(_O.CHANNEL_SHUFFLE, kinds=REALS)
def _channel_shuffle(g: GraphBuilder, kind: OperandType) -> Made:
    x = _source(g, kind)
    axis = random_axis(g, len(g.shape(x)))
    n = g.shape(x)[axis]
    groups = g.choice([c for c in range(1, n + 1) if n % c == 0])
    return [x, g.scalar(groups), g.scalar(axis)], [g.meta(x)]


@template(_O.FILL, kinds=(*FLOATS, I32))
def _fill(g: GraphBuilder, kind: OperandType) -> Made:
    dims = g.ints(list(g.dims(g.between(1, 4))))
    if kind is I32:
        return [dims, g.scalar(g.between(-9, 9))], [Meta(kind)]
    scalar = OperandType.FLOAT16 if kind is F16 else OperandType.FLOAT32
    return [dims, g.scalar(float(g.between(-9, 9)), scalar)], [Meta(kind)]


def _image(g: GraphBuilder, kind: OperandType, multiples: tuple[int, ...]) -> tuple[int, bool]:
    """An image whose [N, H, W, C] are multiples of these, and whether its layout is NCHW."""
    nchw = g.chance(0.4)
    n, h, w, c = (m * g.extent(1, 2) for m in multiples)
    dims = (n, c, h, w) if nchw else (n, h, w, c)
    return g.tensor(kind, -_ANY, _ANY, dims=dims), nchw


def _flag(g: GraphBuilder, nchw: bool) -> list[int]:
    return [g.scalar(nchw)] if nchw or g.chance(0.5) else []


@template(_O.DEPTH_TO_SPACE, kinds=REALS)
def _depth_to_space(g: GraphBuilder, kind: OperandType) -> Made:
    block = g.between(1, 3)
    x, nchw = _image(g, kind, (1, 1, 1, block**2))
    return [x, g.scalar(block), *_flag(g, nchw)], [g.meta(x)]


@template(_O.SPACE_TO_DEPTH, kinds=REALS)
def _space_to_depth(g: GraphBuilder, kind: OperandType) -> Made:
    block = g.between(1, 3)
    x, nchw = _image(g, kind, (1, block, block, 1))
    return [x, g.scalar(block), *_flag(g, nchw)], [g.meta(x)]


@template(_O.BATCH_TO_SPACE_ND, kinds=REALS)
def _batch_to_space(g: GraphBuilder, kind: OperandType) -> Made:
    block = [g.between(1, 2), g.between(1, 3)]
    x, nchw = _image(g, kind, (block[0] * block[1], 1, 1, 1))
    return [x, g.ints(block), *_flag(g, nchw)], [g.meta(x)]


@template(_O.SPACE_TO_BATCH_ND, kinds=REALS)
def _space_to_batch(g: GraphBuilder, kind: OperandType) -> Made:
    block = np.array([g.between(1, 2), g.between(1, 3)])
    x, nchw = _image(g, kind, (1, 1, 1, 1))
    size = np.array(g.shape(x)[2:] if nchw else g.shape(x)[1:3])
    before = np.array([g.between(0, 2), g.between(0, 2)])
    after = -(size + before) % block
    paddings = np.stack([before, after], axis=1)
    return [x, g.ints(block), g.ints(paddings), *_flag(g, nchw)], [g.meta(x)]
