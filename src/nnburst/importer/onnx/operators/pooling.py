"""Translates ONNX's pooling, local response normalisation and resizing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.limits import INT32_MAX
from nnburst.importer.onnx.node import Node, Quantization, operator
from nnburst.importer.onnx.operators.activation import add, mul
from nnburst.importer.onnx.operators.convolution import Window, as_image, sliding
from nnburst.importer.onnx.operators.elementwise import broadcast
from nnburst.importer.onnx.operators.slicing import gathered, padded, sliced
from nnburst.importer.onnx.tensor import NHWC, Array, Tensor, constant, identity
from nnburst.importer.subgraph import Value
from nnburst.importer.tensors import TensorType, integers

_O = OperationType
_T = OperandType

_LOWEST: Final = float(np.finfo(np.float32).min)
#: The most elements of a window that is split into shifted images.
_MOST_PARTS: Final = 64


@operator("MaxPool", "AveragePool", "LpPool")
def _pool(node: Node) -> None:
    pooled(node, node.input(), node.quantization)


def pooled(node: Node, x: Tensor, into: Quantization | None) -> None:
    """Translate a pool: on integers if the output has the same step, as in NNAPI, else on real numbers."""
    node.require_kind(x, "fu" if node.kind == "MaxPool" else "f")
    if x.is_quantized_real and not x.is_known:
        same = into is not None and into.matches(x.computed().type)
        x = x if same or (node.kind == "MaxPool" and into is None) else node.graph.real(x)
    size = node.integer_list("kernel_shape") or []
    window = sliding(node, x.shape[2:], size)
    image = as_image(x)
    _require_agreed(node, image, window)
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


def _require_agreed(node: Node, image: Tensor, window: Window) -> None:
    """Refuse a pool by `auto_pad` that onnxruntime computes in another way than ONNX's text has it."""
    auto = node.string("auto_pad", "NOTSET")
    if auto == "NOTSET":
        return
    is_valid = auto == "VALID"
    for extent, (before, behind) in zip(image.shape[2:], _reach(image, window), strict=True):
        unread = -(before + behind)
        node.require(
            unread < 1 or not is_valid or not node.integer("ceil_mode"),
            f"auto_pad is VALID with ceil_mode, and windows leave {unread} of {extent} elements out",
        )
        node.require(
            unread < 2 or is_valid,
            f"auto_pad is {auto}, and windows leave {unread} of {extent} elements out, expected one at most",
        )
    node.require(
        is_valid or window.dilations == (1, 1), f"auto_pad is {auto} with dilations, expected pads"
    )


def _as_signal(image: Tensor) -> Tensor:
    """Turn an image of one row back into a signal."""
    order = tuple(axis - (axis > 2) for axis in NHWC if axis != 2)
    return image.seen_as((*image.shape[:2], image.shape[3]), order)


def _reach(image: Tensor, window: Window) -> list[tuple[int, int]]:
    """Cells that windows reach before and behind the image, which may differ from the paddings."""
    sides = []
    for at, extent in enumerate(image.shape[2:]):
        before = window.pads[at][0]
        reach = (window.size[at] - 1) * window.dilations[at] + 1
        needed = (window.output[at] - 1) * window.strides[at] + reach
        sides.append((before, needed - extent - before))
    return sides


_Sides = list[tuple[int, int]]


def _sliding_pool(node: Node, image: Tensor, window: Window) -> Value:
    """Append one pool. NNAPI does not count padding, and allows no window in padding alone."""
    reach = _reach(image, window)
    if node.kind == "LpPool":
        return _lp_pool(node, image, window, reach)
    if node.kind == "AveragePool" and node.integer("count_include_pad"):
        return _counted(node, image, window, reach)
    is_average = node.kind == "AveragePool"
    if any(max(side) >= size for side, size in zip(reach, window.size, strict=True)):
        node.require(
            not is_average,
            "a window lies in padding alone, expected an element of the input in each",
        )
        more = [(max(a, 0), max(b, 0)) for a, b in reach]
        image = padded(node, image, [(0, 0), (0, 0), *more], _lowest(image))
        reach = [(0, 0), (0, 0)]
    operation = _O.AVERAGE_POOL_2D if is_average else _O.MAX_POOL_2D
    return _emitted(node, operation, image, window, reach)


