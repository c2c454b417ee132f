"""Declares the convolutions (plain, grouped, depthwise, transposed) by their signatures and shape rules.

All of them take an input, a filter and a bias, with the same checks. The operands, accepted types and checks
that they share come first; each convolution follows.

NNAPI: Conv2D.cpp, DepthwiseConv2D.cpp, GroupedConv2D.cpp, TransposeConv2D.cpp.

DEVIATES: before 1.2 a quantised output scale had to exceed input times filter scale. Operations do
not see the version of their model, and every scale can be computed, so all are accepted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from nnburst.executor.graph.declarations import (
    BOOL,
    F16,
    F32,
    I32,
    Q8,
    Q8S,
    QPC,
    V1_0,
    V1_2,
    V1_3,
    control,
    data,
    require_bias_scale,
    row,
)
from nnburst.executor.graph.operation import Node, declare
from nnburst.executor.graph.tensor import TensorType
from nnburst.executor.graph.windows import (
    ACTIVATION,
    EXPLICIT_PADDING,
    IMPLICIT_PADDING,
    OPTIONAL_DILATIONS,
    OPTIONAL_NCHW,
    STRIDES,
    Axis,
    Window,
    in_layout,
    is_nchw,
    nhwc_extents,
    positive,
    read_window,
    transposed_implicit_padding,
    transposed_output_extent,
)
from nnburst.executor.operations.shape import control_values
from nnburst.hal.enums import ErrorStatus, FeatureLevel, OperationType
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.model import Operand, SymmPerChannelQuantParams
from nnburst.hal.signature import Check, Form, Match, Signature, Slot, TypeRow

#: Operands of every convolution; T, F and B are resolved by `convolution_rows`.
OPERANDS: Final = (data("input"), data("filter", "F"), data("bias", "B"))

OPERANDS_OF_RANK_4: Final = (
    data("input", rank=(4,)),
    data("filter", "F", rank=(4,)),
    data("bias", "B"),
)

OUTPUT: Final[tuple[Slot, ...]] = (data("output"),)


def convolution_rows(since: FeatureLevel) -> tuple[TypeRow, ...]:
    """Accepted types of a convolution that exists since the version `since`."""
    return (
        row(since, T=F32, F=F32, B=F32),
        row(since, T=Q8, F=Q8, B=I32),
        row(V1_2, T=F16, F=F16, B=F16),
        row(V1_2, T=Q8, F=QPC, B=I32),
        row(V1_3, T=Q8S, F=[Q8S, QPC], B=I32),
    )


def channel_dimension_is(dimension: int) -> Check:
    """validation:P4: a filter that is quantised per channel has its scales along `dimension`."""

    def check(_match: Match, inputs: Sequence[Operand], _outputs: Sequence[Operand]) -> None:
        params = inputs[1].extra_params
        if isinstance(params, SymmPerChannelQuantParams) and params.channel_dim != dimension:
            raise InvalidArgument(
                f"validation:P4: operand 'filter' is quantised along dimension {params.channel_dim},"
                f" expected {dimension}"
            )

    return check


def filter_extents(node: Node, output_dimension: int) -> tuple[int, int, int, int]:
    """Dimensions of operand 'filter', whose outputs lie along `output_dimension`.

    Raises:
        OperationFailed: ranks of filter and bias, the number of channels of bias and scales, or the
            bias scale do not fit.
    """
    weights, bias = node.tensor("filter"), node.tensor("bias")
    node.require(
        len(weights.shape) == 4, f"operand 'filter' has rank {len(weights.shape)}, expected 4"
    )
    node.require(len(bias.shape) == 1, f"operand 'bias' has rank {len(bias.shape)}, expected 1")
    node.require(min(weights.shape) > 0, f"operand 'filter' is empty: {list(weights.shape)}")
    channels = weights.shape[output_dimension]
    node.require(
        bias.shape == (channels,),
        f"operand 'bias' has {bias.shape[0]} elements, the filter gives {channels} channels",
    )
    params = weights.meta.extra_params
    if isinstance(params, SymmPerChannelQuantParams):
        node.require(
            len(params.scales) == channels,
            f"operand 'filter' has {len(params.scales)} scales for {channels} channels",
        )
    require_bias_scale(node, "filter")
    first, height, width, last = weights.shape
    return first, height, width, last


def require_channels(node: Node, found: int, wanted: int) -> None:
    """Fail unless the filter reads as many channels as the input has."""
    node.require(
        found == wanted, f"operand 'filter' fits {found} channels, operand 'input' has {wanted}"
    )


SINCE_1_0: Final = convolution_rows(V1_0)
SINCE_1_2: Final = convolution_rows(V1_2)


# -- CONV_2D and GROUPED_CONV_2D -------------------------------------------------------------------
# NNAPI: Conv2D.cpp, GroupedConv2D.cpp.

_OPTIONAL = (*ACTIVATION, *OPTIONAL_NCHW, *OPTIONAL_DILATIONS)
_EXPLICIT = (*OPERANDS_OF_RANK_4, *EXPLICIT_PADDING, *STRIDES, *_OPTIONAL)
_IMPLICIT = (*OPERANDS_OF_RANK_4, *IMPLICIT_PADDING, *STRIDES, *_OPTIONAL)
_GROUPED = (*STRIDES, control("groups"), *ACTIVATION, control("nchw", BOOL))


def _conv_shape(node: Node, groups: int) -> list[TensorType]:
    channels, height, width, depth = filter_extents(node, 0)
    node.require(
        channels % groups == 0, f"{channels} output channels cannot be cut into {groups} groups"
    )
    window = read_window(node, height, width)
    require_channels(node, depth * groups, window.channels)
    return [node.like_declared(window.output(channels))]


declare(
    Signature(
        OperationType.CONV_2D,
        V1_0,
        (
            Form(_EXPLICIT, OUTPUT, (10, 11, 13), name="explicit padding"),
            Form(_IMPLICIT, OUTPUT, (7, 8, 10), name="implicit padding"),
        ),
        SINCE_1_0,
        "Slides filters over images; each output channel sums over all input channels.",
        channel_dimension_is(0),
    ),
    shape=lambda node: _conv_shape(node, 1),
    zero_sized=True,
)


declare(
    Signature(
        OperationType.GROUPED_CONV_2D,
        V1_2,
        (
            Form((*OPERANDS, *EXPLICIT_PADDING, *_GROUPED), OUTPUT, name="explicit padding"),
            Form((*OPERANDS, *IMPLICIT_PADDING, *_GROUPED), OUTPUT, name="implicit padding"),
        ),
        SINCE_1_2,
        "Slides filters over images; input and output channels are cut into independent groups.",
        channel_dimension_is(0),
    ),
    shape=lambda node: _conv_shape(node, positive(node, "groups")),
    omitted_status=ErrorStatus.INVALID_ARGUMENT,
)


# -- DEPTHWISE_CONV_2D -----------------------------------------------------------------------------
# NNAPI: DepthwiseConv2D.cpp.

_DEPTHWISE_TAIL = (
    *STRIDES,
    control("depth_multiplier"),
    *ACTIVATION,
    *OPTIONAL_NCHW,
    *OPTIONAL_DILATIONS,
)


def _depthwise_shape(node: Node) -> list[TensorType]:
    first, height, width, channels = filter_extents(node, 3)
    node.require(first == 1, f"operand 'filter' has dimension 0 of {first}, expected 1")
    window = read_window(node, height, width)
    multiplier = positive(node, "depth_multiplier")
    node.require(
        channels == window.channels * multiplier,
        f"operand 'filter' has {channels} channels, expected {window.channels} times {multiplier}",
    )
    return [node.like_declared(window.output(channels))]


declare(
    Signature(
        OperationType.DEPTHWISE_CONV_2D,
        V1_0,
        (
            Form(
                (*OPERANDS, *EXPLICIT_PADDING, *_DEPTHWISE_TAIL),
                OUTPUT,
                (11, 12, 14),
                name="explicit padding",
            ),
            Form(
                (*OPERANDS, *IMPLICIT_PADDING, *_DEPTHWISE_TAIL),
                OUTPUT,
                (8, 9, 11),
                name="implicit padding",
            ),
        ),
        SINCE_1_0,
        "Slides one filter per channel over images; output channel c reads input channel"
        " c / depth_multiplier.",
        channel_dimension_is(3),
    ),
    shape=_depthwise_shape,
    zero_sized=True,
)


# -- TRANSPOSE_CONV_2D -----------------------------------------------------------------------------
# NNAPI: TransposeConv2D.cpp.

_TRANSPOSE_TAIL: Final = (*STRIDES, *ACTIVATION, control("nchw", BOOL))


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


def _transpose_shape(node: Node) -> list[TensorType]:
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
                (*OPERANDS, *EXPLICIT_PADDING, *_TRANSPOSE_TAIL),
                OUTPUT,
                name="explicit padding",
            ),
            Form(
                (*OPERANDS, control("output_shape", I32), *IMPLICIT_PADDING, *_TRANSPOSE_TAIL),
                OUTPUT,
                name="implicit padding",
            ),
        ),
        SINCE_1_2,
        "Spreads every pixel of an image over its neighbourhood, weighted by filters.",
        channel_dimension_is(0),
    ),
    shape=_transpose_shape,
    zero_sized=True,
)
