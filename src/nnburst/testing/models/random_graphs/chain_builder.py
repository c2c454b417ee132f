"""Builds chains of operations, each of which reads a result of the one before.

Results must not depend on how an engine rounds: each value has several shadows, computed with other rounding
from the start of the chain. Engines may differ from a value as much as its shadows; if these are far apart,
the operation is drawn again.
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

#: Number of graphs of each pair.
SHAPES: Final = 7
#: Numbers of the graphs whose first result is an output, too; that leave extents open; and whose tensors have
#: no elements.
SEEN, OPEN, EMPTY = 4, 5, 6
#: Ranges of the elements of new tensors: the operation that reads a result may need it positive or small.
REALMS: Final = ((-4.0, 4.0), (0.3, 4.0), (-4.0, 4.0), (0.3, 1.5), (-4.0, -0.3), (-0.9, 0.9))
#: Number of shadows of each value.
SHADOWS: Final = 5
#: Relative rounding differences of floating-point results.
_ROUNDING: Final = {OperandType.TENSOR_FLOAT32: 2e-6, OperandType.TENSOR_FLOAT16: 1e-3}

_O = OperationType
#: Operations that accept tensors without elements. NNAPI: allowZeroSizedInput.
EMPTIED: Final = frozenset(
    {
        _O.RELU, _O.RELU1, _O.RELU6, _O.LOGISTIC, _O.TANH, _O.HARD_SWISH, _O.ADD, _O.SUB, _O.MUL, _O.DIV,
        _O.CONCATENATION, _O.CONV_2D, _O.DEPTHWISE_CONV_2D, _O.TRANSPOSE_CONV_2D, _O.AVERAGE_POOL_2D,
        _O.MAX_POOL_2D, _O.L2_POOL_2D, _O.FULLY_CONNECTED, _O.SOFTMAX, _O.TRANSPOSE, _O.SLICE,
        _O.RESIZE_BILINEAR, _O.RESIZE_NEAREST_NEIGHBOR, _O.QUANTIZE, _O.DEQUANTIZE, _O.IF, _O.WHILE,
    }
)  # fmt: skip

#: Operations of which one output may differ more than the criteria say: its number and slack. LSTM: the
#: content of its scratch output is undefined. Others: a cell state is the sum of two parts, each of which may
#: be a step off, since the functions of 16 bits that the original uses differ from the real ones.
_OUTPUT_SLACK: Final = {
    _O.LSTM: (0, math.inf),
    _O.QUANTIZED_16BIT_LSTM: (0, 2.0),
    _O.QUANTIZED_LSTM: (1, 2.0),
}

#: Operations that find the greatest or least element: its place in the order of sizes.
_FIRSTS: Final = {_O.ARGMAX: -1, _O.ARGMIN: 0}

#: Type and rank.
Tensor = tuple[OperandType, int]


@dataclass
class ChainBuilder(GraphBuilder):
    """Builds a graph of operations, each of which reads a result of the one before.

    Attributes:
        number: number of the graph, below SHAPES.
        fused: activation of the first operation that is drawn.
        cuts: number of operations before that one: 0, or 1 for an operation that removes all elements.
        realm: range of the elements of new tensors.
        read: the result that the next operation is to read; None for the first one.
        asked: number of tensors of `read`'s type that the operation has drawn.
        place: number of the drawn tensor that is to be `read`.
        pending: extents of `read` in the order in which an operation may draw them.
        activated: whether an operation has drawn an activation.
        shadows: shadows of computed operands, by shadow number and operand.
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
        """Make the next operation read this operand, at a random position among its inputs."""
        self.read, self.asked, self.activated = read, 0, False
        self.place = int(self.rng.choice([0, 0, 0, 1, 2]))
        shape = self.shape(read)
        channels_first = len(shape) == 4 and self.rng.random() < 0.5
        self.pending = [shape[i] for i in (0, 2, 3, 1)] if channels_first else list(shape)

    def face(self, index: int) -> Tensor:
        """Type and rank of an operand."""
        return self.meta(index).kind, len(self.shape(index))

    def activation(self, kind: OperandType) -> int:
        """The activation `fused` for the first operation of a pair; a random one for the next."""
        if len(self.operations) > self.cuts:
            return super().activation(kind)
        self.activated = kind is not OperandType.TENSOR_INT32
        return self.fused if self.activated else 0

    def further(self) -> int:
        """The number of further tensors, so that a pair's graphs have one to six inputs."""
        return self.number if self.number < OPEN else self.between(0, OPEN)

    def extent(self, low: int, high: int) -> int:
        """An extent of the operand to read, if the operation draws its extents first; else a random one."""
        if self.read is not None and self.pending and self.rng.random() < 0.9:
            wanted = self.pending.pop(0)
            if low <= wanted or not wanted:
                return wanted
        return super().extent(low, min(high, self.size.extent))

    def dims(self, rank: int) -> tuple[int, ...]:
        """Random extents, independent of the operand to read."""
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
        """The operand to read, if this is its position and it fits; else a new tensor."""
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
                    self.place += 6 if self.rng.random() < 0.7 else 0  # otherwise it is read twice
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
        """A new tensor with elements in `realm`, as far as the operation permits.

        Raises:
            Unsuitable: the tensor would have no elements, which no request and no constant may have.
        """
        if 0 in dims:
            raise Unsuitable
        least, most = self.realm
        if max(low, least) < min(high, most):
            low, high = max(low, least), min(high, most)
        return super().fresh(kind, dims, low, high, meta)

    def scalar(self, value: float | bool, kind: OperandType | None = None) -> int:
        """The operand to read if it has this value, else a new one."""
        read = self.read
        if read is not None and is_integer(value) and self.meta(read).kind is OperandType.INT32:
            number = self.operands[read].value.array.item()
            if number == value:
                self.asked += 1
                return read
        return super().scalar(value, kind)

    def cut(self, kind: OperandType) -> None:
        """Begin with a tensor that an operation leaves without elements along its first axis."""
        rank = int(self.choice([4, 4, 2, 3, 1]))
        x = self.fresh(kind, self.dims(rank), -4, 4)
        begin, size = self.ints([0] * rank), self.ints([0, *self.shape(x)[1:]])
        self.add(OperationType.SLICE, [x, begin, size], [self.meta(x)], "strict", exact=True)
        self.cuts = 1
        self.aim(len(self.operands) - 1)

    def _is_constant(self, value: Value, probability: float, *, has_input: bool) -> bool:
        """Whether a new operand is constant; engines need constants for operands that steer an operation."""
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
        """Compute the operation and its shadows, and add it."""
        first = len(self.operands)
        super().add(kind, inputs, outputs, criteria, exact=exact)
        added = range(first, len(self.operands))
        if kind in _OUTPUT_SLACK:
            number, slack = _OUTPUT_SLACK[kind]
            self.operands[first + number] = replace(self.operands[first + number], slack=slack)
        if kind in _FIRSTS and self._is_close(inputs[0], inputs[1], _FIRSTS[kind]):
            raise Unsuitable  # by chance all shadows may have the same one
        exactly = exact and criteria == "strict"
        for number in range(SHADOWS):
            given = [self.shadows.get((number, i), self.operands[i].value) for i in inputs]
            if kind is OperationType.LSH_PROJECTION and not self._have_known_bytes(given, inputs):
                raise Unsuitable  # a hash of a few bits may be equal for other bytes by chance
            try:
                shadows = evaluate(kind, given, outputs)
            except (ArithmeticError, ValueError):
                raise Unsuitable from None
            for index, shadow in zip(added, shadows, strict=True):
                operand = self.operands[index]
                slack = max(operand.slack, _distance(operand.value, shadow))
                self.operands[index] = replace(operand, slack=slack)
                moved = shadow if exactly else _rounded(shadow, operand.value, number)
                self.shadows[number, index] = moved

    def _have_known_bytes(self, given: Sequence[Value], inputs: Sequence[int]) -> bool:
        """Whether the shadows have the operands' bytes, and no engine can give -0 where others give 0."""
        for index, shadow in zip(inputs, given, strict=True):
            operand = self.operands[index]
            array = operand.value.array
            may_have_other_zeros = operand.source == "computed" and operand.kind in _ROUNDING
            if array.tobytes() != shadow.array.tobytes() or (may_have_other_zeros and 0 in array):
                return False
        return True

    def _is_close(self, read: int, axis: int, first: int) -> bool:
        """Whether the shadows let another element be the least (`first` is 0) or the greatest (-1)."""
        array = self.operands[read].value.array.astype(np.float64)
        along = self.operands[axis].value.array.item()
        shadows = [self.shadows[n, read].array for n in range(SHADOWS) if (n, read) in self.shadows]
        away = max((np.abs(array - shadow).max(initial=0) for shadow in shadows), default=0)
        gaps = np.diff(np.sort(array, along), axis=along)
        return bool(away and gaps.size and (gaps.take(first, axis=along) <= 2 * away).any())

    def finish(self, name: str, size: str) -> RandomGraph:
        """Finish the graph, which gets an input; results that are read are outputs only in graph SEEN."""
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
    """Whether a value is an integer and not a boolean."""
    return isinstance(value, int) and not isinstance(value, bool)


