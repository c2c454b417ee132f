"""Computes how windows slide over images: padding, extents, layouts and operand slots.

Images are [batches, height, width, channels] (NHWC) or [batches, channels, height, width] (NCHW).
One `Axis` describes what happens along the height or the width. Everything here is pure; views
share the memory of the arrays that they view.

NNAPI: OperationsExecutionUtils.cpp calculateExplicitPadding, computeOutSize.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from nnburst.executor.graph.declarations import BOOL, V1_2, control
from nnburst.executor.graph.operation import Node
from nnburst.executor.graph.tensor import Array
from nnburst.hal import late_numpy as np

#: Implicit padding schemes.
SAME: Final = 1
VALID: Final = 2


class Axis(msgspec.Struct, frozen=True):
    """One spatial axis of a sliding window, in cells.

    Attributes:
        size: extent of the input.
        filter: cells of the window.
        stride: distance between two windows.
        head: padding before the first cell.
        tail: padding behind the last cell.
        dilation: distance between two cells of the window.
    """

    size: int
    filter: int
    stride: int
    head: int = 0
    tail: int = 0
    dilation: int = 1

    @property
    def span(self) -> int:
        """Cells from the first to the last one of the dilated window."""
        return effective_filter(self.filter, self.dilation)

    @property
    def output(self) -> int:
        """Number of window positions; ≤ 0 if the window does not fit once."""
        return output_extent(
            self.size, self.filter, self.stride, self.head, self.tail, self.dilation
        )

    @property
    def padded(self) -> int:
        """Cells that the windows touch, padding included: enough for the last window, no more."""
        return (self.output - 1) * self.stride + self.span

    @property
    def inside(self) -> tuple[slice, slice]:
        """The slice of the padded axis that holds input, and the slice of the input that lies there."""
        used = min(self.size, self.padded - self.head)
        return slice(self.head, self.head + used), slice(0, used)


def effective_filter(filter: int, dilation: int) -> int:  # noqa: A002 - NNAPI's word
    """Cells that a dilated filter spans."""
    return (filter - 1) * dilation + 1


def implicit_padding(
    scheme: int,
    size: int,
    filter: int,  # noqa: A002
    stride: int,
    dilation: int = 1,
) -> tuple[int, int]:
    """Padding (head, tail) of one axis; the smaller half comes first.

    Args:
        scheme: SAME (1) keeps ceil(size / stride) windows; anything else does not pad.
        size: extent of the input.
        filter: cells of the window.
        stride: distance between two windows, > 0.
        dilation: distance between two cells of the window, > 0.
    """
    if scheme != SAME:
        return 0, 0
    windows = -(-size // stride)
    needed = (windows - 1) * stride + effective_filter(filter, dilation)
    total = max(0, needed - size)
    return total // 2, total - total // 2


def output_extent(
    size: int,
    filter: int,  # noqa: A002
    stride: int,
    head: int = 0,
    tail: int = 0,
    dilation: int = 1,
) -> int:
    """Number of windows along one axis; ≤ 0 if the window does not fit once."""
    return (size - effective_filter(filter, dilation) + stride + head + tail) // stride


def transposed_implicit_padding(
    scheme: int,
    output: int,
    filter: int,  # noqa: A002
    stride: int,
) -> tuple[int, int]:
    """Padding (head, tail) of one axis of a transposed convolution that shall give `output` cells.

    The tail is negative if the filter does not reach the last cells.
    NNAPI: calculateExplicitPaddingImpl with isTransposeConv.
    """
    if scheme != SAME:
        return 0, 0
    windows = -(-output // stride)
    surplus = (windows - 1) * stride + filter - output
    head = max(0, surplus) // 2
    return head, surplus - head


def transposed_output_extent(
    size: int,
    filter: int,  # noqa: A002
    stride: int,
    head: int = 0,
    tail: int = 0,
) -> int:
    """Cells along one axis of a transposed convolution's output; may be ≤ 0."""
    return size * stride + filter - stride - head - tail


def nhwc(array: Array, nchw: bool) -> Array:
    """A view of a rank 4 image as NHWC; the array itself if it is NHWC already."""
    return array.transpose(0, 2, 3, 1) if nchw else array


def nhwc_extents(dimensions: Sequence[int], nchw: bool) -> tuple[int, int, int, int]:
    """Batches, height, width and channels of an image of rank 4."""
    first, second, third, fourth = dimensions
    return (first, third, fourth, second) if nchw else (first, second, third, fourth)


def in_layout(
    batches: int, height: int, width: int, channels: int, nchw: bool
) -> tuple[int, int, int, int]:
    """Dimensions of an image in the wanted layout."""
    if nchw:
        return batches, channels, height, width
    return batches, height, width, channels


def windows(padded: Array, height: Axis, width: Axis) -> Array:
    """All windows over a padded NHWC image, as a read-only view that copies nothing.

    Args:
        padded: [batches, ≥ height.padded, ≥ width.padded, channels], in any memory order.
        height: the vertical axis.
        width: the horizontal axis.

    Returns:
        [batches, height.output, width.output, height.filter, width.filter, channels].
    """
    batches, _, _, channels = padded.shape
    by_batch, by_row, by_column, by_channel = padded.strides
    return np.lib.stride_tricks.as_strided(
        padded,
        (batches, height.output, width.output, height.filter, width.filter, channels),
        (
            by_batch,
            by_row * height.stride,
            by_column * width.stride,
            by_row * height.dilation,
            by_column * width.dilation,
            by_channel,
        ),
        writeable=False,
    )


def cells_in_reach(axis: Axis) -> range:
    """The window's cells without those at both ends that lie in the padding in every window."""
    reach = (axis.output - 1) * axis.stride
    least, behind = max(0, axis.head - reach), axis.size + axis.head
    return range(-(-least // axis.dilation), min(axis.filter, -(-behind // axis.dilation)))


def seen_by_windows(axis: Axis) -> list[slice]:
    """The input cells of each window; needs windows without dilation and padding below their span."""
    starts = range(-axis.head, axis.output * axis.stride - axis.head, axis.stride)
    return [slice(max(0, at), min(at + axis.filter, axis.size)) for at in starts]


def meetings(axis: Axis) -> list[tuple[int, slice, slice]]:
    """Pair each cell of the window with the input cells that it covers, padding left out.

    Returns:
        For each cell of the window that covers any: its number, the input cells that it covers, and
        the windows in which it does so, in the same order.
    """
    found = []
    for cell in cells_in_reach(axis):  # a filter may be far larger than the input
        offset = cell * axis.dilation - axis.head  # window o meets input cell o * stride + offset
        first = max(0, -(offset // axis.stride))
        last = min(axis.output - 1, (axis.size - 1 - offset) // axis.stride)
        if first <= last:
            begin, end = first * axis.stride + offset, last * axis.stride + offset
            found.append((cell, slice(begin, end + 1, axis.stride), slice(first, last + 1)))
    return found


# -- The operands that describe windows: slots, and how they are read ------------------------------
# NNAPI: Conv2D.cpp, DepthwiseConv2D.cpp, Pooling.cpp: paddings and strides come width first.


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


def keeps_pixels(window: Window) -> bool:
    """Whether each window is one pixel, and each pixel a window."""
    axes = (window.height, window.width)
    return not window.pads and all(axis.filter == axis.stride == 1 for axis in axes)


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
        # NNAPI: a window that lies in the padding only would cover no cell of the input.
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
