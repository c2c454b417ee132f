"""ABS, NEG, EXP, LOG, SIN, SQRT, RSQRT, FLOOR: one tensor, element by element.

NNAPI: Elementwise.cpp, Neg.cpp, Floor.cpp.
"""

from __future__ import annotations

import numpy as np

from nnburst.executor.graph.operation import Node, Run, operation
from nnburst.executor.graph.shape_rules import same_shape, same_shape_up_to_rank_4
from nnburst.executor.graph.signatures import (
    F16,
    F32,
    I32,
    Q8,
    Q8S,
    V1_0,
    V1_2,
    data,
    rows,
    signature,
)
from nnburst.executor.reference.arithmetic.fixed_point import (
    all_stored_values,
    dequantize,
    quantize,
)
from nnburst.executor.reference.arithmetic.lookup import look_up
from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.operand_types import QUANTIZED_RANGES
from nnburst.hal.signature import Signature


def _signature(
    type: OperationType,  # noqa: A002 - NNAPI's word
    summary: str,
    **types: list[OperandType],
) -> Signature:
    return signature(
        type, V1_2, summary, inputs=[data("input")], outputs=[data("output")], rows=rows(**types)
    )


def _bind(node: Node, ufunc: np.ufunc) -> Run:
    x, out = node.tensor("input").array, node.output().array
    return lambda: ufunc(x, out=out)


@operation(
    _signature(OperationType.ABS, "Absolute value.", V1_2=[F16, F32], V1_3=[I32]),
    shape=same_shape,
)
def absolute(node: Node) -> Run:
    """Bind |x|; the smallest int32 stays itself."""
    return _bind(node, np.absolute)


@operation(
    _signature(OperationType.NEG, "Negation.", V1_2=[F16, F32, I32]),
    shape=same_shape,
)
def negate(node: Node) -> Run:
    """Bind -x; the smallest int32 stays itself."""
    return _bind(node, np.negative)


@operation(
    _signature(OperationType.EXP, "Exponential function.", V1_2=[F16, F32]),
    shape=same_shape,
)
def exponential(node: Node) -> Run:
    """Bind e ** x."""
    return _bind(node, np.exp)


@operation(
    _signature(OperationType.LOG, "Natural logarithm.", V1_2=[F16, F32]),
    shape=same_shape,
)
def logarithm(node: Node) -> Run:
    """Bind ln x: -inf for 0, NaN below."""
    return _bind(node, np.log)


@operation(
    _signature(OperationType.SIN, "Sine.", V1_2=[F16, F32]),
    shape=same_shape,
)
def sine(node: Node) -> Run:
    """Bind sin x."""
    return _bind(node, np.sin)


@operation(
    _signature(OperationType.SQRT, "Square root.", V1_2=[F16, F32]),
    shape=same_shape,
)
def square_root(node: Node) -> Run:
    """Bind the square root: NaN below 0."""
    return _bind(node, np.sqrt)


@operation(
    _signature(
        OperationType.RSQRT, "Reciprocal of the square root.", V1_2=[F16, F32], FL7=[Q8, Q8S]
    ),
    shape=same_shape,
)
def reciprocal_square_root(node: Node) -> Run:
    """Bind 1 / sqrt(x); quantised, 0 and below give the largest stored value."""
    x, out = node.tensor("input"), node.output()
    if x.type in QUANTIZED_RANGES:
        real = dequantize(all_stored_values(x.type), x.scale, x.zero_point)
        with np.errstate(all="ignore"):
            roots = np.float32(1) / np.sqrt(real)
        table = quantize(roots, out.scale, out.zero_point, out.type)
        return look_up(node, table, x.array, out.array)

    def run() -> None:
        np.sqrt(x.array, out=out.array)
        np.reciprocal(out.array, out=out.array)

    return run


@operation(
    signature(
        OperationType.FLOOR,
        V1_0,
        "Largest integer that is not above the element.",
        inputs=[data("input", rank=(1, 2, 3, 4))],
        outputs=[data("output")],
        rows=rows(V1_0=[F32], V1_2=[F16]),
    ),
    shape=same_shape_up_to_rank_4,
)
def floor(node: Node) -> Run:
    """Bind floor x; NaN and infinities stay."""
    return _bind(node, np.floor)
