"""RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR.

NNAPI: ResizeImageOps.cpp. All coordinates are float32, as there.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from nnburst.executor.graph.operation import Node, Run, operation
from nnburst.executor.graph.signatures import (
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
    signature,
)
from nnburst.executor.graph.tensor import Array, TensorType
from nnburst.executor.reference.arithmetic.quantized_values import round_half_away
from nnburst.executor.reference.families.data_movement import moved, require_ranks
from nnburst.hal.enums import OperationType
from nnburst.hal.limits import INT32_MAX
from nnburst.hal.signature import Slot

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


def _axes(node: Node) -> tuple[int, int]:
    """Dimensions of height and width."""
    return (2, 3) if node.value("nchw") else (1, 2)


def _size(node: Node, name: str, extent: int) -> int:
    """Output extent: given as it is, or as a factor of the input's."""
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
    height, width = _axes(node)
    dimensions[height] = _size(node, "height", dimensions[height])
    dimensions[width] = _size(node, "width", dimensions[width])
    return [moved(node, dimensions)]


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
    rows, columns = _axes(node)
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


@operation(
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
def resize_bilinear(node: Node) -> Run:
    """Weight rows first, then columns: each of the four products is the same as pixel by pixel.

    The order of the weights decides how the products are rounded, that of the axes taken does not.

    Quantised: on stored values, rounded by floor(v + 0.5). NNAPI: the signed kernel of the original
    may truncate instead, which differs for negative values; published results follow the floor.
    """
    x, y = node.tensor("input").array, node.output().array
    rows_axis, columns_axis = _axes(node)
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


@operation(
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
    half=True,
    zero_sized=True,
)
def resize_nearest_neighbor(node: Node) -> Run:
    """Take rows, then columns, or the other way round."""
    x, y = node.tensor("input").array, node.output().array
    rows_axis, columns_axis = _axes(node)
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
