"""Draws small cases of every operation, type and rank."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from dataclasses import replace as changed
from enum import StrEnum
from functools import cache
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np

from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.model import DTYPES, QUANTIZED_RANGES, is_scalar
from nnburst.testing.models.naive import Meta, Value, evaluate
from nnburst.testing.models.naive.registry import Array
from nnburst.testing.models.random_graphs.builder import (
    TEMPLATES,
    GraphBuilder,
    RandomGraph,
    Size,
    Unsuitable,
)
from nnburst.testing.models.random_graphs.graphs import draw


class EdgeCase(StrEnum):
    """Values at the edge of a type's range."""

    ZEROS = "zeros"
    LARGEST = "largest"
    INFINITE = "infinite"
    NOT_A_NUMBER = "not a number"
    LOWEST = "lowest"
    HIGHEST = "highest"


class Recipe(NamedTuple):
    """The rules by which one case is drawn.

    Attributes:
        name: unique among RECIPES.
        extent: of one axis; 0 for any.
        plain: nothing optional (no activation, no broadcasting), and all tensors are inputs.
        constants: tensors but the first are constants.
        edge: the values of some elements.
    """

    name: str
    extent: int = 0
    plain: bool = False
    constants: bool = False
    edge: EdgeCase | None = None


#: Beyond 1,000, and a multiple of nothing.
LARGE: Final = 1031
_EXTENTS: Final = (1, 2, 7, 64, LARGE)

#: The small ones come first: a driver that supports none of them is asked no further.
RECIPES: Final = tuple(
    sorted(
        (
            *(Recipe(f"plain {n}", n, plain=True) for n in _EXTENTS),
            *(Recipe(f"constants {n}", n, plain=True, constants=True) for n in (2, 7, LARGE)),
            *(Recipe(f"any {n} {letter}", n) for n in _EXTENTS for letter in "ab"),
            *(Recipe(f"any constants {n}", n, constants=True) for n in (2, 64)),
            *(Recipe(f"edge {edge}", 7, plain=True, edge=edge) for edge in EdgeCase),
        ),
        key=lambda recipe: recipe.extent,
    )
)
#: Cases of each triple; if recipes cannot be drawn, others take their place.
LEAST: Final = 20
FILLING: Final = tuple(Recipe(f"more {n}", (3, 5, 4)[n % 3]) for n in range(LEAST))


# -- Values at the edge of a type's range ----------------------------------------------------------


_O = OperationType
#: They move or choose elements: any bits go through.
MOVING: Final = frozenset(
    {
        _O.RESHAPE, _O.EXPAND_DIMS, _O.SQUEEZE, _O.TRANSPOSE, _O.PAD, _O.PAD_V2, _O.MIRROR_PAD, _O.REVERSE,
        _O.SLICE, _O.STRIDED_SLICE, _O.CONCATENATION, _O.PACK, _O.SPLIT, _O.GATHER, _O.TILE,
        _O.CHANNEL_SHUFFLE, _O.DEPTH_TO_SPACE, _O.SPACE_TO_DEPTH, _O.BATCH_TO_SPACE_ND,
        _O.SPACE_TO_BATCH_ND, _O.SELECT, _O.EMBEDDING_LOOKUP, _O.HASHTABLE_LOOKUP,
    }
)  # fmt: skip
#: IEEE 754 defines what comes out, also of NaN and infinities.
ARITHMETIC: Final = frozenset(
    {
        _O.ADD, _O.SUB, _O.MUL, _O.ABS, _O.NEG, _O.EQUAL, _O.NOT_EQUAL, _O.LESS, _O.LESS_EQUAL, _O.GREATER,
        _O.GREATER_EQUAL,
    }
)  # fmt: skip
#: Infinities have a result, NaN has none that NNAPI names.
ORDERED: Final = frozenset(
    {
        _O.MAXIMUM,
        _O.MINIMUM,
        _O.RELU,
        _O.RELU1,
        _O.RELU6,
        _O.TANH,
        _O.LOGISTIC,
        _O.REDUCE_MAX,
        _O.REDUCE_MIN,
    }
)
#: Their results leave the range of INT32, which NNAPI does not define.
_OVERFLOWING: Final = frozenset({_O.ADD, _O.SUB, _O.MUL, _O.DIV, _O.BATCH_MATMUL})
_WITH_NAN: Final = MOVING | ARITHMETIC
_WITH_INFINITY: Final = _WITH_NAN | ORDERED
_FLOATS: Final = (OperandType.TENSOR_FLOAT32, OperandType.TENSOR_FLOAT16)


