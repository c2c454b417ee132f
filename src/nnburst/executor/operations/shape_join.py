"""CONCATENATION and PACK: signatures and shape rules.

NNAPI: Concatenation.cpp, Pack.cpp.
DEVIATES: before 1.2 quantised inputs of CONCATENATION had to be scaled like the output. Operations
do not know the version of their model; both can be computed.
"""

from __future__ import annotations

from collections.abc import Sequence

from nnburst.executor.graph.operation import Node, declare
from nnburst.executor.graph.signatures import (
    F16,
    F32,
    FL6,
    I32,
    INT32,
    Q8,
    Q8S,
    V1_0,
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
    require_ranks,
)
from nnburst.hal.enums import OperationType
from nnburst.hal.model import Operand
from nnburst.hal.signature import Match


def _concatenation_shape(node: Node) -> list[TensorType]:
    require_ranks(node)
    shapes = [t.shape for t in node.tensors("input")]
    axis, rank = int(node.value("axis")), len(shapes[0])
    node.require(0 <= axis < rank, f"operand 'axis' is {axis}, expected [0, {rank - 1}]")
    others = {(*s[:axis], *s[axis + 1 :]) for s in shapes}
    node.require(
        len(others) == 1 and all(len(s) == rank for s in shapes),
        f"operands 'input' {shapes} differ in more than dimension {axis}",
    )
    total = sum(s[axis] for s in shapes)
    return [node.like_declared((*shapes[0][:axis], total, *shapes[0][axis + 1 :]))]


declare(
    signature(
        OperationType.CONCATENATION,
        V1_0,
        "Joins tensors along one dimension; quantised ones are rescaled to the output.",
        inputs=[data("input", repeats=1, rank=UP_TO_4), control("axis")],
        outputs=[data("output")],
        rows=rows(V1_0=[F32, Q8], V1_2=[F16], V1_3=[Q8S]),
    ),
    shape=_concatenation_shape,
    zero_sized=True,
)


def _check_pack(match: Match, inputs: Sequence[Operand], outputs: Sequence[Operand]) -> None:
    check_same_quantization(match, inputs, outputs)
    check_output_rank(match, inputs, outputs, added=1)


def _pack_shape(node: Node) -> list[TensorType]:
    shapes = [t.shape for t in node.tensors("input")]
    axis, rank = int(node.value("axis")), len(shapes[0])
    node.require(rank > 0, "operand 'input' has rank 0")
    node.require(0 <= axis <= rank, f"operand 'axis' is {axis}, expected [0, {rank}]")
    node.require(len(set(shapes)) == 1, f"operands 'input' have different shapes {shapes}")
    return [node.like_declared((*shapes[0][:axis], len(shapes), *shapes[0][axis:]))]


declare(
    signature(
        OperationType.PACK,
        FL6,
        "Stacks tensors of one shape along a new dimension.",
        inputs=[control("axis", INT32), data("input", repeats=1)],
        outputs=[data("output")],
        rows=rows(FL6=[F16, F32, I32, Q8, Q8S]),
        check=_check_pack,
    ),
    shape=_pack_shape,
)
