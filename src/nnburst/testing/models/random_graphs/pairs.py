"""Draws an operation with what reads its result, and chains of them.

Engines join operations, so one that is right alone can be wrong with the next. A pair is drawn six times, so
that ranks, numbers of inputs, constants on either side, open shapes and a result that is an output, too, all
occur, and once more with tensors without elements if both operations take such. Results must not depend on
how an engine rounds: beside each value go some that have been rounded otherwise all along (its shadows). How
far these are off is granted to engines, too; if they are far apart, the operation is drawn again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Final, NamedTuple

import numpy as np

from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.model import DTYPES, QUANTIZED_RANGES, is_scalar
from nnburst.testing.models.naive import Meta, Value, evaluate
from nnburst.testing.models.naive.registry import Array
from nnburst.testing.models.random_graphs.builder import (
    JOINED,
    SIZES,
    GraphBuilder,
    RandomGraph,
    Unsuitable,
)
from nnburst.testing.models.random_graphs.generate import FAMILIES

assert FAMILIES  # their import has filled JOINED

#: Graphs of each pair.
SHAPES: Final = 7
#: Of them, the one whose first result is an output, too, the one that leaves extents open, and the one of
#: tensors without elements.
_SEEN, _OPEN, _EMPTY = 4, 5, 6
#: How often the first operation, and what reads it, are drawn before a pair counts as one without values.
_FIRSTS, _NEXTS = 12, 8
#: Where elements of fresh tensors lie: what reads a result may want it positive, negative or small.
_REALMS: Final = ((-4.0, 4.0), (0.3, 4.0), (-4.0, 4.0), (0.3, 1.5), (-4.0, -0.3), (-0.9, 0.9))
#: How far results of floating point may be rounded otherwise, relatively.
_ROUNDING: Final = {OperandType.TENSOR_FLOAT32: 2e-6, OperandType.TENSOR_FLOAT16: 1e-3}


class Pair(NamedTuple):
    """Two operations.

    Attributes:
        producer: the first one.
        kind: its primary type.
        activation: its fused activation; 0 also if it takes none.
        consumer: what reads one of its results.
    """

    producer: OperationType
    kind: OperandType
    activation: int
    consumer: OperationType

    def __str__(self) -> str:
        fused = ("", "+RELU", "+RELU1", "+RELU6")[self.activation]
        return f"{self.producer.name}{fused} {self.consumer.name} {self.kind.name}"


@dataclass
class ChainBuilder(GraphBuilder):
    """Grows a graph of operations each of which reads a result of the one before.

    Attributes:
        number: of the graph among SHAPES.
        fused: activation of the first operation that is drawn.
        cuts: operations before that: none, or one that takes all elements away.
        realm: where elements of fresh tensors lie.
        read: the result that the next operation is to read; None for the first.
        asked: tensors of `read`'s type that the operation has asked for.
        place: which of them is `read`.
        pending: extents of `read` in the order in which an operation may draw them.
        activated: whether an operation has asked for an activation.
        shadows: of computed operands, by their number and the operand.
    """

    number: int = 0
    fused: int = 0
    cuts: int = 0
    realm: tuple[float, float] = _REALMS[0]
    read: int | None = None
    asked: int = 0
    place: int = 0
    pending: list[int] = field(default_factory=list)
    activated: bool = False
    shadows: dict[tuple[int, int], Value] = field(default_factory=dict)

    def aim(self, read: int) -> None:
        """Let the next operation read this operand, at a random place among its inputs."""
        self.read, self.asked, self.activated = read, 0, False
        self.place = int(self.rng.choice([0, 0, 0, 1, 2]))
        shape = self.shape(read)
        channels_first = len(shape) == 4 and self.rng.random() < 0.5
        self.pending = [shape[i] for i in (0, 2, 3, 1)] if channels_first else list(shape)

    def face(self, index: int) -> _Tensor:
        """Type and rank of an operand."""
        return self.meta(index).kind, len(self.shape(index))

    def activation(self, kind: OperandType) -> int:
        """The pair's activation for its first operation; any for the next."""
        if len(self.operations) > self.cuts:
            return super().activation(kind)
        self.activated = kind is not OperandType.TENSOR_INT32
        return self.fused if self.activated else 0

    def further(self) -> int:
        """As many that graphs have one to six inputs."""
        return self.number if self.number < _OPEN else self.between(0, _OPEN)

    def extent(self, low: int, high: int) -> int:
        """That of the operand to read, if the operation starts with its extents."""
        if self.read is not None and self.pending and self.rng.random() < 0.9:
            wanted = self.pending.pop(0)
            if low <= wanted or not wanted:
                return wanted
        return super().extent(low, min(high, self.size.extent))

    def dims(self, rank: int) -> tuple[int, ...]:
        """Fresh extents; the operand to read has no say in them."""
        self.pending = []
        return super().dims(rank)

    def tensor(
        self,
        kind: OperandType,
        low: float = -4,
        high: float = 4,
        *,
        ranks: Sequence[int] = (1, 2, 3, 4),
        dims: tuple[int, ...] | None = None,
        exact: bool = False,
        meta: Meta | None = None,
    ) -> int:
        """The operand to read if its turn has come and it fits, else a fresh tensor."""
        del exact  # shadows show whether a decision depends on rounding
        read = self.read
        if read is not None and self.meta(read).kind == kind:
            value = self.operands[read].value
            fits = (meta is None or meta == value.meta) and (
                len(value.dimensions) in ranks if dims is None else value.dimensions == dims
            )
            if fits and (kind in QUANTIZED_RANGES or _is_within(value.array, low, high)):
                self.asked += 1
                if self.asked > self.place:
                    self.place += 6 if self.rng.random() < 0.7 else 0  # else twice
                    return read
        if dims is None:
            # The first tensors of a pair's graphs have ranks of 1 to 4 in turn.
            preferred = self.number % 4 + 1
            at = self.shape(read) if read is not None and self.place else None
            if at is not None and len(at) in ranks:
                dims = at
            else:
                rank = preferred if preferred in ranks else int(self.choice(list(ranks)))
                dims = self.dims(rank)
        return self.fresh(kind, dims, low, high, meta)

    def fresh(
        self,
        kind: OperandType,
        dims: tuple[int, ...],
        low: float = -4,
        high: float = 4,
        meta: Meta | None = None,
    ) -> int:
        """A new tensor with elements of the realm, as far as the operation permits.

        Raises:
            Unsuitable: it would have no elements, which no request and no constant may have.
        """
        if 0 in dims:
            raise Unsuitable
        least, most = self.realm
        if max(low, least) < min(high, most):
            low, high = max(low, least), min(high, most)
        return super().fresh(kind, dims, low, high, meta)

    def scalar(self, value: float | bool, kind: OperandType | None = None) -> int:
        """The operand to read if it is this number, else a fresh one."""
        read = self.read
        if read is not None and _is_integer(value) and self.meta(read).kind is OperandType.INT32:
            number = self.operands[read].value.array.item()
            if number == value:
                self.asked += 1
                return read
        return super().scalar(value, kind)

    def cut(self, kind: OperandType) -> None:
        """Begin with a tensor all of whose elements are taken away along its first axis."""
        rank = int(self.choice([4, 4, 2, 3, 1]))
        x = self.fresh(kind, self.dims(rank), -4, 4)
        begin, size = self.ints([0] * rank), self.ints([0, *self.shape(x)[1:]])
        self.add(OperationType.SLICE, [x, begin, size], [self.meta(x)], "strict", exact=True)
        self.cuts = 1
        self.aim(len(self.operands) - 1)

    def _is_constant(self, value: Value, probability: float, *, has_input: bool) -> bool:
        """Whether an operand is no input; engines want what steers an operation to be constant."""
        steers = is_scalar(value.meta.kind) or probability > 0.5
        fixed = (False, has_input, self.rng.random() < 0.6)[self.number % 3]
        return steers or fixed

    def add(
        self,
        kind: OperationType,
        inputs: Sequence[int],
        outputs: Sequence[Meta],
        criteria: str,
        *,
        exact: bool,
    ) -> None:
        """Compute the operation and add it, and its shadow."""
        first = len(self.operands)
        super().add(kind, inputs, outputs, criteria, exact=exact)
        added = range(first, len(self.operands))
        if kind is OperationType.LSTM:  # its scratch may hold anything afterwards
            self.operands[first] = replace(self.operands[first], slack=math.inf)
        exactly = exact and criteria == "strict"
        for number in range(_SHADOWS):
            given = [self.shadows.get((number, i), self.operands[i].value) for i in inputs]
            try:
                shadows = evaluate(kind, given, outputs)
            except (ArithmeticError, ValueError):
                raise Unsuitable from None
            for index, shadow in zip(added, shadows, strict=True):
                operand = self.operands[index]
                slack = max(operand.slack, _distance(operand.value, shadow))
                self.operands[index] = replace(operand, slack=slack)
                moved = shadow if exactly else _rounded(shadow, number)
                self.shadows[number, index] = moved

    def finish(self, name: str, size: str) -> RandomGraph:
        """The graph, which has an input; a result that is read is an output in one of the six only."""
        if not any(o.source == "input" for o in self.operands):
            at = [i for i, o in enumerate(self.operands) if o.source == "constant"]
            real = [i for i in at if not is_scalar(self.operands[i].kind)]
            steering = {OperandType.TENSOR_INT32}
            chosen = [i for i in real if self.operands[i].kind not in steering] or real or at
            self.operands[chosen[-1]] = replace(self.operands[chosen[-1]], source="input")
        read = {i for o in self.operations for i in o.inputs}
        outputs = tuple(
            i for o in self.operations for i in o.outputs if i not in read or self.number == _SEEN
        )
        return RandomGraph(name, size, tuple(self.operands), tuple(self.operations), outputs)

    def _declared(self, value: Value) -> tuple[int, ...]:
        return super()._declared(value) if self.number == _OPEN else value.dimensions

    def _is_usable(self, value: Value) -> bool:
        return (not value.array.size and self.number == _EMPTY) or super()._is_usable(value)


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_within(array: Array, low: float, high: float) -> bool:
    values = array.astype(np.float64)
    return bool(((values >= low) & (values <= high)).all())


