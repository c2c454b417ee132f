"""ABS, NEG, EXP, LOG, SIN, SQRT, RSQRT, FLOOR: one tensor, element by element.

NNAPI: Elementwise.cpp, Neg.cpp, Floor.cpp.
"""

from __future__ import annotations

import numpy as np

from nnburst.executor.graph.operation import Node, Run, kernel
from nnburst.executor.reference.arithmetic.fixed_point import (
    all_stored_values,
    dequantize,
    quantize,
)
from nnburst.executor.reference.arithmetic.lookup import look_up
from nnburst.hal.enums import OperationType
from nnburst.hal.operand_types import QUANTIZED_RANGES


def _bind(node: Node, ufunc: np.ufunc) -> Run:
    x, out = node.tensor("input").array, node.output().array
    return lambda: ufunc(x, out=out)


@kernel(OperationType.ABS)
def absolute(node: Node) -> Run:
    """Bind |x|; the smallest int32 stays itself."""
    return _bind(node, np.absolute)


@kernel(OperationType.NEG)
def negate(node: Node) -> Run:
    """Bind -x; the smallest int32 stays itself."""
    return _bind(node, np.negative)


@kernel(OperationType.EXP)
def exponential(node: Node) -> Run:
    """Bind e ** x."""
    return _bind(node, np.exp)


@kernel(OperationType.LOG)
def logarithm(node: Node) -> Run:
    """Bind ln x: -inf for 0, NaN below."""
    return _bind(node, np.log)


@kernel(OperationType.SIN)
def sine(node: Node) -> Run:
    """Bind sin x."""
    return _bind(node, np.sin)


@kernel(OperationType.SQRT)
def square_root(node: Node) -> Run:
    """Bind the square root: NaN below 0."""
    return _bind(node, np.sqrt)


@kernel(OperationType.RSQRT)
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


@kernel(OperationType.FLOOR)
def floor(node: Node) -> Run:
    """Bind floor x; NaN and infinities stay."""
    return _bind(node, np.floor)