def is_defined(operation: OperationType, kind: OperandType, edge: EdgeCase) -> bool:
    """Whether NNAPI or IEEE 754 defines the operation's results for such elements."""
    if kind in QUANTIZED_RANGES or kind is OperandType.TENSOR_BOOL8:
        return edge in (EdgeCase.LOWEST, EdgeCase.HIGHEST)
    if kind is OperandType.TENSOR_INT32:
        return edge is EdgeCase.ZEROS or (
            edge is EdgeCase.HIGHEST and operation not in _OVERFLOWING
        )
    if edge is EdgeCase.ZEROS:
        return operation is not _O.RSQRT  # the sign of what comes out is that of the zero
    if edge is EdgeCase.NOT_A_NUMBER:
        return operation in _WITH_NAN
    return edge in (EdgeCase.LARGEST, EdgeCase.INFINITE) and operation in _WITH_INFINITY


def elements(edge: EdgeCase, kind: OperandType) -> list[Any]:
    """Elements of this edge that go between ordinary ones."""
    dtype = DTYPES[kind]
    if kind in _FLOATS:
        largest = float(np.finfo(dtype).max)
        return {
            EdgeCase.ZEROS: [0.0, -0.0],
            EdgeCase.LARGEST: [largest, -largest, float(np.finfo(dtype).tiny)],
            EdgeCase.INFINITE: [math.inf, -math.inf],
            EdgeCase.NOT_A_NUMBER: [math.nan],
        }[edge]
    if kind is OperandType.TENSOR_BOOL8:
        return [int(edge is EdgeCase.HIGHEST)]
    if kind is OperandType.TENSOR_INT32:
        return [0] if edge is EdgeCase.ZEROS else [2**31 - 1, -(2**31) + 1]
    low, high = QUANTIZED_RANGES[kind]
    return [low if edge is EdgeCase.LOWEST else high]


# -- The graph of a case ---------------------------------------------------------------------------


#: Elements of a tensor; operations of several axes have one long one.
_MOST: Final = 4200
_ANY_EXTENT: Final = 5
SIZE: Final = Size(1, _ANY_EXTENT, _MOST)
_SPRINKLED: Final = (
    OperandType.TENSOR_FLOAT32,
    OperandType.TENSOR_FLOAT16,
    OperandType.TENSOR_INT32,
)