#: Of each value.
_SHADOWS = 5
#: Largest slack of quantised results, in steps, and of others as a share of the largest element.
_STEPS, _SHARE = 8, 0.05


def _distance(value: Value, shadow: Value) -> float:
    """The largest difference between elements of a value and of its shadow.

    Raises:
        Unsuitable: so far that a comparison would mean little.
    """
    kind, array = value.meta.kind, value.array.astype(np.float64)
    if shadow.dimensions != value.dimensions:
        raise Unsuitable
    found = float(np.abs(array - shadow.array.astype(np.float64)).max(initial=0))
    most = _SHARE * float(np.abs(array).max(initial=0))
    if kind in QUANTIZED_RANGES:
        most = _STEPS
    elif kind not in _ROUNDING:
        most = 0
    if found > most:
        raise Unsuitable
    return found


def _rounded(value: Value, number: int) -> Value:
    """The value as another implementation may have rounded it: all elements up or down, or each anyhow."""
    kind, array = value.meta.kind, value.array
    rng = np.random.default_rng([number, array.size])
    if kind in QUANTIZED_RANGES:
        by = (1, -1)[number] if number < 2 else rng.integers(-1, 2, array.shape)
        steps = array.astype(np.int64) + by
        return Value(value.meta, np.clip(steps, *QUANTIZED_RANGES[kind]).astype(DTYPES[kind]))
    if kind not in _ROUNDING:
        return value
    share = _ROUNDING[kind] * rng.uniform(-1, 1, array.shape)
    numbers = array.astype(np.float64)
    moved = numbers + share * np.maximum(1, np.abs(numbers)) * (numbers != 0)
    return Value(value.meta, moved.astype(DTYPES[kind]))


