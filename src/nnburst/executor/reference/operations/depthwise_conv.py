"""DEPTHWISE_CONV_2D: every channel has its own small filter.

The image is copied once, as float numbers, with its padding and with the columns sorted by their
remainder modulo the stride; columns of a remainder that no cell of the window sees are left out. What one
cell sees is then a dense row, and the sums are one multiply-add of whole rows per cell.

NNAPI: DepthwiseConv2D.cpp.
"""

from __future__ import annotations

import numpy as np

from nnburst.executor.graph.geometry import Axis
from nnburst.executor.graph.operation import Node, Run, kernel
from nnburst.executor.graph.sliding_window import (
    Window,
    image_views,
    read_window,
    row_chunks,
)
from nnburst.executor.graph.tensor import Array
from nnburst.executor.graph.workspace import Workspace, in_order
from nnburst.executor.reference.arithmetic.sums import Sums, bind_sums, kept
from nnburst.executor.reference.families.patches import border
from nnburst.hal.enums import OperationType


@kernel(OperationType.DEPTHWISE_CONV_2D)
def depthwise_conv_2d(node: Node) -> Run:
    """Bind the copy of the image, the multiply-adds, and what becomes of the sums."""
    _, filter_height, filter_width, channels = node.tensor("filter").shape
    window = read_window(node, filter_height, filter_width)
    image, out = image_views(node)
    width = window.width.output
    sums = bind_sums(node, "filter", lambda array: array.reshape(-1, channels), width)
    weights, prepare = _rows_of_weights(node, sums, width)
    workspace = Workspace(node)
    seen, copy = _sorted_columns(workspace, image, window, channels, sums)
    steps = [*sums.prepare, *prepare, *copy]
    row_bytes = 3 * width * channels * sums.dtype.itemsize
    for batches, rows in row_chunks(window.batches, window.height.output, row_bytes):
        cells = [cell[batches, rows] for cell in seen]
        steps += _bind_piece(sums, cells, weights, out[batches, rows], workspace)
    return in_order(steps)


def _rows_of_weights(node: Node, sums: Sums, width: int) -> tuple[Array, tuple[Run, ...]]:
    """[cells, width * channels]: the weights of each cell as often as a row of output has columns.

    numpy's loops are as long as the rows that they work on; without this they would end at every
    pixel.
    """
    cells, channels = sums.matrix.shape
    weights, prepare = kept(
        node,
        ["filter", "bias"],
        ("rows of weights", width),
        lambda allocate: allocate((cells, width * channels), sums.dtype),
        lambda made: np.copyto(made.reshape(cells, width, channels), sums.matrix[:, None]),
    )
    return weights, prepare


def _sorted_columns(
    workspace: Workspace, image: Array, window: Window, channels: int, sums: Sums
) -> tuple[list[Array], list[Run]]:
    """The padded image, one copy of each channel per output channel, sorted by column phase.

    Returns:
        What each cell of the window sees, [batches, output height, output width * channels], and
        the copying.
    """
    height, width = window.height, window.width
    phases = min(width.stride, width.padded)
    columns = -(-width.padded // phases)
    # A stride may be far larger than the filter: no more phases than it has columns.
    seen = sorted({j * width.dilation % phases for j in range(width.filter)})
    slots = {phase: slot for slot, phase in enumerate(seen)}
    shape = (window.batches, height.padded, len(slots), columns * channels)
    memory = workspace.array("padded", shape, sums.dtype)
    steps = []
    for phase, slot in slots.items():
        copy = memory[:, :, slot].reshape(window.batches, height.padded, columns, channels)
        steps += _bind_phase(image, copy, window, phase, sums.padding)
    cells = []
    for i in range(height.filter):
        top = i * height.dilation
        rows = slice(top, top + (height.output - 1) * height.stride + 1, height.stride)
        for j in range(width.filter):
            column, phase = divmod(j * width.dilation, phases)
            row = slice(column * channels, (column + width.output) * channels)
            cells.append(memory[:, rows, slots[phase], row])
    return cells, steps


def _bind_phase(image: Array, copy: Array, window: Window, phase: int, padding: float) -> list[Run]:
    """Fill `copy` with every stride-th column of the padded image, beginning with `phase`."""
    rows, used_rows = window.height.inside
    columns, used_columns = _phase_of(window.width, phase)
    source = image[:, used_rows, used_columns, :, None]
    inner = copy[:, rows, columns]
    target = inner.reshape(*inner.shape[:3], window.channels, inner.shape[3] // window.channels)
    edges = border(copy, rows, columns)

    def run() -> None:
        for edge in edges:
            edge.fill(padding)
        np.copyto(target, source, casting="unsafe")

    return [run]


def _phase_of(axis: Axis, phase: int) -> tuple[slice, slice]:
    """Where a phase's cells of the input lie in its padded copy, and which cells these are."""
    target, _ = axis.inside
    first = max(0, -((phase - target.start) // axis.stride))
    behind = max(first, -((phase - target.stop) // axis.stride))
    start = first * axis.stride + phase - target.start
    stop = start + (behind - first - 1) * axis.stride + 1
    return slice(first, behind), slice(start, max(start, stop), axis.stride)


def _bind_piece(
    sums: Sums, cells: list[Array], weights: Array, out: Array, workspace: Workspace
) -> list[Run]:
    """Sums and results of some output rows; each cell is [batches, rows, width * channels]."""
    shape = cells[0].shape
    flat = (shape[0] * shape[1], shape[2])
    direct = sums.in_place and out.flags.c_contiguous
    total = out.reshape(shape) if direct else workspace.array("sums", shape, sums.dtype)
    product = workspace.array("product", shape, sums.dtype)
    first, *others = zip(cells, weights, strict=True)

    def run() -> None:
        np.multiply(*first, out=total)
        for cell, weight in others:
            np.multiply(cell, weight, out=product)
            np.add(total, product, out=total)

    return [run, sums.bind_finish(total.reshape(flat), out, workspace)]
