"""RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR.

NNAPI: ResizeImageOps.cpp. All coordinates are float32, as there.
"""

from __future__ import annotations

import numpy as np

from nnburst.executor.graph.operation import Node, Run, kernel
from nnburst.executor.graph.tensor import Array
from nnburst.executor.operations.resize import axes_of
from nnburst.executor.reference.arithmetic.quantized_values import round_half_away
from nnburst.hal.enums import OperationType


def _coordinates(node: Node, axis: int, shift: float) -> Array:
    """Where each output element lies in the input: `(k + 0.5) * s - shift`, or `k * s`."""
    have, wanted = node.tensor("input").shape[axis], node.output().shape[axis]
    align = node.value("align_corners") and wanted > 1
    scale = np.float32(have - align) / np.float32(wanted - align)
    k = np.arange(wanted, dtype=np.float32)
    if node.value("half_pixel_centers"):
        return np.asarray((k + np.float32(0.5)) * scale - np.float32(shift))
    return np.asarray(k * scale)


def _columns_first(node: Node) -> bool:
    """Whether to resize columns before rows: if images get higher and narrower.

    Rows first would make something between that is larger than the input and the output.
    """
    rows, columns = axes_of(node)
    before, after = node.tensor("input").shape, node.output().shape
    return after[rows] > before[rows] and after[columns] < before[columns]


def _half_way(node: Node, axis: int) -> tuple[int, ...]:
    """Shape of the input after one axis has been resized."""
    shape = list(node.tensor("input").shape)
    shape[axis] = node.output().shape[axis]
    return tuple(shape)


def _neighbours(node: Node, axis: int) -> tuple[Array, Array, Array, Array]:
    """Indices of both neighbours along `axis`, and their weights shaped to broadcast over it."""
    last = node.tensor("input").shape[axis] - 1
    at = _coordinates(node, axis, 0.5)
    low = np.clip(np.floor(at), 0, last)
    high = np.clip(np.ceil(at), 0, last)
    shape = [1, 1, 1, 1]
    shape[axis] = -1
    to_high = (at - low).reshape(shape)
    return low.astype(np.intp), high.astype(np.intp), np.float32(1) - to_high, to_high


@kernel(OperationType.RESIZE_BILINEAR)
def resize_bilinear(node: Node) -> Run:
    """Weight rows first, then columns: each of the four products is the same as pixel by pixel.

    The order of the weights decides how the products are rounded, that of the axes taken does not.

    Quantised: on stored values, rounded by floor(v + 0.5). NNAPI: the signed kernel of the original
    may truncate instead, which differs for negative values; published results follow the floor.
    """
    x, y = node.tensor("input").array, node.output().array
    rows_axis, columns_axis = axes_of(node)
    upper, lower, to_upper, to_lower = _neighbours(node, rows_axis)
    left, right, to_left, to_right = _neighbours(node, columns_axis)
    columns_first = _columns_first(node)
    wide = x if x.dtype == np.float32 else node.scratch(x.shape, np.float32)
    first_axis = columns_axis if columns_first else rows_axis
    band = node.scratch(_half_way(node, first_axis), np.float32)
    product = node.scratch(y.shape, np.float32)
    total = y if y.dtype == np.float32 else node.scratch(y.shape, np.float32)
    # The order of the sum is the original's: down the left column, then down the right one.
    corners = [
        (row_at, row_weight, column_at, column_weight)
        for column_at, column_weight in ((left, to_left), (right, to_right))
        for row_at, row_weight in ((upper, to_upper), (lower, to_lower))
    ]

    def run() -> None:
        if wide is not x:
            np.copyto(wide, x)
        total.fill(0)
        for row_at, row_weight, column_at, column_weight in corners:
            if columns_first:
                np.take(wide, column_at, axis=columns_axis, out=band, mode="clip")
                np.take(band, row_at, axis=rows_axis, out=product, mode="clip")
                np.multiply(product, row_weight, out=product)
            else:
                np.take(wide, row_at, axis=rows_axis, out=band, mode="clip")
                np.multiply(band, row_weight, out=band)
                np.take(band, column_at, axis=columns_axis, out=product, mode="clip")
            np.multiply(product, column_weight, out=product)
            np.add(total, product, out=total)
        if total is not y:
            np.add(total, np.float32(0.5), out=total)
            np.copyto(y, np.floor(total, out=total), casting="unsafe")

    return run


def _nearest(node: Node, axis: int) -> Array:
    at = _coordinates(node, axis, 0)
    whole = round_half_away(at) if node.value("align_corners") else np.floor(at)
    return np.clip(whole, 0, node.tensor("input").shape[axis] - 1).astype(np.intp)


@kernel(OperationType.RESIZE_NEAREST_NEIGHBOR, half=True)
def resize_nearest_neighbor(node: Node) -> Run:
    """Take rows, then columns, or the other way round."""
    x, y = node.tensor("input").array, node.output().array
    rows_axis, columns_axis = axes_of(node)
    first, second = (
        (rows_axis, _nearest(node, rows_axis)),
        (columns_axis, _nearest(node, columns_axis)),
    )
    if _columns_first(node):
        first, second = second, first
    (first_axis, first_at), (second_axis, second_at) = first, second
    band = node.scratch(_half_way(node, first_axis), x.dtype)

    def run() -> None:
        np.take(x, first_at, axis=first_axis, out=band, mode="clip")
        np.take(band, second_at, axis=second_axis, out=y, mode="clip")

    return run
