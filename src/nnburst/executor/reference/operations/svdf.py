"""SVDF: a fully connected layer over time whose weights are factored into feature and time.

NNAPI: SVDF.cpp.
"""

from __future__ import annotations

import numpy as np

from nnburst.executor.graph.operation import Node, Run, kernel
from nnburst.executor.graph.tensor import Array
from nnburst.executor.operations.svdf import RELU, RELU1, RELU6, SIGMOID, TANH
from nnburst.hal.enums import OperationType


def _activate(y: Array, code: int) -> None:
    """Apply an activation in place; recurrent operations have two more than fused ones do."""
    if code in (RELU, RELU1, RELU6):
        low, high = {RELU: (0, None), RELU1: (-1, 1), RELU6: (0, 6)}[code]
        np.clip(y, low, high, out=y)
    elif code == TANH:
        np.tanh(y, out=y)
    elif code == SIGMOID:
        np.negative(y, out=y)
        np.exp(y, out=y)
        np.add(y, np.float32(1), out=y)
        np.reciprocal(y, out=y)


@kernel(OperationType.SVDF)
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
