"""Declares the operations that reduce dimensions: MEAN, REDUCE_*, ARGMAX and ARGMIN.

NNAPI: SimpleMath.cpp, Reduce.cpp, ArgMinMax.cpp.
"""

from __future__ import annotations

from collections.abc import Sequence

from nnburst.executor.graph.declarations import (
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
    require_rank_up_to_4,
    rows,
    same_type,
    signature,
)
from nnburst.executor.graph.operation import Node, declare
from nnburst.executor.graph.tensor import TensorType
from nnburst.executor.operations.shape import control_values
from nnburst.hal.enums import ErrorStatus, FeatureLevel, OperandType, OperationType
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


def axis_of(node: Node, axis: int, name: str) -> int:
    """A dimension counted from the front; negative ones count from the end."""
    rank = len(node.tensor("input").shape)
    node.require(-rank <= axis < rank, f"operand '{name}' has {axis}, but 'input' has rank {rank}")
    return axis % rank


def axes_of(node: Node) -> tuple[int, ...]:
    """The dimensions to reduce, each once; none for an empty list.

    DEVIATES: MEAN with keep_dims ignores an axis that is out of range; here it always fails.
    """
    return tuple(sorted({axis_of(node, axis, "axes") for axis in control_values(node, "axes")}))


def _reduced_shape(node: Node) -> list[TensorType]:
    require_rank_up_to_4(node, "input")
    shape, axes = node.tensor("input").shape, axes_of(node)
    if node.value("keep_dims") > 0:
        return [same_type(node, [1 if i in axes else d for i, d in enumerate(shape)])]
    return [same_type(node, [d for i, d in enumerate(shape) if i not in axes] or [1])]


declare(
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


declare(
    _signature(OperationType.REDUCE_SUM, "Sum over some dimensions.", V1_2=[F16, F32]),
    shape=_reduced_shape,
)


declare(
    _signature(OperationType.REDUCE_PROD, "Product over some dimensions.", V1_2=[F16, F32]),
    shape=_reduced_shape,
)


declare(
    _signature(
        OperationType.REDUCE_MAX,
        "Largest element over some dimensions.",
        V1_2=[F16, F32, Q8],
        V1_3=[Q8S],
    ),
    shape=_reduced_shape,
    # the lowest float16, not float32, is what a slice of -inf gives
)


declare(
    _signature(
        OperationType.REDUCE_MIN,
        "Smallest element over some dimensions.",
        V1_2=[F16, F32, Q8],
        V1_3=[Q8S],
    ),
    shape=_reduced_shape,
    # as REDUCE_MAX
)


declare(
    _signature(OperationType.REDUCE_ALL, "Whether all are true over some dimensions.", V1_2=[B8]),
    shape=_reduced_shape,
)


declare(
    _signature(OperationType.REDUCE_ANY, "Whether any is true over some dimensions.", V1_2=[B8]),
    shape=_reduced_shape,
)


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
    axis = axis_of(node, node.value("axis"), "axis")
    return [node.like_declared(shape[:axis] + shape[axis + 1 :] or (1,))]


declare(
    _index_signature(OperationType.ARGMAX, "Index of the largest element along an axis."),
    shape=_index_shape,
    omitted_status=ErrorStatus.INVALID_ARGUMENT,
)


declare(
    _index_signature(OperationType.ARGMIN, "Index of the smallest element along an axis."),
    shape=_index_shape,
    omitted_status=ErrorStatus.INVALID_ARGUMENT,
)
