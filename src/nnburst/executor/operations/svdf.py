"""SVDF: signatures and shape rules.

NNAPI: SVDF.cpp.
"""

from __future__ import annotations

from typing import Final

from nnburst.executor.graph.operation import Node, declare
from nnburst.executor.graph.signatures import (
    F16,
    F32,
    INT32,
    V1_0,
    control,
    data,
    rows,
    signature,
)
from nnburst.executor.graph.tensor import TensorType
from nnburst.hal.enums import OperationType

_NONE, RELU, RELU1, RELU6, TANH, SIGMOID = 0, 1, 2, 3, 4, 6
_ACTIVATIONS: Final = (_NONE, RELU, RELU1, RELU6, TANH, SIGMOID)


def _expect(node: Node, name: str, shape: tuple[int, ...]) -> None:
    found = node.tensor(name).shape
    node.require(found == shape, f"operand '{name}' has shape {found}, expected {shape}")


def _shape(node: Node) -> list[TensorType]:
    for name in ("input", "weights_feature", "weights_time"):
        rank = len(node.tensor(name).shape)
        node.require(rank == 2, f"operand '{name}' has rank {rank}, expected 2")
    batches, width = node.tensor("input").shape
    features, memory = node.tensor("weights_time").shape
    _expect(node, "weights_feature", (features, width))
    _expect(node, "state_in", (batches, memory * features))
    rank, activation = int(node.value("rank")), int(node.value("activation"))
    node.require(
        rank > 0 and features % rank == 0,
        f"operand 'rank' is {rank}, expected a divisor of the {features} features",
    )
    node.require(
        activation in _ACTIVATIONS,
        f"operand 'activation' is {activation}, expected one of {_ACTIVATIONS}",
    )
    if node.find("bias") is not None:
        _expect(node, "bias", (features // rank,))
    state = node.like_declared((batches, memory * features), 0)
    return [state, node.like_declared((batches, features // rank), 1)]


declare(
    signature(
        OperationType.SVDF,
        V1_0,
        "One step of a single value decomposition filter: features of the input, filtered over"
        " the last steps.",
        inputs=[
            data("input"),
            data("weights_feature"),
            data("weights_time"),
            data("bias", nullable=True),
            data("state_in"),
            control("rank", INT32),
            control("activation", INT32),
        ],
        outputs=[data("state_out"), data("output")],
        rows=rows(V1_0=[F32], V1_2=[F16]),
    ),
    shape=_shape,
)
