"""A model together with something to feed it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nnburst.hal.enums import OperandLifeTime, OperandType, OperationType
from nnburst.hal.model import Model, Operand
from nnburst.hal.model_builder import ModelBuilder
from nnburst.hal.operand_types import DTYPES

Array = npt.NDArray[Any]


class SmallModel(NamedTuple):
    """A valid model and a valid request for it.

    Attributes:
        name: unique among its like.
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
    """A model builder that remembers what its inputs are fed. Not thread-safe."""

    def __init__(self, seed: int = 0) -> None:
        """Start empty; `seed` decides the values."""
        self.builder = ModelBuilder()
        self._rng = np.random.default_rng(seed)
        self._inputs: list[Array | None] = []
        self._sizes: list[int] = []

    def given(
        self, kind: OperandType, values: npt.ArrayLike, scale: float = 0.0, zero_point: int = 0
    ) -> int:
        """An input that is fed `values`."""
        array = np.asarray(values, DTYPES[kind])
        self._inputs.append(array)
        return self.builder.input(kind, array.shape, scale, zero_point)

    def random(
        self, kind: OperandType, dims: Sequence[int], scale: float = 0.0, zero_point: int = 0
    ) -> int:
        """An input that is fed small random values: 0 to 1, or -8 to 8 steps from the zero point."""
        if DTYPES[kind].kind == "f":
            return self.given(kind, self._rng.random(tuple(dims)), scale, zero_point)
        steps = self._rng.integers(-8, 9, tuple(dims)) + zero_point
        return self.given(kind, steps, scale, zero_point)

    def absent(self, kind: OperandType, scale: float = 0.0) -> int:
        """An operand without a value; some types need a scale all the same."""
        return self.builder.operand(Operand(kind, scale=scale, lifetime=OperandLifeTime.NO_VALUE))

    def result(
        self, kind: OperandType, dims: Sequence[int] = (), scale: float = 0.0, zero_point: int = 0
    ) -> int:
        """An output whose dimensions the model declares."""
        self._sizes.append(DTYPES[kind].itemsize * math.prod(dims))
        return self.builder.output(kind, dims, scale, zero_point)

    def open_result(self, kind: OperandType, rank: int, size: int) -> int:
        """An output of which only the rank is known, with a buffer of `size` bytes."""
        self._sizes.append(size)
        return self.builder.output(kind, (0,) * rank)

    def finish(
        self,
        name: str,
        operation: OperationType | None = None,
        inputs: Sequence[int] = (),
        outputs: Sequence[int] = (),
    ) -> SmallModel:
        """The model, after adding its last (or only) operation."""
        if operation is not None:
            self.builder.operation(operation, inputs, outputs)
        return SmallModel(name, self.builder.build(), (), tuple(self._inputs), tuple(self._sizes))
