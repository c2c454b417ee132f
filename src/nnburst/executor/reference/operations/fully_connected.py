"""FULLY_CONNECTED: rows of the flattened input times a matrix of weights.

NNAPI: FullyConnected.cpp.
"""

from __future__ import annotations

import numpy as np

from nnburst.executor.graph.operation import Node, Run, kernel
from nnburst.executor.graph.workspace import Workspace, in_order
from nnburst.executor.reference.arithmetic.sums import bind_sums
from nnburst.hal.enums import OperationType


@kernel(OperationType.FULLY_CONNECTED)
def fully_connected(node: Node) -> Run:
    """Bind one matrix product."""
    sums = bind_sums(node, "weights", lambda array: array.T)
    inputs, _units = sums.matrix.shape
    rows, out = node.tensor("input").array.reshape(-1, inputs), node.output().array
    workspace = Workspace(node)
    results = out if sums.in_place else workspace.array("sums", out.shape, sums.dtype)
    finish = sums.bind_finish(results, out, workspace)
    copies = rows.dtype != sums.dtype
    left = workspace.array("rows", rows.shape, sums.dtype) if copies else rows

    def run() -> None:
        if copies:
            np.copyto(left, rows, casting="unsafe")
        np.matmul(left, sums.matrix, out=results)

    return in_order([*sums.prepare, run, finish])
