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
        extent: extent of one axis; 0 for any.
        plain: whether to leave out options (activation, broadcasting) and make all tensors inputs.
        constants: whether all tensors but the first are constants.
        edge: values of some elements.
    """

    name: str
    extent: int = 0
    plain: bool = False
    constants: bool = False
    edge: EdgeCase | None = None


#: A prime extent above 1,000.
LARGE: Final = 1031
_EXTENTS: Final = (1, 2, 7, 64, LARGE)

#: All recipes, those of small cases first: if a driver supports none of these, the rest is skipped.
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
#: The fewest cases of a triple; recipes that cannot be drawn are replaced by others.
LEAST: Final = 20
FILLING: Final = tuple(Recipe(f"more {n}", (3, 5, 4)[n % 3]) for n in range(LEAST))


# -- Values at the edge of a type's range ----------------------------------------------------------


_O = OperationType
#: Operations that only move or choose elements, which may have any bits.
MOVING: Final = frozenset(
    {
        _O.RESHAPE, _O.EXPAND_DIMS, _O.SQUEEZE, _O.TRANSPOSE, _O.PAD, _O.PAD_V2, _O.MIRROR_PAD, _O.REVERSE,
        _O.SLICE, _O.STRIDED_SLICE, _O.CONCATENATION, _O.PACK, _O.SPLIT, _O.GATHER, _O.TILE,
        _O.CHANNEL_SHUFFLE, _O.DEPTH_TO_SPACE, _O.SPACE_TO_DEPTH, _O.BATCH_TO_SPACE_ND,
        _O.SPACE_TO_BATCH_ND, _O.SELECT, _O.EMBEDDING_LOOKUP, _O.HASHTABLE_LOOKUP,
    }
)  # fmt: skip
#: Operations whose results IEEE 754 defines, also for NaN and infinities.
ARITHMETIC: Final = frozenset(
    {
        _O.ADD, _O.SUB, _O.MUL, _O.ABS, _O.NEG, _O.EQUAL, _O.NOT_EQUAL, _O.LESS, _O.LESS_EQUAL, _O.GREATER,
        _O.GREATER_EQUAL,
    }
)  # fmt: skip
#: Operations with defined results for infinities, but not for NaN.
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
#: Operations whose results may exceed INT32, which NNAPI does not define.
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
        return operation is not _O.RSQRT  # the sign of the result is that of the zero
    if edge is EdgeCase.NOT_A_NUMBER:
        return operation in _WITH_NAN
    return edge in (EdgeCase.LARGEST, EdgeCase.INFINITE) and operation in _WITH_INFINITY


def elements(edge: EdgeCase, kind: OperandType) -> list[Any]:
    """Elements of this edge, to be put between ordinary ones."""
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


#: The most elements of a tensor, of which an operation of several axes has one long axis.
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
    """Builds a graph of one operation, for which each tensor is a new one.

    Attributes:
        recipe: recipe of the case.
        rank: rank of the first tensor.
        axis: number of the extent that the recipe gives, in the order in which they are drawn.
        asked: extents drawn so far.
        first: rank of the first tensor, once it is drawn.
        varied: operands whose elements may be in any order, for further feeds.
        edge: edge of the tensor that is being drawn.
    """

    recipe: Recipe = field(default_factory=lambda: Recipe(""))
    rank: int = 1
    axis: int = 0
    asked: int = 0
    first: int = 0
    varied: list[int] = field(default_factory=list)
    edge: EdgeCase | None = None

    def extent(self, low: int, high: int) -> int:
        """An extent: the recipe's for one axis, a small one for the others."""
        self.asked += 1
        if self.recipe.extent and self.asked - 1 == self.axis:
            return max(low, self.recipe.extent)
        # Beside a long axis the others are short, since naive evaluation takes a microsecond for each
        # element.
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
        """A new tensor; the first one has the triple's rank."""
        del exact  # every new tensor is exact
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
        """A new tensor, which is noted as one whose elements may be in any order."""
        if math.prod(dims) > _MOST:
            raise Unsuitable
        # A bias at the limit of int32 makes sums overflow, which NNAPI does not define.
        is_bias = kind is OperandType.TENSOR_INT32 and meta is not None
        self.edge = None if is_bias else self.recipe.edge
        index = super().fresh(kind, dims, low, high, meta)
        self.varied.append(index)
        return index

    def _elements(self, kind: OperandType, dims: tuple[int, ...], low: float, high: float) -> Array:
        array = super()._elements(kind, dims, low, high)
        if self.edge is not None:
            edgy = elements(self.edge, kind)
            # Between ordinary elements; a saturated tensor has such elements throughout.
            place = array.reshape(-1)[:: 2 if kind in _SPRINKLED else 1]
            place[...] = np.resize(np.array(edgy, array.dtype), place.size)
        return array

    def _is_constant(self, value: Value, probability: float, *, has_input: bool) -> bool:
        """Whether a new operand is constant: as in the recipe; scalars and operands that steer are."""
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
        """Compute the operation and add it; edges of a type may be outside of its domain."""
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
        """Finish the graph, which gets an input if it has none."""
        if not any(o.source == "input" for o in self.operands):
            at = max(i for i, o in enumerate(self.operands) if o.source == "constant")
            self.operands[at] = replace(self.operands[at], source="input")
        return super().finish(name, size)


# -- Cases -----------------------------------------------------------------------------------------


_ATTEMPTS: Final = 24
_RANKS: Final = (1, 2, 3, 4)
#: Number of sets of inputs of each case.
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
        """Names of all possible cases."""
        return [self.case_name(recipe) for recipe in (*RECIPES, *FILLING)]


class Feed(NamedTuple):
    """One set of inputs with its results: arrays by operand index."""

    inputs: dict[int, Array]
    outputs: dict[int, Array]


@dataclass(frozen=True, slots=True)
class Case:
    """A model of one operation, its inputs, and the expected results.

    Attributes:
        triple: its operation, type and rank.
        recipe: the recipe by which it was drawn.
        graph: the model; its values are the first of the feeds.
        feeds: three sets of inputs, as different as the operation allows.
    """

    triple: Triple
    recipe: Recipe
    graph: RandomGraph
    feeds: tuple[Feed, ...]

    @property
    def name(self) -> str:
        """Name of the case, unique in the pack."""
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
    """Whether a triple has cases: not every operation accepts tensors of every rank."""
    return _drawn(triple, Recipe("rank", 2), 0) is not None


def wanted(is_wanted: Callable[[Triple], bool]) -> Iterator[Triple]:
    """The wanted triples that can be drawn; checking all triples would take seconds."""
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
    """The graph's own inputs, or these with their elements rotated."""
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
