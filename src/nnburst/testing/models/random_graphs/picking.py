"""Has templates of operations that pick boxes, key points, classes or hashes, and of 8-bit LSTM cells.

They are drawn in pairs and chains only. Scores and boxes are so far apart that rounding does not change the
picks.
"""

from __future__ import annotations

import numpy as np

from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.model import DTYPES
from nnburst.testing.models.naive import Meta, Value
from nnburst.testing.models.random_graphs.builder import (
    B8,
    F16,
    F32,
    FLOATS,
    I32,
    NUMBERS,
    Q8,
    Q8S,
    Q16S,
    QSYM8,
    GraphBuilder,
    Made,
    Unsuitable,
    number,
    template,
)

_O = OperationType


@template(_O.RANK, kinds=(*NUMBERS, B8), joined=True)
def _rank(g: GraphBuilder, kind: OperandType) -> Made:
    return [g.tensor(kind, -1e6, 1e6)], [Meta(OperandType.INT32)]


@template(_O.LSH_PROJECTION, kinds=FLOATS, joined=True)
def _lsh_projection(g: GraphBuilder, kind: OperandType) -> Made:
    # A row of up to 15 elements: hashes are of at most 64 bytes.
    x = g.tensor(g.choice((F32, F16, I32)), -1e6, 1e6, ranks=(1, 2), exact=True)
    if len(g.shape(x)) == 2 and not 1 <= g.shape(x)[1] <= 15:
        raise Unsuitable
    bits = g.between(1, 8)
    hashes = g.given(_spread(g, kind, (g.between(1, 3), bits)), constant=0.9)
    weighted = g.chance(0.5)
    how = 2 if weighted else g.choice((1, 3))
    weights = g.fresh(kind, g.shape(x)[:1], 0.5, 2) if how == 2 else g.omitted(kind)
    return [hashes, x, weights, g.scalar(how)], [Meta(I32)]


def _spread(g: GraphBuilder, kind: OperandType, dims: tuple[int, ...]) -> Value:
    """Evenly spaced numbers from 0 to 1 in a random order."""
    size = int(np.prod(dims))
    values = g.rng.permutation(size).reshape(dims) + 1.0
    return Value(Meta(kind), (values / (size + 1)).astype(DTYPES[kind]))


