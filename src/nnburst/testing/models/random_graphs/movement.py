"""Has templates of operations that move elements, look them up or read regions."""

from __future__ import annotations

import numpy as np

from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.model import DTYPES, QUANTIZED_RANGES
from nnburst.testing.models.naive import Meta, Value
from nnburst.testing.models.random_graphs.builder import (
    F16,
    F32,
    FLOATS,
    I32,
    NUMBERS,
    Q8,
    Q16A,
    QUANTISED,
    REALS,
    GraphBuilder,
    Made,
    Unsuitable,
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
    for _ in range(g.further()):
        shape[axis] = g.extent(1, 3)
        tensors.append(g.tensor(kind, -_ANY, _ANY, dims=tuple(shape)))
    return [*tensors, g.scalar(axis)], [free(g, *tensors)]


@template(_O.PACK, kinds=NUMBERS)
def _pack(g: GraphBuilder, kind: OperandType) -> Made:
    x = _source(g, kind, 1, 2, 3)
    more = [
        g.tensor(kind, -_ANY, _ANY, dims=g.shape(x), meta=g.meta(x)) for _ in range(g.further())
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


_BOXES = Meta(OperandType.TENSOR_QUANT16_ASYMM, 0.125, 0)


@template(_O.EMBEDDING_LOOKUP, kinds=NUMBERS)
def _embedding(g: GraphBuilder, kind: OperandType) -> Made:
    values = g.tensor(kind, -1e6, 1e6, ranks=(2, 3, 4))
    lookups = g.ints(g.rng.integers(0, g.shape(values)[0], g.between(1, 4)))
    return [lookups, values], [g.meta(values)]


@template(_O.HASHTABLE_LOOKUP, kinds=(F32, I32, Q8))
def _hashtable(g: GraphBuilder, kind: OperandType) -> Made:
    values = g.tensor(kind, -1e6, 1e6, ranks=(2, 3, 4))
    rows = g.shape(values)[0]
    most = max(20, rows)
    keys = np.sort(g.rng.choice(np.arange(-most, most), rows, replace=False))
    lookups = g.rng.choice(np.append(keys, [5 * most, -5 * most]), g.between(1, 5))
    outputs = [g.meta(values), Meta(Q8, 1.0, 0)]
    return [g.ints(lookups), g.ints(keys), values], outputs


@template(_O.TOPK_V2, kinds=NUMBERS)
def _topk(g: GraphBuilder, kind: OperandType) -> Made:
    x = g.tensor(kind, -1e6, 1e6, exact=True)
    return [x, g.scalar(g.between(1, g.shape(x)[-1]))], [g.meta(x), Meta(I32)]


def _regions(g: GraphBuilder, kind: OperandType, count: int, size: tuple[float, float]) -> int:
    """Boxes (x1, y1, x2, y2) inside an area of this height and width, on a grid of 1/8."""
    ends = [np.sort(g.rng.uniform(0, extent, (count, 2)), axis=1) for extent in reversed(size)]
    boxes = np.stack([ends[0][:, 0], ends[1][:, 0], ends[0][:, 1], ends[1][:, 1]], axis=1)
    grid = np.floor(boxes * 8)
    if kind in QUANTISED or kind is Q16A:
        return g.given(Value(_BOXES, grid.astype(np.uint16)), constant=0.4)
    return g.given(Value(Meta(kind), (grid / 8).astype(DTYPES[kind])), constant=0.4)


def _roi(g: GraphBuilder, kind: OperandType) -> tuple[int, list[int], list[int], bool]:
    """A map, regions with their batches, output sizes with strides, and the layout."""
    nchw = g.chance(0.4)
    n, h, w, c = g.extent(1, 2), g.extent(2, 5), g.extent(2, 5), g.extent(1, 3)
    x = g.tensor(kind, -8, 8, dims=(n, c, h, w) if nchw else (n, h, w, c))
    count = g.between(1, 3)
    strides = [g.choice([1.0, 2.0, 4.0]) for _ in range(2)]
    regions = _regions(g, kind, count, (h * strides[0], w * strides[1]))
    batches = g.ints(np.sort(g.rng.integers(0, n, count)))
    scalar = OperandType.FLOAT16 if kind is F16 else OperandType.FLOAT32
    sizes = [g.scalar(g.between(1, 3)) for _ in range(2)]
    return x, [regions, batches], [*sizes, *(g.scalar(s, scalar) for s in strides)], nchw


@template(_O.ROI_ALIGN, kinds=REALS, criteria="relaxed", exact=False)
def _roi_align(g: GraphBuilder, kind: OperandType) -> Made:
    x, regions, numbers, nchw = _roi(g, kind)
    samples = [g.scalar(g.between(0, 3)) for _ in range(2)]
    return [x, *regions, *numbers, *samples, g.scalar(nchw)], [free(g, x)]


@template(_O.ROI_POOLING, kinds=REALS)
def _roi_pooling(g: GraphBuilder, kind: OperandType) -> Made:
    x, regions, numbers, nchw = _roi(g, kind)
    return [x, *regions, *numbers, g.scalar(nchw)], [g.meta(x)]


@template(_O.AXIS_ALIGNED_BBOX_TRANSFORM, kinds=(*FLOATS, Q16A), criteria="relaxed", exact=False)
def _bbox_transform(g: GraphBuilder, kind: OperandType) -> Made:
    count, classes, images = g.extent(1, 4), g.between(1, 3), g.between(1, 2)
    regions = _regions(g, kind, count, (30, 40))
    by = g.choice(QUANTISED) if kind is Q16A else kind
    # From -1 to 1, like the other elements.
    meta = Meta(by, 1 / 128, 128 if by is Q8 else 0) if by in QUANTISED else None
    deltas = g.tensor(by, -1, 1, dims=(count, 4 * classes), meta=meta)
    batches = g.ints(np.sort(g.rng.integers(0, images, count)))
    boxes = _BOXES if kind is Q16A else Meta(kind)
    sizes = np.tile([32, 48], (images, 1)) / (boxes.scale or 1)
    image = g.given(Value(boxes, sizes.astype(DTYPES[kind])), constant=0.4)
    return [regions, deltas, batches, image], [boxes]
