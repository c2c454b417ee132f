"""DEPTHWISE_CONV_2D: signatures and shape rules.

NNAPI: DepthwiseConv2D.cpp.
"""

from __future__ import annotations

from nnburst.executor.graph.operation import Node, declare
from nnburst.executor.graph.signatures import V1_0, control
from nnburst.executor.graph.sliding_window import (
    ACTIVATION,
    EXPLICIT_PADDING,
    IMPLICIT_PADDING,
    OPTIONAL_DILATIONS,
    OPTIONAL_NCHW,
    STRIDES,
    positive,
    read_window,
)
from nnburst.executor.graph.tensor import TensorType
from nnburst.executor.operations.families.convolution import (
    OPERANDS,
    OUTPUT,
    SINCE_1_0,
    channel_dimension_is,
    filter_extents,
)
from nnburst.hal.enums import OperationType
from nnburst.hal.signature import Form, Signature

_TAIL = (
    *STRIDES,
    control("depth_multiplier"),
    *ACTIVATION,
    *OPTIONAL_NCHW,
    *OPTIONAL_DILATIONS,
)


def _shape(node: Node) -> list[TensorType]:
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
                (*OPERANDS, *EXPLICIT_PADDING, *_TAIL),
                OUTPUT,
                (11, 12, 14),
                name="explicit padding",
            ),
            Form(
                (*OPERANDS, *IMPLICIT_PADDING, *_TAIL),
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
    shape=_shape,
    zero_sized=True,
)
