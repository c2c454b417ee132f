"""Grows chains of operations each of which reads a result of the one before.

Results must not depend on how an engine rounds: beside each value go some that have been rounded otherwise
all along (its shadows). How far these are off is granted to engines, too; if they are far apart, the
operation is drawn again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.model import DTYPES, QUANTIZED_RANGES, is_scalar
from nnburst.testing.models.naive import Meta, Value, evaluate
from nnburst.testing.models.random_graphs.builder import (
    GraphBuilder,
    RandomGraph,
    Unsuitable,
    is_within,
)

#: Graphs of each pair.
SHAPES: Final = 7
#: Of them, the one whose first result is an output, too, the one that leaves extents open, and the one of
#: tensors without elements.
SEEN, OPEN, EMPTY = 4, 5, 6
#: Where elements of fresh tensors lie: what reads a result may want it positive, negative or small.
REALMS: Final = ((-4.0, 4.0), (0.3, 4.0), (-4.0, 4.0), (0.3, 1.5), (-4.0, -0.3), (-0.9, 0.9))
#: Of each value.
SHADOWS: Final = 5
#: How far results of floating point may be rounded otherwise, relatively.
_ROUNDING: Final = {OperandType.TENSOR_FLOAT32: 2e-6, OperandType.TENSOR_FLOAT16: 1e-3}

_O = OperationType
#: Operations that take tensors without elements. NNAPI: allowZeroSizedInput.
EMPTIED: Final = frozenset(
    {
        _O.RELU, _O.RELU1, _O.RELU6, _O.LOGISTIC, _O.TANH, _O.HARD_SWISH, _O.ADD, _O.SUB, _O.MUL, _O.DIV,
        _O.CONCATENATION, _O.CONV_2D, _O.DEPTHWISE_CONV_2D, _O.TRANSPOSE_CONV_2D, _O.AVERAGE_POOL_2D,
        _O.MAX_POOL_2D, _O.L2_POOL_2D, _O.FULLY_CONNECTED, _O.SOFTMAX, _O.TRANSPOSE, _O.SLICE,
        _O.RESIZE_BILINEAR, _O.RESIZE_NEAREST_NEIGHBOR, _O.QUANTIZE, _O.DEQUANTIZE, _O.IF, _O.WHILE,
    }
)  # fmt: skip

#: Type and rank.
Tensor = tuple[OperandType, int]


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
    realm: tuple[float, float] = REALMS[0]
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

    def face(self, index: int) -> Tensor:
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
        return self.number if self.number < OPEN else self.between(0, OPEN)

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
            if fits and (kind in QUANTIZED_RANGES or is_within(value.array, low, high)):
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
        if read is not None and is_integer(value) and self.meta(read).kind is OperandType.INT32:
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
        for number in range(SHADOWS):
            given = [self.shadows.get((number, i), self.operands[i].value) for i in inputs]
            if kind is OperationType.LSH_PROJECTION and not self._are_as_read(given, inputs):
                raise Unsuitable  # by chance a hash of a few bits is the same for other bytes
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

    def _are_as_read(self, given: Sequence[Value], inputs: Sequence[int]) -> bool:
        """Whether shadows have the same bytes as the operands."""
        values = (self.operands[i].value.array for i in inputs)
        return all(v.tobytes() == g.array.tobytes() for v, g in zip(values, given, strict=True))

    def finish(self, name: str, size: str) -> RandomGraph:
        """The graph, which has an input; a result that is read is an output in one of the six only."""
        read = {i for o in self.operations for i in o.inputs}
        if not any(self.operands[i].source == "input" for i in read):
            at = [i for i in sorted(read) if self.operands[i].source == "constant"]
            real = [i for i in at if not is_scalar(self.operands[i].kind)]
            steering = {OperandType.TENSOR_INT32}
            chosen = [i for i in real if self.operands[i].kind not in steering] or real or at
            self.operands[chosen[-1]] = replace(self.operands[chosen[-1]], source="input")
        outputs = tuple(
            i for o in self.operations for i in o.outputs if i not in read or self.number == SEEN
        )
        return RandomGraph(name, size, tuple(self.operands), tuple(self.operations), outputs)

    def _declared(self, value: Value) -> tuple[int, ...]:
        return super()._declared(value) if self.number == OPEN else value.dimensions

    def _is_usable(self, value: Value) -> bool:
        return (not value.array.size and self.number == EMPTY) or super()._is_usable(value)


def is_integer(value: object) -> bool:
    """Whether a value is an integer and no boolean."""
    return isinstance(value, int) and not isinstance(value, bool)


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
