"""Geometry of windows that slide over images: padding, extents, layouts and views.

Images are [batches, height, width, channels] (NHWC) or [batches, channels, height, width] (NCHW).
One `Axis` describes what happens along the height or the width. Everything here is pure; views
share the memory of what they view.

NNAPI: OperationsExecutionUtils.cpp calculateExplicitPadding, computeOutSize.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from nnburst.executor.graph.tensor import Array
from nnburst.hal.imports import late_numpy as np

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
        """Where the input lies in the padded axis, and which part of the input lies there."""
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
    """The cells of the window, less those at both ends that meet the input in no window."""
    reach = (axis.output - 1) * axis.stride
    least, behind = max(0, axis.head - reach), axis.size + axis.head
    return range(-(-least // axis.dilation), min(axis.filter, -(-behind // axis.dilation)))


def seen_by_windows(axis: Axis) -> list[slice]:
    """The input cells in each window, which is not dilated and whose padding is below its span."""
    starts = range(-axis.head, axis.output * axis.stride - axis.head, axis.stride)
    return [slice(max(0, at), min(at + axis.filter, axis.size)) for at in starts]


def meetings(axis: Axis) -> list[tuple[int, slice, slice]]:
    """Where the cells of all windows meet cells of the input, padding left out.

    Returns:
        For each cell of the window that meets any: its number, the input cells that it meets, and
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
