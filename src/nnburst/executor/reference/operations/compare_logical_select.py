"""EQUAL, NOT_EQUAL, LESS, LESS_EQUAL, GREATER, GREATER_EQUAL, LOGICAL_AND/OR/NOT, SELECT.

NNAPI: Comparisons.cpp, LogicalAndOr.cpp, LogicalNot.cpp, Select.cpp.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from nnburst.executor.graph.operation import Node, Run, operation
from nnburst.executor.graph.shape_rules import broadcast_shape, same_shape
from nnburst.executor.graph.signatures import (
    B8,
    F16,
    F32,
    I32,
    Q8,
    Q8S,
    V1_2,
    data,
    row,
    rows,
    signature,
)
from nnburst.executor.graph.tensor import Array, Tensor, TensorType
from nnburst.executor.reference.arithmetic.fixed_point import (
    all_stored_values,
    dequantize,
    requantize,
)
from nnburst.executor.reference.arithmetic.lookup import Quantization, look_up, look_up_pair
from nnburst.hal.enums import OperationType
from nnburst.hal.operand_types import QUANTIZED_RANGES
from nnburst.hal.signature import Signature


def _comparison(type: OperationType, summary: str) -> Signature:  # noqa: A002 - NNAPI's word
    return signature(
        type,
        V1_2,
        summary,
        inputs=[data("input0"), data("input1")],
        outputs=[data("output", B8)],
        rows=rows(V1_2=[B8, F16, F32, I32, Q8], V1_3=[Q8S]),
    )


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


@operation(
    _comparison(OperationType.EQUAL, "Whether x = y, broadcasting."),
    shape=broadcast_shape,
)
def equal(node: Node) -> Run:
    """Bind x = y of the real numbers; NaN equals nothing."""
    return _bind_comparison(node, np.equal)


@operation(
    _comparison(OperationType.NOT_EQUAL, "Whether x ≠ y, broadcasting."),
    shape=broadcast_shape,
)
def not_equal(node: Node) -> Run:
    """Bind x ≠ y of the real numbers; true for NaN."""
    return _bind_comparison(node, np.not_equal)


@operation(
    _comparison(OperationType.LESS, "Whether x < y, broadcasting."),
    shape=broadcast_shape,
)
def less(node: Node) -> Run:
    """Bind x < y of the real numbers."""
    return _bind_comparison(node, np.less)


@operation(
    _comparison(OperationType.LESS_EQUAL, "Whether x ≤ y, broadcasting."),
    shape=broadcast_shape,
)
def less_equal(node: Node) -> Run:
    """Bind x ≤ y of the real numbers."""
    return _bind_comparison(node, np.less_equal)


@operation(
    _comparison(OperationType.GREATER, "Whether x > y, broadcasting."),
    shape=broadcast_shape,
)
def greater(node: Node) -> Run:
    """Bind x > y of the real numbers."""
    return _bind_comparison(node, np.greater)


@operation(
    _comparison(OperationType.GREATER_EQUAL, "Whether x ≥ y, broadcasting."),
    shape=broadcast_shape,
)
def greater_equal(node: Node) -> Run:
    """Bind x ≥ y of the real numbers."""
    return _bind_comparison(node, np.greater_equal)


# Logic of booleans: any byte but 0 is true, results are 0 and 1.


def _bind_logical(node: Node, ufunc: np.ufunc) -> Run:
    x, y, out = node.tensor("input0").array, node.tensor("input1").array, node.output().array
    return lambda: ufunc(x, y, out=out)


@operation(
    signature(
        OperationType.LOGICAL_AND,
        V1_2,
        "Whether both are true, broadcasting.",
        inputs=[data("input0", B8), data("input1", B8)],
        outputs=[data("output", B8)],
        rows=[row(V1_2)],
    ),
    shape=broadcast_shape,
)
def logical_and(node: Node) -> Run:
    """Bind x and y."""
    return _bind_logical(node, np.logical_and)


@operation(
    signature(
        OperationType.LOGICAL_OR,
        V1_2,
        "Whether either is true, broadcasting.",
        inputs=[data("input0", B8), data("input1", B8)],
        outputs=[data("output", B8)],
        rows=[row(V1_2)],
    ),
    shape=broadcast_shape,
)
def logical_or(node: Node) -> Run:
    """Bind x or y."""
    return _bind_logical(node, np.logical_or)


@operation(
    signature(
        OperationType.LOGICAL_NOT,
        V1_2,
        "Whether it is false.",
        inputs=[data("input", B8)],
        outputs=[data("output", B8)],
        rows=[row(V1_2)],
    ),
    shape=same_shape,
)
def logical_not(node: Node) -> Run:
    """Bind not x."""
    x, out = node.tensor("input").array, node.output().array

    def run() -> None:
        np.logical_not(x, out=out)

    return run


# SELECT


def _select_shape(node: Node) -> list[TensorType]:
    condition = node.tensor("condition").shape
    for name in ("input0", "input1"):
        shape = node.tensor(name).shape
        node.require(
            shape == condition,
            f"operand '{name}' is {list(shape)}, but 'condition' is {list(condition)}"
            " (nothing is broadcast)",
        )
    return [node.like_declared(condition)]


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


@operation(
    signature(
        OperationType.SELECT,
        V1_2,
        "Takes each element from the first tensor where the condition is true, else from the second.",
        inputs=[data("condition", B8), data("input0"), data("input1")],
        outputs=[data("output")],
        rows=rows(V1_2=[F16, F32, I32, Q8], V1_3=[Q8S]),
    ),
    shape=_select_shape,
)
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
