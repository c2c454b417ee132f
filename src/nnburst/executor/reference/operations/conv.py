"""CONV_2D and GROUPED_CONV_2D: every window as a row of a matrix, times the filter.

NNAPI: Conv2D.cpp, GroupedConv2D.cpp.
"""

from __future__ import annotations

import numpy as np

from nnburst.executor.graph.geometry import windows
from nnburst.executor.graph.operation import Node, Run, kernel
from nnburst.executor.graph.sliding_window import (
    image_views,
    positive,
    read_window,
    row_chunks,
)
from nnburst.executor.graph.tensor import Array
from nnburst.executor.graph.workspace import Workspace, in_order
from nnburst.executor.reference.arithmetic.sums import Sums, bind_sums
from nnburst.executor.reference.families.patches import padded
from nnburst.hal.enums import OperationType


@kernel(OperationType.CONV_2D)
def conv_2d(node: Node) -> Run:
    """Bind a convolution with one group."""
    return _convolve(node, 1)


@kernel(OperationType.GROUPED_CONV_2D)
def grouped_conv_2d(node: Node) -> Run:
    """Bind a convolution whose group k reads and writes the k-th part of the channels."""
    return _convolve(node, positive(node, "groups"))


def _convolve(node: Node, groups: int) -> Run:
    channels, filter_height, filter_width, depth = node.tensor("filter").shape
    window = read_window(node, filter_height, filter_width)
    image, out = image_views(node)
    width = window.width.output
    sums = bind_sums(node, "filter", lambda array: array.reshape(channels, -1).T, width)
    workspace = Workspace(node)
    source, pad = padded(workspace, image, window, sums.dtype, sums.padding)
    patches = windows(source, window.height, window.width)
    terms = filter_height * filter_width * depth
    row_bytes = width * (terms * groups + 3 * channels) * sums.dtype.itemsize
    steps = [*sums.prepare, *pad]
    for batches, rows in row_chunks(window.batches, window.height.output, row_bytes):
        piece, part = patches[batches, rows], out[batches, rows]
        steps += _bind_piece(sums, piece, part, groups, workspace)

    return in_order(steps)


def _bind_piece(
    sums: Sums, patches: Array, out: Array, groups: int, workspace: Workspace
) -> list[Run]:
    """Sums and results of some output rows; patches is [batches, rows, width, *window]."""
    batches, rows, width, *_, channels = patches.shape
    count, total = batches * rows * width, sums.matrix.shape[1]
    depth, part = channels // groups, total // groups
    if sums.in_place and out.flags.c_contiguous:
        results = out.reshape(count, total)
    else:
        results = workspace.array("sums", (count, total), sums.dtype)
    steps = []
    for group in range(groups):
        seen = patches[..., group * depth : (group + 1) * depth]
        left, copy = _as_matrix(seen, sums.dtype, workspace)
        chosen = slice(group * part, (group + 1) * part)
        steps += [*copy, _product(left, sums.matrix[:, chosen], results[:, chosen])]
    finish = sums.bind_finish(results.reshape(batches * rows, width * total), out, workspace)
    return [*steps, finish]


def _product(left: Array, right: Array, out: Array) -> Run:
    def run() -> None:
        np.matmul(left, right, out=out)

    return run


def _as_matrix(patches: Array, dtype: np.dtype, workspace: Workspace) -> tuple[Array, list[Run]]:
    """Patches as rows of a matrix: the input itself if its memory is in that order."""
    batches, rows, width, *window = patches.shape
    shape = (batches * rows * width, int(np.prod(window)))
    if patches.dtype == dtype and patches.flags.c_contiguous:
        return patches.reshape(shape), []
    matrix = workspace.array("patches", shape, dtype)
    target = matrix.reshape(patches.shape)
    return matrix, [lambda: np.copyto(target, patches, casting="unsafe")]
