"""RESHAPE, EXPAND_DIMS, SQUEEZE: signatures and shape rules.

NNAPI: Reshape.cpp, ExpandDims.cpp, Squeeze.cpp.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from nnburst.executor.graph.operation import Node, declare
from nnburst.executor.graph.signatures import (
    F16,
    F32,
    I32,
    Q8,
    Q8S,
    V1_0,
    V1_1,
    V1_2,
    control,
    data,
    rows,
    signature,
)
from nnburst.executor.graph.tensor import TensorType
from nnburst.executor.operations.families.data_movement import (
    UP_TO_4,
    control_values,
    moved,
    require_ranks,
)
from nnburst.hal.enums import ErrorStatus, OperandLifeTime, OperationType
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.limits import MAX_RANK
from nnburst.hal.model import Operand
from nnburst.hal.signature import Match


def _reshape_shape(node: Node) -> list[TensorType]:
    require_ranks(node)
    count = math.prod(node.tensor("input").shape)
    target = control_values(node, "shape", most=MAX_RANK)
    node.require(target.count(-1) <= 1, f"operand 'shape' is {target}: more than one -1")
    node.require(min(target, default=1) >= -1, f"operand 'shape' is {target}: negative extent")
    if -1 in target:
        known = math.prod(d for d in target if d != -1)
        node.require(
            known > 0 and count % known == 0,
            f"operand 'shape' is {target}: -1 cannot stand for {count} elements",
        )
        target[target.index(-1)] = count // known
    node.require(
        math.prod(target) == count,
        f"operand 'shape' is {target}: 'input' has {count} elements",
    )
    return [moved(node, target)]


declare(
    signature(
        OperationType.RESHAPE,
        V1_0,
        "Gives a tensor other extents; one of them may be -1, which stands for what is left.",
        inputs=[data("input", rank=UP_TO_4), control("shape", I32)],
        outputs=[data("output")],
        rows=rows(V1_0=[F32, Q8], V1_2=[F16], V1_3=[Q8S], FL6=[I32]),
    ),
    shape=_reshape_shape,
    omitted_status=ErrorStatus.INVALID_ARGUMENT,
)


def _expand_dims_shape(node: Node) -> list[TensorType]:
    dimensions = list(node.tensor("input").shape)
    axis, rank = int(node.value("axis")), len(dimensions) + 1
    node.require(-rank <= axis < rank, f"operand 'axis' is {axis}, expected [{-rank}, {rank - 1}]")
    dimensions.insert(axis % rank, 1)
    return [moved(node, dimensions)]


declare(
    signature(
        OperationType.EXPAND_DIMS,
        V1_2,
        "Inserts a dimension of extent 1 at `axis`; a negative axis counts from the output's end.",
        inputs=[data("input"), control("axis")],
        outputs=[data("output")],
        rows=rows(V1_2=[F16, F32, I32, Q8], V1_3=[Q8S]),
    ),
    shape=_expand_dims_shape,
    omitted_status=ErrorStatus.INVALID_ARGUMENT,
)


def _check_squeeze(match: Match, inputs: Sequence[Operand], _outputs: Sequence[Operand]) -> None:
    """validation:P4: 'squeeze_dims' has rank 1 even if it is omitted, so that its type stays plain.

    DEVIATES: SQUEEZE refuses a 'squeeze_dims' without value of another rank when the model is
    prepared, not when it is executed.
    """
    for slot, operand in zip(match.inputs, inputs, strict=True):
        omitted = operand.lifetime == OperandLifeTime.NO_VALUE
        if slot.name == "squeeze_dims" and omitted and len(operand.dimensions) != 1:
            raise InvalidArgument(
                f"validation:P4: SQUEEZE: operand 'squeeze_dims' has rank {len(operand.dimensions)},"
                " expected 1 also without a value"
            )


def _squeeze_shape(node: Node) -> list[TensorType]:
    require_ranks(node)
    dimensions = node.tensor("input").shape
    rank = len(dimensions)
    if node.find("squeeze_dims") is None:
        dropped = {i for i, extent in enumerate(dimensions) if extent == 1}
    else:
        listed = control_values(node, "squeeze_dims")
        wrong = [axis for axis in listed if not -rank <= axis < rank]
        node.require(
            not wrong,
            f"operand 'squeeze_dims' has values {wrong[:1]}, expected [{-rank}, {rank - 1}]",
        )
        dropped = {axis % rank for axis in listed}
        node.require(
            all(dimensions[axis] == 1 for axis in dropped),
            f"operand 'squeeze_dims' names {sorted(dropped)}: extents of 'input' {dimensions}"
            " are not all 1 there",
        )
    left = [extent for i, extent in enumerate(dimensions) if i not in dropped]
    return [moved(node, left or [1])]


declare(
    signature(
        OperationType.SQUEEZE,
        V1_1,
        "Drops the listed dimensions of extent 1, or all of them; a scalar comes out as [1].",
        inputs=[data("input", rank=UP_TO_4), control("squeeze_dims", I32, nullable=True)],
        outputs=[data("output")],
        rows=rows(V1_1=[F32, Q8], V1_2=[F16], V1_3=[Q8S]),
        check=_check_squeeze,
    ),
    shape=_squeeze_shape,
)
