"""TRANSPOSE, REVERSE, CHANNEL_SHUFFLE: signatures and shape rules.

NNAPI: Transpose.cpp, Reverse.cpp, ChannelShuffle.cpp.
"""

from __future__ import annotations

from collections.abc import Sequence

from nnburst.executor.graph.operation import Node, declare
from nnburst.executor.graph.signatures import (
    F16,
    F32,
    FL7,
    I32,
    Q8,
    Q8S,
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
    check_output_rank,
    check_same_quantization,
    control_values,
    moved,
    require_ranks,
    resolve_axis,
)
from nnburst.hal.enums import OperationType
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.model import Operand
from nnburst.hal.signature import Match


def permutation_of(node: Node) -> list[int]:
    """Operand 'perm' of TRANSPOSE; both axes swapped if it is omitted."""
    rank = len(node.tensor("input").shape)
    if node.find("perm") is None:
        node.require(rank == 2, f"operand 'perm' is omitted and 'input' has rank {rank}, not 2")
        return [1, 0]
    perm = control_values(node, "perm", rank)
    node.require(
        sorted(perm) == list(range(rank)),
        f"operand 'perm' is {perm}, expected a permutation of 0 to {rank - 1}",
    )
    return perm


def _transpose_shape(node: Node) -> list[TensorType]:
    """DEVIATES: TRANSPOSE refuses a dimension named twice; the original leaves elements unwritten."""
    require_ranks(node)
    dimensions = node.tensor("input").shape
    return [moved(node, [dimensions[axis] for axis in permutation_of(node)])]


declare(
    signature(
        OperationType.TRANSPOSE,
        V1_1,
        "Permutes the dimensions: output dimension i is input dimension perm[i].",
        inputs=[data("input", rank=UP_TO_4), control("perm", I32, nullable=True)],
        outputs=[data("output")],
        rows=rows(V1_1=[F32, Q8], V1_2=[F16], V1_3=[Q8S]),
    ),
    shape=_transpose_shape,
    zero_sized=True,
)


def _check_reverse(match: Match, inputs: Sequence[Operand], outputs: Sequence[Operand]) -> None:
    check_same_quantization(match, inputs, outputs)
    check_output_rank(match, inputs, outputs)
    if inputs[1].dimensions not in ((), (0,), (1,)):
        raise InvalidArgument(
            f"validation:P4: REVERSE: operand 'axis' has shape {inputs[1].dimensions}, expected (1,)"
        )


def reverse_axis_of(node: Node) -> int:
    """Operand 'axis' of REVERSE, which has one element."""
    (axis,) = control_values(node, "axis", 1)
    rank = len(node.tensor("input").shape)
    node.require(0 <= axis < rank, f"operand 'axis' is {axis}, expected [0, {rank - 1}]")
    return axis


def _reverse_shape(node: Node) -> list[TensorType]:
    require_ranks(node)
    reverse_axis_of(node)
    return [moved(node, node.tensor("input").shape)]


declare(
    signature(
        OperationType.REVERSE,
        FL7,
        "Reverses a tensor along one dimension, which must not be negative.",
        inputs=[data("input", rank=range(1, 9)), control("axis", I32)],
        outputs=[data("output")],
        rows=rows(FL7=[F16, F32, Q8, Q8S, I32]),
        check=_check_reverse,
    ),
    shape=_reverse_shape,
)


def _shuffle_shape(node: Node) -> list[TensorType]:
    require_ranks(node)
    dimensions = node.tensor("input").shape
    groups = int(node.value("groups"))
    extent = dimensions[resolve_axis(node, "axis", len(dimensions))]
    node.require(groups > 0, f"operand 'groups' is {groups}, expected more than 0")
    node.require(
        extent % groups == 0, f"operand 'groups' is {groups}, which does not divide {extent}"
    )
    return [moved(node, dimensions)]


declare(
    signature(
        OperationType.CHANNEL_SHUFFLE,
        V1_2,
        "Interleaves groups of channels: the first of every group, then the second of every group.",
        inputs=[data("input", rank=UP_TO_4), control("groups"), control("axis")],
        outputs=[data("output")],
        rows=rows(V1_2=[F16, F32, Q8], V1_3=[Q8S]),
    ),
    shape=_shuffle_shape,
)
