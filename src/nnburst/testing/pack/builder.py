"""Draws one operation by a recipe."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.operand_types import is_scalar
from nnburst.testing.models.naive import Meta, Value
from nnburst.testing.models.naive.values import Array
from nnburst.testing.models.random_graphs.builder import (
    GraphBuilder,
    RandomGraph,
    RandomOperand,
    Size,
    Unsuitable,
)
from nnburst.testing.pack.edges import elements
from nnburst.testing.pack.recipes import Edge, Recipe

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
        recipe: what it must look like.
        rank: of the first tensor.
        axis: number of the extent that the recipe gives, in the order in which they are asked for.
        asked: extents asked for.
        first: the first tensor's rank, once there is one.
        varied: operands whose elements may lie in any order: what else can be fed.
        edge: of the tensor that is drawn now.
    """

    recipe: Recipe = field(default_factory=lambda: Recipe(""))
    rank: int = 1
    axis: int = 0
    asked: int = 0
    first: int = 0
    varied: list[int] = field(default_factory=list)
    edge: Edge | None = None

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

    def given(self, value: Value, *, constant: float) -> int:
        """An input or a constant, as in the recipe; scalars and what steers are constants."""
        has_input = any(o.source == "input" for o in self.operands)
        steers = is_scalar(value.meta.kind) or constant > 0.5
        is_constant = steers or (has_input and self.recipe.constants)
        source = "constant" if is_constant else "input"
        self.operands.append(RandomOperand(value, source, True, value.dimensions))
        return len(self.operands) - 1

    def add(
        self,
        kind: OperationType,
        inputs: Sequence[int],
        outputs: Sequence[Meta],
        criteria: str,
        *,
        exact: bool,
    ) -> None:
        """Compute the operation and add it; edges of a type may lie outside of what it is defined for."""
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
        """The graph; what has no input gets one."""
        if not any(o.source == "input" for o in self.operands):
            at = max(i for i, o in enumerate(self.operands) if o.source == "constant")
            self.operands[at] = replace(self.operands[at], source="input")
        return super().finish(name, size)