def _emitted(
    node: Node, operation: OperationType, image: Tensor, window: Window, reach: _Sides
) -> Value:
    """Append NNAPI's operation for a pool whose windows reach so far beyond the image."""
    value = node.graph.stored(image, NHWC)
    (top, bottom), (left, right) = [(a, max(b, 0)) for a, b in reach]
    kind = replace(value.type, dimensions=(image.shape[0], *window.output, image.shape[1]))
    strides, size = window.strides[::-1], window.size[::-1]
    return node.emit(operation, [value, left, right, top, bottom, *strides, *size, 0, False], kind)


def _lowest(image: Tensor) -> float:
    """A number below all others, for padding that no maximum takes."""
    return _LOWEST if image.dtype == np.float32 else -6e4


def _counted(node: Node, image: Tensor, window: Window, reach: _Sides) -> Value:
    """Averages that count the padding: the image is padded with zeros before NNAPI's pool."""
    sides = [(a, max(min(b, r), 0)) for (a, b), (_, r) in zip(window.pads, reach, strict=True)]
    wide = padded(node, node.graph.real(image), [(0, 0), (0, 0), *sides], 0.0)
    rest = [(0, max(r - b, 0)) for (_, r), (_, b) in zip(reach, sides, strict=True)]
    return _emitted(node, _O.AVERAGE_POOL_2D, wide, window, rest)


def _lp_pool(node: Node, image: Tensor, window: Window, reach: _Sides) -> Value:
    """Multiply NNAPI's L2 pool, the root of the mean, by the root of the number of elements."""
    node.require(node.integer("p", 2) == 2, "p is not 2: NNAPI has the norm of 2 alone")
    node.require(all(max(side) <= 0 for side in reach), "an LpPool is padded, expected no padding")
    made = _emitted(node, _O.L2_POOL_2D, node.graph.real(image), window, [(0, 0), (0, 0)])
    factor = node.graph.filled(float(math.prod(window.size)) ** 0.5, made.type)
    return node.emit(_O.MUL, [made, factor, 0], made.type)


def _dilated(node: Node, image: Tensor, window: Window) -> Value:
    """The maximum of shifted images, one for each element of the window."""
    node.require(node.kind == "MaxPool", "an average is dilated, expected dilations of 1")
    total: Tensor | None = None
    for part in _shifted(node, node.graph.real(image), window):
        total = part if total is None else broadcast(node, _O.MAXIMUM, [total, part])
    assert total is not None
    return node.graph.stored(total, NHWC)


def _shifted(node: Node, image: Tensor, window: Window) -> list[Tensor]:
    """For each element of the window, the shifted image, with the lowest number outside of the image."""
    node.require(
        window.size[0] * window.size[1] <= _MOST_PARTS,
        f"a window of {window.size} by parts, expected at most {_MOST_PARTS} elements",
    )
    node.require_kind(image, "f")
    more = [(max(a, 0), max(b, 0)) for a, b in _reach(image, window)]
    wide = padded(node, image, [(0, 0), (0, 0), *more], _lowest(image))
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
    """The index in the whole input of each window's maximum, the first of equal ones."""
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
    """Divide alpha by the number of neighbours: NNAPI's is for each one, ONNX's for all of them."""
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


# -- Resizing of images ----------------------------------------------------------------------------
# NNAPI's operations are used if they compute the same; otherwise elements are picked, or the node is refused.


#: The half that decides between two elements, with what onnxruntime allows for errors of float32.
_HALF: Final = 0.5 + 1e-6
#: For each neighbour along an axis: its position and weight for each output element.
Near = list[tuple[Array, Array]]


@operator("Resize", "Upsample")
def _resize(node: Node) -> None:
    x = node.input()
    into = node.quantization
    if x.is_quantized_real and not x.is_known:
        kind = x.computed().type
        if into is None or not into.matches(kind):
            x = node.graph.real(x)
    axes = _axes(node, x)
    scales, shape = _target(node, x, axes)
    node.require(not node.integer("antialias"), "antialias is 1, expected 0")
    node.require(
        all(extent > 0 for extent in shape),
        f"it is resized to {list(shape)}, expected extents above 0",
    )
    mode = node.string("mode", "nearest")
    where = node.string(
        "coordinate_transformation_mode", "asymmetric" if _is_old(node) else "half_pixel"
    )
    if mode == "nearest":
        changed = [a for a in axes if scales[a] != 1 or shape[a] != x.shape[a]]
        places = {a: _nearest(node, x.shape[a], shape[a], scales[a], where) for a in changed}
        node.put(_picked(node, x, shape, places))
        return
    node.require(mode in ("linear", "cubic"), f"mode is {mode}, expected nearest, linear or cubic")
    node.put(_interpolated(node, x, shape, scales, where))


