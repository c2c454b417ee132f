"""Builds random models whose results are known, from templates of operations.

Operations are drawn from the templates, and their inputs from existing operands or new inputs and constants.
Each result is computed at once by `nnburst.testing.models.naive`; an operation with an unusable result (not
finite, huge, too many elements) is drawn again. NNAPI: RandomGraphGenerator.cpp.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.model import DTYPES, QUANTIZED_RANGES, is_scalar
from nnburst.testing.models.naive import Meta, Value, evaluate
from nnburst.testing.models.naive.registry import Array

_T = OperandType
_SCALES: Final = (1.0, 0.5, 0.25, 0.1, 1 / 128)
#: The largest allowed result: rounding differences of larger ones would grow out of proportion.
_LARGEST: Final = {_T.TENSOR_FLOAT32: 1e3, _T.TENSOR_FLOAT16: 200.0, _T.TENSOR_INT32: 1e6}
_SYMMETRIC: Final = (
    _T.TENSOR_QUANT8_SYMM,
    _T.TENSOR_QUANT8_SYMM_PER_CHANNEL,
    _T.TENSOR_QUANT16_SYMM,
)
_FRESH: Final = 8.0
_LATEST: Final = 6


class Unsuitable(Exception):
    """The drawn operation cannot be used; the caller draws again."""


class Size(NamedTuple):
    """The size of the graphs of a class.

    Attributes:
        operations: number of operations.
        extent: largest extent of new tensors.
        elements: largest number of elements of any tensor.
    """

    operations: int
    extent: int
    elements: int


SIZES: Final = {
    "single": Size(1, 9, 600),
    "small": Size(5, 6, 300),
    "large": Size(40, 4, 120),
    "wide": Size(10, 1000, 4000),
    "long": Size(600, 10, 200),
    "pair": Size(2, 5, 300),
}


@dataclass(frozen=True, slots=True)
class RandomOperand:
    """An operand and its value.

    Attributes:
        value: elements and quantisation.
        source: "input", "constant", "computed", "subgraph" (the value is a graph's number), or, for an
            operand without a value, "omitted" (by the request) or "no_value" (by the model).
        exact: whether it was computed without rounding in which implementations may differ, so that decisions
            (comparing, rounding down) may depend on it.
        declared: the dimensions that the model declares; 0 and () if it leaves them open.
        slack: additional allowed difference of elements, because preceding operations may round differently.
    """

    value: Value
    source: str
    exact: bool
    declared: tuple[int, ...]
    slack: float = 0.0

    @property
    def kind(self) -> OperandType:
        """Operand type."""
        return self.value.meta.kind


@dataclass(frozen=True, slots=True)
class RandomOperation:
    """An operation over operand indexes; `criteria` names the bounds of its results."""

    kind: OperationType
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    criteria: str


class RandomSubgraph(NamedTuple):
    """A graph that an IF or a WHILE of another graph runs.

    Attributes:
        operands: operands in the order in which they were made; computed values are those of one run.
        operations: operations in an order that can be executed.
        inputs: indexes of its inputs.
        outputs: indexes of its outputs.
    """

    operands: tuple[RandomOperand, ...]
    operations: tuple[RandomOperation, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RandomGraph:
    """A model, and the value of every operand.

    Attributes:
        name: name made of size, type and seed.
        size: key of SIZES.
        operands: operands in the order in which they were made.
        operations: operations in an order that can be executed.
        outputs: indexes of the model's outputs.
        referenced: graphs that its operations run, by the number that operands of type SUBGRAPH have.
    """

    name: str
    size: str
    operands: tuple[RandomOperand, ...]
    operations: tuple[RandomOperation, ...]
    outputs: tuple[int, ...]
    referenced: tuple[RandomSubgraph, ...] = ()


@dataclass(slots=True)
class GraphBuilder:
    """Builds one graph.

    Attributes:
        rng: random generator of all decisions.
        size: bounds of the graph.
        plain: whether to leave out everything optional: activation, broadcasting, other layouts (see
            `chance`).
    """

    rng: np.random.Generator
    size: Size
    plain: bool = False
    operands: list[RandomOperand] = field(default_factory=list)
    operations: list[RandomOperation] = field(default_factory=list)

    def chance(self, probability: float) -> bool:
        """True with this probability; never in a plain graph."""
        return not self.plain and bool(self.rng.random() < probability)

    def choice(self, options: Sequence[Any]) -> Any:  # noqa: ANN401 - one of the options
        """One of the options."""
        return options[int(self.rng.integers(len(options)))]

    def between(self, low: int, high: int) -> int:
        """An integer from low to high, both included."""
        return int(self.rng.integers(low, high + 1))

    def extent(self, low: int, high: int) -> int:
        """An extent of a tensor; sizes are drawn here and not by `between`."""
        return self.between(low, high)

    def dims(self, rank: int) -> tuple[int, ...]:
        """Random extents whose product stays within bounds."""
        extents = [self.extent(1, self.size.extent) for _ in range(rank)]
        while math.prod(extents) > self.size.elements // 2:
            extents[int(np.argmax(extents))] -= 1
        return tuple(extents)

    def activation(self, kind: OperandType) -> int:
        """The code of a fused activation; 0 for integers."""
        without = kind is _T.TENSOR_INT32 or self.plain or self.chance(0.6)
        return 0 if without else self.between(1, 3)

    def further(self) -> int:
        """The number of tensors after the first one, for an operation with any number of them."""
        return self.between(0, 2)

    def shape(self, index: int) -> tuple[int, ...]:
        """Extents of an operand."""
        return self.operands[index].value.dimensions

    def meta(self, index: int) -> Meta:
        """Type and quantisation of an operand."""
        return self.operands[index].value.meta

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
        """An operand of this type with values from low to high: an existing or a new one.

        Args:
            kind: tensor type.
            low: smallest value (ignored for booleans and quantised types).
            high: largest value.
            ranks: accepted numbers of dimensions.
            dims: exactly these dimensions.
            exact: whether a decision depends on the values.
            meta: exactly this quantisation.
        """

        def fits(o: RandomOperand) -> bool:
            shape = o.value.dimensions
            return (
                o.kind == kind
                and o.source not in ("omitted", "no_value")
                and (o.exact or not exact)
                and (meta is None or o.value.meta == meta)
                and (len(shape) in ranks if dims is None else shape == dims)
                and (kind not in _LARGEST or is_within(o.value.array, low, high))
            )

        found = [i for i, o in enumerate(self.operands) if fits(o)]
        if found and self.chance(0.75):
            return int(self.choice(found[-_LATEST:]))
        shape = self.dims(self.choice(list(ranks))) if dims is None else dims
        return self.fresh(kind, shape, low, high, meta)

    def fresh(
        self,
        kind: OperandType,
        dims: tuple[int, ...],
        low: float = -4,
        high: float = 4,
        meta: Meta | None = None,
    ) -> int:
        """A new input or constant with random values from low to high, none of which is large."""
        low, high = max(low, -_FRESH), min(high, _FRESH)
        found = self.quantised(kind, dims) if meta is None else meta
        return self.given(Value(found, self._elements(kind, dims, low, high)), constant=0.4)

    def quantised(self, kind: OperandType, dims: tuple[int, ...] = ()) -> Meta:
        """A type with random scales and zero point if it has them."""
        if kind not in QUANTIZED_RANGES:
            return Meta(kind)
        if kind is _T.TENSOR_QUANT8_SYMM_PER_CHANNEL:
            return self.by_channel(dims, self.between(0, len(dims) - 1))
        scale = _float32(self.choice(_SCALES))
        zero_point = 0 if kind in _SYMMETRIC else self.between(*QUANTIZED_RANGES[kind])
        return Meta(kind, scale, zero_point)

    def by_channel(self, dims: tuple[int, ...], channel: int) -> Meta:
        """TENSOR_QUANT8_SYMM_PER_CHANNEL with a random scale for each entry of an axis."""
        scales = tuple(_float32(self.choice(_SCALES)) for _ in range(dims[channel]))
        return Meta(_T.TENSOR_QUANT8_SYMM_PER_CHANNEL, scales=scales, channel=channel)

    def scalar(self, value: float | bool, kind: OperandType | None = None) -> int:
        """A scalar: BOOL, INT32 or FLOAT32 by the Python type unless `kind` is given."""
        if kind is None:
            by_type = {bool: _T.BOOL, int: _T.INT32, float: _T.FLOAT32}
            kind = by_type[type(value)]
        return self.given(Value(Meta(kind), np.asarray(value, DTYPES[kind])), constant=0.9)

    def ints(self, values: Any) -> int:  # noqa: ANN401 - nested lists of integers
        """A TENSOR_INT32 with these values."""
        array = np.asarray(values, np.int32)
        return self.given(Value(Meta(_T.TENSOR_INT32), array), constant=0.8)

    def omitted(self, kind: OperandType) -> int:
        """An operand without a value, omitted by the model or by the request."""
        source = self.choice(["omitted", "no_value"])
        meta = Meta(kind, 1.0 if kind in QUANTIZED_RANGES else 0.0)
        value = Value(meta, np.empty(0, DTYPES[kind]), is_omitted=True)
        self.operands.append(RandomOperand(value, source, True, ()))
        return len(self.operands) - 1

    def given(self, value: Value, *, constant: float) -> int:
        """A new input, or with this probability a constant."""
        has_input = any(o.source == "input" for o in self.operands)
        is_constant = self._is_constant(value, constant, has_input=has_input)
        source = "constant" if is_constant else "input"
        self.operands.append(RandomOperand(value, source, True, value.dimensions))
        return len(self.operands) - 1

    def _is_constant(self, value: Value, probability: float, *, has_input: bool) -> bool:
        """Whether a new operand is constant; a graph without an input needs one."""
        del value
        return has_input and self.chance(probability)

    def add(
        self,
        kind: OperationType,
        inputs: Sequence[int],
        outputs: Sequence[Meta],
        criteria: str,
        *,
        exact: bool,
    ) -> None:
        """Compute an operation and add it.

        Raises:
            Unsuitable: the results cannot be used.
        """
        try:
            values = evaluate(kind, [self.operands[i].value for i in inputs], outputs)
        except ArithmeticError:
            raise Unsuitable from None
        if not all(self._is_usable(value) for value in values):
            raise Unsuitable
        exact = exact and all(self.operands[i].exact for i in inputs)
        first = len(self.operands)
        self.operands += [RandomOperand(v, "computed", exact, self._declared(v)) for v in values]
        numbers = range(first, len(self.operands))
        self.operations.append(RandomOperation(kind, tuple(inputs), tuple(numbers), criteria))

    def finish(self, name: str, size: str) -> RandomGraph:
        """Finish the graph; results that are not read are outputs, and some others."""
        read = {i for o in self.operations for i in o.inputs}
        outputs = [
            i for o in self.operations for i in o.outputs if i not in read or self.chance(0.1)
        ]
        return RandomGraph(name, size, tuple(self.operands), tuple(self.operations), tuple(outputs))

    def _declared(self, value: Value) -> tuple[int, ...]:
        shape = value.dimensions
        if is_scalar(value.meta.kind) or self.chance(0.7):
            return shape
        return () if self.chance(0.3) else tuple(0 if self.chance(0.5) else d for d in shape)

    def _elements(self, kind: OperandType, dims: tuple[int, ...], low: float, high: float) -> Array:
        if kind in QUANTIZED_RANGES:
            least, most = QUANTIZED_RANGES[kind]
            return self.rng.integers(least, most + 1, dims).astype(DTYPES[kind])
        if kind is _T.TENSOR_BOOL8:
            return self.rng.integers(0, 2, dims).astype(np.uint8)
        if kind is _T.TENSOR_INT32:
            return self.rng.integers(math.ceil(low), math.floor(high) + 1, dims).astype(np.int32)
        values = self.rng.uniform(low, high, dims)
        if self.chance(0.2):
            values = np.round(values * 2) / 2  # equal elements and ties occur, too
        return np.clip(values, low, high).astype(DTYPES[kind])

    def _is_usable(self, value: Value) -> bool:
        array = value.array
        if array.size > 2 * self.size.elements or not array.size:
            return False
        largest = _LARGEST.get(value.meta.kind)
        return largest is None or is_within(array, -largest, largest)


def is_within(array: Array, low: float, high: float) -> bool:
    """Whether all elements lie between two numbers."""
    values = array.astype(np.float64)
    return bool(((values >= low) & (values <= high)).all())


def _float32(value: float) -> float:
    return float(np.float32(value))


# -- Templates of operations -----------------------------------------------------------------------


_O = OperationType
F32, F16, I32, B8, Q8, Q8S, QSYM8, QPC, Q16A, Q16S = (
    _T.TENSOR_FLOAT32,
    _T.TENSOR_FLOAT16,
    _T.TENSOR_INT32,
    _T.TENSOR_BOOL8,
    _T.TENSOR_QUANT8_ASYMM,
    _T.TENSOR_QUANT8_ASYMM_SIGNED,
    _T.TENSOR_QUANT8_SYMM,
    _T.TENSOR_QUANT8_SYMM_PER_CHANNEL,
    _T.TENSOR_QUANT16_ASYMM,
    _T.TENSOR_QUANT16_SYMM,
)
FLOATS: Final = (F32, F16)
QUANTISED: Final = (Q8, Q8S)
REALS: Final = (*FLOATS, *QUANTISED)
NUMBERS: Final = (*REALS, I32)

Made = tuple[list[int], list[Meta]]
Make = Callable[[GraphBuilder, OperandType], Made]


class Template(NamedTuple):
    """Describes how to draw an operation.

    Attributes:
        make: chooses inputs and the types of the outputs for a primary type.
        kinds: primary types.
        criteria: bounds of the results (`graphs.CRITERIA`).
        exact: whether results are as exact as the inputs.
    """

    make: Make
    kinds: Sequence[OperandType]
    criteria: str
    exact: bool


TEMPLATES: Final[dict[OperationType, Template]] = {}
#: Templates for pairs and chains: those of TEMPLATES, and of operations without cases of their own.
JOINED: Final[dict[OperationType, Template]] = {}


def template(
    *operations: OperationType,
    kinds: Sequence[OperandType],
    criteria: str = "strict",
    exact: bool = True,
    joined: bool = False,
) -> Callable[[Make], Make]:
    """Register a template for operations, only for pairs and chains if `joined`; see `Template`."""

    def register(make: Make) -> Make:
        for operation in operations:
            made = Template(make, kinds, criteria, exact)
            JOINED[operation] = made
            if not joined:
                TEMPLATES[operation] = made
        return make

    return register


def free(g: GraphBuilder, *inputs: int, factor: float = 1.0) -> Meta:
    """The type of input 0, with a scale of its own that is not much finer than the inputs'."""
    meta = g.meta(inputs[0])
    if meta.kind not in QUANTISED:
        return Meta(meta.kind)
    coarse = max(g.meta(i).scale for i in inputs) * factor
    scale = float(np.float32(coarse * g.rng.uniform(1.05, 4)))
    return Meta(meta.kind, scale, g.quantised(meta.kind).zero_point)


def number(g: GraphBuilder, kind: OperandType, low: float, high: float) -> int:
    """A scalar of the float type that belongs to `kind` (float32 for quantised tensors)."""
    value = float(g.rng.uniform(low, high))
    return g.scalar(value, _T.FLOAT16 if kind is F16 else _T.FLOAT32)


def activation(g: GraphBuilder, kind: OperandType) -> int:
    """A fused activation as an operand."""
    return g.scalar(g.activation(kind))


def random_axis(g: GraphBuilder, rank: int) -> int:
    """An axis, counted from the front or the back."""
    return g.between(-rank, rank - 1)
