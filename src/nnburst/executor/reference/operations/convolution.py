"""Kernels of the convolutions: plain, grouped, depthwise and transposed.

Each computes sums of products in its own way; `nnburst.executor.reference.sums` makes the filter's
matrix and turns the sums into the output.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nnburst.executor.graph.memory import Workspace, in_order
from nnburst.executor.graph.operation import Node, Run, kernel
from nnburst.executor.graph.tensor import Array
from nnburst.executor.graph.windows import (
    Axis,
    Window,
    image_views,
    meetings,
    positive,
    read_window,
    row_chunks,
    windows,
)
from nnburst.executor.operations.convolution import window_of
from nnburst.executor.reference.sums import (
    Finish,
    Sums,
    bind_sums,
    float_finish,
    kept,
    quantized_finish,
    repeated_bias,
    sum_dtype,
)
from nnburst.hal.enums import OperationType
from nnburst.hal.model import QUANTIZED_RANGES

# -- TRANSPOSE_CONV_2D: every input pixel adds a weighted copy of the filter to the output ---------
# It is the adjoint of a convolution: `Axis` describes a window that slides over the *output*, one
# position per input pixel. Each cell of the filter takes one matrix product over all pixels, which is
# added to the output cells that this filter cell meets.
#
# NNAPI: TransposeConv2D.cpp.


@kernel(OperationType.TRANSPOSE_CONV_2D)
def transpose_conv_2d(node: Node) -> Run:
    """Bind one matrix product per cell of the filter, and the step from sums to the output."""
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


# -- Images with padding around them, and the patches that windows cut out of them -----------------
# Borders lie in scratch memory that other operations overwrite, so every run writes them again.


def border(image: Array, rows: slice, columns: slice) -> list[Array]:
    """The cells of an NHWC image outside `rows` and `columns`, as views that do not overlap."""
    parts = [
        image[:, : rows.start],
        image[:, rows.stop :],
        image[:, rows, : columns.start],
        image[:, rows, columns.stop :],
    ]
    return [part for part in parts if part.size]


def padded(
    workspace: Workspace, image: Array, window: Window, dtype: np.dtype[Any], value: float
) -> tuple[Array, tuple[Run, ...]]:
    """An NHWC image with all cells that windows touch.

    Args:
        workspace: gives memory.
        image: NHWC view of the input.
        window: windows over it.
        dtype: type of the padded copy.
        value: value of padding cells.

    Returns:
        The image itself if nothing is padded (with its own dtype), else the copy; and the
        functions to call in each run to fill it.
    """
    if not window.pads:
        return image, ()
    height, width = window.height, window.width
    shape = (window.batches, height.padded, width.padded, window.channels)
    copy = workspace.array("padded", shape, dtype)
    (rows, used_rows), (columns, used_columns) = height.inside, width.inside
    source, target = image[:, used_rows, used_columns], copy[:, rows, columns]
    edges = border(copy, rows, columns)

    def run() -> None:
        for edge in edges:
            edge.fill(value)
        np.copyto(target, source, casting="unsafe")

    return copy, (run,)


# -- CONV_2D and GROUPED_CONV_2D: every window is a row of a matrix, times the filter --------------
# NNAPI: Conv2D.cpp, GroupedConv2D.cpp.


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
        steps += _bind_conv_piece(sums, piece, part, groups, workspace)

    return in_order(steps)


def _bind_conv_piece(
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


# -- DEPTHWISE_CONV_2D: every channel has its own small filter -------------------------------------
# The image is copied once, as float numbers, with its padding and with the columns sorted by their
# remainder modulo the stride; columns of a remainder that no cell of the window sees are left out. The
# pixels that one cell sees are then a dense row, and the sums are one multiply-add of whole rows per cell.
#
# NNAPI: DepthwiseConv2D.cpp.


@kernel(OperationType.DEPTHWISE_CONV_2D)
def depthwise_conv_2d(node: Node) -> Run:
    """Bind the copy of the image, the multiply-adds, and the step from sums to the output."""
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
        steps += _bind_depthwise_piece(sums, cells, weights, out[batches, rows], workspace)
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
        The pixels that each cell of the window sees, [batches, output height, output width * channels],
        and the function that copies them there.
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
    """The slice of a phase's padded copy that holds cells of the input, and the slice of these cells."""
    target, _ = axis.inside
    first = max(0, -((phase - target.start) // axis.stride))
    behind = max(first, -((phase - target.stop) // axis.stride))
    start = first * axis.stride + phase - target.start
    stop = start + (behind - first - 1) * axis.stride + 1
    return slice(first, behind), slice(start, max(start, stop), axis.stride)


def _bind_depthwise_piece(
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