def _is_old(node: Node) -> bool:
    return node.kind == "Upsample" or node.version < 11


def _axes(node: Node, x: Tensor) -> list[int]:
    given = None if _is_old(node) else node.integer_list("axes")
    return list(range(x.rank)) if given is None else node.axes(given, x.rank)


def _target(node: Node, x: Tensor, axes: Sequence[int]) -> tuple[list[float], tuple[int, ...]]:
    """The scale of each axis, and the resulting extents."""
    scales, shape = [1.0] * x.rank, list(x.shape)
    sizes = None if _is_old(node) else node.optional(3)
    if sizes is not None and sizes.elements:
        wanted = node.integers(3, "sizes")
        node.require(len(wanted) == len(axes), f"{len(wanted)} sizes of {len(axes)} axes")
        each = [
            float(np.float32(size) / np.float32(x.shape[axis]))
            for size, axis in zip(wanted, axes, strict=True)
        ]
        policy = node.string("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            same = min(each) if policy == "not_larger" else max(each)
            each = [same] * len(axes)
            wanted = [math.floor(same * x.shape[axis] + 0.5) for axis in axes]
        for axis, size, scale in zip(axes, wanted, each, strict=True):
            shape[axis], scales[axis] = size, scale
        return scales, tuple(shape)
    position = 1 if _is_old(node) else 2
    found = node.attribute("scales") if node.version < 9 and node.kind == "Upsample" else None
    factors = node.array(position, "scales").reshape(-1) if found is None else np.array(found)
    node.require(len(factors) == len(axes), f"{len(factors)} scales of {len(axes)} axes")
    for axis, factor in zip(axes, factors, strict=True):
        node.require(
            0 < float(factor) < 1e6, f"scale is {factor}, expected more than 0 and less than 10**6"
        )
        scales[axis] = float(factor)
        shape[axis] = math.floor(np.float32(x.shape[axis]) * np.float32(factor))
    return scales, tuple(shape)


def _origins(node: Node, extent: int, size: int, factor: float, where: str) -> Array:
    """The input coordinate of each output element along an axis.

    It is computed in float32, as by onnxruntime: with scale 0.6 the middle of three elements is that of five.
    """
    node.graph.budget.spend(64 * size)
    at, scale = np.arange(size, dtype=np.float32), np.float32(factor)
    half = np.float32(0.5)
    if where == "half_pixel":
        return (at + half) / scale - half
    if where == "asymmetric":
        return at / scale
    if where == "align_corners":
        return at * np.float32(extent - 1) / np.float32(size - 1) if size > 1 else at * 0
    if where == "pytorch_half_pixel":
        return (at + half) / scale - half if size > 1 else at * 0
    if where == "half_pixel_symmetric":
        adjusted = np.float32(size) / (np.float32(extent) * scale)
        return np.float32(extent / 2) * (1 - adjusted) + (at + half) / scale - half
    node.require(False, f"coordinate_transformation_mode is {where}, which is not supported")
    return at


def _nearest(node: Node, extent: int, size: int, scale: float, where: str) -> Array:
    """The input element of each output element along an axis."""
    at = _origins(node, extent, size, scale, where).astype(np.float64)
    # Opset 10 does not say how it rounds; its node tests have this.
    old = "ceil" if scale < 1 else "floor"
    how = node.string("nearest_mode", old if _is_old(node) else "round_prefer_floor")
    rounded = {
        "floor": np.floor(at),
        "ceil": np.ceil(at),
        "round_prefer_floor": np.ceil(at - _HALF),
        "round_prefer_ceil": np.floor(at + _HALF),
    }.get(how)
    node.require(rounded is not None, f"nearest_mode is {how}, which is not supported")
    assert rounded is not None
    return np.clip(rounded, 0, extent - 1).astype(np.int32)


def _picked(node: Node, x: Tensor, shape: tuple[int, ...], places: dict[int, Array]) -> Tensor:
    """Pick elements of each axis by index, or by NNAPI's resize operation if it picks the same."""
    same = all(np.array_equal(at, _as_nnapi(x.shape[axis], at.size)) for axis, at in places.items())
    if x.rank == 4 and same and set(places) <= {2, 3} and x.dtype.kind == "f" and not x.is_known:
        value = node.graph.stored(x, NHWC)
        kind = replace(value.type, dimensions=(shape[0], shape[2], shape[3], shape[1]))
        made = node.emit(_O.RESIZE_NEAREST_NEIGHBOR, [value, shape[3], shape[2], False], kind)
        return Tensor(shape, x.dtype, value=made, order=NHWC)
    for axis, at in places.items():
        x = gathered(node, x, at, axis)
    return x


def _as_nnapi(extent: int, size: int) -> Array:
    """The elements that NNAPI's operation picks: its scale is a float32."""
    at = np.floor(np.arange(size, dtype=np.float32) * np.float32(extent / size))
    picked: Array = np.minimum(at, extent - 1).astype(np.int32)
    return picked


def _interpolated(
    node: Node, x: Tensor, shape: tuple[int, ...], scales: Sequence[float], where: str
) -> Tensor:
    """Interpolate by RESIZE_BILINEAR if its coordinates equal the file's; else by weighted sums."""
    is_linear = node.string("mode") == "linear"
    spatial = x.rank in (3, 4) and shape[:2] == x.shape[:2]
    exact = all(
        np.float32(extent) * np.float32(scale) == size
        for extent, scale, size in zip(x.shape, scales, shape, strict=True)
    )
    ends = {
        "asymmetric": (False, False),
        "align_corners": (True, False),
        "half_pixel": (False, True),
    }
    node.require(
        exact or where != "align_corners",
        "align_corners with scales that give fractions of elements, expected sizes",
    )
    # RESIZE_BILINEAR takes integers of 8 bits, too, and rounds; other operations would weigh by integers.
    fits = x.dtype.kind == "f" or x.dtype in (np.uint8, np.int8)
    if is_linear and spatial and where in ends and exact and fits:
        # NNAPI aligns the corners of one row or column in another way than ONNX.
        image = as_image(x)
        full = shape if x.rank == 4 else (*shape[:2], 1, shape[2])
        value = node.graph.stored(image, NHWC)
        dims = (full[0], full[2], full[3], full[1])
        align, half = ends[where]
        made = node.emit(
            _O.RESIZE_BILINEAR,
            [value, full[3], full[2], False, align, half],
            replace(value.type, dimensions=dims),
        )
        found = Tensor(full, x.dtype, value=made, order=NHWC)
        return found if x.rank == 4 else _as_signal(found)
    node.require_kind(x, "f", "input 0")
    x = node.graph.real(x)
    for axis in range(x.rank):
        if scales[axis] != 1 or shape[axis] != x.shape[axis]:
            at = _origins(node, x.shape[axis], shape[axis], scales[axis], where)
            node.graph.budget.spend(64 * at.size)
            near = _two_near if is_linear else _four_near
            x = _blended(node, x, near(node, at, x.shape[axis]), axis)
    return x


def _two_near(node: Node, at: Array, extent: int) -> Near:  # noqa: ARG001 - see _four_near
    """The two neighbours of each coordinate along an axis, and their weights."""
    at = np.clip(at, 0, extent - 1)
    low = np.floor(at).astype(np.int64)
    weight = at - low
    return [(low, 1 - weight), (np.minimum(low + 1, extent - 1), weight)]


def _four_near(node: Node, at: Array, extent: int) -> Near:
    """The four neighbours of each coordinate along an axis; one beyond an end is the end itself."""
    a = node.real_number("cubic_coeff_a", -0.75)
    places = np.floor(at).astype(np.int64) + np.arange(-1, 3)[:, None]
    d = np.abs(places - at)
    inner = ((a + 2) * d - (a + 3)) * d * d + 1
    outer = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    weights = np.where(d <= 1, inner, np.where(d < 2, outer, 0.0))
    if node.integer("exclude_outside"):
        weights = np.where((places >= 0) & (places < extent), weights, 0.0)
        weights = weights / weights.sum(0)
    return list(zip(np.clip(places, 0, extent - 1), weights, strict=True))


def _blended(node: Node, x: Tensor, near: Near, axis: int) -> Tensor:
    """Add the weighted neighbours of each element along an axis."""
    shape = (-1, *(1,) * (x.rank - 1 - axis))
    total: Tensor | None = None
    for places, weights in near:
        weight = constant(weights.astype(x.dtype).reshape(shape))
        part = mul(node, gathered(node, x, places, axis), weight)
        total = part if total is None else add(node, total, part)
    assert total is not None
    return total
