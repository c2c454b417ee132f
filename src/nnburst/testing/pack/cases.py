"""The triples (operation, type, rank), and the cases of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from dataclasses import replace as changed
from functools import cache
from itertools import chain
from typing import Final, NamedTuple

import numpy as np

from nnburst.hal.enums import OperandType, OperationType
from nnburst.testing.models.naive import Value, evaluate
from nnburst.testing.models.naive.values import Array
from nnburst.testing.models.random_graphs.builder import RandomGraph
from nnburst.testing.models.random_graphs.generate import draw
from nnburst.testing.models.random_graphs.templates import TEMPLATES
from nnburst.testing.pack.builder import SIZE, PackBuilder
from nnburst.testing.pack.edges import is_defined
from nnburst.testing.pack.recipes import FILLING, LEAST, RECIPES, Recipe

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
    """One set of inputs and what comes of it: arrays by operand index."""

    inputs: dict[int, Array]
    outputs: dict[int, Array]


@dataclass(frozen=True, slots=True)
class Case:
    """A model of one operation, what to feed, and what must come out.

    Attributes:
        triple: what it is a case of.
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