# -- Which pairs there are -------------------------------------------------------------------------


#: Type and rank.
_Tensor = tuple[OperandType, int]


class _Asking(GraphBuilder):
    """Remembers the types of tensors that an operation asks for, and whether for an activation."""

    def __init__(self, seed: int) -> None:
        super().__init__(np.random.default_rng(seed), SIZES["pair"])
        self.found: set[_Tensor] = set()
        self.activated = False

    def scalar(self, value: float | bool, kind: OperandType | None = None) -> int:
        if _is_integer(value):
            self.found.add((OperandType.INT32, 0))
        return super().scalar(value, kind)

    def activation(self, kind: OperandType) -> int:
        self.activated = kind is not OperandType.TENSOR_INT32
        return super().activation(kind)

    def fresh(
        self,
        kind: OperandType,
        dims: tuple[int, ...],
        low: float = -4,
        high: float = 4,
        meta: Meta | None = None,
    ) -> int:
        self.found.add((kind, len(dims)))
        return super().fresh(kind, dims, low, high, meta)


class _Face(NamedTuple):
    """The types that an operation of one primary type reads and gives, and whether it has an activation."""

    reads: frozenset[_Tensor]
    gives: frozenset[OperandType]
    activated: bool


@cache
def _face(operation: OperationType, kind: OperandType) -> _Face:
    reads: set[_Tensor] = set()
    gives: set[OperandType] = set()
    activated = False
    for seed in range(30):
        builder = _Asking(seed)
        try:
            _, outputs = JOINED[operation].make(builder, kind)
        except Unsuitable:
            continue
        reads |= builder.found
        gives |= {meta.kind for meta in outputs}
        activated |= builder.activated
    return _Face(frozenset(reads), frozenset(gives), activated)


