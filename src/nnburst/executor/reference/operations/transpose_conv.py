"""TRANSPOSE_CONV_2D: every input pixel adds a weighted copy of the filter to the output.

It is the adjoint of a convolution: `Axis` describes a window that slides over the *output*, one
position per input pixel. Each cell of the filter takes one matrix product over all pixels, which is
added to the output cells that this filter cell meets.

NNAPI: TransposeConv2D.cpp.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nnburst.executor.graph.geometry import (
    meetings,
)
from nnburst.executor.graph.operation import Node, Run, kernel
from nnburst.executor.graph.sliding_window import (
    image_views,
)
from nnburst.executor.graph.tensor import Array
from nnburst.executor.graph.workspace import Workspace, in_order
from nnburst.executor.operations.transpose_conv import window_of
from nnburst.executor.reference.arithmetic.sums import (
    Finish,
    float_finish,
    kept,
    quantized_finish,
    repeated_bias,
    sum_dtype,
)
from nnburst.hal.enums import OperationType
from nnburst.hal.operand_types import QUANTIZED_RANGES


@kernel(OperationType.TRANSPOSE_CONV_2D)
def transpose_conv_2d(node: Node) -> Run:
    """Bind one matrix product per cell of the filter, and what becomes of the sums."""
    window, workspace = window_of(node), Workspace(node)
    image, out = image_views(node)
    matrices, dtype, prepare = _matrices(node)
    pixels, centre = _centred_pixels(node, image, dtype, workspace)
    sums = workspace.array("sums", out.shape, dtype)
    product = workspace.array("product", (pixels.shape[0], out.shape[3]), dtype)
    spread = product.reshape(*image.shape[:3], out.shape[3])
    cells = [
        (matrices[i, j], sums[:, out_rows, out_columns], spread[:, rows, columns])
        for i, out_rows, rows in meetings(window.height)
        for j, out_columns, columns in meetings(window.width)
    ]

    def run() -> None:
        centre()
        sums.fill(0)
        for matrix, target, part in cells:
            np.matmul(pixels, matrix, out=product)
            np.add(target, part, out=target)

    width = window.width.size
    finish, prepare_finish = _finish(node, width)
    rows_of_sums = sums.reshape(out.shape[0] * out.shape[1], width * out.shape[3])
    return in_order([*prepare, *prepare_finish, run, finish(rows_of_sums, out, workspace)])


def _is_quantized(node: Node) -> bool:
    return node.tensor("input").type in QUANTIZED_RANGES


def _matrices(node: Node) -> tuple[Array, np.dtype[Any], tuple[Run, ...]]:
    """[filter height, filter width, input channels, output channels], zero point taken off."""
    weights = node.tensor("filter")
    cells = weights.array.transpose(1, 2, 3, 0)
    # Padding adds nothing to a sum here, so the input's zero point is taken off its pixels. Every
    # output cell sums over the whole filter at most.
    terms = cells.reshape(-1, cells.shape[3])
    dtype = sum_dtype(node, "filter", terms, 255) if _is_quantized(node) else np.dtype(np.float32)
    matrices, prepare = kept(
        node,
        ["filter"],
        "matrices",
        lambda allocate: allocate(cells.shape, dtype),
        lambda made: np.subtract(cells, dtype.type(weights.zero_point), out=made),
    )
    return matrices, dtype, prepare


def _centred_pixels(
    node: Node, image: Array, dtype: np.dtype[Any], workspace: Workspace
) -> tuple[Array, Run]:
    """[pixels, channels] without the zero point, and the run that computes it."""
    pixels = workspace.array("pixels", image.shape, dtype)
    zero_point = dtype.type(node.tensor("input").zero_point)

    def centre() -> None:
        np.subtract(image, zero_point, out=pixels)

    return pixels.reshape(-1, image.shape[3]), centre


def _finish(node: Node, width: int) -> tuple[Finish, Sequence[Run]]:
    if _is_quantized(node):
        offset, prepare = repeated_bias(node, width, np.dtype(np.float64))
        return quantized_finish(node, "filter", offset, width), prepare
    addend, prepare = repeated_bias(node, width, np.dtype(np.float32))
    return float_finish(node, addend), prepare
