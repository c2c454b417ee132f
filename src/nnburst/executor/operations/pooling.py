"""AVERAGE_POOL_2D, MAX_POOL_2D, L2_POOL_2D: signatures and shape rules.

NNAPI: Pooling.cpp.
"""

from __future__ import annotations

from typing import Final

from nnburst.executor.graph.operation import Node, declare
from nnburst.executor.graph.signatures import F16, F32, Q8, Q8S, V1_0, control, data, rows
from nnburst.executor.graph.sliding_window import (
    ACTIVATION,
    EXPLICIT_PADDING,
    IMPLICIT_PADDING,
    OPTIONAL_NCHW,
    STRIDES,
    Window,
    positive,
    read_window,
)
from nnburst.executor.graph.tensor import TensorType
from nnburst.hal.enums import OperationType
from nnburst.hal.signature import Form, Signature

_INPUT: Final = (data("input", rank=(4,)),)
_OUTPUT: Final = (data("output"),)

_TAIL: Final = (
    *STRIDES,
    control("filter_width"),
    control("filter_height"),
    *ACTIVATION,
    *OPTIONAL_NCHW,
)

_FORMS: Final = (
    Form((*_INPUT, *EXPLICIT_PADDING, *_TAIL), _OUTPUT, (10, 11), name="explicit padding"),
    Form((*_INPUT, *IMPLICIT_PADDING, *_TAIL), _OUTPUT, (7, 8), name="implicit padding"),
)

_QUANTISED_TOO: Final = rows(V1_0=[F32, Q8], V1_2=[F16], V1_3=[Q8S])


def window_of(node: Node) -> Window:
    """The window that the operation's filter and padding describe."""
    return read_window(node, positive(node, "filter_height"), positive(node, "filter_width"))


def _shape(node: Node) -> list[TensorType]:
    meta, window = node.tensor("input").meta, window_of(node)
    dimensions = window.output(window.channels)
    return [TensorType(node.declared().type, dimensions, meta.scale, meta.zero_point)]


declare(
    Signature(
        OperationType.AVERAGE_POOL_2D,
        V1_0,
        _FORMS,
        _QUANTISED_TOO,
        "Gives the mean of every window; padding does not count.",
    ),
    shape=_shape,
    zero_sized=True,
)


declare(
    Signature(
        OperationType.MAX_POOL_2D,
        V1_0,
        _FORMS,
        _QUANTISED_TOO,
        "Gives the largest element of every window.",
    ),
    shape=_shape,
    zero_sized=True,
)


declare(
    Signature(
        OperationType.L2_POOL_2D,
        V1_0,
        _FORMS,
        rows(V1_0=[F32], V1_2=[F16]),
        "Gives the root of the mean square of every window; padding does not count.",
    ),
    shape=_shape,
    zero_sized=True,
)