@cache
def _reads(operation: OperationType) -> frozenset[_Tensor]:
    return frozenset().union(*(_face(operation, kind).reads for kind in JOINED[operation].kinds))


def pairs(
    kinds: Sequence[OperandType], consumers: Sequence[OperationType] | None = None
) -> Iterator[Pair]:
    """Every pair whose first operation has one of these primary types.

    Args:
        kinds: of the first operation.
        consumers: what reads; every operation unless given.
    """
    for producer, template in sorted(JOINED.items()):
        for kind in template.kinds:
            if kind not in kinds or producer in ONLY_READERS:
                continue
            face = _face(producer, kind)
            for activation in range(4 if face.activated else 1):
                for consumer in sorted(JOINED) if consumers is None else consumers:
                    if face.gives & {kind for kind, _ in _reads(consumer)}:
                        yield Pair(producer, kind, activation, consumer)


_O = OperationType
#: Operations that are no first of a pair: the naive version of QUANTIZED_LSTM rounds less than the original
#: does, so a result of it bounds none of the next operation.
ONLY_READERS: Final = frozenset({_O.QUANTIZED_LSTM})
#: Operations that take tensors without elements. NNAPI: allowZeroSizedInput.
EMPTIED: Final = frozenset(
    {
        _O.RELU, _O.RELU1, _O.RELU6, _O.LOGISTIC, _O.TANH, _O.HARD_SWISH, _O.ADD, _O.SUB, _O.MUL, _O.DIV,
        _O.CONCATENATION, _O.CONV_2D, _O.DEPTHWISE_CONV_2D, _O.TRANSPOSE_CONV_2D, _O.AVERAGE_POOL_2D,
        _O.MAX_POOL_2D, _O.L2_POOL_2D, _O.FULLY_CONNECTED, _O.SOFTMAX, _O.TRANSPOSE, _O.SLICE,
        _O.RESIZE_BILINEAR, _O.RESIZE_NEAREST_NEIGHBOR, _O.QUANTIZE, _O.DEQUANTIZE,
    }
)  # fmt: skip


