"""What convolutions and poolings have about their windows: operand slots, and how they are read.

NNAPI: Conv2D.cpp, DepthwiseConv2D.cpp, Pooling.cpp: paddings and strides come width first.
"""

from __future__ import annotations

from typing import Final

import msgspec

from nnburst.executor.graph.geometry import (
    Axis,
    effective_filter,
    implicit_padding,
    in_layout,
    nhwc,
    nhwc_extents,
)
from nnburst.executor.graph.operation import Node
from nnburst.executor.graph.signatures import BOOL, V1_2, control
from nnburst.executor.graph.tensor import Array

EXPLICIT_PADDING: Final = (
    control("padding_left"),
    control("padding_right"),
    control("padding_top"),
    control("padding_bottom"),
)
IMPLICIT_PADDING: Final = (control("padding_scheme"),)
STRIDES: Final = (control("stride_width"), control("stride_height"))
ACTIVATION: Final = (control("activation"),)
OPTIONAL_NCHW: Final = (control("nchw", BOOL, default=False, since=V1_2),)
OPTIONAL_DILATIONS: Final = (
    control("dilation_width", default=1, since=V1_2),
    control("dilation_height", default=1, since=V1_2),
)

_SIDES: Final = {"width": ("left", "right"), "height": ("top", "bottom")}


class Window(msgspec.Struct, frozen=True):
    """Windows over an image.

    Attributes:
        batches: number of images.
        channels: of the input.
        height: vertical axis.
        width: horizontal axis.
        nchw: layout of input and output.
    """

    batches: int
    channels: int
    height: Axis
    width: Axis
    nchw: bool

    def output(self, channels: int) -> tuple[int, int, int, int]:
        """Dimensions of the output in the layout of the input."""
        return in_layout(self.batches, self.height.output, self.width.output, channels, self.nchw)

    @property
    def pads(self) -> bool:
        """Whether windows touch padding cells."""
        return any(a.head > 0 or a.padded > a.size for a in (self.height, self.width))


def read_window(node: Node, filter_height: int, filter_width: int) -> Window:
    """The window of a node, whose operand 'input' is an image.

    Raises:
        OperationFailed: the input is not of rank 4 or has an empty image, or strides, paddings,
            dilations and filter do not fit each other.
    """
    dimensions = node.tensor("input").shape
    node.require(len(dimensions) == 4, f"operand 'input' has rank {len(dimensions)}, expected 4")
    nchw = is_nchw(node)
    batches, height, width, channels = nhwc_extents(dimensions, nchw)
    node.require(
        min(height, width, channels) > 0,
        f"operand 'input' has dimensions {list(dimensions)}: only the batches may be empty",
    )
    return Window(
        batches,
        channels,
        _axis(node, "height", height, filter_height),
        _axis(node, "width", width, filter_width),
        nchw,
    )


def is_nchw(node: Node) -> bool:
    """Layout of the node's images."""
    return bool(node.value("nchw"))


def image_views(node: Node) -> tuple[Array, Array]:
    """Input and output of a bound node as NHWC views."""
    nchw = is_nchw(node)
    return nhwc(node.tensor("input").array, nchw), nhwc(node.output().array, nchw)


def positive(node: Node, name: str) -> int:
    """Value of a scalar that must be > 0."""
    value = int(node.value(name))
    node.require(value > 0, f"operand '{name}' is {value}, expected > 0")
    return value


def _axis(node: Node, name: str, size: int, filter: int) -> Axis:  # noqa: A002
    stride = positive(node, f"stride_{name}")
    dilation = positive(node, f"dilation_{name}") if _has(node, f"dilation_{name}") else 1
    span = effective_filter(filter, dilation)
    if _has(node, "padding_scheme"):
        scheme = int(node.value("padding_scheme"))
        head, tail = implicit_padding(scheme, size, filter, stride, dilation)
    else:
        head, tail = (int(node.value(f"padding_{side}")) for side in _SIDES[name])
    for side, padding in zip(_SIDES[name], (head, tail), strict=True):
        # NNAPI: a window that lies in the padding only would have nothing to look at.
        node.require(
            0 <= padding < span,
            f"padding at the {side} is {padding}, expected 0 to {span - 1} with this filter",
        )
    axis = Axis(size, filter, stride, head, tail, dilation)
    node.require(
        axis.output > 0,
        f"{name} {size} (padding {head} + {tail}) is too small for a filter that spans {span}",
    )
    return axis


def _has(node: Node, name: str) -> bool:
    return any(slot.name == name for slot in node.match.form.inputs)


def row_chunks(
    batches: int, rows: int, bytes_per_row: int, budget: int = 256 << 10
) -> list[tuple[slice, slice]]:
    """Cut images into (batches, rows) pieces whose scratch memory stays in the cache.

    Args:
        batches: number of images.
        rows: output rows of an image.
        bytes_per_row: scratch memory that one output row needs.
        budget: bytes that one piece may use; a piece has at least one row.
    """
    fitting = max(1, budget // max(1, bytes_per_row))
    if fitting >= rows:
        images = max(1, fitting // rows)
        return [
            (slice(n, min(n + images, batches)), slice(0, rows)) for n in range(0, batches, images)
        ]
    return [
        (slice(n, n + 1), slice(start, min(start + fitting, rows)))
        for n in range(batches)
        for start in range(0, rows, fitting)
    ]
