"""Kernels that reduce dimensions to one element: MEAN, REDUCE_*, ARGMAX and ARGMIN.

NNAPI: SimpleMath.cpp, Reduce.cpp, ArgMinMax.cpp.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from nnburst.executor.graph.operation import Node, Run, kernel
from nnburst.executor.graph.tensor import Array
from nnburst.executor.operations.reduction import axes_of, axis_of
from nnburst.hal.enums import OperationType
from nnburst.hal.model import QUANTIZED_RANGES


def _operands(node: Node) -> tuple[Array, Array, tuple[int, ...]]:
    """The input, the output with an extent of 1 wherever it is reduced, and the axes."""
    x, axes = node.tensor("input").array, axes_of(node)
    kept = [1 if i in axes else d for i, d in enumerate(x.shape)]
    return x, node.output().array.reshape(kept), axes


@kernel(OperationType.MEAN)
def mean(node: Node) -> Run:
    """Bind sum / count.

    Stored integers are divided as they are, rounding down. DEVIATES: NNAPI's CPU truncates a negative
    sum of signed values towards zero, against its own expected results and unlike the unsigned twin.
    """
    x, out, axes = _operands(node)
    count = math.prod(x.shape[axis] for axis in axes)
    total = node.scratch(out.shape, np.int64) if node.output().type in QUANTIZED_RANGES else out
    divide = np.floor_divide if total is not out else np.divide

    def run() -> None:
        np.add.reduce(x, axis=axes, keepdims=True, dtype=total.dtype, out=total)
        divide(total, count, out=out, casting="unsafe")

    return run


@kernel(OperationType.REDUCE_SUM)
def reduce_sum(node: Node) -> Run:
    """Bind the sum."""
    x, out, axes = _operands(node)

    def run() -> None:
        np.add.reduce(x, axis=axes, keepdims=True, out=out)

    return run


@kernel(OperationType.REDUCE_PROD)
def reduce_prod(node: Node) -> Run:
    """Bind the product, which is 0 with any factor 0, even beside infinities and NaN."""
    x, out, axes = _operands(node)
    zero = node.scratch(x.shape, np.bool_)
    any_zero = node.scratch(out.shape, np.bool_)

    def run() -> None:
        np.multiply.reduce(x, axis=axes, keepdims=True, out=out)
        np.equal(x, 0, out=zero)
        np.logical_or.reduce(zero, axis=axes, keepdims=True, out=any_zero)
        np.copyto(out, 0, where=any_zero)

    return run


def _bind_extremum(node: Node, ufunc: np.ufunc, start: str) -> Run:
    """Bind the extremum, which begins at the type's own limit `start` and skips NaN."""
    x, out, axes = _operands(node)
    limits = np.finfo(x.dtype) if x.dtype.kind == "f" else np.iinfo(x.dtype)
    initial = getattr(limits, start)

    def run() -> None:
        ufunc.reduce(x, axis=axes, keepdims=True, initial=initial, out=out)

    return run


@kernel(OperationType.REDUCE_MAX, half=True)
def reduce_max(node: Node) -> Run:
    """Bind the largest element."""
    return _bind_extremum(node, np.fmax, "min")


@kernel(OperationType.REDUCE_MIN, half=True)
def reduce_min(node: Node) -> Run:
    """Bind the smallest element."""
    return _bind_extremum(node, np.fmin, "max")


def _bind_logical(node: Node, ufunc: np.ufunc) -> Run:
    """Bind the conjunction or disjunction of bytes, any but 0 being true; results are 0 and 1."""
    x, out, axes = _operands(node)
    true = node.scratch(x.shape, np.bool_)

    def run() -> None:
        np.not_equal(x, 0, out=true)
        ufunc.reduce(true, axis=axes, keepdims=True, out=out)

    return run


@kernel(OperationType.REDUCE_ALL)
def reduce_all(node: Node) -> Run:
    """Bind the conjunction."""
    return _bind_logical(node, np.logical_and)


@kernel(OperationType.REDUCE_ANY)
def reduce_any(node: Node) -> Run:
    """Bind the disjunction."""
    return _bind_logical(node, np.logical_or)


def _bind_index(node: Node, find: Callable[..., Array], ignore: np.ufunc, worst: float) -> Run:
    """Bind the index of the best element; the first wins a tie.

    NNAPI compares strictly and starts at index 0: a NaN there is always the result, elsewhere never.
    """
    x = node.tensor("input").array
    axis = axis_of(node, node.value("axis"), "axis")
    out = node.output().array.reshape(x.shape[:axis] + x.shape[axis + 1 :])
    if x.dtype.kind != "f":
        return lambda: np.copyto(out, find(x, axis=axis), casting="same_kind")
    first = np.moveaxis(x, axis, 0)[0, ...]  # the ellipsis makes this a view, also of a vector
    numbers = node.scratch(x.shape, x.dtype)

    def run() -> None:
        ignore(x, worst, out=numbers)
        np.copyto(out, find(numbers, axis=axis), casting="same_kind")
        np.copyto(out, 0, where=np.isnan(first))

    return run


@kernel(OperationType.ARGMAX)
def argmax(node: Node) -> Run:
    """Bind the index of the largest element."""
    return _bind_index(node, np.argmax, np.fmax, -math.inf)


@kernel(OperationType.ARGMIN)
def argmin(node: Node) -> Run:
    """Bind the index of the smallest element."""
    return _bind_index(node, np.argmin, np.fmin, math.inf)
