"""Looking things up, largest elements, regions of images."""

from __future__ import annotations

import numpy as np

from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.operand_types import DTYPES
from nnburst.testing.models.naive import Meta, Value
from nnburst.testing.models.random_graphs.builder import GraphBuilder
from nnburst.testing.models.random_graphs.templates import (
    F16,
    F32,
    FLOATS,
    I32,
    NUMBERS,
    Q8,
    Q16A,
    QUANTISED,
    REALS,
    Made,
    free,
    template,
)

_O = OperationType
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
    # As far as the others: from -1 to 1.
    meta = Meta(by, 1 / 128, 128 if by is Q8 else 0) if by in QUANTISED else None
    deltas = g.tensor(by, -1, 1, dims=(count, 4 * classes), meta=meta)
    batches = g.ints(np.sort(g.rng.integers(0, images, count)))
    boxes = _BOXES if kind is Q16A else Meta(kind)
    sizes = np.tile([32, 48], (images, 1)) / (boxes.scale or 1)
    image = g.given(Value(boxes, sizes.astype(DTYPES[kind])), constant=0.4)
    return [regions, deltas, batches, image], [boxes]
