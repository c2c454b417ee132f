"""SVDF: a fully connected layer over time whose weights are factored into feature and time.

NNAPI: SVDF.cpp.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from nnburst.executor.graph.operation import Node, Run, operation
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
from nnburst.executor.graph.tensor import Array, TensorType
from nnburst.hal.enums import OperationType

_NONE, _RELU, _RELU1, _RELU6, _TANH, _SIGMOID = 0, 1, 2, 3, 4, 6
_ACTIVATIONS: Final = (_NONE, _RELU, _RELU1, _RELU6, _TANH, _SIGMOID)


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


def _activate(y: Array, code: int) -> None:
    """Apply an activation in place; recurrent operations have two more than fused ones do."""
    if code in (_RELU, _RELU1, _RELU6):
        low, high = {_RELU: (0, None), _RELU1: (-1, 1), _RELU6: (0, 6)}[code]
        np.clip(y, low, high, out=y)
    elif code == _TANH:
        np.tanh(y, out=y)
    elif code == _SIGMOID:
        np.negative(y, out=y)
        np.exp(y, out=y)
        np.add(y, np.float32(1), out=y)
        np.reciprocal(y, out=y)


@operation(
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
def svdf(node: Node) -> Run:
    """Filter, then shift the state by one step and clear its last column.

    NNAPI: the state's last column is never read: the new features take its place for this step.
    """
    x, time = node.tensor("input").array, node.tensor("weights_time").array
    by_feature = node.tensor("weights_feature").array.T
    bias, code, rank = node.find("bias"), int(node.value("activation")), int(node.value("rank"))
    state_out, output = node.output(0).array, node.output(1).array
    features, memory = time.shape
    old = node.tensor("state_in").array.reshape(len(x), features, memory)
    new = state_out.reshape(old.shape)
    state, product = node.scratch(old.shape, np.float32), node.scratch(old.shape, np.float32)
    current = node.scratch((len(x), features), np.float32)
    filtered = node.scratch((len(x), features), np.float32)
    per_unit = filtered.reshape(len(x), features // rank, rank)

    def run() -> None:
        np.matmul(x, by_feature, out=current)
        np.copyto(state[..., :-1], old[..., :-1])
        np.copyto(state[..., -1], current)
        np.multiply(state, time, out=product)
        np.sum(product, axis=-1, out=filtered)
        np.sum(per_unit, axis=-1, out=output)
        if bias is not None:
            np.add(output, bias.array, out=output)
        _activate(output, code)
        np.copyto(new[..., :-1], state[..., 1:])
        new[..., -1] = 0

    return run