def _boxes(g: GraphBuilder, kind: OperandType, dims: tuple[int, ...], size: int) -> Value:
    """Boxes (x1, y1, x2, y2) with integer corners, one after the other in the last axis."""
    count = int(np.prod(dims)) // 4
    low = g.rng.integers(0, size // 2, (count, 2))
    high = low + g.rng.integers(1, size // 2, (count, 2))
    boxes = np.concatenate([low, high], axis=1).reshape(dims)
    return Value(Meta(kind), boxes.astype(DTYPES[kind]))


@template(_O.BOX_WITH_NMS_LIMIT, kinds=FLOATS, criteria="relaxed", joined=True)
def _box_with_nms_limit(g: GraphBuilder, kind: OperandType) -> Made:
    count, classes = g.between(1, 5), g.between(2, 3)
    scores = g.tensor(kind, 0.05, 1, dims=(count, classes), exact=True)
    boxes = g.given(_boxes(g, kind, (count, 4 * classes), 16), constant=0.4)
    batches = g.ints(np.sort(g.rng.integers(0, 2, count)))
    settings = [
        number(g, kind, 0.02, 0.3),
        g.scalar(g.choice([-1, 1, 3])),
        g.scalar(g.between(0, 2)),
    ]
    more = [number(g, kind, 0.21, 0.48), number(g, kind, 0.4, 1), number(g, kind, 0.01, 0.2)]
    inputs = [scores, boxes, batches, *settings, *more]
    return inputs, [Meta(kind), Meta(kind), Meta(I32), Meta(I32)]


@template(_O.GENERATE_PROPOSALS, kinds=FLOATS, criteria="relaxed", exact=False, joined=True)
def _generate_proposals(g: GraphBuilder, kind: OperandType) -> Made:
    count, anchors = g.between(1, 2), g.between(1, 2)
    height, width = g.between(1, 3), g.between(1, 3)
    nchw = g.chance(0.4)

    def dims(channels: int) -> tuple[int, ...]:
        return (count, channels, height, width) if nchw else (count, height, width, channels)

    scores = g.given(_spread(g, kind, dims(anchors)), constant=0)
    deltas = g.tensor(kind, -0.9, 0.9, dims=dims(4 * anchors))
    boxes = g.given(_boxes(g, kind, (anchors, 4), 24), constant=0.8)
    image = g.given(Value(Meta(kind), np.full((count, 2), 32, DTYPES[kind])), constant=0.8)
    steps = [number(g, kind, 4, 8) for _ in range(2)]
    limits = [g.scalar(g.choice([0, 3])), g.scalar(g.choice([0, 2]))]
    least = [number(g, kind, 0.2, 0.5), number(g, kind, 1, 2)]
    inputs = [scores, deltas, boxes, image, *steps, *limits, *least, g.scalar(nchw)]
    return inputs, [Meta(kind), Meta(kind), Meta(I32)]


@template(_O.DETECTION_POSTPROCESSING, kinds=FLOATS, criteria="relaxed", exact=False, joined=True)
def _detection_postprocessing(g: GraphBuilder, kind: OperandType) -> Made:
    batches, count, classes = g.between(1, 2), g.between(1, 4), g.between(2, 4)
    scores = g.given(_spread(g, kind, (batches, count, classes)), constant=0)
    deltas = g.tensor(kind, -0.9, 0.9, dims=(batches, count, 4))
    anchors = g.given(_boxes(g, kind, (count, 4), 16), constant=0.8)
    scales = [number(g, kind, 5, 10) for _ in range(4)]
    sizes = [g.scalar(g.between(1, 4)) for _ in range(3)]
    least = [number(g, kind, 0.05, 0.3), number(g, kind, 0.2, 0.5)]
    flags = [g.scalar(g.chance(0.5)), g.scalar(g.chance(0.5))]
    inputs = [scores, deltas, anchors, *scales, flags[0], *sizes, *least, flags[1]]
    return inputs, [Meta(kind), Meta(kind), Meta(I32), Meta(I32)]


@template(_O.HEATMAP_MAX_KEYPOINT, kinds=FLOATS, criteria="relaxed", exact=False, joined=True)
def _heatmap_max_keypoint(g: GraphBuilder, kind: OperandType) -> Made:
    count, size, points = g.between(1, 2), g.between(3, 4), g.between(1, 2)
    nchw = g.chance(0.5)
    dims = (count, points, size, size) if nchw else (count, size, size, points)
    heatmap = g.tensor(kind, -4, 4, dims=dims)
    boxes = g.given(_boxes(g, kind, (count, 4), 16), constant=0.5)
    return [heatmap, boxes, g.scalar(nchw)], [Meta(kind), Meta(kind)]


@template(_O.RANDOM_MULTINOMIAL, kinds=FLOATS, joined=True)
def _random_multinomial(g: GraphBuilder, kind: OperandType) -> Made:
    # All other classes have probability 0, so the draw does not depend on the generator.
    batches, classes = g.between(1, 3), g.between(1, 4)
    logits = np.full((batches, classes), -100.0)
    logits[np.arange(batches), g.rng.integers(0, classes, batches)] = 0
    x = g.given(Value(Meta(kind), logits.astype(DTYPES[kind])), constant=0.3)
    return [x, g.scalar(g.between(1, 4)), g.ints(g.rng.integers(1, 99, 2))], [Meta(I32)]


_STATE = Meta(Q16S, 2.0**-11)
_OUTPUT = Meta(Q8, 1 / 128, 128)


@template(_O.QUANTIZED_16BIT_LSTM, kinds=(Q8,), criteria="medium", exact=False, joined=True)
def _quantized_16bit_lstm(g: GraphBuilder, kind: OperandType) -> Made:
    batches, inputs, units = g.between(1, 2), g.between(1, 4), g.between(1, 3)
    x = g.tensor(kind, dims=(batches, inputs), meta=_OUTPUT)
    scale = float(np.float32(g.choice([1 / 64, 1 / 128])))
    weights = Meta(Q8, scale, g.between(100, 150))
    shapes = [(units, inputs)] * 4 + [(units, units)] * 4
    operands = [g.fresh(kind, dims, meta=weights) for dims in shapes]
    bias = Meta(I32, float(np.float32(scale / 128)))
    for _ in range(4):
        numbers = g.rng.integers(-20000, 20000, units).astype(np.int32)
        operands.append(g.given(Value(bias, numbers), constant=0.8))
    state = g.rng.integers(-4000, 4000, (batches, units)).astype(np.int16)
    operands.append(g.given(Value(_STATE, state), constant=0.4))
    operands.append(g.fresh(kind, (batches, units), meta=_OUTPUT))
    return [x, *operands], [_STATE, _OUTPUT]


@template(_O.QUANTIZED_LSTM, kinds=(Q8S,), criteria="relaxed", exact=False, joined=True)
def _quantized_lstm(g: GraphBuilder, kind: OperandType) -> Made:
    batches, inputs, cells, outputs = (g.between(1, n) for n in (2, 4, 3, 3))
    x = g.tensor(kind, dims=(batches, inputs), meta=Meta(kind, 1 / 128, 0))
    coupled, cell_step = g.chance(0.4), 2.0**-11
    weights = Meta(QSYM8, 1 / 128)
    given = [not coupled, True, True, True]

    def matrix(dims: tuple[int, int], *, there: bool = True) -> int:
        return g.fresh(QSYM8, dims, meta=weights) if there else g.omitted(QSYM8)

    operands = [matrix((cells, inputs), there=there) for there in given]
    operands += [matrix((cells, outputs), there=there) for there in given]
    operands += [g.omitted(Q16S) for _ in range(3)]
    biases = [g.rng.integers(-999, 999, cells).astype(np.int32) for _ in range(4)]
    for there, bias in zip(given, biases, strict=True):
        operands.append(g.given(Value(Meta(I32), bias), constant=0.8) if there else g.omitted(I32))
    operands.append(matrix((outputs, cells)))
    operands.append(g.omitted(I32))
    result = Meta(kind, 1 / 64, g.between(-9, 9))
    operands.append(g.fresh(kind, (batches, outputs), meta=result))
    state = g.rng.integers(-4000, 4000, (batches, cells)).astype(np.int16)
    operands.append(g.given(Value(Meta(Q16S, cell_step), state), constant=0.4))
    operands += [g.omitted(Q16S) for _ in range(4)]
    clips = [g.scalar(g.choice([0.0, 1.5])), g.scalar(0.0)]
    steps = [g.scalar(float(np.float32(2.0**-12))) for _ in range(4)]
    hidden = [g.scalar(g.between(-3, 3)), g.scalar(float(np.float32(1 / 128)))]
    inputs_of = [x, *operands, *clips, *steps, *hidden]
    return inputs_of, [result, Meta(Q16S, cell_step), result]
