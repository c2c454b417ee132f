"""TRANSPOSE_CONV_2D: every input pixel adds a weighted copy of the filter to the output.

It is the adjoint of a convolution: `Axis` describes a window that slides over the *output*, one
position per input pixel. Each cell of the filter takes one matrix product over all pixels, which is
added to the output cells that this filter cell meets.

NNAPI: TransposeConv2D.cpp.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from nnburst.executor.graph.geometry import (
    Axis,
    in_layout,
    meetings,
    nhwc_extents,
    transposed_implicit_padding,
    transposed_output_extent,
)
from nnburst.executor.graph.operation import Node, Run, operation
from nnburst.executor.graph.signatures import BOOL, I32, V1_2, control
from nnburst.executor.graph.sliding_window import (
    ACTIVATION,
    EXPLICIT_PADDING,
    IMPLICIT_PADDING,
    STRIDES,
    Window,
    image_views,
    is_nchw,
    positive,
)
from nnburst.executor.graph.tensor import Array, TensorType
from nnburst.executor.graph.workspace import Workspace, in_order
from nnburst.executor.reference.arithmetic.sums import (
    Finish,
    float_finish,
    kept,
    quantized_finish,
    repeated_bias,
    sum_dtype,
)
from nnburst.executor.reference.families.convolution import (
    OPERANDS,
    OUTPUT,
    SINCE_1_2,
    channel_dimension_is,
    filter_extents,
    require_channels,
)
from nnburst.executor.reference.families.data_movement import control_values
from nnburst.hal.enums import OperationType
from nnburst.hal.operand_types import QUANTIZED_RANGES
from nnburst.hal.signature import Form, Signature

_TAIL: Final = (*STRIDES, *ACTIVATION, control("nchw", BOOL))


def _window(node: Node) -> Window:
    """The window over the output; its `channels` are the input's."""
    dimensions = node.tensor("input").shape
    node.require(len(dimensions) == 4, f"operand 'input' has rank {len(dimensions)}, expected 4")
    batches, *extents, channels = nhwc_extents(dimensions, is_nchw(node))
    node.require(
        min(*extents, channels) > 0,
        f"operand 'input' has dimensions {list(dimensions)}: only the batches may be empty",
    )
    height, width = (
        _axis(node, name, size, filter_size, padding)
        for name, size, filter_size, padding in zip(
            ("height", "width"),
            extents,
            node.tensor("filter").shape[1:3],
            _paddings(node),
            strict=True,
        )
    )
    return Window(batches, channels, height, width, is_nchw(node))


def _axis(node: Node, name: str, size: int, filter_size: int, padding: tuple[int, int]) -> Axis:
    stride = positive(node, f"stride_{name}")
    output = transposed_output_extent(size, filter_size, stride, *padding)
    node.require(output > 0, f"padding {padding} leaves {output} cells of the output's {name}")
    return Axis(output, filter_size, stride, *padding)


def _paddings(node: Node) -> list[tuple[int, int]]:
    """Padding (head, tail) of height and width; a tail may be negative, which adds cells."""
    if node.match.form.name == "explicit padding":
        top, bottom, left, right = (
            int(node.value(f"padding_{side}")) for side in ("top", "bottom", "left", "right")
        )
        node.require(top >= 0, f"operand 'padding_top' is {top}, expected ≥ 0")
        node.require(left >= 0, f"operand 'padding_left' is {left}, expected ≥ 0")
        return [(top, bottom), (left, right)]
    wanted = control_values(node, "output_shape", 4)
    _, *extents, _ = nhwc_extents(wanted, is_nchw(node))
    scheme = int(node.value("padding_scheme"))
    return [
        transposed_implicit_padding(scheme, extent, filter_size, positive(node, f"stride_{name}"))
        for name, extent, filter_size in zip(
            ("height", "width"), extents, node.tensor("filter").shape[1:3], strict=True
        )
    ]


def _shape(node: Node) -> list[TensorType]:
    channels, _, _, depth = filter_extents(node, 0)
    window = _window(node)
    require_channels(node, depth, window.channels)
    height, width = window.height.size, window.width.size
    return [node.like_declared(in_layout(window.batches, height, width, channels, window.nchw))]


@operation(
    Signature(
        OperationType.TRANSPOSE_CONV_2D,
        V1_2,
        (
            Form(
                (*OPERANDS, *EXPLICIT_PADDING, *_TAIL),
                OUTPUT,
                name="explicit padding",
            ),
            Form(
                (*OPERANDS, control("output_shape", I32), *IMPLICIT_PADDING, *_TAIL),
                OUTPUT,
                name="implicit padding",
            ),
        ),
        SINCE_1_2,
        "Spreads every pixel of an image over its neighbourhood, weighted by filters.",
        channel_dimension_is(0),
    ),
    shape=_shape,
    zero_sized=True,
)
def transpose_conv_2d(node: Node) -> Run:
    """Bind one matrix product per cell of the filter, and what becomes of the sums."""
    window, workspace = _window(node), Workspace(node)
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
