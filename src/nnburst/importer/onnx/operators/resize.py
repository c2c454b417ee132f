"""Resizing of images: by NNAPI's operations if they mean the same, else by index or refused."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from nnburst.hal.enums import OperationType
from nnburst.importer.onnx.layout import NHWC
from nnburst.importer.onnx.node import Node, operator
from nnburst.importer.onnx.operators.activation import add, mul
from nnburst.importer.onnx.operators.convolution import as_image
from nnburst.importer.onnx.operators.slicing import gathered
from nnburst.importer.onnx.tensor import Array, Tensor, constant

_O = OperationType
#: For each neighbour along an axis: the place of each element's, and its weight.
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
    """Scale of each axis, and the extents afterwards."""
    scales, shape = [1.0] * x.rank, list(x.shape)
    sizes = None if _is_old(node) else node.optional(3)
    if sizes is not None and sizes.elements:
        wanted = node.integers(3, "sizes")
        node.require(len(wanted) == len(axes), f"{len(wanted)} sizes of {len(axes)} axes")
        each = [size / x.shape[axis] for size, axis in zip(wanted, axes, strict=True)]
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
        shape[axis] = math.floor(x.shape[axis] * float(factor))
    return scales, tuple(shape)


def _origins(node: Node, extent: int, size: int, scale: float, where: str) -> Array:
    """Where each element of an axis comes from."""
    node.graph.budget.spend(64 * size)
    at = np.arange(size, dtype=np.float64)
    if where == "half_pixel":
        return (at + 0.5) / scale - 0.5
    if where == "asymmetric":
        return at / scale
    if where == "align_corners":
        return at * ((extent - 1) / (size - 1)) if size > 1 else at * 0
    if where == "pytorch_half_pixel":
        return (at + 0.5) / scale - 0.5 if size > 1 else at * 0
    if where == "half_pixel_symmetric":
        adjusted = size / (extent * scale)
        return extent / 2 * (1 - adjusted) + (at + 0.5) / scale - 0.5
    node.require(False, f"coordinate_transformation_mode is {where}, which is not supported")
    return at


def _nearest(node: Node, extent: int, size: int, scale: float, where: str) -> Array:
    """Which element each one is."""
    at = _origins(node, extent, size, scale, where)
    how = node.string("nearest_mode", "floor" if _is_old(node) else "round_prefer_floor")
    rounded = {
        "floor": np.floor(at),
        "ceil": np.ceil(at),
        "round_prefer_floor": np.ceil(at - 0.5),
        "round_prefer_ceil": np.floor(at + 0.5),
    }.get(how)
    node.require(rounded is not None, f"nearest_mode is {how}, which is not supported")
    assert rounded is not None
    return np.clip(rounded, 0, extent - 1).astype(np.int32)


def _picked(node: Node, x: Tensor, shape: tuple[int, ...], places: dict[int, Array]) -> Tensor:
    """Elements of each axis by index; by NNAPI's own operation if it picks the same."""
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
    """What NNAPI's operation picks: its scale is a float32."""
    at = np.floor(np.arange(size, dtype=np.float32) * np.float32(extent / size))
    picked: Array = np.minimum(at, extent - 1).astype(np.int32)
    return picked


def _interpolated(
    node: Node, x: Tensor, shape: tuple[int, ...], scales: Sequence[float], where: str
) -> Tensor:
    """RESIZE_BILINEAR if its coordinates are the file's; else weighted sums along each axis."""
    is_linear = node.string("mode") == "linear"
    spatial = x.rank in (3, 4) and shape[:2] == x.shape[:2]
    exact = all(abs(x.shape[axis] * scales[axis] - shape[axis]) < 1e-6 for axis in range(x.rank))
    ends = {
        "asymmetric": (False, False),
        "align_corners": (True, False),
        "half_pixel": (False, True),
    }
    node.require(
        exact or where != "align_corners",
        "align_corners with scales that give fractions of elements, expected sizes",
    )
    if is_linear and spatial and where in ends and exact:
        # NNAPI's corners of one row or column are another case than the file's.
        image = as_image(node.graph.real(x) if x.dtype.kind != "f" else x)
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
        if x.rank == 4:
            return found
        return found.seen_as(shape, tuple(axis - (axis > 2) for axis in NHWC if axis != 2))
    x = node.graph.real(x)
    for axis in range(x.rank):
        if scales[axis] != 1 or shape[axis] != x.shape[axis]:
            at = _origins(node, x.shape[axis], shape[axis], scales[axis], where)
            node.graph.budget.spend(64 * at.size)
            near = _two_near if is_linear else _four_near
            x = _blended(node, x, near(node, at, x.shape[axis]), axis)
    return x


def _two_near(node: Node, at: Array, extent: int) -> Near:  # noqa: ARG001 - see _four_near
    """The neighbours of places along an axis, and their weights."""
    at = np.clip(at, 0, extent - 1)
    low = np.floor(at).astype(np.int64)
    weight = at - low
    return [(low, 1 - weight), (np.minimum(low + 1, extent - 1), weight)]


def _four_near(node: Node, at: Array, extent: int) -> Near:
    """Two neighbours on each side of places along an axis; those beyond an end are the end itself."""
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
    """Neighbours of each element along an axis, weighted."""
    shape = (-1, *(1,) * (x.rank - 1 - axis))
    total: Tensor | None = None
    for places, weights in near:
        weight = constant(weights.astype(x.dtype).reshape(shape))
        part = mul(node, gathered(node, x, places, axis), weight)
        total = part if total is None else add(node, total, part)
    assert total is not None
    return total
