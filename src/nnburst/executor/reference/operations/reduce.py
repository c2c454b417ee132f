"""MEAN, REDUCE_SUM/PROD/MAX/MIN/ALL/ANY, ARGMAX, ARGMIN: several elements become one.

NNAPI: SimpleMath.cpp, Reduce.cpp, ArgMinMax.cpp.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from nnburst.executor.graph.operation import Node, Run, operation
from nnburst.executor.graph.shape_rules import require_rank_up_to_4, same_type
from nnburst.executor.graph.signatures import (
    B8,
    BOOL,
    F16,
    F32,
    I32,
    INT32,
    Q8,
    Q8S,
    V1_1,
    V1_2,
    control,
    data,
    rows,
    signature,
)
from nnburst.executor.graph.tensor import Array, TensorType
from nnburst.executor.reference.families.data_movement import control_values
from nnburst.hal.enums import ErrorStatus, FeatureLevel, OperandType, OperationType
from nnburst.hal.operand_types import QUANTIZED_RANGES
from nnburst.hal.signature import Signature


def _signature(
    type: OperationType,  # noqa: A002 - NNAPI's word
    summary: str,
    since: FeatureLevel = V1_2,
    keep_dims: OperandType = BOOL,
    **types: Sequence[OperandType],
) -> Signature:
    return signature(
        type,
        since,
        summary,
        inputs=[
            data("input", rank=(1, 2, 3, 4)),
            control("axes", I32),
            control("keep_dims", keep_dims),
        ],
        outputs=[data("output")],
        rows=rows(**types),
    )


def _axis(node: Node, axis: int, name: str) -> int:
    """A dimension counted from the front; negative ones count from the end."""
    rank = len(node.tensor("input").shape)
    node.require(-rank <= axis < rank, f"operand '{name}' has {axis}, but 'input' has rank {rank}")
    return axis % rank


def _axes(node: Node) -> tuple[int, ...]:
    """The dimensions to reduce, each once; none for an empty list.

    DEVIATES: MEAN with keep_dims ignores an axis that is out of range; here it always fails.
    """
    return tuple(sorted({_axis(node, axis, "axes") for axis in control_values(node, "axes")}))


def _reduced_shape(node: Node) -> list[TensorType]:
    require_rank_up_to_4(node, "input")
    shape, axes = node.tensor("input").shape, _axes(node)
    if node.value("keep_dims") > 0:
        return [same_type(node, [1 if i in axes else d for i, d in enumerate(shape)])]
    return [same_type(node, [d for i, d in enumerate(shape) if i not in axes] or [1])]


def _operands(node: Node) -> tuple[Array, Array, tuple[int, ...]]:
    """The input, the output with an extent of 1 wherever it is reduced, and the axes."""
    x, axes = node.tensor("input").array, _axes(node)
    kept = [1 if i in axes else d for i, d in enumerate(x.shape)]
    return x, node.output().array.reshape(kept), axes


@operation(
    _signature(
        OperationType.MEAN,
        "Mean over some dimensions.",
        V1_1,
        INT32,
        V1_1=[F32, Q8],
        V1_2=[F16],
        V1_3=[Q8S],
    ),
    shape=_reduced_shape,
    omitted_status=ErrorStatus.INVALID_ARGUMENT,
)
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


@operation(
    _signature(OperationType.REDUCE_SUM, "Sum over some dimensions.", V1_2=[F16, F32]),
    shape=_reduced_shape,
)
def reduce_sum(node: Node) -> Run:
    """Bind the sum."""
    x, out, axes = _operands(node)

    def run() -> None:
        np.add.reduce(x, axis=axes, keepdims=True, out=out)

    return run


@operation(
    _signature(OperationType.REDUCE_PROD, "Product over some dimensions.", V1_2=[F16, F32]),
    shape=_reduced_shape,
)
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
    """Bind the extremum, beginning at the type's own limit `start`; NaN is passed over."""
    x, out, axes = _operands(node)
    limits = np.finfo(x.dtype) if x.dtype.kind == "f" else np.iinfo(x.dtype)
    initial = getattr(limits, start)

    def run() -> None:
        ufunc.reduce(x, axis=axes, keepdims=True, initial=initial, out=out)

    return run


