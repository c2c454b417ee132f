"""Pooling, and normalisation by neighbours."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.limits import INT32_MAX
from nnburst.importer.constants import integers
from nnburst.importer.onnx.layout import NHWC, identity
from nnburst.importer.onnx.node import Node, Quantization, operator
from nnburst.importer.onnx.operators.convolution import Window, as_image, sliding
from nnburst.importer.onnx.operators.elementwise import broadcast
from nnburst.importer.onnx.operators.slicing import padded, sliced
from nnburst.importer.onnx.tensor import Tensor
from nnburst.importer.subgraph import Value
from nnburst.importer.tensor_type import TensorType

_O = OperationType
_T = OperandType

_LOWEST: Final = float(np.finfo(np.float32).min)
#: Elements of a window that is taken apart.
_MOST_PARTS: Final = 64


@operator("MaxPool", "AveragePool", "LpPool")
def _pool(node: Node) -> None:
    pooled(node, node.input(), node.quantization)


def pooled(node: Node, x: Tensor, into: Quantization | None) -> None:
    """A pool: on integers whose step stays the same, as NNAPI's do."""
    node.require_kind(x, "fu" if node.kind == "MaxPool" else "f")
    if x.is_quantized_real and not x.is_known:
        kind = x.computed().type
        same = into is not None and (kind.type, np.float32(kind.scale), kind.zero_point) == (
            into.type,
            np.float32(into.scale),
            into.zero_point,
        )
        x = x if same or (node.kind == "MaxPool" and into is None) else node.graph.real(x)
    size = node.integer_list("kernel_shape") or []
    window = sliding(node, x.shape[2:], size)
    image = as_image(x)
    shape = (*image.shape[:2], *window.output)
    if window.dilations != (1, 1):
        value = _dilated(node, image, window)
    else:
        value = _sliding_pool(node, image, window)
    found = Tensor(shape, x.dtype, value=value, order=NHWC)
    node.put(_as_signal(found) if x.rank == 3 else found)
    if node.is_used(1):
        places = _places(node, node.graph.real(image), node.graph.real(found), window)
        node.put(_as_signal(places) if x.rank == 3 else places, 1)


def _as_signal(image: Tensor) -> Tensor:
    """An image of one row as a signal."""
    order = tuple(axis - (axis > 2) for axis in NHWC if axis != 2)
    return image.seen_as((*image.shape[:2], image.shape[3]), order)


_POOLS: Final = {
    "MaxPool": _O.MAX_POOL_2D,
    "AveragePool": _O.AVERAGE_POOL_2D,
    "LpPool": _O.L2_POOL_2D,
}


def _reach(image: Tensor, window: Window) -> list[tuple[int, int]]:
    """What the windows reach beyond the image, before and behind: less or more than the paddings."""
    sides = []
    for at, extent in enumerate(image.shape[2:]):
        before = window.pads[at][0]
        reach = (window.size[at] - 1) * window.dilations[at] + 1
        needed = (window.output[at] - 1) * window.strides[at] + reach
        sides.append((before, needed - extent - before))
    return sides


def _sliding_pool(node: Node, image: Tensor, window: Window) -> Value:
    """One pool. NNAPI counts no padding and lets no window lie in padding alone; a rest does no harm."""
    value = node.graph.stored(image, NHWC)
    reach = _reach(image, window)
    counted = node.kind == "AveragePool" and bool(node.integer("count_include_pad"))
    if node.kind == "LpPool":
        node.require(node.integer("p", 2) == 2, "p is not 2: NNAPI has the norm of 2 alone")
        return _lp_pool(node, image, window, reach)
    inside = all(max(side) < size for side, size in zip(reach, window.size, strict=True))
    if counted or not inside:
        lowest = _LOWEST if image.dtype == np.float32 else -6e4
        number = 0.0 if node.kind == "AveragePool" else lowest
        node.require(
            counted or node.kind == "MaxPool",
            "a window lies in padding alone, expected an element of the input in each",
        )
        if counted:
            given = [(a, b) for a, b in window.pads]
            clipped = [(a, min(b, r)) for (a, b), (_, r) in zip(given, reach, strict=True)]
            return _counted(node, image, window, clipped, reach)
        more = [(max(a, 0), max(b, 0)) for a, b in reach]
        image = padded(node, image, [(0, 0), (0, 0), *more], number)
        value, reach = node.graph.stored(image, NHWC), [(0, 0), (0, 0)]
    (top, bottom), (left, right) = [(a, max(b, 0)) for a, b in reach]
    strides = (window.strides[1], window.strides[0])
    size = (window.size[1], window.size[0])
    kind = replace(value.type, dimensions=(image.shape[0], *window.output, image.shape[1]))
    return node.emit(
        _POOLS[node.kind], [value, left, right, top, bottom, *strides, *size, 0, False], kind
    )


def _counted(
    node: Node,
    image: Tensor,
    window: Window,
    sides: list[tuple[int, int]],
    reach: list[tuple[int, int]],
) -> Value:
    """Averages that count the padding: zeros around, and none of NNAPI's if nothing lies beyond."""
    image = node.graph.real(image)
    wide = padded(node, image, [(0, 0), (0, 0), *((a, max(b, 0)) for a, b in sides)], 0.0)
    rest = [max(r[1] - max(s[1], 0), 0) for r, s in zip(reach, sides, strict=True)]
    value = node.graph.stored(wide, NHWC)
    kind = replace(value.type, dimensions=(image.shape[0], *window.output, image.shape[1]))
    strides = (window.strides[1], window.strides[0])
    size = (window.size[1], window.size[0])
    return node.emit(
        _O.AVERAGE_POOL_2D, [value, 0, rest[1], 0, rest[0], *strides, *size, 0, False], kind
    )


