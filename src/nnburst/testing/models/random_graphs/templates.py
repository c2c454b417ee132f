"""The registry of what graphs are drawn from, and what several families need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np

from nnburst.hal.enums import OperandType, OperationType
from nnburst.testing.models.naive import Meta
from nnburst.testing.models.random_graphs.builder import GraphBuilder

_T = OperandType
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
    """How an operation is drawn.

    Attributes:
        make: chooses inputs and the types of the outputs for a primary type.
        kinds: primary types.
        criteria: how close results must be (`graph_check.CRITERIA`).
        exact: results are as exact as the inputs.
    """

    make: Make
    kinds: Sequence[OperandType]
    criteria: str
    exact: bool


TEMPLATES: Final[dict[OperationType, Template]] = {}


def template(
    *operations: OperationType,
    kinds: Sequence[OperandType],
    criteria: str = "strict",
    exact: bool = True,
) -> Callable[[Make], Make]:
    """Register how these operations are drawn; see `Template`."""

    def register(make: Make) -> Make:
        for operation in operations:
            TEMPLATES[operation] = Template(make, kinds, criteria, exact)
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
    """A fused activation; integers take none."""
    without = kind is I32 or g.plain or g.chance(0.6)
    return g.scalar(0 if without else g.between(1, 3))


def random_axis(g: GraphBuilder, rank: int) -> int:
    """An axis, counted from the front or the back."""
    return g.between(-rank, rank - 1)
