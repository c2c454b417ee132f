"""Declares the operations that pool windows of an image or resize it."""

from __future__ import annotations

from typing import Final

from nnburst.executor.graph.declarations import (
    BOOL,
    F16,
    F32,
    FLOAT16,
    FLOAT32,
    INT32,
    Q8,
    Q8S,
    V1_0,
    V1_2,
    V1_3,
    control,
    data,
    row,
    rows,
    signature,
)
from nnburst.executor.graph.operation import Node, declare
from nnburst.executor.graph.tensor import TensorType
from nnburst.executor.graph.windows import (
    ACTIVATION,
    EXPLICIT_PADDING,
    IMPLICIT_PADDING,
    OPTIONAL_NCHW,
    STRIDES,
    Window,
    positive,
    read_window,
)
from nnburst.executor.operations.shape import moved, require_ranks
from nnburst.hal import late_numpy as np
from nnburst.hal.enums import OperationType
from nnburst.hal.limits import INT32_MAX
from nnburst.hal.signature import Form, Signature, Slot

# -- AVERAGE_POOL_2D, MAX_POOL_2D, L2_POOL_2D ------------------------------------------------------
# NNAPI: Pooling.cpp.

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


# -- RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR ---------------------------------------------------
# NNAPI: ResizeImageOps.cpp. All coordinates are float32, as there.

_SCALED: Final = (
    row(V1_2, T=F16, S=FLOAT16),
    row(V1_2, T=F32, S=FLOAT32),
    row(V1_2, T=Q8, S=FLOAT32),
    row(V1_3, T=Q8S, S=FLOAT32),
)


def _inputs(nchw: Slot) -> tuple[Slot, ...]:
    return (
        data("input", rank=(4,)),
        control("width", "S"),
        control("height", "S"),
        nchw,
        control("align_corners", BOOL, default=False, since=V1_3),
        control("half_pixel_centers", BOOL, default=False, since=V1_3),
    )


def axes_of(node: Node) -> tuple[int, int]:
    """Dimensions of height and width."""
    return (2, 3) if node.value("nchw") else (1, 2)


def _size(node: Node, name: str, extent: int) -> int:
    """Output extent, which the operand gives directly or as a factor of the input's extent."""
    given = node.value(name)
    size = np.floor(np.float32(extent) * np.float32(given)) if isinstance(given, float) else given
    node.require(
        bool(1 <= size <= INT32_MAX),
        f"operand '{name}' is {given}, expected a size from 1 to {INT32_MAX}",
    )
    return int(size)


def _resize_shape(node: Node) -> list[TensorType]:
    require_ranks(node)
    node.require(
        not (node.value("align_corners") and node.value("half_pixel_centers")),
        "operands 'align_corners' and 'half_pixel_centers' are both true",
    )
    dimensions = list(node.tensor("input").shape)
    node.require(
        min(dimensions[1:]) > 0,
        f"operand 'input' has shape {tuple(dimensions)}, expected no extent of 0",
    )
    height, width = axes_of(node)
    dimensions[height] = _size(node, "height", dimensions[height])
    dimensions[width] = _size(node, "width", dimensions[width])
    return [moved(node, dimensions)]


declare(
    signature(
        OperationType.RESIZE_BILINEAR,
        V1_0,
        "Resizes images, weighting the four nearest pixels. `width` and `height` are sizes (INT32)"
        " or factors (floats).",
        inputs=_inputs(control("nchw", BOOL, default=False, since=V1_2)),
        outputs=[data("output")],
        rows=[
            row(V1_0, T=F32, S=INT32),
            row(V1_2, T=F16, S=INT32),
            row(V1_2, T=Q8, S=INT32),
            row(V1_3, T=Q8S, S=INT32),
            *_SCALED,
        ],
        counts=(3, 4, 5, 6),
    ),
    shape=_resize_shape,
    zero_sized=True,
)


declare(
    signature(
        OperationType.RESIZE_NEAREST_NEIGHBOR,
        V1_2,
        "Resizes images, copying the nearest pixel. `width` and `height` are sizes (INT32) or"
        " factors (floats).",
        inputs=_inputs(control("nchw", BOOL)),
        outputs=[data("output")],
        rows=[
            row(V1_2, T=F16, S=INT32),
            row(V1_2, T=F32, S=INT32),
            row(V1_2, T=Q8, S=INT32),
            row(V1_3, T=Q8S, S=INT32),
            *_SCALED,
        ],
        counts=(4, 5, 6),
    ),
    shape=_resize_shape,
    zero_sized=True,
)
