"""FULLY_CONNECTED: signatures and shape rules.

NNAPI: FullyConnected.cpp.

DEVIATES: before 1.2 a quantised output scale had to exceed input times weights scale, and the batch
could not be empty. Operations do not know the version of their model; both can be computed.
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
    V1_2,
    V1_3,
    control,
    data,
    row,
    signature,
)
from nnburst.executor.graph.tensor import TensorType
from nnburst.executor.operations.families.scales import require_bias_scale
from nnburst.hal.enums import OperationType
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.model import Operand
from nnburst.hal.signature import Match


def _mismatch(source: Sequence[int], weights: Sequence[int], bias: Sequence[int]) -> str:
    """What is wrong with the dimensions (0 is unknown), or an empty string."""
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


def _shape(node: Node) -> list[TensorType]:
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
    shape=_shape,
    zero_sized=True,
)
