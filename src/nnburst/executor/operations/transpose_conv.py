"""TRANSPOSE_CONV_2D: signatures and shape rules.

NNAPI: TransposeConv2D.cpp.
"""

from __future__ import annotations

from typing import Final

from nnburst.executor.graph.geometry import (
    Axis,
    in_layout,
    nhwc_extents,
    transposed_implicit_padding,
    transposed_output_extent,
)
from nnburst.executor.graph.operation import Node, declare
from nnburst.executor.graph.signatures import BOOL, I32, V1_2, control
from nnburst.executor.graph.sliding_window import (
    ACTIVATION,
    EXPLICIT_PADDING,
    IMPLICIT_PADDING,
    STRIDES,
    Window,
    is_nchw,
    positive,
)
from nnburst.executor.graph.tensor import TensorType
from nnburst.executor.operations.families.convolution import (
    OPERANDS,
    OUTPUT,
    SINCE_1_2,
    channel_dimension_is,
    filter_extents,
    require_channels,
)
from nnburst.executor.operations.families.data_movement import control_values
from nnburst.hal.enums import OperationType
from nnburst.hal.signature import Form, Signature

_TAIL: Final = (*STRIDES, *ACTIVATION, control("nchw", BOOL))


def window_of(node: Node) -> Window:
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
    window = window_of(node)
    require_channels(node, depth, window.channels)
    height, width = window.height.size, window.width.size
    return [node.like_declared(in_layout(window.batches, height, width, channels, window.nchw))]


declare(
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
