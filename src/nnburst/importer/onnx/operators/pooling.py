"""Pooling, and normalisation by neighbours."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from nnburst.hal.enums import OperandType, OperationType
from nnburst.importer.onnx.layout import NHWC, identity
from nnburst.importer.onnx.node import Node, Quantization, operator
from nnburst.importer.onnx.operators.convolution import Window, as_image, sliding
from nnburst.importer.onnx.operators.elementwise import broadcast
from nnburst.importer.onnx.operators.slicing import padded, sliced
from nnburst.importer.onnx.tensor import Tensor
from nnburst.importer.subgraph import Value

_O = OperationType
_T = OperandType

_LOWEST: Final = float(np.finfo(np.float32).min)


@operator("MaxPool", "AveragePool", "LpPool")
def _pool(node: Node) -> None:
    pooled(node, node.input(), node.quantization)


def pooled(node: Node, x: Tensor, into: Quantization | None) -> None:
    """A pool: on integers whose step stays the same, as NNAPI's do."""
    node.require_kind(x, "fu" if node.kind == "MaxPool" else "f")
    node.require(not node.is_used(1), "the indices of a MaxPool")
    node.require(node.integer("storage_order") == 0, "columns first")
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
    if x.rank == 3:
        order = tuple(axis - (axis > 2) for axis in NHWC if axis != 2)
        found = found.seen_as((*shape[:2], shape[3]), order)
    node.put(found)


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
    """One pool. NNAPI counts no padding and lets no window lie in padding alone; a rest is no harm."""
    value = node.graph.stored(image, NHWC)
    reach = _reach(image, window)
    counted = node.kind == "AveragePool" and bool(node.integer("count_include_pad"))
    if node.kind == "LpPool":
        node.require(node.integer("p", 2) == 2, "a norm other than 2")
        return _lp_pool(node, image, window, reach)
    inside = all(max(side) < size for side, size in zip(reach, window.size, strict=True))
    if counted or not inside:
        lowest = _LOWEST if image.dtype == np.float32 else -6e4
        number = 0.0 if node.kind == "AveragePool" else lowest
        node.require(counted or node.kind == "MaxPool", "a window that lies in padding alone")
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
    node.require(all(side == (0, 0) or max(side) <= 0 for side in reach), "padding of a LpPool")
    value = node.graph.stored(node.graph.real(image), NHWC)
    kind = replace(value.type, dimensions=(image.shape[0], *window.output, image.shape[1]))
    strides, size = (window.strides[1], window.strides[0]), (window.size[1], window.size[0])
    made = node.emit(_O.L2_POOL_2D, [value, 0, 0, 0, 0, *strides, *size, 0, False], kind)
    factor = node.graph.filled(float(size[0] * size[1]) ** 0.5, kind)
    return node.emit(_O.MUL, [made, factor, 0], kind)


def _dilated(node: Node, image: Tensor, window: Window) -> Value:
    """The largest of shifted windows: as many as the window has elements."""
    node.require(node.kind == "MaxPool", "an average with dilation")
    node.require(window.size[0] * window.size[1] <= 64, f"a window of {window.size} with dilation")
    image = node.graph.real(image)
    node.require_kind(image, "f")
    more = [(max(a, 0), max(b, 0)) for a, b in _reach(image, window)]
    lowest = _LOWEST if image.dtype == np.float32 else -6e4
    wide = padded(node, image, [(0, 0), (0, 0), *more], lowest)
    total: Tensor | None = None
    for row in range(window.size[0]):
        for column in range(window.size[1]):
            at = (row * window.dilations[0], column * window.dilations[1])
            windows = [slice(0, e, 1) for e in image.shape[:2]]
            for axis in range(2):
                end = at[axis] + (window.output[axis] - 1) * window.strides[axis] + 1
                windows.append(slice(at[axis], end, window.strides[axis]))
            part = sliced(node, wide, windows)
            total = part if total is None else broadcast(node, _O.MAXIMUM, [total, part])
    assert total is not None
    return node.graph.stored(total, NHWC)


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
