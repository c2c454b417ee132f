"""Computes sliding windows in a slow and simple way: one output element at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from executor.exact_integers import c_mbqm, c_multiplier

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Plain:
    """Strides, paddings and dilations of a window; heights before widths."""

    stride: tuple[int, int] = (1, 1)
    top: int = 0
    bottom: int = 0
    left: int = 0
    right: int = 0
    dilation: tuple[int, int] = (1, 1)

    def output(self, image: Array, filter_height: int, filter_width: int) -> tuple[int, int]:
        """Extents of the output of an NHWC image."""
        height = image.shape[1] + self.top + self.bottom
        width = image.shape[2] + self.left + self.right
        filters = (filter_height, filter_width)
        spans = [(f - 1) * d + 1 for f, d in zip(filters, self.dilation, strict=True)]
        return tuple(
            (size - span) // stride + 1
            for size, span, stride in zip((height, width), spans, self.stride, strict=True)
        )

    def cells(
        self, image: Array, y: int, x: int, filter_height: int, filter_width: int
    ) -> Iterator[tuple[int, int, int, int]]:
        """(i, j, row, column): which cells of window (y, x) lie in the image."""
        for i in range(filter_height):
            for j in range(filter_width):
                row = y * self.stride[0] + i * self.dilation[0] - self.top
                column = x * self.stride[1] + j * self.dilation[1] - self.left
                if 0 <= row < image.shape[1] and 0 <= column < image.shape[2]:
                    yield i, j, row, column


def laid_out(image: Any, nchw: bool) -> Any:
    """A channels-last image in either layout."""
    return np.transpose(image, (0, 3, 1, 2)) if nchw else image


def convolve(image: Array, weights: Array, plain: Plain, groups: int = 1) -> Array:
    """Sums of products; image [N,H,W,C], weights [O,h,w,C/groups]; no bias."""
    channels, filter_height, filter_width, depth = weights.shape
    height, width = plain.output(image, filter_height, filter_width)
    out = np.zeros((image.shape[0], height, width, channels), weights.dtype)
    part = channels // groups
    for n, y, x, o in np.ndindex(*out.shape):
        first = (o // part) * depth
        for i, j, row, column in plain.cells(image, y, x, filter_height, filter_width):
            seen = image[n, row, column, first : first + depth]
            out[n, y, x, o] += (seen * weights[o, i, j]).sum()
    return out


def convolve_depthwise(image: Array, weights: Array, plain: Plain) -> Array:
    """Sums of products; image [N,H,W,C], weights [1,h,w,O]."""
    _, filter_height, filter_width, channels = weights.shape
    multiplier = channels // image.shape[3]
    height, width = plain.output(image, filter_height, filter_width)
    out = np.zeros((image.shape[0], height, width, channels), weights.dtype)
    for n, y, x, o in np.ndindex(*out.shape):
        for i, j, row, column in plain.cells(image, y, x, filter_height, filter_width):
            out[n, y, x, o] += image[n, row, column, o // multiplier] * weights[0, i, j, o]
    return out


def convolve_transposed(
    image: Array, weights: Array, stride: tuple[int, int], head: tuple[int, int], out: Array
) -> Array:
    """Spread each pixel over `out` (zeros, NHWC); what falls outside is lost."""
    for n, y, x in np.ndindex(*image.shape[:3]):
        for i, j in np.ndindex(*weights.shape[1:3]):
            row, column = y * stride[0] + i - head[0], x * stride[1] + j - head[1]
            if 0 <= row < out.shape[1] and 0 <= column < out.shape[2]:
                out[n, row, column] += weights[:, i, j] @ image[n, y, x]
    return out


def pool(
    image: Array, plain: Plain, extents: tuple[int, int], reduce: Callable[[list[Any]], Any]
) -> Array:
    """`reduce` of the input elements in every window."""
    height, width = plain.output(image, *extents)
    out = np.zeros((image.shape[0], height, width, image.shape[3]), image.dtype)
    for n, y, x, c in np.ndindex(*out.shape):
        seen = [image[n, row, column, c] for *_, row, column in plain.cells(image, y, x, *extents)]
        out[n, y, x, c] = reduce(seen)
    return out


def requantise(
    sums: Array, units: npt.ArrayLike, scale: float, zero_point: int, low: int, high: int
) -> Array:
    """Stored results of integer sums, one Python integer at a time; `units` per channel or one."""
    per_channel = np.broadcast_to(np.asarray(units, np.float64), sums.shape[-1:])
    pairs = [c_multiplier(float(unit) / scale) for unit in per_channel]
    out = np.empty(sums.shape, np.int64)
    for at in np.ndindex(*sums.shape):
        value = c_mbqm(int(sums[at]), *pairs[at[-1]]) + zero_point
        out[at] = min(max(value, low), high)
    return out


def same_padding(size: int, filter_size: int, stride: int, dilation: int = 1) -> tuple[int, int]:
    """Head and tail that keep ceil(size / stride) windows."""
    span = (filter_size - 1) * dilation + 1
    total = max(0, (math.ceil(size / stride) - 1) * stride + span - size)
    return total // 2, total - total // 2