#: The largest allowed slack: of quantised results in steps, of others as a share of the largest element.
_STEPS, _SHARE = 8, 0.05


def _distance(value: Value, shadow: Value) -> float:
    """The largest difference between elements of a value and of its shadow.

    Raises:
        Unsuitable: the difference is so large that a comparison would mean little.
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


def _rounded(value: Value, plain: Value, number: int) -> Value:
    """A value with other rounding: all elements rounded up, all rounded down, or each at random.

    Steps are never rounded back towards `plain`, the value without other rounding: an engine may keep a
    difference that the slack permits, and the next operation's slack has to permit what becomes of it.
    """
    kind, array = value.meta.kind, value.array
    rng = np.random.default_rng([number, array.size])
    if kind in QUANTIZED_RANGES:
        by = (1, -1)[number] if number < 2 else rng.choice([-1, 1], array.shape)
        away = np.sign(array.astype(np.int64) - plain.array)
        steps = array.astype(np.int64) + np.where(away, away, by)
        return Value(value.meta, np.clip(steps, *QUANTIZED_RANGES[kind]).astype(DTYPES[kind]))
    if kind not in _ROUNDING:
        return value
    share = _ROUNDING[kind] * rng.uniform(-1, 1, array.shape)
    numbers = array.astype(np.float64)
    moved = numbers + share * np.maximum(1, np.abs(numbers)) * (numbers != 0)
    return Value(value.meta, moved.astype(DTYPES[kind]))
