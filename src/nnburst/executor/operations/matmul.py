"""Declares the matrix products FULLY_CONNECTED and BATCH_MATMUL by their signatures and shape rules."""

from __future__ import annotations

import math
from collections.abc import Sequence

from nnburst.executor.graph.declarations import (
    BOOL,
    F16,
    F32,
    FL6,
    I32,
    Q8,
    Q8S,
    V1_0,
    V1_2,
    V1_3,
    control,
    data,
    require_bias_scale,
    row,
    rows,
    signature,
)
from nnburst.executor.graph.operation import Node, declare
from nnburst.executor.graph.tensor import TensorType
from nnburst.hal.enums import OperationType
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.model import Operand
from nnburst.hal.signature import Match

# -- FULLY_CONNECTED -------------------------------------------------------------------------------
# NNAPI: FullyConnected.cpp.
# DEVIATES: before 1.2 a quantised output scale had to exceed input times weights scale, and the batch
# could not be empty. Operations do not know the version of their model; both can be computed.


def _mismatch(source: Sequence[int], weights: Sequence[int], bias: Sequence[int]) -> str:
    """A sentence on the first dimensions that do not fit (0 is unknown); empty if all fit."""
    for name, found, ranks in (
        ("input", source, (2, 3, 4)),
        ("weights", weights, (2,)),
        ("bias", bias, (1,)),
    ):
        if len(found) not in ranks:
            return f"operand '{name}' has rank {len(found)}"
    units, inputs = weights
    elements = math.prod(source)
    if inputs and elements % inputs:
        return f"operand 'input' has {elements} elements, not a multiple of {inputs}"
    if bias[0] and units and bias[0] != units:
        return f"operand 'bias' has {bias[0]} elements, operand 'weights' {units} units"
    return ""


def _check(_match: Match, inputs: Sequence[Operand], _outputs: Sequence[Operand]) -> None:
    """validation:P4: dimensions fit each other, if all ranks are known."""
    dimensions = [operand.dimensions for operand in inputs[:3]]
    if all(dimensions) and (wrong := _mismatch(*dimensions)):
        raise InvalidArgument(f"validation:P4: FULLY_CONNECTED: {wrong}")


def _fully_connected_shape(node: Node) -> list[TensorType]:
    source, weights, bias = (node.tensor(n).shape for n in ("input", "weights", "bias"))
    wrong = _mismatch(source, weights, bias)
    node.require(not wrong, wrong)
    units, inputs = weights
    node.require(units > 0 and inputs > 0, f"operand 'weights' is empty: {list(weights)}")
    node.require(bias[0] == units, f"operand 'bias' has {bias[0]} elements, expected {units}")
    require_bias_scale(node, "weights")
    return [node.like_declared((math.prod(source) // inputs, units))]


declare(
    signature(
        OperationType.FULLY_CONNECTED,
        V1_0,
        "Multiplies rows of the flattened input with a matrix of weights.",
        inputs=[data("input"), data("weights", "F"), data("bias", "B"), control("activation")],
        outputs=[data("output")],
        rows=[
            row(V1_0, T=F32, F=F32, B=F32),
            row(V1_0, T=Q8, F=Q8, B=I32),
            row(V1_2, T=F16, F=F16, B=F16),
            row(V1_3, T=Q8S, F=Q8S, B=I32),
        ],
        check=_check,
    ),
    shape=_fully_connected_shape,
    zero_sized=True,
)


# -- BATCH_MATMUL ----------------------------------------------------------------------------------
# NNAPI: BatchMatmul.cpp.


def _batch_matmul_shape(node: Node) -> list[TensorType]:
    left, right = node.tensor("input0").shape, node.tensor("input1").shape
    node.require(
        2 <= len(left) <= 4 and len(left) == len(right),
        f"operands 'input0' and 'input1' have ranks {len(left)} and {len(right)},"
        " expected the same, 2 to 4",
    )
    # DEVIATES: the original does not check this and reads or writes beyond the smaller operand.
    node.require(
        left[:-2] == right[:-2],
        f"operands have batches {list(left[:-2])} and {list(right[:-2])}, expected the same",
    )
    height, inner = _adjoint(left[-2:], node.value("adj_x"))
    other, width = _adjoint(right[-2:], node.value("adj_y"))
    node.require(
        inner == other, f"columns of 'input0' ({inner}) and rows of 'input1' ({other}) differ"
    )
    return [node.like_declared((*left[:-2], height, width))]


def _adjoint(extents: tuple[int, ...], swapped: bool) -> tuple[int, int]:
    rows_, columns = extents
    return (columns, rows_) if swapped else (rows_, columns)


declare(
    signature(
        OperationType.BATCH_MATMUL,
        FL6,
        "Multiplies matrices, each transposed first if its flag is set.",
        inputs=[data("input0"), data("input1"), control("adj_x", BOOL), control("adj_y", BOOL)],
        outputs=[data("output")],
        rows=rows(FL6=[F16, F32, I32, Q8S]),
    ),
    shape=_batch_matmul_shape,
)
