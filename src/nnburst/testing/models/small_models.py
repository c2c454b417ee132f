"""Makes small models with inputs, at least one for every operation."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from nnburst.hal.enums import OperandLifeTime, OperandType, OperationType
from nnburst.hal.model import DTYPES, DataLocation, MemoryPool, Model, Operand
from nnburst.hal.model_builder import ModelBuilder
from nnburst.testing.conformance.vectors import Vector, build
from nnburst.testing.models.random_graphs.builder import SIZES, TEMPLATES, GraphBuilder, RandomGraph
from nnburst.testing.models.random_graphs.graphs import FAMILIES, as_vector, draw

Array = npt.NDArray[Any]


class SmallModel(NamedTuple):
    """A valid model and a valid request for it.

    Attributes:
        name: a name, unique among all small models.
        model: the model.
        pools: bytes of the model's pools.
        inputs: one array per input; None if the request omits it.
        output_sizes: bytes of each output's buffer.
    """

    name: str
    model: Model
    pools: tuple[bytes, ...]
    inputs: tuple[Array | None, ...]
    output_sizes: tuple[int, ...]

    @property
    def operations(self) -> frozenset[OperationType]:
        """Types of the operations of the main subgraph."""
        return frozenset(OperationType(o.type) for o in self.model.main.operations)


class Maker:
    """A model builder that also keeps the values of the model's inputs. Not thread-safe."""

    def __init__(self) -> None:
        """Start empty."""
        self.builder = ModelBuilder()
        self._rng = np.random.default_rng(0)
        self._inputs: list[Array | None] = []
        self._sizes: list[int] = []

    def given(
        self, kind: OperandType, values: npt.ArrayLike, scale: float = 0.0, zero_point: int = 0
    ) -> int:
        """Add an input with the given values."""
        array = np.asarray(values, DTYPES[kind])
        self._inputs.append(array)
        return self.builder.input(kind, array.shape, scale, zero_point)

    def random(
        self, kind: OperandType, dims: Sequence[int], scale: float = 0.0, zero_point: int = 0
    ) -> int:
        """Add an input with small random values: 0 to 1, or -8 to 8 steps from the zero point."""
        if DTYPES[kind].kind == "f":
            return self.given(kind, self._rng.random(tuple(dims)), scale, zero_point)
        steps = self._rng.integers(-8, 9, tuple(dims)) + zero_point
        return self.given(kind, steps, scale, zero_point)

    def absent(self, kind: OperandType, scale: float = 0.0) -> int:
        """Add an operand without a value; some types need a scale even then."""
        return self.builder.operand(Operand(kind, scale=scale, lifetime=OperandLifeTime.NO_VALUE))

    def result(
        self, kind: OperandType, dims: Sequence[int] = (), scale: float = 0.0, zero_point: int = 0
    ) -> int:
        """Add an output whose dimensions the model declares."""
        self._sizes.append(DTYPES[kind].itemsize * math.prod(dims))
        return self.builder.output(kind, dims, scale, zero_point)

    def open_result(self, kind: OperandType, rank: int, size: int) -> int:
        """Add an output of which only the rank is known, with a buffer of `size` bytes."""
        self._sizes.append(size)
        return self.builder.output(kind, (0,) * rank)

    def finish(
        self,
        name: str,
        operation: OperationType | None = None,
        inputs: Sequence[int] = (),
        outputs: Sequence[int] = (),
    ) -> SmallModel:
        """Add the last (or only) operation, and finish the model."""
        if operation is not None:
            self.builder.operation(operation, inputs, outputs)
        return SmallModel(name, self.builder.build(), (), tuple(self._inputs), tuple(self._sizes))


# -- Recurrent cells -------------------------------------------------------------------------------


_T = OperandType
_O = OperationType
_F32, _I32, _Q8 = _T.TENSOR_FLOAT32, _T.TENSOR_INT32, _T.TENSOR_QUANT8_ASYMM
_Q8S, _S8, _S16 = _T.TENSOR_QUANT8_ASYMM_SIGNED, _T.TENSOR_QUANT8_SYMM, _T.TENSOR_QUANT16_SYMM


def lstm() -> SmallModel:
    """LSTM with coupled gates: 2 inputs, 4 cells."""
    m = Maker()
    inputs = [
        m.random(_F32, (1, 2)),
        m.absent(_F32), *(m.random(_F32, (4, 2)) for _ in range(3)),
        m.absent(_F32), *(m.random(_F32, (4, 4)) for _ in range(3)),
        *(m.absent(_F32) for _ in range(3)),
        m.absent(_F32), *(m.random(_F32, (4,)) for _ in range(3)),
        m.absent(_F32), m.absent(_F32),
        m.random(_F32, (1, 4)), m.random(_F32, (1, 4)),
        m.builder.scalar(4), m.builder.scalar(0.0), m.builder.scalar(0.0),
    ]  # fmt: skip
    outputs = [m.result(_F32, (1, extent)) for extent in (12, 4, 4, 4)]
    return m.finish("LSTM", _O.LSTM, inputs, outputs)


