"""Models made by hand, each in a few lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
from msgspec.structs import replace

from nnburst.hal.enums import OperandLifeTime, OperandType, OperationType
from nnburst.hal.model import DataLocation, MemoryPool, Operand
from nnburst.testing.models.small_models.cells import CELLS
from nnburst.testing.models.small_models.source import Maker, SmallModel

_T = OperandType
_O = OperationType
_F32, _I32, _Q8 = _T.TENSOR_FLOAT32, _T.TENSOR_INT32, _T.TENSOR_QUANT8_ASYMM


def chain() -> SmallModel:
    """Two quantised additions and a SOFTMAX."""
    m = Maker()
    b = m.builder
    x = m.random(_Q8, (1, 4), 0.5, 30)
    y, act = b.constant(_Q8, [[1, 2, 3, 4]], 0.5, 3), b.scalar(0)
    between = [b.temporary(_Q8, (1, 4), 0.5, 3) for _ in range(2)]
    b.operation(_O.ADD, [x, y, act], [between[0]])
    b.operation(_O.ADD, [between[0], y, act], [between[1]])
    out = m.result(_Q8, (1, 4), 1 / 256)
    return m.finish("chain", _O.SOFTMAX, [between[1], b.scalar(1.0)], [out])


def pooled() -> SmallModel:
    """An addition of a constant that lies in a pool."""
    m = Maker()
    data = np.arange(4, dtype="<f4").tobytes()
    y = m.builder.operand(
        Operand(
            _F32,
            (1, 4),
            lifetime=OperandLifeTime.CONSTANT_REFERENCE,
            location=DataLocation(length=len(data)),
        )
    )
    inputs = [m.random(_F32, (1, 4)), y, m.builder.scalar(0)]
    made = m.finish("pooled", _O.ADD, inputs, [m.result(_F32, (1, 4))])
    return made._replace(model=replace(made.model, pools=(MemoryPool(len(data)),)), pools=(data,))


def open_outputs() -> SmallModel:
    """A SPLIT into three whose dimensions the model leaves open: results report shapes."""
    m = Maker()
    inputs = [m.random(_F32, (2, 3)), m.builder.scalar(1), m.builder.scalar(3)]
    outputs = [m.open_result(_F32, 2, 8) for _ in range(3)]
    return m.finish("open_outputs", _O.SPLIT, inputs, outputs)


def branches() -> SmallModel:
    """IF over an addition and a multiplication."""
    m = Maker()
    condition = m.given(_T.TENSOR_BOOL8, [1])
    graphs = [m.builder.subgraph(_binary(m, kind)) for kind in (_O.ADD, _O.MUL)]
    return m.finish("IF", _O.IF, [condition, *graphs, m.random(_F32, (2,))], [m.result(_F32, (2,))])


def loop() -> SmallModel:
    """WHILE: adds 1 until the value reaches 3."""
    m = Maker()
    index, condition = m.builder.add_subgraph()
    x, decision = condition.input(_F32, (1,)), condition.output(_T.TENSOR_BOOL8, (1,))
    condition.operation(_O.LESS, [x, condition.constant(_F32, [3.0])], [decision])
    graphs = [m.builder.subgraph(index), m.builder.subgraph(_binary(m, _O.ADD, 1))]
    return m.finish("WHILE", _O.WHILE, [*graphs, m.given(_F32, [0.0])], [m.result(_F32, (1,))])


def _binary(m: Maker, kind: OperationType, extent: int = 2) -> int:
    index, graph = m.builder.add_subgraph()
    x, y = graph.input(_F32, (extent,)), graph.constant(_F32, [1.0] * extent)
    graph.operation(kind, [x, y, graph.scalar(0)], [graph.output(_F32, (extent,))])
    return index


def rank() -> SmallModel:
    """RANK of a matrix."""
    m = Maker()
    return m.finish("RANK", _O.RANK, [m.random(_F32, (2, 3))], [m.result(_T.INT32)])


def hash_projection() -> SmallModel:
    """LSH_PROJECTION, dense: 4 hash functions of 2 bits."""
    m = Maker()
    inputs = [
        m.random(_F32, (4, 2)), m.random(_I32, (3, 2)), m.random(_F32, (3,)), m.builder.scalar(2),
    ]  # fmt: skip
    return m.finish("LSH_PROJECTION", _O.LSH_PROJECTION, inputs, [m.result(_I32, (8,))])


def draws() -> SmallModel:
    """RANDOM_MULTINOMIAL: 8 draws from 5 classes."""
    m = Maker()
    inputs = [m.random(_F32, (1, 5)), m.builder.scalar(8), m.given(_I32, [37, 42])]
    return m.finish("RANDOM_MULTINOMIAL", _O.RANDOM_MULTINOMIAL, inputs, [m.result(_I32, (1, 8))])


_BOXES: Final = [[0, 0, 8, 8], [1, 1, 9, 9], [4, 4, 12, 12]]


def limited_boxes() -> SmallModel:
    """BOX_WITH_NMS_LIMIT: three boxes, two classes, a number of detections that data decide."""
    m = Maker()
    inputs = [
        m.random(_F32, (3, 2)), m.given(_F32, np.repeat(_BOXES, 2, 0).reshape(3, 8)),
        m.given(_I32, [0, 0, 0]),
        *map(m.builder.scalar, (0.1, -1, 0, 0.4, 1.0, 0.1)),
    ]  # fmt: skip
    outputs = [
        m.open_result(_F32, 1, 24), m.open_result(_F32, 2, 96),
        m.open_result(_I32, 1, 24), m.open_result(_I32, 1, 24),
    ]  # fmt: skip
    return m.finish("BOX_WITH_NMS_LIMIT", _O.BOX_WITH_NMS_LIMIT, inputs, outputs)


def detections() -> SmallModel:
    """DETECTION_POSTPROCESSING: three anchors, two classes."""
    m = Maker()
    inputs = [
        m.random(_F32, (1, 3, 2)), m.random(_F32, (1, 3, 4)),
        m.given(_F32, [[0.5, 0.5, 1, 1], [0.5, 1.5, 1, 1], [1.5, 1.5, 1, 1]]),
        *map(m.builder.scalar, (10.0, 10.0, 5.0, 5.0, True, 2, 1, 1, 0.0, 0.5, False)),
    ]  # fmt: skip
    outputs = [
        m.result(_F32, (1, 2)), m.result(_F32, (1, 2, 4)), m.result(_I32, (1, 2)),
        m.result(_I32, (1,)),
    ]  # fmt: skip
    return m.finish("DETECTION_POSTPROCESSING", _O.DETECTION_POSTPROCESSING, inputs, outputs)


def keypoints() -> SmallModel:
    """HEATMAP_MAX_KEYPOINT: two boxes, one keypoint each."""
    m = Maker()
    inputs = [m.random(_F32, (2, 4, 4, 1)), m.given(_F32, _BOXES[:2]), m.builder.scalar(False)]
    outputs = [m.result(_F32, (2, 1)), m.result(_F32, (2, 1, 2))]
    return m.finish("HEATMAP_MAX_KEYPOINT", _O.HEATMAP_MAX_KEYPOINT, inputs, outputs)


def proposals() -> SmallModel:
    """GENERATE_PROPOSALS: two anchors on a grid of 2 × 2."""
    m = Maker()
    inputs = [
        m.random(_F32, (1, 2, 2, 2)), m.random(_F32, (1, 2, 2, 8)), m.given(_F32, _BOXES[:2]),
        m.given(_F32, [[32, 32]]),
        *map(m.builder.scalar, (4.0, 4.0, -1, -1, 0.3, 1.0, False)),
    ]  # fmt: skip
    outputs = [m.open_result(_F32, 1, 32), m.open_result(_F32, 2, 128), m.open_result(_I32, 1, 32)]
    return m.finish("GENERATE_PROPOSALS", _O.GENERATE_PROPOSALS, inputs, outputs)


def missing_row() -> SmallModel:
    """GATHER of a row that is not there: valid, and fails when it runs."""
    m = Maker()
    inputs = [m.random(_F32, (3, 2)), m.builder.scalar(0), m.given(_I32, [1, 9])]
    return m.finish("missing_row", _O.GATHER, inputs, [m.result(_F32, (2, 2))])


_MADE: Final[tuple[Callable[[], SmallModel], ...]] = (
    chain, pooled, open_outputs, branches, loop, rank, hash_projection, draws, limited_boxes,
    detections, keypoints, proposals, *CELLS,
)  # fmt: skip


def made_models() -> Iterator[SmallModel]:
    """All of them that can be executed."""
    return (make() for make in _MADE)