# -- Graphs ----------------------------------------------------------------------------------------


def graph_of(pair: Pair, number: int) -> RandomGraph | None:
    """One of the graphs of a pair; None if no values were found for which both are defined.

    Args:
        pair: the operations.
        number: from 0 to SHAPES - 1. The last one's tensors have no elements: None also if an operation does
            not take such.
    """
    seed = [int(pair.producer), int(pair.kind), pair.activation, int(pair.consumer), number]
    if number == _EMPTY and not {pair.producer, pair.consumer} <= EMPTIED:
        return None
    for attempt in range(_FIRSTS):
        builder = ChainBuilder(
            np.random.default_rng([*seed, attempt]),
            SIZES["pair"],
            number=number if number == _EMPTY else (number + attempt // len(_REALMS)) % _EMPTY,
            fused=pair.activation,
            realm=_REALMS[attempt % len(_REALMS)],
        )
        if number == _EMPTY:
            builder.cut(pair.kind)
        if _grown(builder, pair.producer, pair.kind) and _next(builder, pair.consumer):
            return builder.finish(f"{pair} {number}", "pair")
    return None


def chain(kind: OperandType, length: int, seed: int) -> RandomGraph | None:
    """A random chain; None if nothing was found that could read one of its results.

    Args:
        kind: primary type of the first operation.
        length: how many operations.
        seed: the same seed gives the same chain.
    """
    rng = np.random.default_rng([int(kind), length, seed])
    number = seed % _EMPTY
    realm = _REALMS[int(rng.integers(len(_REALMS)))]
    builder = ChainBuilder(rng, SIZES["pair"], number=number, realm=realm)
    builder.fused = int(rng.integers(4))
    usable = [o for o, t in sorted(JOINED.items()) if kind in t.kinds]
    for _ in range(8 * length):
        if not builder.operations:
            _grown(builder, builder.choice(usable), kind)
        else:
            given = {builder.face(i) for i in builder.operations[-1].outputs}
            _next(builder, builder.choice([o for o in sorted(JOINED) if given & _reads(o)]))
        if len(builder.operations) == length:
            return builder.finish(f"chain {kind.name} {length} {seed}", "pair")
    return None


def _grown(builder: ChainBuilder, operation: OperationType, kind: OperandType) -> bool:
    """Add an operation; False, and nothing added, if it cannot be used or does not read what it must."""
    template = JOINED[operation]
    operands, operations = len(builder.operands), len(builder.operations)
    try:
        inputs, outputs = template.make(builder, kind)
        if builder.read is None or builder.read in inputs:
            builder.add(operation, inputs, outputs, template.criteria, exact=template.exact)
            return True
    except (Unsuitable, ArithmeticError, ValueError):
        pass
    del builder.operands[operands:]
    del builder.operations[operations:]
    builder.shadows = {at: v for at, v in builder.shadows.items() if at[1] < operands}
    return False


def _next(builder: ChainBuilder, consumer: OperationType) -> bool:
    results = [
        i
        for i in builder.operations[-1].outputs
        if builder.face(i) in _reads(consumer) and math.isfinite(builder.operands[i].slack)
    ]
    if not results:
        return False
    for _ in range(_NEXTS):
        read = int(builder.choice(results))
        kind, face = builder.meta(read).kind, builder.face(read)
        kinds = [k for k in JOINED[consumer].kinds if face in _face(consumer, k).reads]
        builder.aim(read)
        # Mostly the type itself: others read it by one operand, a condition for instance.
        primary = kind if kind in kinds and builder.rng.random() < 0.8 else builder.choice(kinds)
        if _grown(builder, consumer, primary):
            return True
    return False
