"""Kernels of the matrix products FULLY_CONNECTED and BATCH_MATMUL.

FULLY_CONNECTED multiplies the rows of its flattened input by a matrix of weights; BATCH_MATMUL
multiplies two matrices for each batch.

NNAPI: FullyConnected.cpp.

NNAPI: BatchMatmul.cpp.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nnburst.executor.graph.memory import Workspace, in_order
from nnburst.executor.graph.operation import Node, Run, kernel
from nnburst.executor.graph.tensor import Array, Tensor
from nnburst.executor.reference.fixed_point import Requantization
from nnburst.executor.reference.sums import bind_sums, exact_dtype
from nnburst.hal.enums import OperandType, OperationType


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


@kernel(OperationType.BATCH_MATMUL)
def batch_matmul(node: Node) -> Run:
    """Bind one stacked product; INT32 wraps, quantised sums are exact and rescaled once."""
    operands = (node.tensor("input0"), node.tensor("input1"))
    flags = (node.value("adj_x"), node.value("adj_y"))
    left, right = (_matrices(t.array, swapped) for t, swapped in zip(operands, flags, strict=True))
    out = node.output()
    if out.type == OperandType.TENSOR_QUANT8_ASYMM_SIGNED:
        return _quantised(Workspace(node), operands, (left, right), out)
    product = out.array

    def run() -> None:
        np.matmul(left, right, out=product)

    return run


def _matrices(array: Array, swapped: bool) -> Array:
    return array.swapaxes(-1, -2) if swapped else array


def _quantised(
    workspace: Workspace, operands: tuple[Tensor, Tensor], views: tuple[Array, Array], out: Tensor
) -> Run:
    # Differences of bytes are below 256 in magnitude.
    dtype = exact_dtype(views[0].shape[-1] * 255 * 255)
    left, right = (
        workspace.array(name, view.shape, dtype)
        for name, view in zip(("left", "right"), views, strict=True)
    )
    zero_points = [dtype.type(t.zero_point) for t in operands]
    sums = workspace.array("sums", out.shape, dtype)
    unit = np.float32(operands[0].scale) * np.float32(operands[1].scale)
    rows_ = sums.reshape(-1, out.shape[-1])
    nothing: Any = np.zeros(1)
    finish = Requantization.of(unit, out.meta).bind(rows_, nothing, out.array, workspace)

    def run() -> None:
        np.subtract(views[0], zero_points[0], out=left)
        np.subtract(views[1], zero_points[1], out=right)
        np.matmul(left, right, out=sums)
        finish()

    return run
