"""What the convolutions have in common: operand types, slots, checks.

NNAPI: Conv2D.cpp, DepthwiseConv2D.cpp, GroupedConv2D.cpp, TransposeConv2D.cpp.

DEVIATES: before 1.2 a quantised output scale had to exceed input times filter scale. Operations do
not see the version of their model, and every scale can be computed, so all are accepted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from nnburst.executor.graph.operation import Node
from nnburst.executor.graph.signatures import (
    F16,
    F32,
    I32,
    Q8,
    Q8S,
    QPC,
    V1_0,
    V1_2,
    V1_3,
    data,
    row,
)
from nnburst.executor.operations.families.scales import require_bias_scale
from nnburst.hal.enums import FeatureLevel
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.model import Operand, SymmPerChannelQuantParams
from nnburst.hal.signature import Check, Match, Slot, TypeRow

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