@dataclass
class PackBuilder(GraphBuilder):
    """Grows a graph of one operation; each tensor is a fresh one.

    Attributes:
        recipe: of the case.
        rank: of the first tensor.
        axis: number of the extent that the recipe gives, in the order in which they are drawn.
        asked: extents drawn so far.
        first: the first tensor's rank, once there is one.
        varied: operands whose elements may lie in any order, for further feeds.
        edge: of the tensor that is drawn now.
    """

    recipe: Recipe = field(default_factory=lambda: Recipe(""))
    rank: int = 1
    axis: int = 0
    asked: int = 0
    first: int = 0
    varied: list[int] = field(default_factory=list)
    edge: EdgeCase | None = None

    def extent(self, low: int, high: int) -> int:
        """The recipe's extent for one axis, small ones for the others."""
        self.asked += 1
        if self.recipe.extent and self.asked - 1 == self.axis:
            return max(low, self.recipe.extent)
        # Beside a long axis the others are short: a naive evaluation takes a microsecond an element.
        return self.between(
            low, max(low, min(high, 2) if self.recipe.extent > _ANY_EXTENT else high)
        )

    def dims(self, rank: int) -> tuple[int, ...]:
        """Extents of a tensor of the triple's rank."""
        if not self.first:
            self.first = self.rank
        found = tuple(self.extent(1, _ANY_EXTENT) for _ in range(rank))
        if math.prod(found) > _MOST:
            raise Unsuitable
        return found

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
        """A fresh tensor; the first one has the triple's rank."""
        del exact  # every fresh tensor is
        if dims is None:
            rank = self.choice(list(ranks)) if self.first else self.rank
            if rank not in ranks:
                raise Unsuitable
            dims = self.dims(rank)
        if not self.first:
            self.first = len(dims)
        return self.fresh(kind, dims, low, high, meta)

    def fresh(
        self,
        kind: OperandType,
        dims: tuple[int, ...],
        low: float = -4,
        high: float = 4,
        meta: Meta | None = None,
    ) -> int:
        """A new tensor that may as well hold its elements in another order."""
        if math.prod(dims) > _MOST:
            raise Unsuitable
        # A bias at the end of int32 leaves sums no room, and NNAPI does not define what comes of them.
        is_bias = kind is OperandType.TENSOR_INT32 and meta is not None
        self.edge = None if is_bias else self.recipe.edge
        index = super().fresh(kind, dims, low, high, meta)
        self.varied.append(index)
        return index

    def _elements(self, kind: OperandType, dims: tuple[int, ...], low: float, high: float) -> Array:
        array = super()._elements(kind, dims, low, high)
        if self.edge is not None:
            edgy = elements(self.edge, kind)
            # Between ordinary elements if there are some; saturated tensors are so throughout.
            place = array.reshape(-1)[:: 2 if kind in _SPRINKLED else 1]
            place[...] = np.resize(np.array(edgy, array.dtype), place.size)
        return array

    def _is_constant(self, value: Value, probability: float, *, has_input: bool) -> bool:
        """As in the recipe; scalars and operands that steer are constants."""
        steers = is_scalar(value.meta.kind) or probability > 0.5
        return steers or (has_input and self.recipe.constants)

    def add(
        self,
        kind: OperationType,
        inputs: Sequence[int],
        outputs: Sequence[Meta],
        criteria: str,
        *,
        exact: bool,
    ) -> None:
        """Compute the operation and add it; edges of a type may lie outside of its domain."""
        try:
            super().add(kind, inputs, outputs, criteria, exact=exact)
        except ValueError:
            if self.recipe.edge is None:
                raise
            raise Unsuitable from None

    def _is_usable(self, value: Value) -> bool:
        if self.recipe.edge is not None:
            return 0 < value.array.size <= 2 * _MOST
        return super()._is_usable(value)

    def finish(self, name: str, size: str) -> RandomGraph:
        """The graph; if it has no input, it gets one."""
        if not any(o.source == "input" for o in self.operands):
            at = max(i for i, o in enumerate(self.operands) if o.source == "constant")
            self.operands[at] = replace(self.operands[at], source="input")
        return super().finish(name, size)


# -- Cases -----------------------------------------------------------------------------------------


_ATTEMPTS: Final = 24
_RANKS: Final = (1, 2, 3, 4)
#: Sets of inputs of each case.
_SETS: Final = 3


class Triple(NamedTuple):
    """An operation on tensors of one type and rank."""

    operation: OperationType
    kind: OperandType
    rank: int

    def case_name(self, recipe: Recipe) -> str:
        """Name of the case of a recipe."""
        name = f"{self.operation.name}-{self.kind.name}-{self.rank}-{recipe.name}"
        return name.replace(" ", "_")

    @property
    def case_names(self) -> list[str]:
        """Names of all cases that there can be."""
        return [self.case_name(recipe) for recipe in (*RECIPES, *FILLING)]


class Feed(NamedTuple):
    """One set of inputs with its results: arrays by operand index."""

    inputs: dict[int, Array]
    outputs: dict[int, Array]


