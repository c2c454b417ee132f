"""CONV_2D and GROUPED_CONV_2D: signatures and shape rules.

NNAPI: Conv2D.cpp, GroupedConv2D.cpp.
"""

from __future__ import annotations

from nnburst.executor.graph.operation import Node, declare
from nnburst.executor.graph.signatures import BOOL, V1_0, V1_2, control
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
    OPERANDS_OF_RANK_4,
    OUTPUT,
    SINCE_1_0,
    SINCE_1_2,
    channel_dimension_is,
    filter_extents,
    require_channels,
)
from nnburst.hal.enums import ErrorStatus, OperationType
from nnburst.hal.signature import Form, Signature

_OPTIONAL = (*ACTIVATION, *OPTIONAL_NCHW, *OPTIONAL_DILATIONS)
_EXPLICIT = (*OPERANDS_OF_RANK_4, *EXPLICIT_PADDING, *STRIDES, *_OPTIONAL)
_IMPLICIT = (*OPERANDS_OF_RANK_4, *IMPLICIT_PADDING, *STRIDES, *_OPTIONAL)
_GROUPED = (*STRIDES, control("groups"), *ACTIVATION, control("nchw", BOOL))


def _shape(node: Node, groups: int) -> list[TensorType]:
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
    shape=lambda node: _shape(node, 1),
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
    shape=lambda node: _shape(node, positive(node, "groups")),
    omitted_status=ErrorStatus.INVALID_ARGUMENT,
)