def quantized_16bit_lstm() -> SmallModel:
    """QUANTIZED_16BIT_LSTM: 2 inputs, 4 cells."""
    m = Maker()
    value, weight = (1 / 128, 128), (1 / 256, 100)
    bias = 1 / 128 / 256
    inputs = [
        m.random(_Q8, (2, 2), *value),
        *(m.random(_Q8, (4, 2), *weight) for _ in range(4)),
        *(m.random(_Q8, (4, 4), *weight) for _ in range(4)),
        *(m.random(_I32, (4,), bias) for _ in range(4)),
        m.random(_S16, (2, 4), 1 / 2048), m.random(_Q8, (2, 4), *value),
    ]  # fmt: skip
    outputs = [m.result(_S16, (2, 4), 1 / 2048), m.result(_Q8, (2, 4), *value)]
    return m.finish("QUANTIZED_16BIT_LSTM", _O.QUANTIZED_16BIT_LSTM, inputs, outputs)


def quantized_lstm() -> SmallModel:
    """QUANTIZED_LSTM with coupled gates: 2 inputs, 4 cells."""
    m = Maker()
    weight, state = 1 / 128, 1 / 32768
    inputs = [
        m.random(_Q8S, (2, 2), 1 / 128),
        m.absent(_S8, weight), *(m.random(_S8, (4, 2), weight) for _ in range(3)),
        m.absent(_S8, weight), *(m.random(_S8, (4, 4), weight) for _ in range(3)),
        *(m.absent(_S16, 1.0) for _ in range(3)),
        m.absent(_I32), *(m.random(_I32, (4,)) for _ in range(3)),
        m.absent(_S8, weight), m.absent(_I32),
        m.random(_Q8S, (2, 4), 1 / 128), m.random(_S16, (2, 4), state),
        *(m.absent(_S16, 1.0) for _ in range(4)),
        *map(m.builder.scalar, (0.0, 0.0, 1 / 128, 1 / 128, 1 / 128, 1 / 128, 0, 1 / 128)),
    ]  # fmt: skip
    outputs = [
        m.result(_Q8S, (2, 4), 1 / 128), m.result(_S16, (2, 4), state),
        m.result(_Q8S, (2, 4), 1 / 128),
    ]  # fmt: skip
    return m.finish("QUANTIZED_LSTM", _O.QUANTIZED_LSTM, inputs, outputs)


CELLS: Final[tuple[Callable[[], SmallModel], ...]] = (lstm, quantized_16bit_lstm, quantized_lstm)


# -- Models made by hand ---------------------------------------------------------------------------


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
    """GATHER of a row that does not exist: the model is valid, and its executions fail."""
    m = Maker()
    inputs = [m.random(_F32, (3, 2)), m.builder.scalar(0), m.given(_I32, [1, 9])]
    return m.finish("missing_row", _O.GATHER, inputs, [m.result(_F32, (2, 2))])


_MADE: Final[tuple[Callable[[], SmallModel], ...]] = (
    chain, pooled, open_outputs, branches, loop, rank, hash_projection, draws, limited_boxes,
    detections, keypoints, proposals, *CELLS,
)  # fmt: skip


def made_models() -> Iterator[SmallModel]:
    """All models made by hand that can be executed."""
    return (make() for make in _MADE)


# -- Models drawn at random ------------------------------------------------------------------------


assert FAMILIES  # the import fills TEMPLATES


def drawn_vectors() -> Iterator[Vector]:
    """Vectors of one operation each, the same in every run."""
    for operation, template in sorted(TEMPLATES.items()):
        for kind in template.kinds:
            yield as_vector(_drawn(operation, kind))


def _drawn(operation: OperationType, kind: OperandType) -> RandomGraph:
    for seed in count():
        builder = GraphBuilder(
            np.random.default_rng([int(operation), int(kind), seed]), SIZES["single"]
        )
        if not draw(builder, operation, kind):
            continue
        inputs = builder.operations[0].inputs
        # A mutation of one operand in two places could be valid in both.
        if len(set(inputs)) == len(inputs):
            return builder.finish(f"{operation.name}_{kind.name}", "single")
    raise AssertionError


# -- All models ------------------------------------------------------------------------------------


def all_models() -> Iterator[SmallModel]:
    """Every small model: first those made by hand, then the drawn ones. About 350."""
    yield from made_models()
    yield from map(from_vector, drawn_vectors())


def some_per_operation(models: Iterable[SmallModel], count: int = 1) -> Iterator[SmallModel]:
    """The first `count` models of each operation; a model of several operations counts for each of them."""
    seen: Counter[int] = Counter()
    for model in models:
        if any(seen[operation] < count for operation in model.operations):
            seen.update(model.operations)
            yield model


def from_vector(vector: Vector) -> SmallModel:
    """The model of a vector, with the vector's inputs and room for its expected outputs."""
    built = build(vector)
    return SmallModel(
        vector.name,
        built.model,
        tuple(built.pools),
        tuple(vector.array_of(operand) for operand in vector.inputs),
        tuple(max(1, len(vector.bytes_of(operand) or b"")) for operand in vector.outputs),
    )