def _lp_pool(node: Node, image: Tensor, window: Window, reach: list[tuple[int, int]]) -> Value:
    """NNAPI's is the root of the mean: of a window without padding that many times."""
    node.require(
        all(side == (0, 0) or max(side) <= 0 for side in reach),
        "an LpPool is padded, expected no padding",
    )
    value = node.graph.stored(node.graph.real(image), NHWC)
    kind = replace(value.type, dimensions=(image.shape[0], *window.output, image.shape[1]))
    strides, size = (window.strides[1], window.strides[0]), (window.size[1], window.size[0])
    made = node.emit(_O.L2_POOL_2D, [value, 0, 0, 0, 0, *strides, *size, 0, False], kind)
    factor = node.graph.filled(float(size[0] * size[1]) ** 0.5, kind)
    return node.emit(_O.MUL, [made, factor, 0], kind)


def _dilated(node: Node, image: Tensor, window: Window) -> Value:
    """The largest of shifted windows: as many as the window has elements."""
    node.require(node.kind == "MaxPool", "an average is dilated, expected dilations of 1")
    total: Tensor | None = None
    for part in _shifted(node, node.graph.real(image), window):
        total = part if total is None else broadcast(node, _O.MAXIMUM, [total, part])
    assert total is not None
    return node.graph.stored(total, NHWC)


def _shifted(node: Node, image: Tensor, window: Window) -> list[Tensor]:
    """What each element of the windows is, row by row: the lowest number beside the image."""
    node.require(
        window.size[0] * window.size[1] <= _MOST_PARTS,
        f"a window of {window.size} by parts, expected at most {_MOST_PARTS} elements",
    )
    node.require_kind(image, "f")
    more = [(max(a, 0), max(b, 0)) for a, b in _reach(image, window)]
    lowest = _LOWEST if image.dtype == np.float32 else -6e4
    wide = padded(node, image, [(0, 0), (0, 0), *more], lowest)
    parts = []
    for at in np.ndindex(*window.size):
        windows = [slice(0, e, 1) for e in image.shape[:2]]
        for axis in range(2):
            start = at[axis] * window.dilations[axis]
            end = start + (window.output[axis] - 1) * window.strides[axis] + 1
            windows.append(slice(start, end, window.strides[axis]))
        parts.append(sliced(node, wide, windows))
    return parts


def _places(node: Node, image: Tensor, largest: Tensor, window: Window) -> Tensor:
    """Which element of the whole input is the first in its window that is the largest."""
    (rows, columns), (height, width) = image.shape[2:], window.output
    images = image.shape[0] * image.shape[1]
    node.require(image.elements <= INT32_MAX, f"indices of {image.elements} elements")
    node.graph.budget.spend(4 * (height * width + images))
    steps = (1, rows) if node.integer("storage_order") else (columns, 1)
    first = np.zeros((1, height, width, 1), np.int32)
    for axis, count in enumerate(window.output):
        start = np.arange(count, dtype=np.int32) * window.strides[axis] - window.pads[axis][0]
        first += (start * steps[axis]).reshape((1, -1, 1, 1) if axis == 0 else (1, 1, -1, 1))
    starts = np.arange(images, dtype=np.int32) * np.int32(rows * columns)
    starts = starts.reshape(image.shape[0], 1, 1, image.shape[1])
    operands = [node.graph.literal(each, each.shape) for each in (first, starts)]
    kind = TensorType(_T.TENSOR_INT32, (image.shape[0], height, width, image.shape[1]))
    corner = node.emit(_O.ADD, [*operands, 0], kind)
    found: Value | None = None
    parts = _shifted(node, image, window)
    for at, part in reversed(list(zip(np.ndindex(*window.size), parts, strict=True))):
        offset = sum(a * d * s for a, d, s in zip(at, window.dilations, steps, strict=True))
        place = node.emit(_O.ADD, [corner, integers([offset]), 0], kind) if offset else corner
        if found is None:
            found = place
            continue
        same = broadcast(node, _O.EQUAL, [part, largest], dtype=np.dtype(np.bool_))
        found = node.emit(_O.SELECT, [node.graph.stored(same, NHWC), place, found], kind)
    assert found is not None
    return Tensor(largest.shape, np.dtype(np.int64), value=found, order=NHWC)


@operator("LRN")
def _lrn(node: Node) -> None:
    """NNAPI's alpha is for each neighbour, ONNX's for all of them."""
    x = node.real()
    size, rank = node.integer("size"), x.rank
    node.require(size % 2 == 1, f"{size} neighbours, NNAPI has as many on both sides")
    node.require(rank <= 4, f"{rank} axes")
    order = identity(rank) if x.is_known else x.order
    value = node.graph.stored(x, order)
    alpha = node.real_number("alpha", 1e-4) / size
    numbers = [node.real_number("bias", 1.0), alpha, node.real_number("beta", 0.75)]
    scalars = [node.graph.number(number, value.type) for number in numbers]
    made = node.emit(
        _O.LOCAL_RESPONSE_NORMALIZATION, [value, size // 2, *scalars, order.index(1)], value.type
    )
    node.result(made, x.shape, x.dtype, order)
