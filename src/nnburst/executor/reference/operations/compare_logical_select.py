"""EQUAL, NOT_EQUAL, LESS, LESS_EQUAL, GREATER, GREATER_EQUAL, LOGICAL_AND/OR/NOT, SELECT.

NNAPI: Comparisons.cpp, LogicalAndOr.cpp, LogicalNot.cpp, Select.cpp.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from nnburst.executor.graph.operation import Node, Run, kernel
from nnburst.executor.graph.tensor import Array, Tensor
from nnburst.executor.reference.arithmetic.fixed_point import (
    all_stored_values,
    dequantize,
    requantize,
)
from nnburst.executor.reference.arithmetic.lookup import Quantization, look_up, look_up_pair
from nnburst.hal.enums import OperationType
from nnburst.hal.operand_types import QUANTIZED_RANGES


@lru_cache(maxsize=64)
def _comparison_table(ufunc: np.ufunc, x: Quantization, y: Quantization) -> Array:
    """Whether it holds of the real numbers of every pair of bytes."""
    first, second = (
        dequantize(all_stored_values(side.type), side.scale, side.zero_point) for side in (x, y)
    )
    table: Array = ufunc.outer(first, second).astype(np.uint8)
    return table


def _bind_comparison(node: Node, ufunc: np.ufunc) -> Run:
    x, y, out = node.tensor("input0"), node.tensor("input1"), node.output().array
    if x.type in QUANTIZED_RANGES:
        table = _comparison_table(ufunc, Quantization.of(x), Quantization.of(y))
        return look_up_pair(node, table, x.array, y.array, out)
    return lambda: ufunc(x.array, y.array, out=out)


@kernel(OperationType.EQUAL)
def equal(node: Node) -> Run:
    """Bind x = y of the real numbers; NaN equals nothing."""
    return _bind_comparison(node, np.equal)


@kernel(OperationType.NOT_EQUAL)
def not_equal(node: Node) -> Run:
    """Bind x ≠ y of the real numbers; true for NaN."""
    return _bind_comparison(node, np.not_equal)


@kernel(OperationType.LESS)
def less(node: Node) -> Run:
    """Bind x < y of the real numbers."""
    return _bind_comparison(node, np.less)


@kernel(OperationType.LESS_EQUAL)
def less_equal(node: Node) -> Run:
    """Bind x ≤ y of the real numbers."""
    return _bind_comparison(node, np.less_equal)


@kernel(OperationType.GREATER)
def greater(node: Node) -> Run:
    """Bind x > y of the real numbers."""
    return _bind_comparison(node, np.greater)


@kernel(OperationType.GREATER_EQUAL)
def greater_equal(node: Node) -> Run:
    """Bind x ≥ y of the real numbers."""
    return _bind_comparison(node, np.greater_equal)


# Logic of booleans: any byte but 0 is true, results are 0 and 1.


def _bind_logical(node: Node, ufunc: np.ufunc) -> Run:
    x, y, out = node.tensor("input0").array, node.tensor("input1").array, node.output().array
    return lambda: ufunc(x, y, out=out)


@kernel(OperationType.LOGICAL_AND)
def logical_and(node: Node) -> Run:
    """Bind x and y."""
    return _bind_logical(node, np.logical_and)


@kernel(OperationType.LOGICAL_OR)
def logical_or(node: Node) -> Run:
    """Bind x or y."""
    return _bind_logical(node, np.logical_or)


@kernel(OperationType.LOGICAL_NOT)
def logical_not(node: Node) -> Run:
    """Bind not x."""
    x, out = node.tensor("input").array, node.output().array

    def run() -> None:
        np.logical_not(x, out=out)

    return run


def _bind_requantized(node: Node, source: Tensor, result: Array) -> Run:
    """Bind `result = source` with the output's scale and zero point."""
    out = node.output()
    table = requantize(
        all_stored_values(source.type),
        source.zero_point,
        source.scale,
        out.scale,
        out.zero_point,
        out.type,
    )
    return look_up(node, table, source.array, result)


@kernel(OperationType.SELECT)
def select(node: Node) -> Run:
    """Bind `input0 where condition else input1`; quantised inputs are stored anew."""
    condition = node.tensor("condition").array
    x, y, out = node.tensor("input0"), node.tensor("input1"), node.output().array
    chosen = node.scratch(out.shape, np.bool_)

    def run() -> None:
        np.not_equal(condition, 0, out=chosen)
        np.copyto(out, y.array)
        np.copyto(out, x.array, where=chosen)

    if x.type not in QUANTIZED_RANGES:
        return run
    first = node.scratch(out.shape, out.dtype)
    requantize_first = _bind_requantized(node, x, first)
    requantize_second = _bind_requantized(node, y, out)

    def run_quantized() -> None:
        requantize_first()
        requantize_second()
        np.not_equal(condition, 0, out=chosen)
        np.copyto(out, first, where=chosen)

    return run_quantized
