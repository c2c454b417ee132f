"""PAD, PAD_V2, MIRROR_PAD: signatures and shape rules.

NNAPI: CpuExecutor.cpp, OperationsExecutionUtils.cpp (padPrepare), MirrorPad.cpp.
DEVIATES: before 1.2 a quantised input of PAD needed zero point 0. Operations do not know the version
of their model; every zero point can be computed.
"""

from __future__ import annotations

from collections.abc import Sequence

from nnburst.executor.graph.operation import Node, declare
from nnburst.executor.graph.signatures import (
    F16,
    F32,
    FL7,
    FLOAT16,
    FLOAT32,
    I32,
    INT32,
    Q8,
    Q8S,
    V1_1,
    V1_2,
    V1_3,
    control,
    data,
    row,
    rows,
    signature,
)
from nnburst.executor.graph.tensor import TensorType
from nnburst.executor.operations.families.data_movement import (
    UP_TO_4,
    check_output_rank,
    check_same_quantization,
    moved,
    require_ranks,
)
from nnburst.hal.enums import ErrorStatus, OperationType
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.model import Operand
from nnburst.hal.signature import Match


def paddings_of(node: Node) -> list[tuple[int, int]]:
    """Elements before and after, for each dimension."""
    rank = len(node.tensor("input").shape)
    found = node.tensor("paddings")
    node.require(
        found.shape == (rank, 2),
        f"operand 'paddings' has shape {found.shape}, expected {(rank, 2)}",
    )
    sides = [int(side) for side in found.numbers]
    pairs = list(zip(sides[::2], sides[1::2], strict=True))
    node.require(
        all(before >= 0 and after >= 0 for before, after in pairs),
        f"operand 'paddings' is {pairs}, expected no negative value",
    )
    return pairs


def _pad_shape(node: Node) -> list[TensorType]:
    require_ranks(node)
    dimensions, pairs = node.tensor("input").shape, paddings_of(node)
    return [moved(node, [b + d + a for d, (b, a) in zip(dimensions, pairs, strict=True)])]


declare(
    signature(
        OperationType.PAD,
        V1_1,
        "Surrounds a tensor with zeros (quantised: with the zero point).",
        inputs=[data("input", rank=UP_TO_4), control("paddings", I32)],
        outputs=[data("output")],
        rows=rows(V1_1=[F32, Q8], V1_2=[F16], V1_3=[Q8S]),
    ),
    shape=_pad_shape,
    omitted_status=ErrorStatus.INVALID_ARGUMENT,
)


declare(
    signature(
        OperationType.PAD_V2,
        V1_2,
        "Surrounds a tensor with a given value (quantised: with a stored value).",
        inputs=[data("input", rank=UP_TO_4), control("paddings", I32), control("pad_value", "V")],
        outputs=[data("output")],
        rows=[
            row(V1_2, T=F16, V=FLOAT16),
            row(V1_2, T=F32, V=FLOAT32),
            row(V1_2, T=Q8, V=INT32),
            row(V1_3, T=Q8S, V=INT32),
        ],
    ),
    shape=_pad_shape,
    omitted_status=ErrorStatus.INVALID_ARGUMENT,
)


def _check_mirror_pad(match: Match, inputs: Sequence[Operand], outputs: Sequence[Operand]) -> None:
    check_same_quantization(match, inputs, outputs)
    check_output_rank(match, inputs, outputs)
    shape, rank = inputs[1].dimensions, len(inputs[0].dimensions)
    wanted = (rank, 2)
    fits = len(shape) == 2 and all(
        have in (0, want) or not want for have, want in zip(shape, wanted, strict=True)
    )
    if shape and not fits:
        raise InvalidArgument(
            f"validation:P4: MIRROR_PAD: operand 'paddings' has shape {shape}, expected {wanted}"
        )


def _mirror_pad_shape(node: Node) -> list[TensorType]:
    mode = int(node.value("mode"))
    node.require(mode in (0, 1), f"operand 'mode' is {mode}, expected 0 or 1")
    (meta,) = _pad_shape(node)
    edge = 1 - mode
    for extent, pair in zip(node.tensor("input").shape, paddings_of(node), strict=True):
        node.require(
            max(pair) <= extent - edge,
            f"operand 'paddings' has {pair} around an extent of {extent},"
            f" expected at most {extent - edge}",
        )
    return [meta]


declare(
    signature(
        OperationType.MIRROR_PAD,
        FL7,
        "Surrounds a tensor with its reflection: mode 0 without the edge (REFLECT), 1 with it"
        " (SYMMETRIC).",
        inputs=[data("input"), control("paddings", I32), control("mode")],
        outputs=[data("output")],
        rows=rows(FL7=[F16, F32, Q8, Q8S, I32]),
        check=_check_mirror_pad,
    ),
    shape=_mirror_pad_shape,
)