@operation(
    _signature(
        OperationType.REDUCE_MAX,
        "Largest element over some dimensions.",
        V1_2=[F16, F32, Q8],
        V1_3=[Q8S],
    ),
    shape=_reduced_shape,
    half=True,  # the lowest float16, not float32, is what a slice of -inf gives
)
def reduce_max(node: Node) -> Run:
    """Bind the largest element."""
    return _bind_extremum(node, np.fmax, "min")


@operation(
    _signature(
        OperationType.REDUCE_MIN,
        "Smallest element over some dimensions.",
        V1_2=[F16, F32, Q8],
        V1_3=[Q8S],
    ),
    shape=_reduced_shape,
    half=True,  # as REDUCE_MAX
)
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


@operation(
    _signature(OperationType.REDUCE_ALL, "Whether all are true over some dimensions.", V1_2=[B8]),
    shape=_reduced_shape,
)
def reduce_all(node: Node) -> Run:
    """Bind the conjunction."""
    return _bind_logical(node, np.logical_and)


@operation(
    _signature(OperationType.REDUCE_ANY, "Whether any is true over some dimensions.", V1_2=[B8]),
    shape=_reduced_shape,
)
def reduce_any(node: Node) -> Run:
    """Bind the disjunction."""
    return _bind_logical(node, np.logical_or)


# ARGMAX, ARGMIN


def _index_signature(type: OperationType, summary: str) -> Signature:  # noqa: A002
    return signature(
        type,
        V1_2,
        summary,
        inputs=[data("input"), control("axis")],
        outputs=[data("output", I32)],
        rows=rows(V1_2=[F16, F32, I32, Q8], V1_3=[Q8S]),
    )


def _index_shape(node: Node) -> list[TensorType]:
    shape = node.tensor("input").shape
    axis = _axis(node, node.value("axis"), "axis")
    return [node.like_declared(shape[:axis] + shape[axis + 1 :] or (1,))]


def _bind_index(node: Node, find: Callable[..., Array], ignore: np.ufunc, worst: float) -> Run:
    """Bind the index of the best element; the first wins a tie.

    NNAPI compares strictly and starts at index 0: a NaN there is never beaten, elsewhere it never wins.
    """
    x = node.tensor("input").array
    axis = _axis(node, node.value("axis"), "axis")
    out = node.output().array.reshape(x.shape[:axis] + x.shape[axis + 1 :])
    if x.dtype.kind != "f":
        return lambda: np.copyto(out, find(x, axis=axis), casting="same_kind")
    first = np.moveaxis(x, axis, 0)[0, ...]  # with the ellipsis a view, also of a vector
    numbers = node.scratch(x.shape, x.dtype)

    def run() -> None:
        ignore(x, worst, out=numbers)
        np.copyto(out, find(numbers, axis=axis), casting="same_kind")
        np.copyto(out, 0, where=np.isnan(first))

    return run


@operation(
    _index_signature(OperationType.ARGMAX, "Index of the largest element along an axis."),
    shape=_index_shape,
    omitted_status=ErrorStatus.INVALID_ARGUMENT,
)
def argmax(node: Node) -> Run:
    """Bind the index of the largest element."""
    return _bind_index(node, np.argmax, np.fmax, -math.inf)


@operation(
    _index_signature(OperationType.ARGMIN, "Index of the smallest element along an axis."),
    shape=_index_shape,
    omitted_status=ErrorStatus.INVALID_ARGUMENT,
)
def argmin(node: Node) -> Run:
    """Bind the index of the smallest element."""
    return _bind_index(node, np.argmin, np.fmin, math.inf)
