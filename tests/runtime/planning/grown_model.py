"""Random models with branches and loops within branches and loops, over tensors of two floats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.model import Model
from nnburst.hal.model_builder import ModelBuilder, SubgraphBuilder

_F32: Final = OperandType.TENSOR_FLOAT32
_BOOL8: Final = OperandType.TENSOR_BOOL8
_I32: Final = OperandType.TENSOR_INT32
_O = OperationType
_DIMS: Final = (2,)
#: Fused activation that keeps values from -1 to 1, so that chains stay finite.
_RELU1: Final = 2
_ROUNDS_AT_MOST: Final = 3
_OPERATIONS_AT_MOST: Final = 5
#: How deep control flow nests at most.
_DEPTH: Final = 2


def grow_model(rng: np.random.Generator) -> Model:
    """A model of two inputs and at least one output, all float32 of extents (2,)."""
    builder = ModelBuilder()
    _Grower(builder, rng).grow(builder, [builder.input(_F32, _DIMS) for _ in range(2)], _DEPTH)
    return builder.build()


class _Grower:
    def __init__(self, root: ModelBuilder, rng: np.random.Generator) -> None:
        self._root = root
        self._rng = rng

    def grow(
        self, graph: SubgraphBuilder, values: Sequence[int], depth: int, *, outputs: int = 3
    ) -> None:
        """Add operations to a graph; the last result is an output, others may be up to `outputs`."""
        known = list(values)
        count = self._between(1, _OPERATIONS_AT_MOST)
        kinds = [_O.ADD, _O.MUL, _O.TANH, _O.MAXIMUM]
        if depth:
            kinds += [_O.IF, _O.WHILE]
        for number in range(count):
            is_output = number == count - 1 or (outputs > 1 and self._rng.random() < 0.2)
            outputs -= is_output
            a, b = (known[self._between(0, len(known) - 1)] for _ in range(2))
            kind = kinds[self._between(0, len(kinds) - 1)]
            result = (graph.output if is_output else graph.temporary)(_F32, _DIMS)
            self._add(graph, kind, a, b, result, depth)
            known.append(result)

    def _add(
        self, graph: SubgraphBuilder, kind: int, a: int, b: int, result: int, depth: int
    ) -> None:
        if kind in (_O.ADD, _O.MUL):
            graph.operation(kind, [a, b, graph.scalar(_RELU1)], [result])
        elif kind == _O.TANH:
            graph.operation(kind, [a], [result])
        elif kind == _O.MAXIMUM:
            graph.operation(kind, [a, b], [result])
        elif kind == _O.IF:
            branches = [self._branch(graph, depth - 1) for _ in range(2)]
            graph.operation(kind, [self._is_less(graph, a, b), *branches, a, b], [result])
        else:
            start = graph.constant(_F32, [0.0, 0.0])
            count = graph.temporary(_F32, _DIMS)
            models = [self._condition(graph), self._body(graph, depth - 1)]
            graph.operation(kind, [*models, start, a, b], [count, result])

    def _branch(self, outer: SubgraphBuilder, depth: int) -> int:
        number, graph = self._root.add_subgraph()
        self.grow(graph, [graph.input(_F32, _DIMS) for _ in range(2)], depth, outputs=1)
        return outer.subgraph(number)

    def _condition(self, outer: SubgraphBuilder) -> int:
        number, graph = self._root.add_subgraph()
        count, *_ = (graph.input(_F32, _DIMS) for _ in range(3))
        rounds = graph.constant(_F32, [float(self._between(0, _ROUNDS_AT_MOST))] * 2)
        self._is_less(graph, count, rounds, graph.output(_BOOL8, (1,)))
        return outer.subgraph(number)

    def _body(self, outer: SubgraphBuilder, depth: int) -> int:
        number, graph = self._root.add_subgraph()
        count, a, b = (graph.input(_F32, _DIMS) for _ in range(3))
        one = graph.constant(_F32, [1.0, 1.0])
        graph.operation(_O.ADD, [count, one, graph.scalar(0)], [graph.output(_F32, _DIMS)])
        self.grow(graph, [a, b], depth, outputs=1)
        return outer.subgraph(number)

    def _is_less(self, graph: SubgraphBuilder, a: int, b: int, result: int | None = None) -> int:
        """Whether every element of `a` is less than `b`'s."""
        each = graph.temporary(_BOOL8, _DIMS)
        together = graph.temporary(_BOOL8, (1,)) if result is None else result
        graph.operation(_O.LESS, [a, b], [each])
        axes = graph.constant(_I32, [0])
        graph.operation(_O.REDUCE_ALL, [each, axes, graph.scalar(True)], [together])
        return together

    def _between(self, low: int, high: int) -> int:
        return int(self._rng.integers(low, high + 1))