@dataclass(frozen=True, slots=True)
class Case:
    """A model of one operation, its inputs, and the results that must come out.

    Attributes:
        triple: operation, type and rank that it is a case of.
        recipe: how it was drawn.
        graph: the model; its values are the first of the feeds.
        feeds: three sets of inputs, as different as the operation allows.
    """

    triple: Triple
    recipe: Recipe
    graph: RandomGraph
    feeds: tuple[Feed, ...]

    @property
    def name(self) -> str:
        """Unique in the pack."""
        return self.graph.name


@cache
def conceivable() -> tuple[Triple, ...]:
    """Every operation with every type of its template and every rank, by operation, type and rank."""
    return tuple(
        Triple(operation, kind, rank)
        for operation in sorted(TEMPLATES)
        for kind in TEMPLATES[operation].kinds
        for rank in _RANKS
    )


@cache
def can_be_drawn(triple: Triple) -> bool:
    """Whether there are cases of it: not every operation takes tensors of every rank."""
    return _drawn(triple, Recipe("rank", 2), 0) is not None


def wanted(is_wanted: Callable[[Triple], bool]) -> Iterator[Triple]:
    """The triples that are wanted and can be drawn: to know that of all takes seconds."""
    return (triple for triple in conceivable() if is_wanted(triple) and can_be_drawn(triple))


@cache
def triples() -> tuple[Triple, ...]:
    """Every triple that can be drawn."""
    return tuple(wanted(lambda _triple: True))


def cases(triple: Triple) -> Iterator[Case]:
    """At least LEAST cases of a triple, the small ones first."""
    count = 0
    for number, recipe in enumerate(chain(RECIPES, FILLING)):
        if count >= LEAST and recipe in FILLING:
            return
        if recipe.edge and not is_defined(triple.operation, triple.kind, recipe.edge):
            continue
        builder = _drawn(triple, recipe, number + 1)
        if builder is not None:
            count += 1
            yield _case(triple, recipe, builder)


def _drawn(triple: Triple, recipe: Recipe, number: int) -> PackBuilder | None:
    for attempt in range(_ATTEMPTS):
        builder = PackBuilder(
            np.random.default_rng([*map(int, triple), number, attempt]),
            SIZE,
            recipe.plain,
            recipe=recipe,
            rank=triple.rank,
            axis=(triple.rank - 1 - attempt - number) % triple.rank,
        )
        if draw(builder, triple.operation, triple.kind) and builder.first == triple.rank:
            return builder
    return None


def _case(triple: Triple, recipe: Recipe, builder: PackBuilder) -> Case:
    graph = builder.finish(triple.case_name(recipe), "single")
    varied = [i for i in builder.varied if graph.operands[i].source == "input"]
    return Case(triple, recipe, graph, tuple(_feed(graph, varied, n) for n in range(_SETS)))


def _feed(graph: RandomGraph, varied: list[int], number: int) -> Feed:
    """The graph's own inputs, or their elements moved on by some places."""
    (operation,) = graph.operations
    values = {i: graph.operands[i].value for i in (*operation.inputs, *operation.outputs)}
    if number and varied:
        for index in varied:
            values[index] = _moved(values[index], number)
        try:
            found = _evaluated(graph, values)
        except ArithmeticError:
            number = 0
        else:
            values.update(zip(operation.outputs, found, strict=True))
    if number == 0:
        values.update({i: graph.operands[i].value for i in values})
    inputs = {i: values[i].array for i in operation.inputs if graph.operands[i].source == "input"}
    return Feed(inputs, {i: values[i].array for i in operation.outputs})


def _moved(value: Value, places: int) -> Value:
    flat = np.roll(value.array.reshape(-1)[::-1], places)
    return changed(value, array=np.ascontiguousarray(flat).reshape(value.dimensions))


def _evaluated(graph: RandomGraph, values: dict[int, Value]) -> list[Value]:
    (operation,) = graph.operations
    outputs = [graph.operands[i].value.meta for i in operation.outputs]
    return evaluate(operation.kind, [values[i] for i in operation.inputs], outputs)
